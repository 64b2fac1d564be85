//! Who may subscribe, fork and hand rights on; and what is known of who did.

use reveille_core::stream::Body;
use reveille_core::stream::create::Create;
use reveille_core::{ContentType, Millis, StreamPath, Tenant};
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

/// Makes a stream of the server's own, with something in it.
async fn grow(server: &TestServer, path: &str) {
    let (tenant, path) = (Tenant::parse("acme").unwrap(), StreamPath::parse(path).unwrap());
    let content_type = ContentType::parse("application/json");
    let body = Body::new("[1]".into(), content_type.as_ref());
    let create = Create { content_type, body, ..Create::default() };
    server.engine.create(&tenant, &path, create, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_follows_the_servers_own_streams_if_its_subscriber_may_read_them() {
    let server = guarded_by_keys().start().await;
    let mut sink = Sink::polite().await;
    let user = key_with(&server, &["user"], &[]).await;
    let operator = key_with(&server, &["user", "operator"], &[]).await;
    let webhook = json!({ "webhook": sink.url() }).to_string();
    let mut follow = async |key: &str, name: &str| {
        let target = format!("/{name}/*?subscription={name}");
        server.ask_as(key, "PUT", &target, &[], webhook.as_bytes()).await.expect(201);
        let stream = format!("/{name}/1");
        server.ask_as(key, "PUT", &stream, &[JSON], b"[1]").await.expect(201);
        let call = sink.next().await;
        let (consumer, token) = (call.consumer(), call.token());
        let subscribe = ["/_system/events", "/_events/acme", "/b", "/_facts/team"];
        let body = json!({ "epoch": 1, "subscribe": subscribe,
                           "acks": [{ "path": stream, "offset": "-1" }] });
        let body = body.to_string();
        let target = format!("/callback/{consumer}");
        let answer = server.ask_as(&token, "POST", &target, &[], body.as_bytes()).await;
        let answer = answer.expect(200).json();
        let streams = answer["streams"].as_array().unwrap().iter();
        let streams: Vec<String> =
            streams.map(|it| it["path"].as_str().unwrap().to_owned()).collect();
        (streams[1..].to_vec(), answer["warnings"].clone())
    };
    let (streams, warnings) = follow(&user, "user").await;
    assert_eq!(streams, ["/_events/acme", "/b"]);
    let warnings: Vec<&str> =
        warnings.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("/_system/events") && warnings[1].contains("/_facts/team"));
    let (streams, warnings) = follow(&operator, "operator").await;
    assert_eq!(streams, ["/_system/events", "/_events/acme", "/b"]);
    assert_eq!(warnings.as_array().map(Vec::len), Some(1), "of the facts alone");
    let (streams, warnings) = follow(ADMIN, "boss").await;
    assert_eq!((streams.len(), warnings), (4, Value::Null));
    // What grows is told to whoever follows it: as pending work shows.
    grow(&server, "/_system/events").await;
    let pending = async |name: &str| {
        let target = format!("/admin/v1/consumers/{name}:%2F{name}%2F1");
        let consumer = server.get_as(&operator, &target).await.expect(200).json();
        let streams = consumer["streams"].as_array().unwrap().clone();
        streams.iter().any(|it| it["path"] == "/_system/events")
    };
    assert!(pending("operator").await && !pending("user").await);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_key_made_is_known_as_its_own_and_found_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let setup = guarded_by_keys();
    let server = setup.start_in(directory.path()).await;
    let (id, key) = server.make_key("acme", &["user"]).await;
    let (other_id, other) = server.make_key("acme", &["user"]).await;
    for (key, name) in [(&key, "one"), (&other, "two")] {
        let target = format!("/a/*?subscription={name}");
        let made = server.ask_as(key, "PUT", &target, &[], WEBHOOK.as_bytes()).await;
        let expected = if name == "one" { &id } else { &other_id };
        assert_eq!(made.expect(201).json()["created_by"], **expected);
        let target = format!("{DS}/{name}");
        let made = server.ask_as(key, "PUT", &target, &[], PULL.as_bytes()).await;
        assert_eq!(made.expect(201).json()["created_by"], **expected);
        let hook = HOOK.replace("nothing", name);
        server.ask_as(key, "POST", "/subscriptions/subscribe", &[], hook.as_bytes()).await;
    }
    // Asking again makes nothing, and changes nobody's.
    let again = server.ask_as(&other, "PUT", "/a/*?subscription=one", &[], WEBHOOK.as_bytes());
    assert_eq!(again.await.expect(200).json()["created_by"], *id);
    // What it made goes on when the key has gone, and still says whose it was.
    server.revoke(ADMIN, &id).await.expect(204);
    server.stop().await;
    let server = setup.start_in(directory.path()).await;
    let found = async |target: &str, name: &str| -> Vec<String> {
        let listed = server.get_as(&other, target).await.expect(200).json();
        let items = listed["subscriptions"].as_array().unwrap().clone();
        items.iter().map(|it| it[name].as_str().unwrap().to_owned()).collect()
    };
    let target = format!("/**?subscriptions&created_by={id}");
    assert_eq!(found(&target, "subscription_id").await, ["one"]);
    let target = format!("/subscriptions/list?created_by={id}");
    assert_eq!(found(&target, "pattern").await, ["one"]);
    assert_eq!(found(&target, "created_by").await, [id.as_str()]);
    assert_eq!(found("/**?subscriptions&created_by=nobody", "pattern").await, [""; 0]);
    let shown = server.get_as(&other, &format!("{DS}/one")).await.expect(200).json();
    assert_eq!(shown["created_by"], *id);
    server.stop().await;
    // Without keys there is nobody to name.
    let server = Setup::default().start().await;
    let made = server.ask("PUT", "/a/*?subscription=w", &[], WEBHOOK.as_bytes()).await.expect(201);
    assert_eq!(made.json().get("created_by"), None);
    server.stop().await;
}
