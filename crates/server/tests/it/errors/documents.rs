//! Refusals of documents, one by one and in transactions.

use serde_json::json;

use super::{JSON, Refused};
use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const BATCH: &str = "/api/v1/batch";

pub(super) async fn refusals(seen: &mut Vec<Answer>) {
    refusals_of_requests(seen).await;
    refusals_of_queries(seen).await;
    refusals_of_bodies(seen).await;
    refusals_of_callers(seen).await;
}

async fn refusals_of_requests(seen: &mut Vec<Answer>) {
    let server = Setup::default().start().await;
    server.put_doc("rooms/r1", json!({ "n": 1 })).await;
    server.batch("used", &json!([{ "type": "delete", "path": "rooms/r1" }])).await.expect(200);
    server.put_doc("rooms/r1", json!({ "n": 1 })).await;
    let key = ("idempotency-key", "used");
    let new = ("idempotency-key", "new");
    let other = ("idempotency-key", "other");
    let guarded: &[u8] = br#"{"ifMatch":[{"field":"version","op":"==","value":1}]}"#;
    let create: &[u8] = br#"{"ops":[{"type":"create","path":"rooms/r1","data":{}}]}"#;
    let delete: &[u8] = br#"{"ops":[{"type":"delete","path":"rooms/none"}]}"#;
    let many = json!({ "ops": vec![json!({}); 501] }).to_string();
    let refused: &[Refused<'_>] = &[
        ("GET", "/api/v1/rooms", &[], b"", 400, "BAD_REQUEST"),
        ("GET", "/api/v1/rooms/none", &[], b"", 404, "NOT_FOUND"),
        ("POST", "/api/v1/rooms", &[JSON], br#"{"id":"r1"}"#, 409, "CONFLICT"),
        ("DELETE", "/api/v1/rooms/r1", &[JSON], guarded, 412, "PRECONDITION_FAILED"),
        ("POST", BATCH, &[JSON], br#"{"ops":[]}"#, 400, "INVALID_ARGUMENT"),
        ("POST", BATCH, &[JSON, new], create, 412, "PRECONDITION_FAILED"),
        ("POST", BATCH, &[JSON, other], delete, 404, "NOT_FOUND"),
        ("POST", BATCH, &[JSON, key], delete, 409, "IDEMPOTENCY_REPLAY"),
        ("POST", BATCH, &[JSON, other], many.as_bytes(), 429, "RESOURCE_EXHAUSTED"),
        ("GET", "/admin/v1/tenants/default/rules", &[], b"", 404, "RULES_NOT_FOUND"),
    ];
    for (method, target, headers, body, status, code) in refused {
        let answer = server.ask(method, target, headers, body).await;
        assert_eq!(
            (answer.status(), answer.code().as_str()),
            (*status, *code),
            "{target} {answer}"
        );
        seen.push(answer);
    }
    server.stop().await;
}

async fn refusals_of_queries(seen: &mut Vec<Answer>) {
    let mut setup = Setup::default();
    setup.documents.scan_limit = 1;
    let server = setup.start().await;
    for id in ["a", "b"] {
        server.put_doc(&format!("rooms/{id}"), json!({ "n": 1 })).await;
    }
    let filter = json!([{ "field": "n", "op": "==", "value": 1 }]);
    let answer = server.query(&json!({ "collection": "rooms", "filters": filter })).await;
    assert_eq!(answer.code(), "MISSING_INDEX");
    seen.push(answer.expect(400));
    server.stop().await;
}

async fn refusals_of_bodies(seen: &mut Vec<Answer>) {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let announce = |target: &str, bytes: &str| {
        let mut head = head_of("POST", target, &[JSON, ("content-length", bytes)]);
        head.extend_from_slice(b"\r\n");
        head
    };
    for (target, bytes, status, code) in [
        ("/api/v1/rooms", "1048577", 413, "REQUEST_TOO_LARGE"),
        (BATCH, "10485761", 429, "RESOURCE_EXHAUSTED"),
    ] {
        let mut connection = server.connect().await;
        connection.send(&announce(target, bytes)).await;
        let answer = connection.answer("POST").await.expect(status);
        assert_eq!(answer.code(), code);
        seen.push(answer);
    }
    for target in ["/api/v1/rooms", BATCH] {
        let mut connection = server.connect().await;
        connection.send(&[announce(target, "10"), b"half".to_vec()].concat()).await;
        clock.sleeper(20_000).await;
        let answer = clock.run_out(20_000, connection.answer("POST")).await.expect(408);
        assert_eq!(answer.code(), "REQUEST_TIMEOUT");
        seen.push(answer);
    }
}

async fn refusals_of_callers(seen: &mut Vec<Answer>) {
    let server = guarded_by_keys().start().await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    let rules = br#"{"match":{"rooms/{room}":{"allow":{"read":"true"}}}}"#;
    let target = "/admin/v1/tenants/acme/rules";
    server.ask_as(ADMIN, "PUT", target, &[JSON], rules).await.expect(200);
    let write = br#"{"ops":[{"type":"set","path":"rooms/r1","data":{}}],"idempotencyKey":"k"}"#;
    for (target, body, denied, stranger) in [
        ("/api/v1/rooms", &b"{}"[..], "FORBIDDEN", "UNAUTHORIZED"),
        (BATCH, write, "PERMISSION_DENIED", "UNAUTHENTICATED"),
    ] {
        let answer = server.ask_as(&user, "POST", target, &[JSON], body).await.expect(403);
        assert_eq!(answer.code(), denied);
        seen.push(answer);
        let answer = server.ask("POST", target, &[JSON], body).await.expect(401);
        assert_eq!(answer.code(), stranger);
        seen.push(answer);
    }
    server.stop().await;
}
