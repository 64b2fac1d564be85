//! Documents one by one: their shape, their versions, and what each method does.

use serde_json::{Value, json};

use crate::harness::*;

/// The fields that are the client's.
fn data(document: &Value) -> Value {
    let mut fields = document.as_object().unwrap().clone();
    for own in ["id", "collection", "version", "createdAt", "updatedAt"] {
        assert!(fields.remove(own).is_some(), "no {own} in {document}");
    }
    fields.into()
}

/// 3.1 to 3.3: the calls, the shape, versions over a tombstone; times in milliseconds (C-22).
#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_created_read_replaced_patched_and_deleted() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let made = server.doc("POST", "rooms", &json!({ "id": "r1", "name": "kitchen" })).await;
    let made = made.expect(201);
    assert_eq!(made.need("location"), "/api/v1/rooms/r1");
    assert_eq!(made.need("content-type"), "application/json");
    let made = made.json();
    let at = made["createdAt"].as_u64().unwrap();
    let expected = json!({ "id": "r1", "collection": "rooms", "version": 1, "createdAt": at,
                           "updatedAt": at, "name": "kitchen" });
    assert_eq!(made, expected);
    assert_eq!(server.get_doc("rooms/r1").await.expect(200).json(), expected);
    assert_eq!(server.head("/api/v1/rooms/r1").await.expect(200).body, b"");

    clock.advance(1_000);
    let put = server.put_doc("rooms/r1", json!({ "name": "hall", "seats": 4 })).await;
    assert_eq!((&put["version"], &put["createdAt"]), (&json!(2), &json!(at)));
    assert_eq!(put["updatedAt"].as_u64().unwrap(), at + 1_000);
    assert_eq!(data(&put), json!({ "name": "hall", "seats": 4 }));

    let fields = json!({ "doc": { "seats": 5, "at.city": "Paris", "at.zip": "75001" } });
    let patched = server.doc("PATCH", "rooms/r1", &fields).await.expect(200).json();
    assert_eq!(patched["version"], 3);
    let expected = json!({ "name": "hall", "seats": 5, "at": { "city": "Paris", "zip": "75001" } });
    assert_eq!(data(&patched), expected);
    // An object replaces the whole of another, and so does an array.
    let fields = json!({ "doc": { "at": { "city": "Rome" }, "seats": null } });
    let patched = server.doc("PATCH", "rooms/r1", &fields).await.expect(200).json();
    let expected = json!({ "name": "hall", "seats": null, "at": { "city": "Rome" } });
    assert_eq!(data(&patched), expected);

    let deleted = server.delete("/api/v1/rooms/r1").await.expect(204);
    assert_eq!(deleted.body, b"");
    let gone = server.get_doc("rooms/r1").await.expect(404);
    assert_eq!(
        gone.json(),
        json!({ "code": "NOT_FOUND", "message": "there is no document `rooms/r1`" })
    );
    server.delete("/api/v1/rooms/r1").await.expect(404);
    server.doc("PATCH", "rooms/r1", &json!({ "doc": { "a": 1 } })).await.expect(404);
    // The version goes on over the tombstone, so that nobody takes one for the other.
    let again = server.doc("POST", "rooms", &json!({ "id": "r1" })).await.expect(201).json();
    assert_eq!(again["version"], 6);
    assert!(again["createdAt"].as_u64().unwrap() > at);
    server.stop().await;
}

/// 3.1 and 3.2.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_without_an_id_is_given_a_uuid_and_numbers_become_ids() {
    let server = Setup::default().start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let made = server.doc("POST", "rooms", &json!({ "a": 1 })).await.expect(201).json();
        let id = made["id"].as_str().unwrap().to_owned();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        server.get_doc(&format!("rooms/{id}")).await.expect(200);
        ids.push(id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let made = server.doc("POST", "rooms", &json!({ "id": 42 })).await.expect(201).json();
    assert_eq!(made["id"], "42");
    let exists = server.doc("POST", "rooms", &json!({ "id": "42" })).await.expect(409);
    assert_eq!(exists.code(), "CONFLICT");
    server.stop().await;
}

/// 3.2; C-20.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_the_documents_own_is_left_out_when_it_is_sent_back() {
    let server = Setup::default().start().await;
    let made = server.put_doc("rooms/r1", json!({ "a": 1 })).await;
    let mut sent = made.clone();
    sent["b"] = json!(2);
    sent["version"] = json!(99);
    sent["deleted"] = json!(true);
    let put = server.put_doc("rooms/r1", sent.clone()).await;
    assert_eq!((&put["version"], &put["createdAt"]), (&json!(2), &made["createdAt"]));
    assert_eq!(data(&put), json!({ "a": 1, "b": 2 }));
    let patched = server.doc("PATCH", "rooms/r1", &json!({ "doc": sent })).await.expect(200).json();
    assert_eq!(patched["version"], 3);
    let other = json!({ "doc": { "id": "r2", "a": 1 } });
    for method in ["PUT", "PATCH"] {
        let refused = server.doc(method, "rooms/r1", &other).await.expect(400);
        assert!(refused.text().contains("an id never changes"), "{refused}");
    }
    let nothing = server.doc("PATCH", "rooms/r1", &json!({ "doc": { "version": 1 } })).await;
    assert!(nothing.expect(400).text().contains("nothing to update"));
    server.stop().await;
}

/// 3.3: `ifMatch`, also where nothing is; C-19.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_happens_only_to_the_document_that_it_is_meant_for() {
    let server = Setup::default().start().await;
    server.put_doc("rooms/r1", json!({ "state": "open", "seats": 4 })).await;
    let version = |n: u64| json!([{ "field": "version", "op": "==", "value": n }]);
    let put = |if_match: Value| json!({ "doc": { "a": 1 }, "ifMatch": if_match });
    for method in ["PUT", "PATCH", "DELETE"] {
        let body =
            if method == "DELETE" { json!({ "ifMatch": version(7) }) } else { put(version(7)) };
        let refused = server.doc(method, "rooms/r1", &body).await.expect(412);
        assert_eq!(refused.code(), "PRECONDITION_FAILED");
        assert!(refused.text().contains("version mismatch: the document has version 1"));
    }
    // All ten operators guard, and all that are given must hold.
    let guards = [
        ("state", "==", json!("open"), true),
        ("state", "!=", json!("open"), false),
        ("seats", ">", json!(3), true),
        ("seats", ">=", json!(5), false),
        ("seats", "<", json!(4), false),
        ("seats", "<=", json!(4), true),
        ("state", "in", json!(["open", "shut"]), true),
        ("state", "not-in", json!(["open"]), false),
        ("state", "array-contains", json!("open"), false),
        ("state", "contains", json!("open"), false),
    ];
    for (field, op, value, holds) in guards {
        let guard = json!([{ "field": field, "op": op, "value": value }]);
        let body = json!({ "doc": { "touched": true }, "ifMatch": guard });
        let status = if holds { 200 } else { 412 };
        server.doc("PATCH", "rooms/r1", &body).await.expect(status);
    }
    let both = json!([{ "field": "state", "op": "==", "value": "open" },
                      { "field": "seats", "op": "==", "value": 5 }]);
    server.doc("PATCH", "rooms/r1", &put(both)).await.expect(412);
    // A guard on a document that is not there does not hold.
    server.doc("PUT", "rooms/none", &put(version(1))).await.expect(412);
    server.get_doc("rooms/none").await.expect(404);
    server.doc("PATCH", "rooms/none", &put(version(1))).await.expect(404);
    server.doc("DELETE", "rooms/none", &json!({ "ifMatch": version(1) })).await.expect(404);
    let current = server.get_doc("rooms/r1").await.json()["version"].as_u64().unwrap();
    let last = json!({ "ifMatch": version(current) });
    server.doc("DELETE", "rooms/r1", &last).await.expect(204);
    server.stop().await;
}

/// 3.1: `X-Request-ID`.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_name_of_its_request() {
    let server = Setup::default().start().await;
    server.put_doc("rooms/r1", json!({})).await;
    for (method, target) in [
        ("GET", "/api/v1/rooms/r1"),
        ("GET", "/api/v1/rooms/none"),
        ("GET", "/api/v1/rooms"),
        ("TRACE", "/api/v1/rooms"),
        ("POST", "/api/v1/query"),
        ("POST", "/api/v1/batch"),
        ("OPTIONS", "/api/v1/rooms"),
    ] {
        let named = server.ask(method, target, &[("x-request-id", "req 7")], b"").await;
        assert_eq!(named.need("x-request-id"), "req 7", "{method} {target}");
        let made = server.ask(method, target, &[], b"").await;
        let other = server.ask(method, target, &[], b"").await;
        assert_eq!(made.need("x-request-id").len(), 26, "{method} {target}");
        assert_ne!(made.need("x-request-id"), other.need("x-request-id"));
    }
    let long = "x".repeat(129);
    for wrong in ["", "caf\u{e9}", &long] {
        let refused = server.ask("GET", "/api/v1/rooms/r1", &[("x-request-id", wrong)], b"").await;
        let refused = refused.expect(400);
        assert_eq!(refused.code(), "BAD_REQUEST");
        assert_eq!(refused.need("x-request-id").len(), 26, "{refused}");
    }
    // Streams are asked without.
    assert_eq!(server.get("/none").await.get("x-request-id"), None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_survive_a_restart_and_belong_to_their_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let setup = keys::guarded_by_keys();
    let server = setup.start_in(directory.path()).await;
    let (_, acme) = server.make_key("acme", &["user"]).await;
    let (_, beta) = server.make_key("beta", &["user"]).await;
    let put = async |server: &TestServer, key: &str, n: u64| {
        let body = json!({ "doc": { "n": n } }).to_string();
        server.ask_as(key, "PUT", "/api/v1/rooms/r1", &[JSON], body.as_bytes()).await.expect(200)
    };
    put(&server, &acme, 1).await;
    put(&server, &acme, 2).await;
    put(&server, &beta, 3).await;
    let kept = server.get_as(&acme, "/api/v1/rooms/r1").await.expect(200).json();
    server.stop().await;
    let server = setup.start_in(directory.path()).await;
    assert_eq!(server.get_as(&acme, "/api/v1/rooms/r1").await.expect(200).json(), kept);
    let theirs = server.get_as(&beta, "/api/v1/rooms/r1").await.expect(200).json();
    assert_eq!((&theirs["n"], &theirs["version"]), (&json!(3), &json!(1)));
    assert_eq!(put(&server, &acme, 4).await.json()["version"], 3);
    server.stop().await;
}

/// 3.1: the cap on bodies.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_may_have_a_mebibyte_and_no_more() {
    let server = Setup::large().start().await;
    let around = json!({ "doc": { "text": "" } }).to_string().len();
    let text = |len: usize| json!({ "doc": { "text": "x".repeat(len) } });
    let largest = (1 << 20) - around;
    let put = server.doc("PUT", "rooms/r1", &text(largest)).await.expect(200);
    assert_eq!(put.json()["text"].as_str().unwrap().len(), largest);
    assert_eq!(server.get_doc("rooms/r1").await.expect(200).json(), put.json());
    let refused = server.doc("PUT", "rooms/r1", &text(largest + 1)).await.expect(413);
    assert_eq!(refused.code(), "REQUEST_TOO_LARGE");
    // A patch makes no larger one either.
    let more = json!({ "doc": { "more": "x".repeat(100) } });
    let refused = server.doc("PATCH", "rooms/r1", &more).await.expect(413);
    assert_eq!(refused.code(), "REQUEST_TOO_LARGE");
    assert_eq!(server.get_doc("rooms/r1").await.json()["version"], 1);
    server.stop().await;
}
