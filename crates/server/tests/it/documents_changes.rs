//! The stream of changes: one event per write, in commit order, for operators.

use serde_json::{Value, json};

use crate::harness::keys::guarded_by_keys;
use crate::harness::*;

async fn changes(server: &TestServer, tenant: &str) -> Vec<Value> {
    let read = server.get(&format!("/_changes/{tenant}?offset=-1")).await.expect(200);
    read.json().as_array().unwrap().clone()
}

/// ARC-1; 3.4; C-22.
#[tokio::test(flavor = "multi_thread")]
async fn every_write_is_one_event_with_what_was_and_what_is() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let server = Setup::on(&clock).start_in(directory.path()).await;
    server.put_doc("rooms/r1", json!({ "n": 1 })).await;
    let ops = json!([
        { "type": "update", "path": "rooms/r1", "data": { "n": 2 } },
        { "type": "create", "path": "rooms/r2", "data": {} },
        { "type": "delete", "path": "rooms/r1" },
        { "type": "create", "path": "rooms/r1", "data": { "n": 3 } },
    ]);
    server.batch("k", &ops).await.expect(200);
    // What fails, and what is done again, is no change.
    server.batch("k", &ops).await.expect(200);
    server.doc("POST", "rooms", &json!({ "id": "r2" })).await.expect(409);
    server.stop().await;
    clock.advance(5_000);
    let server = Setup::on(&clock).start_in(directory.path()).await;
    server.delete("/api/v1/rooms/r2").await.expect(204);
    let events = changes(&server, "default").await;
    let summary: Vec<Value> = events
        .iter()
        .map(|event| {
            json!([
                event["seq"],
                event["type"],
                event["path"],
                event["before"]["version"],
                event["after"]["version"]
            ])
        })
        .collect();
    let expected = json!([
        [1, "create", "rooms/r1", null, 1],
        [2, "update", "rooms/r1", 1, 2],
        [3, "create", "rooms/r2", null, 1],
        [4, "delete", "rooms/r1", 2, null],
        [5, "create", "rooms/r1", null, 4],
        [6, "delete", "rooms/r2", 1, null],
    ]);
    assert_eq!(json!(summary), expected);
    assert_eq!(events[1]["before"]["n"], 1);
    assert_eq!(events[1]["after"]["n"], 2);
    let lsns: Vec<(u64, u64)> = events
        .iter()
        .map(|event| {
            let (second, ordinal) = event["lsn"].as_str().unwrap().split_once(':').unwrap();
            assert_eq!(event["ts"].to_string(), second);
            assert_eq!(event["tenant"], "default");
            (second.parse().unwrap(), ordinal.parse().unwrap())
        })
        .collect();
    assert!(lsns.is_sorted_by(|one, next| one < next), "{lsns:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_read_by_operators_and_written_by_nobody() {
    let server = guarded_by_keys().start().await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    let (_, operator) = server.make_key("acme", &["operator"]).await;
    let (_, other) = server.make_key("beta", &["operator"]).await;
    let (_, admin) = server.make_key("acme", &["admin"]).await;
    let body = json!({ "doc": { "n": 1 } }).to_string();
    server.ask_as(&user, "PUT", "/api/v1/rooms/r1", &[JSON], body.as_bytes()).await.expect(200);
    let target = "/_changes/acme?offset=-1";
    for key in [&operator, &admin] {
        let read = server.get_as(key, target).await.expect(200).json();
        assert_eq!(read[0]["path"], "rooms/r1");
    }
    let refused = server.get_as(&user, target).await.expect(403);
    assert_eq!(refused.code(), "FORBIDDEN");
    assert!(refused.text().contains("operator"), "{refused}");
    server.get_as(&other, target).await.expect(404);
    for key in [&user, &admin] {
        let write = server.ask_as(key, "POST", "/_changes/acme", &[JSON], b"{}").await.expect(403);
        assert_eq!(write.code(), "RESERVED_STREAM");
        server.ask_as(key, "DELETE", "/_changes/acme", &[], b"").await.expect(403);
        server.ask_as(key, "PUT", "/_changes/acme", &[JSON], b"").await.expect(403);
    }
    // Whoever is to be told of them must be one who may read them.
    let hook = br#"{"webhook":"http://127.0.0.1:9/hook"}"#;
    let refused = server.ask_as(&user, "PUT", "/_changes/*?subscription=s", &[], hook).await;
    refused.expect(403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wildcard_means_no_changes() {
    let sink = Sink::start().await;
    let server = Setup::default().start().await;
    let hook = json!({ "webhook": sink.url() }).to_string();
    server.ask("PUT", "/**?subscription=all", &[JSON], hook.as_bytes()).await.expect(201);
    server.put_doc("rooms/r1", json!({})).await;
    let shown = server.get("/admin/v1/consumers?subscription=all").await.expect(200).json();
    assert_eq!(shown["consumers"], json!([]));
    server.stop().await;
}
