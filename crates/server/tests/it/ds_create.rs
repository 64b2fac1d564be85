//! Making, confirming, showing and ending subscriptions under `__ds`, and what is refused there.

use serde_json::{Value, json};

use crate::harness::ds::at;
use crate::harness::*;

const URL: &str = "http://127.0.0.1:9/hook";

fn webhook() -> Value {
    json!({
        "type": "webhook",
        "pattern": "events/*",
        "streams": ["extra/b", "extra/a"],
        "webhook": { "url": URL },
        "lease_ttl_ms": 5000,
        "description": "for people",
    })
}

/// The same with one field otherwise; `null` takes it away.
fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_subscription_is_made_once_and_confirmed_when_asked_for_alike() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let made = server.ds_put("s-1", &webhook()).await.expect(201).json();
    let zero = "0000000000000000_0000000000000000";
    let stream = |path| json!({ "path": path, "link_type": "explicit", "acked_offset": zero });
    let kid = made["webhook"]["signing"]["kid"].as_str().unwrap().to_owned();
    assert!(kid.starts_with("ds_"), "{kid}");
    let signing = json!({
        "alg": "ed25519", "kid": kid, "jwks_url": "http://localhost/v1/stream/__ds/jwks.json",
    });
    let expected = json!({
        "id": "s-1",
        "subscription_id": "s-1",
        "type": "webhook",
        "pattern": "events/*",
        "streams": [stream("extra/a"), stream("extra/b")],
        "webhook": { "url": URL, "signing": signing },
        "lease_ttl_ms": 5000,
        "created_at": "2025-06-01T00:00:00.000Z",
        "status": "active",
        "description": "for people",
    });
    assert_eq!(made, expected);
    clock.advance(1_000);
    assert_eq!(server.ds_put("s-1", &webhook()).await.expect(200).json(), expected);
    let reordered = with(webhook(), "streams", json!(["extra/a", "extra/b", "/extra/a"]));
    server.ds_put("s-1", &reordered).await.expect(200);
    assert_eq!(server.ds_get("s-1").await, expected);

    let pull = json!({ "type": "pull-wake", "streams": ["a"], "wake_stream": "wake/pool" });
    let made = server.ds_put("s-2", &pull).await.expect(201).json();
    assert_eq!(made["wake_stream"], "wake/pool");
    assert_eq!(made["lease_ttl_ms"], 30_000);
    assert_eq!((made.get("webhook"), made.get("pattern")), (None, None));
    // The default, spelled out, is the same.
    server.ds_put("s-2", &with(pull, "lease_ttl_ms", json!(30_000))).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_an_id_that_is_taken_is_refused_whatever_differs() {
    let server = Setup::default().start().await;
    server.ds_put("s", &webhook()).await.expect(201);
    let others = [
        ("pattern", json!("events/**")),
        ("pattern", Value::Null),
        ("streams", json!(["extra/a"])),
        ("webhook", json!({ "url": "http://127.0.0.1:9/other" })),
        // Whether the id is taken is decided before whether the address is safe.
        ("webhook", json!({ "url": "http://10.0.0.1/hook" })),
        ("lease_ttl_ms", json!(5001)),
        ("description", json!("for others")),
        ("description", Value::Null),
    ];
    for (field, value) in others {
        let answer = server.ds_put("s", &with(webhook(), field, value.clone())).await;
        let answer = answer.expect(409);
        assert_eq!(answer.code(), "SUBSCRIPTION_ALREADY_EXISTS", "{field}: {value}");
    }
    server.ds_put("s", &webhook()).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_webhooks_to_unsafe_addresses_are_refused() {
    let server = Setup::default().start().await;
    for url in [
        "http://10.0.0.1/hook",
        "http://example.com/hook",
        "https://192.168.0.1/hook",
        "https://[fd00::1]/hook",
        "ftp://127.0.0.1/hook",
        "hook",
    ] {
        let asked = with(webhook(), "webhook", json!({ "url": url }));
        let answer = server.ds_put("s", &asked).await.expect(400);
        assert_eq!(answer.code(), "WEBHOOK_URL_REJECTED", "{url}");
        server.get(&at("s")).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_what_is_wrong_with_a_subscription_is_named() {
    let server = Setup::default().start().await;
    let pull = json!({ "type": "pull-wake", "pattern": "a/*", "wake_stream": "w" });
    let many: Vec<String> = (0..1_001).map(|number| format!("s/{number}")).collect();
    let long = "x".repeat(1_025);
    let wrong = [
        ("type", with(webhook(), "type", Value::Null)),
        ("type", with(webhook(), "type", json!("poll"))),
        ("type", with(webhook(), "type", json!(1))),
        ("pattern", with(webhook(), "pattern", json!(["a"]))),
        ("pattern", with(webhook(), "pattern", json!(""))),
        ("pattern", with(webhook(), "pattern", json!("a*/b"))),
        ("pattern", with(webhook(), "pattern", json!("__ds/*"))),
        ("pattern", with(webhook(), "pattern", json!("a b"))),
        ("streams", with(webhook(), "streams", json!("a"))),
        ("streams", with(webhook(), "streams", json!([1]))),
        ("streams", with(webhook(), "streams", json!([""]))),
        ("streams", with(webhook(), "streams", json!(["__ds"]))),
        ("streams", with(webhook(), "streams", json!(["a\u{e9}"]))),
        ("streams", with(webhook(), "streams", json!(many))),
        ("pattern", with(with(webhook(), "pattern", Value::Null), "streams", json!([]))),
        ("webhook", with(webhook(), "webhook", Value::Null)),
        ("webhook", with(webhook(), "webhook", json!(URL))),
        ("url", with(webhook(), "webhook", json!({}))),
        ("url", with(webhook(), "webhook", json!({ "url": "" }))),
        ("url", with(webhook(), "webhook", json!({ "url": 1 }))),
        ("wake_stream", with(webhook(), "wake_stream", json!("w"))),
        ("wake_stream", with(pull.clone(), "wake_stream", Value::Null)),
        ("wake_stream", with(pull.clone(), "wake_stream", json!(1))),
        ("wake_stream", with(pull.clone(), "wake_stream", json!("__ds/x"))),
        ("webhook", with(pull, "webhook", json!({ "url": URL }))),
        ("lease_ttl_ms", with(webhook(), "lease_ttl_ms", json!(999))),
        ("lease_ttl_ms", with(webhook(), "lease_ttl_ms", json!(600_001))),
        ("lease_ttl_ms", with(webhook(), "lease_ttl_ms", json!(1000.5))),
        ("lease_ttl_ms", with(webhook(), "lease_ttl_ms", json!("1s"))),
        ("lease_ttl_ms", with(webhook(), "lease_ttl_ms", json!(-1))),
        ("description", with(webhook(), "description", json!(1))),
        ("description", with(webhook(), "description", json!(long))),
    ];
    for (field, body) in wrong {
        let answer = server.ds_put("s", &body).await.expect(400);
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], "INVALID_REQUEST", "{body}");
        assert!(error["message"].as_str().unwrap().contains(field), "{error} for {field}");
        assert_eq!(answer.json().get("ok"), None);
    }
    for body in ["", "{", "[]", "1", "\u{0}"] {
        let answer = server.ask("PUT", &at("s"), &[], body.as_bytes()).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{body}");
    }
    let mut connection = server.connect().await;
    let mut huge = head_of("PUT", &at("s"), &[("content-length", "5000000")]);
    huge.extend_from_slice(b"\r\n");
    connection.send(&huge).await;
    assert_eq!(connection.answer("PUT").await.expect(413).code(), "BODY_TOO_LARGE");
    server.get(&at("s")).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_what_is_wrong_with_a_report_is_named() {
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_stream("events/a").await;
    let wake = endpoint.call().await.json();
    let good = ds::report(&wake, &[], false);
    let wrong = [
        ("generation", with(good.clone(), "generation", Value::Null)),
        ("generation", with(good.clone(), "generation", json!("1"))),
        ("generation", with(good.clone(), "generation", json!(-1))),
        ("wake_id", with(good.clone(), "wake_id", Value::Null)),
        ("wake_id", with(good.clone(), "wake_id", json!(1))),
        ("acks", with(good.clone(), "acks", json!({}))),
        ("acks", with(good.clone(), "acks", json!(["events/a"]))),
        ("offset", with(good.clone(), "acks", json!([{ "stream": "events/a" }]))),
        ("offset", with(good.clone(), "acks", json!([{ "stream": "events/a", "offset": 1 }]))),
        ("stream", with(good.clone(), "acks", json!([{ "offset": "-1" }]))),
        ("done", with(good.clone(), "done", json!("yes"))),
    ];
    for (field, body) in wrong {
        let answer = server.ds_post("s/callback", Some(ds::token(&wake)), &body).await;
        let error = answer.expect(400).json()["error"].clone();
        assert_eq!(error["code"], "INVALID_REQUEST", "{body}");
        assert!(error["message"].as_str().unwrap().contains(field), "{error} for {field}");
    }
    for (target, body) in [
        ("s/streams", json!({})),
        ("s/streams", json!({ "streams": [] })),
        ("s/streams", json!({ "streams": "a" })),
        ("s/streams", json!({ "streams": [7] })),
        ("s/claim", json!({})),
        ("s/claim", json!({ "worker": "" })),
        ("s/claim", json!({ "worker": 1 })),
        ("s/claim", json!({ "worker": "x".repeat(257) })),
        ("s/claim", json!({ "worker": "webhooks are not claimed" })),
        ("s/ack", good.clone()),
        ("s/release", good.clone()),
    ] {
        let answer = server.ds_post(target, Some(ds::token(&wake)), &body).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{target} {body}");
    }
    server.ds_post("s/callback", Some(ds::token(&wake)), &good).await.expect(200);
    server.ds_pull("p", "events/*", "wake").await;
    let answer = server.ds_post("p/callback", Some("x"), &good).await.expect(400);
    assert_eq!(answer.code(), "INVALID_REQUEST");
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_what_is_not_there_is_not_found() {
    let server = Setup::default().start().await;
    let report = json!({ "wake_id": "w", "generation": 1 });
    for (target, body) in [
        ("no/streams", json!({ "streams": ["a"] })),
        ("no/claim", json!({ "worker": "w" })),
        ("no/callback", report.clone()),
        ("no/ack", report.clone()),
        ("no/release", report),
    ] {
        let answer = server.ds_post(target, Some("x"), &body).await.expect(404);
        assert_eq!(answer.code(), "SUBSCRIPTION_NOT_FOUND", "{target}");
    }
    assert_eq!(server.get(&at("no")).await.expect(404).code(), "SUBSCRIPTION_NOT_FOUND");
    server.delete(&at("no")).await.expect(204);
    server.delete(&at("no/streams/a")).await.expect(204);
    for path in ["", "/", "/x", "/jwks.json/x", "/subscriptions", "/subscriptions/"] {
        let path = format!("/v1/stream/__ds{path}");
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let answer = server.ask(method, &path, &[("content-type", "text/plain")], b"").await;
            assert_eq!(answer.expect(404).code(), "RESERVED_PATH", "{method} {path}");
        }
    }
    for path in ["s/", "s/claims", "s/streams/", "s/claim/x"] {
        server.ask("POST", &at(path), &[], b"{}").await.expect(404);
    }
    // A name that only begins alike is a stream's.
    server.create("/v1/stream/__dsx", "text/plain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_ids_are_decoded_and_plain_and_methods_are_the_documented_ones() {
    let server = Setup::default().start().await;
    server.ds_put("a%2Db~%5Fc.", &webhook()).await.expect(201);
    assert_eq!(server.ds_get("a-b~_c.").await["id"], "a-b~_c.");
    let long = "x".repeat(129);
    for id in ["a%20b", "a%2Fb", "a:b", "a%C3%A9", "%zz", &long] {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = server.ask(method, &at(id), &[], webhook().to_string().as_bytes()).await;
            assert_eq!(answer.expect(400).code(), "INVALID_REQUEST", "{method} {id}");
        }
    }
    for (method, path, allowed) in [
        ("POST", "a-b~_c.", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("GET", "a-b~_c./streams", "POST, OPTIONS"),
        ("POST", "a-b~_c./streams/x", "DELETE, OPTIONS"),
        ("GET", "a-b~_c./claim", "POST, OPTIONS"),
        ("PUT", "a-b~_c./callback", "POST, OPTIONS"),
        ("DELETE", "../jwks.json", "GET, HEAD, OPTIONS"),
    ] {
        let path = at(path).replace("subscriptions/../", "");
        let answer = server.ask(method, &path, &[], b"").await.expect(405);
        assert_eq!(answer.need("allow"), allowed, "{method} {path}");
    }
    let head = server.head(&at("a-b~_c.")).await.expect(200);
    assert!(head.body.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_subscription_that_is_ended_and_made_again_begins_anew() {
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let tail = server.ds_stream("events/a").await;
    let wake = endpoint.call().await.json();
    server.delete(&at("s")).await.expect(204);
    server.get(&at("s")).await.expect(404);
    let report = ds::report(&wake, &[("events/a", &tail)], true);
    let answer = server.ds_post("s/callback", Some(ds::token(&wake)), &report).await.expect(404);
    assert_eq!(answer.code(), "SUBSCRIPTION_NOT_FOUND");

    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let answer = server.ds_post("s/callback", Some(ds::token(&wake)), &report).await.expect(409);
    assert_eq!(answer.code(), "FENCED", "the token is for the one before");
    let link = ("events/a".to_owned(), "glob".to_owned(), tail);
    assert_eq!(server.ds_links("s").await, [link]);
    server.ds_append("events/a").await;
    assert_eq!(endpoint.call().await.json()["generation"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_options_of_the_other_dialect_are_refused_and_not_ignored() {
    let server = Setup::default().start().await;
    let options = [
        ("min_interval", json!("5s")),
        ("max_delay", json!(1000)),
        ("wake_if", json!("bytes > 1")),
        ("sync_done", json!("snapshot")),
    ];
    for (name, value) in options {
        let answer = server.ds_put("s", &with(webhook(), name, value)).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST");
        let text = answer.text();
        assert!(text.contains(&format!("`{name}`")) && text.contains("?subscription="), "{text}");
        server.get(&at("s")).await.expect(404);
    }
    // What nobody knows is ignored, and null is as good as absent.
    let body = with(with(webhook(), "unknown", json!(1)), "max_delay", Value::Null);
    server.ds_put("s", &body).await.expect(201);
}
