//! Transactions: all or nothing, in order, and once however often they are sent.

use serde_json::{Value, json};

use crate::harness::*;

/// WRT-1, 2, 4, 5 and 8; C-12.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_done_in_order_and_says_what_became_of_each_write() {
    let server = Setup::default().start().await;
    let ops = json!([
        { "type": "create", "path": "rooms/r1", "data": { "n": 1 } },
        { "type": "update", "path": "/rooms/r1", "data": { "n": 2, "at.x": 1 } },
        { "type": "patch", "path": "rooms/r1/", "data": { "at.y": 2 },
          "precondition": [{ "field": "n", "op": "==", "value": 2 }] },
        { "type": "set", "path": "rooms/r2", "data": { "id": "r2" } },
        { "type": "delete", "path": "rooms/r2", "ifMatchVersion": 1 },
    ]);
    let done = server.batch("k1", &ops).await.expect(200);
    assert_eq!(done.get("idempotent-replayed"), None);
    let done = done.json();
    assert_eq!(done["idempotencyKey"], "k1");
    let results = done["results"].as_array().unwrap();
    let versions: Vec<&Value> = results.iter().map(|result| &result["version"]).collect();
    assert_eq!(versions, [1, 2, 3, 1, 2]);
    for result in results {
        assert_eq!(result["status"], "ok");
        assert!(result["updatedAt"].as_u64().is_some());
        assert_eq!(result.as_object().unwrap().len(), 3);
    }
    let document = server.get_doc("rooms/r1").await.expect(200).json();
    assert_eq!((&document["n"], &document["at"]), (&json!(2), &json!({ "x": 1, "y": 2 })));
    server.get_doc("rooms/r2").await.expect(404);
    server.stop().await;
}

/// WRT-3, 4, 7 and 12; IDE-3 and 6; C-13. Scenario 13.
#[tokio::test(flavor = "multi_thread")]
async fn one_write_that_fails_leaves_nothing_of_the_others() {
    let server = Setup::default().start().await;
    server.put_doc("rooms/there", json!({ "n": 1 })).await;
    let version = json!([{ "field": "version", "op": "==", "value": 7 }]);
    let cases = [
        (
            json!({ "type": "create", "path": "rooms/there", "data": {} }),
            412,
            "PRECONDITION_FAILED",
            "ALREADY_EXISTS",
            "there is a document `rooms/there` already",
        ),
        (
            json!({ "type": "update", "path": "rooms/none", "data": { "a": 1 } }),
            404,
            "NOT_FOUND",
            "NOT_FOUND",
            "there is no document `rooms/none`",
        ),
        (
            json!({ "type": "delete", "path": "rooms/none" }),
            404,
            "NOT_FOUND",
            "NOT_FOUND",
            "there is no document `rooms/none`",
        ),
        (
            json!({ "type": "delete", "path": "rooms/there", "precondition": version }),
            412,
            "PRECONDITION_FAILED",
            "PRECONDITION_FAILED",
            "version mismatch",
        ),
        (
            json!({ "type": "set", "path": "rooms/there", "data": {}, "ifModifiedSince": 5 }),
            412,
            "PRECONDITION_FAILED",
            "PRECONDITION_FAILED",
            "`updatedAt <=",
        ),
        (
            json!({ "type": "set", "path": "rooms/none", "data": {}, "ifMatchVersion": 1 }),
            412,
            "PRECONDITION_FAILED",
            "PRECONDITION_FAILED",
            "so no precondition holds",
        ),
        (
            json!({ "type": "patch", "path": "rooms/there", "data": { "n.x": 1 } }),
            400,
            "INVALID_ARGUMENT",
            "INVALID_ARGUMENT",
            "`n` is not an object",
        ),
    ];
    for (at, (third, status, code, detail, said)) in cases.into_iter().enumerate() {
        let ops = json!([
            { "type": "set", "path": "rooms/new", "data": {} },
            { "type": "update", "path": "rooms/there", "data": { "touched": true } },
            third,
        ]);
        let key = format!("fails-{at}");
        let refused = server.batch(&key, &ops).await.expect(status).json();
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert_eq!(refused["idempotencyKey"], key);
        let details = refused["error"]["details"].as_array().unwrap();
        assert_eq!(details.len(), 1);
        assert_eq!((&details[0]["opIndex"], &details[0]["code"]), (&json!(2), &json!(detail)));
        assert!(details[0]["message"].as_str().unwrap().contains(said), "{refused}");
        // The same once more: how it ended, and no details.
        let again = server.batch(&key, &ops).await.expect(status);
        assert_eq!(again.need("idempotent-replayed"), "true");
        let again = again.json();
        assert_eq!((&again["error"]["code"], &again["replayed"]), (&json!(code), &json!(true)));
        assert_eq!(again["error"].get("details"), None);
    }
    server.get_doc("rooms/new").await.expect(404);
    assert_eq!(server.get_doc("rooms/there").await.json()["version"], 1);
    server.stop().await;
}

/// IDE-1, 3, 4 and 5; C-5. Scenario 15.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_sent_again_is_done_once() {
    let clock = HandClock::new();
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::on(&clock).start_in(directory.path()).await;
    let ops = json!([{ "type": "set", "path": "rooms/r1", "data": { "n": 1 } }]);
    server.batch("k", &ops).await.expect(200);
    let replayed = json!({ "status": "success", "idempotencyKey": "k", "replayed": true });
    let again = server.batch("k", &ops).await.expect(200);
    assert_eq!(again.need("idempotent-replayed"), "true");
    assert_eq!(again.json(), replayed);
    // The key may stand in the body as well, which is another body.
    let body = json!({ "ops": ops, "idempotencyKey": "k" });
    let other = server.doc("POST", "batch", &body).await.expect(409).json();
    assert_eq!(other["error"]["code"], "IDEMPOTENCY_REPLAY");
    let body = json!({ "ops": ops, "idempotencyKey": "in-body" });
    for status in [None, Some("true")] {
        let done = server.doc("POST", "batch", &body).await.expect(200);
        assert_eq!(done.get("idempotent-replayed"), status);
    }
    server.stop().await;
    let server = Setup::on(&clock).start_in(directory.path()).await;
    assert_eq!(server.batch("k", &ops).await.expect(200).json(), replayed);
    assert_eq!(server.get_doc("rooms/r1").await.json()["version"], 2);
    // After eight hours it is a new one.
    clock.advance(8 * 3_600_000);
    let new = server.batch("k", &ops).await.expect(200).json();
    assert_eq!(new["results"][0]["version"], 3);
    server.stop().await;
}

/// IDE-3.
#[tokio::test(flavor = "multi_thread")]
async fn however_many_ask_again_at_once_all_are_told_how_it_ended() {
    let server = Setup::default().start().await;
    let ops = json!([{ "type": "set", "path": "rooms/r1", "data": { "n": 1 } }]);
    server.batch("k", &ops).await.expect(200);
    for _ in 0..20 {
        let again = async || server.batch("k", &ops).await;
        let answers = tokio::join!(again(), again(), again(), again(), again(), again());
        let (a, b, c, d, e, f) = answers;
        for answer in [a, b, c, d, e, f] {
            assert_eq!(answer.expect(200).need("idempotent-replayed"), "true");
        }
    }
    assert_eq!(server.get_doc("rooms/r1").await.json()["version"], 1);
    server.stop().await;
}

/// IDE-2.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_the_api_keys_own() {
    let server = keys::guarded_by_keys().start().await;
    let (_, one) = server.make_key("acme", &["user"]).await;
    let (_, other) = server.make_key("acme", &["user"]).await;
    let send = async |key: &str, n: u64| {
        let ops = json!([{ "type": "set", "path": "rooms/r1", "data": { "n": n } }]);
        let body = json!({ "ops": ops, "idempotencyKey": "same" }).to_string();
        server.ask_as(key, "POST", "/api/v1/batch", &[JSON], body.as_bytes()).await
    };
    send(&one, 1).await.expect(200);
    let done = send(&other, 2).await.expect(200).json();
    assert_eq!(done["results"][0]["version"], 2);
    assert_eq!(send(&one, 2).await.expect(409).code(), "IDEMPOTENCY_REPLAY");
    let refused = server.ask("POST", "/api/v1/batch", &[JSON], b"{}").await.expect(401).json();
    assert_eq!(refused["error"]["code"], "UNAUTHENTICATED");
    server.stop().await;
}

/// WRT-1, 6 and 9; C-20. Scenario 17.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_transaction_is_said_with_its_write() {
    let server = Setup::default().start().await;
    let check = async |op: Value, said: &str| {
        let ops = json!([{ "type": "set", "path": "rooms/r1", "data": {} }, op]);
        let refused = server.batch("k", &ops).await.expect(400).json();
        assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT", "{refused}");
        let detail = &refused["error"]["details"][0];
        assert_eq!((&detail["opIndex"], &detail["code"]), (&json!(1), &json!("INVALID_ARGUMENT")));
        assert!(detail["message"].as_str().unwrap().contains(said), "{refused}");
    };
    check(json!(1), "must be an object").await;
    check(json!({}), "`path` is missing").await;
    check(json!({ "path": 1 }), "`path` must be a string").await;
    check(json!({ "path": "rooms" }), "is a collection; add the id").await;
    check(json!({ "path": "sys/x" }), "reserved").await;
    check(json!({ "path": "rooms/*" }), "but not `*`").await;
    check(json!({ "path": "rooms/r1" }), "`type` is missing").await;
    check(json!({ "path": "rooms/r1", "type": "replace" }), "`type` must be").await;
    check(json!({ "path": "rooms/r1", "type": 1 }), "`type` must be a string").await;
    check(json!({ "path": "rooms/r1", "type": "set" }), "`data` is missing").await;
    check(json!({ "path": "rooms/r1", "type": "set", "data": [] }), "`data` must be an object")
        .await;
    check(json!({ "path": "rooms/r1", "type": "delete", "data": {} }), "leave it out").await;
    check(json!({ "path": "rooms/r1", "typ": "set" }), "did you mean `type`?").await;
    let set = |name: &str, value: Value| {
        let mut op = json!({ "path": "rooms/r1", "type": "set", "data": {} });
        op[name] = value;
        op
    };
    for own in
        ["_id", "_path", "_parent", "collection", "updatedAt", "version", "createdAt", "deleted"]
    {
        for kind in ["create", "set", "update", "patch"] {
            let op = json!({ "path": "rooms/r1", "type": kind, "data": { own: 1 } });
            check(op, "is the document's own field").await;
        }
    }
    check(set("data", json!({ "id": "r2" })), "an id never changes").await;
    check(set("data", json!({ "a.b": 1 })), "has a dot in it").await;
    check(set("precondition", json!({})), "`precondition` must be an array").await;
    check(
        set("precondition", json!([{ "field": "a", "op": "~", "value": 1 }])),
        "there is no operator `~`",
    )
    .await;
    check(set("ifMatchVersion", json!("7")), "`ifMatchVersion` must be a whole number").await;
    check(set("ifMatchVersion", json!(-1)), "`ifMatchVersion` must be a whole number").await;
    check(set("ifModifiedSince", json!("soon")), "`ifModifiedSince` is a time").await;
    check(set("ifUnmodifiedSince", json!(1.5)), "`ifUnmodifiedSince` is a time").await;
    server.get_doc("rooms/r1").await.expect(404);
    server.stop().await;
}

/// IDE-1; LIM-8.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_needs_writes_and_a_key_and_has_a_limit_of_both() {
    let server = Setup::default().start().await;
    let op = json!({ "type": "set", "path": "rooms/r1", "data": {} });
    let check = async |body: Value, status: u16, code: &str, said: &str| {
        let refused = server.doc("POST", "batch", &body).await.expect(status).json();
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(said), "{refused}");
    };
    let invalid = "INVALID_ARGUMENT";
    check(json!({ "ops": [op] }), 400, invalid, "a write has an idempotency key").await;
    check(json!({ "ops": [op], "idempotencyKey": 1 }), 400, invalid, "must be a string").await;
    check(json!({ "ops": [op], "idempotencyKey": "" }), 400, invalid, "at least one").await;
    let long = "x".repeat(257);
    check(json!({ "ops": [op], "idempotencyKey": long }), 400, invalid, "at most 256").await;
    check(json!({ "idempotencyKey": "k" }), 400, invalid, "`ops` is missing").await;
    check(json!({ "ops": {}, "idempotencyKey": "k" }), 400, invalid, "must be an array").await;
    check(json!({ "ops": [], "idempotencyKey": "k" }), 400, invalid, "is empty").await;
    check(json!({ "op": [op], "idempotencyKey": "k" }), 400, invalid, "did you mean `ops`?").await;
    check(json!([]), 400, invalid, "must be a JSON object").await;
    let exhausted = "RESOURCE_EXHAUSTED";
    let many = json!({ "ops": vec![op.clone(); 501], "idempotencyKey": "k" });
    check(many, 429, exhausted, "at most 500 writes").await;
    let many = json!({ "ops": vec![op.clone(); 10_000], "idempotencyKey": "k" });
    check(many, 429, exhausted, "more than").await;
    let most = json!({ "ops": vec![op.clone(); 500], "idempotencyKey": "most" });
    let done = server.doc("POST", "batch", &most).await.expect(200).json();
    assert_eq!(done["results"][499]["version"], 500);
    let large = json!({ "type": "set", "path": "rooms/r1", "data": { "t": "x".repeat(900_000) } });
    let large = json!({ "ops": vec![large; 5], "idempotencyKey": "large" });
    check(large, 429, exhausted, "changes at most 4194304 bytes").await;
    let both = [JSON, ("idempotency-key", "one")];
    let body = json!({ "ops": [op], "idempotencyKey": "two" }).to_string();
    let refused = server.ask("POST", "/api/v1/batch", &both, body.as_bytes()).await.expect(400);
    assert!(refused.text().contains("differ"), "{refused}");
    let get = server.get("/api/v1/batch").await.expect(405);
    assert_eq!((get.code().as_str(), get.need("allow")), ("METHOD_NOT_ALLOWED", "POST, OPTIONS"));
    server.stop().await;
}
