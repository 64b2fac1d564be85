//! Who may subscribe, fork and hand rights on.

use reveille_core::Millis;
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const DS: &str = "/v1/stream/__ds/subscriptions";
const WEBHOOK: &str = r#"{"webhook":"http://127.0.0.1:9/hook"}"#;
const PULL: &str = r#"{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wakes"}"#;
const HOOK: &str = r#"{"workerId":"w","pattern":"nothing","rpcMethod":"m"}"#;

/// The text of a key for acme.
async fn key_with(server: &TestServer, roles: &[&str], permissions: &[&str]) -> String {
    let body = json!({ "tenant": "acme", "roles": roles, "permissions": permissions });
    let made = server.post_key(ADMIN, &body).await.expect(201).json();
    made["key"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_takes_the_permissions_to_read_and_to_write() {
    let server = guarded_by_keys().start().await;
    let writer = key_with(&server, &["user"], &["write"]).await;
    let reader = key_with(&server, &["user"], &["read"]).await;
    let both = key_with(&server, &["user"], &["read", "write"]).await;
    let requests = [
        ("PUT", "/a/*?subscription=w".to_owned(), WEBHOOK, 201),
        ("PUT", format!("{DS}/p"), PULL, 201),
        ("POST", format!("{DS}/p/streams"), r#"{"streams":["x"]}"#, 204),
        ("POST", "/subscriptions/subscribe".to_owned(), HOOK, 200),
    ];
    for (method, target, body, status) in &requests {
        for key in [&writer, &reader] {
            let answer = server.ask_as(key, method, target, &[], body.as_bytes()).await;
            let answer = answer.expect(403);
            assert_eq!(answer.code(), "FORBIDDEN", "{target}");
            assert!(answer.text().contains("read and write"), "{target} {answer}");
        }
        server.ask_as(&both, method, target, &[], body.as_bytes()).await.expect(*status);
    }
    server.stop().await;
}

/// The query says what a request is about, whatever the path begins with.
#[tokio::test(flavor = "multi_thread")]
async fn operators_look_at_subscriptions_and_make_none_whatever_the_path() {
    let server = guarded_by_keys().start().await;
    let operator = key_with(&server, &["operator"], &[]).await;
    let user = key_with(&server, &["user"], &[]).await;
    let writer = key_with(&server, &["user"], &["write"]).await;
    server.ask_as(&user, "PUT", "/a/*?subscription=w", &[], WEBHOOK.as_bytes()).await.expect(201);
    for path in ["/a/*", "/_x", "/_events/acme", "/_system/events"] {
        for name in ["subscription", "%73ubscription", "sub%73cription"] {
            let target = format!("{path}?{name}=w");
            server.get_as(&operator, &target).await.expect(200);
            server.get_as(&writer, &target).await.expect(403);
            let put = server.ask_as(&operator, "PUT", &target, &[], WEBHOOK.as_bytes()).await;
            assert_eq!(put.expect(403).code(), "FORBIDDEN", "{target}");
            server.ask_as(&operator, "DELETE", &target, &[], b"").await.expect(403);
        }
        server.get_as(&operator, &format!("{path}?subscriptions")).await.expect(200);
        server.get_as(&writer, &format!("{path}?subscriptions")).await.expect(403);
    }
    // What is sent may not be more than what may be read.
    let target = "/_system/*?subscription=own";
    server.ask_as(&user, "PUT", target, &[], WEBHOOK.as_bytes()).await.expect(403);
    let hook = server.ask_as(&user, "POST", "/subscriptions/subscribe", &[], HOOK.as_bytes());
    let hook = hook.await.expect(200).json()["subscriptionId"].as_str().unwrap().to_owned();
    for target in ["list", "match?eventType=a", &hook, &format!("{hook}/deliveries")] {
        server.get_as(&operator, &format!("/subscriptions/{target}")).await.expect(200);
    }
    for (method, target) in [("POST", "subscribe"), ("POST", "unsubscribe"), ("DELETE", &hook)] {
        let target = format!("/subscriptions/{target}");
        server.ask_as(&operator, method, &target, &[], HOOK.as_bytes()).await.expect(403);
    }
    // Retrying what was given up is what operators are for: that there is none is all that is wrong.
    let retry = format!("/subscriptions/{hook}/dead-letters/{hook}/retry");
    server.ask_as(&operator, "POST", &retry, &[], b"").await.expect(404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_parameter_has_the_name_that_it_encodes() {
    let server = Setup::default().start().await;
    let put = server.ask("PUT", "/a/b?%73ubscription=x", &[], WEBHOOK.as_bytes()).await.expect(201);
    assert_eq!(put.json()["subscription_id"], "x");
    assert_eq!(server.get("/a/b").await.expect(404).code(), "STREAM_NOT_FOUND");
    let listed = server.get("/**?subscription%73").await.expect(200).json();
    assert_eq!(listed["subscriptions"].as_array().map(Vec::len), Some(1));
    server.delete("/a/b?subscriptio%6E=x").await.expect(204);
    server.get("/a/b?subscription=x").await.expect(404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_makes_one_that_may_more_than_itself() {
    let server = guarded_by_keys().start().await;
    let key = |permissions: &[&str], scopes: &[&str]| {
        json!({ "tenant": "acme", "roles": ["admin"], "permissions": permissions,
                "scopes": scopes })
    };
    let make = async |by: &str, body: Value| server.post_key(by, &body).await;
    let text = |made: Answer| made.expect(201).json()["key"].as_str().unwrap().to_owned();
    let (both, none): (&[&str], &[&str]) = (&["read", "write"], &[]);
    let reader = text(make(ADMIN, key(&["read"], &[])).await);
    let writer = text(make(ADMIN, key(&["write"], &[])).await);
    let scoped = text(make(ADMIN, key(&[], &["team"])).await);
    // A key is written: who may only read makes none, and revokes none.
    for body in [key(&["read"], &[]), key(&[], &[])] {
        assert_eq!(make(&reader, body).await.expect(403).code(), "FORBIDDEN");
    }
    server.revoke(&reader, "none").await.expect(403);
    server.get_as(&reader, "/admin/v1/keys").await.expect(200);
    for permissions in [none, both, &["read"]] {
        let answer = make(&writer, key(permissions, &[])).await.expect(403);
        assert!(answer.text().contains("more than itself"), "{answer}");
    }
    make(&writer, key(&["write"], &[])).await.expect(201);
    make(&scoped, key(&[], &["other"])).await.expect(403);
    make(&scoped, key(&[], &["team"])).await.expect(201);
    server.stop().await;
}

/// A fork keeps what it was forked from: events would never be forgotten again.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_forks_a_stream_of_the_servers_own() {
    let server = Setup::default().start().await;
    server.ask("POST", "/ingest", &[JSON], br#"{"type":"a"}"#).await.expect(200);
    for source in ["/_events/default", "/_system/events", "/_anything"] {
        let answer = server.ask("PUT", "/copy", &[("stream-forked-from", source)], b"").await;
        assert_eq!(answer.expect(403).code(), "RESERVED_STREAM", "{source}");
    }
    server.head("/copy").await.expect(404);
    assert_eq!(server.engine.trim_events(Millis::NEVER).await, Ok(1));
    server.stop().await;
}
