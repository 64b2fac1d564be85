//! Webhooks of `__ds` are signed by the server: everybody can verify it, before and after keys change.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reveille_core::signature::verify_ed25519;
use serde_json::{Value, json};

use crate::harness::*;

const JWKS: &str = "/v1/stream/__ds/jwks.json";
const ROTATE: &str = "/admin/v1/signing-keys/rotate";

async fn published(server: &TestServer) -> Vec<Value> {
    let answer = server.get(JWKS).await.expect(200);
    assert_eq!(answer.need("content-type"), "application/jwk-set+json");
    assert_eq!(answer.need("cache-control"), "public, max-age=300");
    let keys = answer.json()["keys"].as_array().unwrap().clone();
    for key in &keys {
        assert_eq!((&key["kty"], &key["crv"]), (&json!("OKP"), &json!("Ed25519")));
        assert_eq!((&key["alg"], &key["use"]), (&json!("EdDSA"), &json!("sig")));
        assert_eq!(key.get("d"), None, "the private part");
    }
    keys
}

/// The name of the key that signed a call, if it is published and the signature is good.
async fn signed_by(server: &TestServer, call: &Call) -> Option<String> {
    let header = call.get("webhook-signature");
    let kid = header.split(',').find_map(|part| part.strip_prefix("kid=")).unwrap();
    let key = published(server).await.into_iter().find(|key| key["kid"] == kid)?;
    let public = URL_SAFE_NO_PAD.decode(key["x"].as_str().unwrap()).unwrap();
    let now = server.engine.clock().now().0 / 1_000;
    verify_ed25519(&public.try_into().unwrap(), header, &call.body, now, 1_000_000).unwrap();
    Some(kid.to_owned())
}

async fn rotate(server: &TestServer, body: &str) -> Value {
    server.ask("POST", ROTATE, &[], body.as_bytes()).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_signatures_are_verified_with_published_keys_while_keys_change() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut endpoint = Endpoint::open().await;
    let server = Setup::on(&clock).start_in(directory.path()).await;
    let made = server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_stream("events/a").await;
    let before = endpoint.call().await;
    let old = signed_by(&server, &before).await.unwrap();
    assert_eq!(made["webhook"]["signing"]["kid"], old);

    let rotated = rotate(&server, r#"{"overlap": "1h"}"#).await;
    let new = rotated["kid"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(rotated["published"], json!([new, old]));
    assert_eq!(server.ds_get("s").await["webhook"]["signing"]["kid"], new);
    // What was signed before the change is still good for a while.
    assert_eq!(signed_by(&server, &before).await.as_deref(), Some(old.as_str()));
    drop(before);
    clock.advance(1_000);
    let after = endpoint.call().await;
    assert_eq!(signed_by(&server, &after).await.as_deref(), Some(new.as_str()));
    server.stop().await;

    let server = Setup::on(&clock).start_in(directory.path()).await;
    assert_eq!(published(&server).await.len(), 2);
    clock.advance(3_600_000 - 1_001);
    assert_eq!(published(&server).await.len(), 2);
    clock.advance(1);
    assert_eq!(published(&server).await[0]["kid"], new);
    assert_eq!(published(&server).await.len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_key_is_published_for_a_day_more_unless_somebody_says_otherwise() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let rotated = rotate(&server, "").await;
    assert_eq!(rotated["overlap_ms"], 86_400_000);
    clock.advance(86_399_999);
    assert_eq!(published(&server).await.len(), 2);
    clock.advance(1);
    assert_eq!(published(&server).await.len(), 1);
    rotate(&server, r#"{"overlap": 0}"#).await;
    assert_eq!(published(&server).await.len(), 1);
    // However often keys change, the list of them has an end.
    for _ in 0..20 {
        rotate(&server, "{}").await;
    }
    assert_eq!(published(&server).await.len(), 16);
    for body in [r#"{"overlap": "soon"}"#, r#"{"overlap": -1}"#, r#"{"overlap": "31d"}"#, "[]"] {
        let answer = server.ask("POST", ROTATE, &[], body.as_bytes()).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{body}");
    }
    let answer = server.get(ROTATE).await.expect(405);
    assert_eq!(answer.need("allow"), "POST, OPTIONS");
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_no_secret_is_in_any_answer() {
    let server = Setup::default().start().await;
    let made = server.ds_webhook("s", "events/*", "http://127.0.0.1:9/hook").await;
    for body in [made, server.ds_get("s").await] {
        assert!(!body.to_string().contains("secret"), "{body}");
        assert!(!body.to_string().contains("whsec_"), "{body}");
    }
}
