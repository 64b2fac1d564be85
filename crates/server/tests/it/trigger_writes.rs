//! WRT and IDE: transactions with a token.

use serde_json::{Value, json};

use crate::harness::triggers::codes_of;
use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn wrt_2_and_5_writes_are_done_in_order_and_see_each_other() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    let ops = json!([
        { "type": "create", "path": "/rooms/r1", "data": { "n": 1 } },
        { "type": "update", "path": "rooms/r1", "data": { "n": 2, "at.x": 1 } },
        { "type": "patch", "path": "rooms/r1/", "data": { "at.y": [2] },
          "precondition": [{ "field": "n", "op": "==", "value": 2 }] },
        { "type": "set", "path": "rooms/r2", "data": { "id": "r2", "at": { "x": 1 } } },
        { "type": "set", "path": "rooms/r2", "data": { "at": {} }, "ifMatchVersion": 1 },
        { "type": "create", "path": "rooms/r3", "data": {} },
        { "type": "delete", "path": "rooms/r3", "ifMatchVersion": 1 },
    ]);
    let done = server.call_write(&token, "k1", &ops).await.expect(200).json();
    assert_eq!(done["idempotencyKey"], "k1");
    let results = done["results"].as_array().unwrap();
    let versions: Vec<&Value> = results.iter().map(|result| &result["version"]).collect();
    assert_eq!(versions, [1, 2, 3, 1, 2, 1, 2]);
    for result in results {
        assert_eq!((&result["status"], result["updatedAt"].is_u64()), (&json!("ok"), true));
    }
    let r1 = server.get_doc("rooms/r1").await.expect(200).json();
    assert_eq!((&r1["n"], &r1["at"]), (&json!(2), &json!({ "x": 1, "y": [2] })));
    assert_eq!(server.get_doc("rooms/r2").await.expect(200).json()["at"], json!({}));
    server.get_doc("rooms/r3").await.expect(404);
    server.stop().await;
}

/// Scenario 13.
#[tokio::test(flavor = "multi_thread")]
async fn wrt_3_and_4_one_write_that_fails_leaves_nothing_of_the_others() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    server.put_doc("rooms/there", json!({ "n": 1 })).await;
    let version = json!([{ "field": "version", "op": "==", "value": 7 }]);
    let op = |kind: &str, path: &str, more: Value| {
        let mut op = json!({ "type": kind, "path": path });
        op.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        op
    };
    let data = json!({ "data": { "a": 1 } });
    let cases = [
        (op("create", "rooms/there", data.clone()), 412, "PRECONDITION_FAILED", "ALREADY_EXISTS"),
        (op("update", "rooms/none", data.clone()), 404, "NOT_FOUND", "NOT_FOUND"),
        (op("patch", "rooms/none", data.clone()), 404, "NOT_FOUND", "NOT_FOUND"),
        (op("delete", "rooms/none", json!({})), 404, "NOT_FOUND", "NOT_FOUND"),
        (
            op("delete", "rooms/there", json!({ "precondition": version })),
            412,
            "PRECONDITION_FAILED",
            "PRECONDITION_FAILED",
        ),
        (
            op("set", "rooms/there", json!({ "data": {}, "ifModifiedSince": 5 })),
            412,
            "PRECONDITION_FAILED",
            "PRECONDITION_FAILED",
        ),
        (
            op("set", "rooms/there", json!({ "data": {}, "ifUnmodifiedSince": 5 })),
            412,
            "PRECONDITION_FAILED",
            "PRECONDITION_FAILED",
        ),
        (
            op("patch", "rooms/there", json!({ "data": { "n.x": 1 } })),
            400,
            "INVALID_ARGUMENT",
            "INVALID_ARGUMENT",
        ),
    ];
    for (at, (third, status, code, detail)) in cases.into_iter().enumerate() {
        let ops = json!([
            { "type": "set", "path": "rooms/new", "data": {} },
            { "type": "update", "path": "rooms/there", "data": { "touched": true } },
            third,
        ]);
        let key = format!("fails-{at}");
        let refused = server.call_write(&token, &key, &ops).await.expect(status).json();
        assert_eq!(codes_of(&refused), (code.into(), vec![detail.into()]), "{refused}");
        assert_eq!(refused["error"]["details"][0]["opIndex"], 2);
        assert_eq!(refused["idempotencyKey"], key);
        // IDE-3 and IDE-6: how it ended is remembered, without details.
        let again = server.call_write(&token, &key, &ops).await.expect(status);
        assert_eq!(again.need("idempotent-replayed"), "true");
        let again = again.json();
        assert_eq!((codes_of(&again), &again["replayed"]), ((code.into(), vec![]), &json!(true)));
    }
    server.get_doc("rooms/new").await.expect(404);
    assert_eq!(server.get_doc("rooms/there").await.json()["version"], 1);
    server.stop().await;
}

/// Scenario 16.
#[tokio::test(flavor = "multi_thread")]
async fn wrt_6_preconditions_have_nine_operators() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    let document = json!({ "n": 5, "name": "kitchen", "tags": ["a", "b"], "nil": null });
    server.put_doc("rooms/r1", document).await;
    let mut number = 0;
    let mut check = async |field: &str, op: &str, value: Value, holds: bool| {
        number += 1;
        let guard = json!([{ "field": field, "op": op, "value": value }]);
        let patch = json!({ "touched": number });
        let ops = json!([{ "type": "patch", "path": "rooms/r1", "data": patch,
                           "precondition": guard }]);
        let answer = server.call_write(&token, &format!("k{number}"), &ops).await;
        let expected = if holds { 200 } else { 412 };
        assert_eq!(answer.status(), expected, "{guard} {answer}");
    };
    for (op, values) in [
        ("==", [(5, true), (6, false)]),
        ("!=", [(6, true), (5, false)]),
        (">", [(4, true), (5, false)]),
        (">=", [(5, true), (6, false)]),
        ("<", [(6, true), (5, false)]),
        ("<=", [(5, true), (4, false)]),
    ] {
        for (value, holds) in values {
            check("n", op, json!(value), holds).await;
        }
    }
    check("name", "in", json!(["hall", "kitchen"]), true).await;
    check("name", "in", json!(["hall"]), false).await;
    check("name", "not-in", json!(["hall"]), true).await;
    check("name", "not-in", json!(["kitchen"]), false).await;
    for op in ["array-contains", "contains"] {
        check("tags", op, json!("b"), true).await;
        check("tags", op, json!("c"), false).await;
    }
    check("none", "==", json!(1), false).await;
    check("none", "!=", json!(1), true).await;
    check("n", ">", json!("4"), false).await;
    let unknown = json!([{ "type": "delete", "path": "rooms/r1",
        "precondition": [{ "field": "n", "op": "like", "value": 5 }] }]);
    let refused = server.call_write(&token, "unknown", &unknown).await.expect(400).json();
    assert_eq!(codes_of(&refused).0, "INVALID_ARGUMENT");
    // All of them must hold.
    let both = json!([{ "type": "delete", "path": "rooms/r1", "precondition": [
        { "field": "n", "op": "==", "value": 5 }, { "field": "name", "op": "==", "value": "hall" },
    ] }]);
    server.call_write(&token, "both", &both).await.expect(412);
    server.stop().await;
}

/// Scenario 17, and everything else that can be wrong with a write.
#[tokio::test(flavor = "multi_thread")]
async fn wrt_1_and_9_what_is_wrong_with_a_write_is_said_with_its_index() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/"]).await;
    let check = async |op: Value, said: &str| {
        let ops = json!([{ "type": "set", "path": "rooms/r1", "data": {} }, op]);
        let refused = server.call_write(&token, "k", &ops).await.expect(400).json();
        let invalid = "INVALID_ARGUMENT";
        assert_eq!(codes_of(&refused), (invalid.into(), vec![invalid.into()]), "{refused}");
        let detail = &refused["error"]["details"][0];
        assert_eq!(detail["opIndex"], 1);
        assert!(detail["message"].as_str().unwrap().contains(said), "{refused}");
    };
    for own in
        ["_id", "_path", "_parent", "collection", "updatedAt", "version", "createdAt", "deleted"]
    {
        for kind in ["create", "set", "update", "patch"] {
            let op = json!({ "path": "rooms/r1", "type": kind, "data": { own: 1 } });
            check(op, "is the document's own field").await;
        }
    }
    for op in [json!(1), json!("x"), json!([]), Value::Null] {
        check(op, "must be an object").await;
    }
    check(json!({}), "`path` is missing").await;
    check(json!({ "path": 1 }), "`path` must be a string").await;
    check(json!({ "path": "rooms" }), "add the id").await;
    check(json!({ "path": "sys/x" }), "reserved").await;
    check(json!({ "path": "rooms/r1" }), "`type` is missing").await;
    check(json!({ "path": "rooms/r1", "type": "replace" }), "`type` must be").await;
    check(json!({ "path": "rooms/r1", "type": [] }), "`type` must be a string").await;
    check(json!({ "path": "rooms/r1", "type": "set" }), "`data` is missing").await;
    check(json!({ "path": "rooms/r1", "type": "set", "data": 1 }), "must be an object").await;
    check(json!({ "path": "rooms/r1", "type": "delete", "data": {} }), "leave it out").await;
    check(json!({ "path": "rooms/r1", "typ": "set" }), "did you mean `type`?").await;
    let set = |name: &str, value: Value| {
        let mut op = json!({ "path": "rooms/r1", "type": "set", "data": {} });
        op[name] = value;
        op
    };
    check(set("data", json!({ "id": "r2" })), "an id never changes").await;
    check(set("precondition", json!({})), "must be an array").await;
    check(set("precondition", json!([1])), "must be an object").await;
    check(set("precondition", json!([{ "op": "==", "value": 1 }])), "has no `field`").await;
    check(set("ifMatchVersion", json!("7")), "must be a whole number").await;
    check(set("ifModifiedSince", json!("soon")), "is a time").await;
    let whole = async |body: Value, said: &str| {
        let refused = server.call(&token, "write", &body).await.expect(400).json();
        assert_eq!(codes_of(&refused).0, "INVALID_ARGUMENT", "{body}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(said), "{body}: {refused}");
    };
    let ops = json!([{ "type": "set", "path": "rooms/r1", "data": {} }]);
    // IDE-1.
    whole(json!({ "ops": ops }), "a write has an idempotency key").await;
    whole(json!({ "ops": ops, "idempotencyKey": 1 }), "must be a string").await;
    whole(json!({ "ops": ops, "idempotencyKey": "" }), "at least one").await;
    whole(json!({ "ops": ops, "idempotencyKey": "x".repeat(257) }), "at most 256").await;
    whole(json!({ "idempotencyKey": "k" }), "`ops` is missing").await;
    whole(json!({ "ops": 1, "idempotencyKey": "k" }), "must be an array").await;
    whole(json!({ "ops": [], "idempotencyKey": "k" }), "is empty").await;
    whole(json!({ "op": ops, "idempotencyKey": "k" }), "did you mean `ops`?").await;
    whole(json!({ "ops": ops, "idempotencyKey": "k", "tenant": "x" }), "unknown field").await;
    whole(json!([]), "must be a JSON object").await;
    let body = json!({ "ops": ops, "idempotencyKey": "two" });
    let refused = server.call_with(&token, "write", &[("idempotency-key", "one")], &body).await;
    assert!(refused.expect(400).text().contains("differ"));
    server.get_doc("rooms/r1").await.expect(404);
    server.stop().await;
}

/// Scenario 18.
#[tokio::test(flavor = "multi_thread")]
async fn wrt_11_a_write_that_is_not_decided_in_time_is_408_and_nothing_of_it_is_done() {
    let clock = HandClock::new();
    let directory = tempfile::tempdir().unwrap();
    let mut setup = Setup::on(&clock);
    setup.documents.transaction_timeout_ms = 0;
    let server = setup.start_in(directory.path()).await;
    let token = server.token_for(&["/rooms"]).await;
    let ops = json!([
        { "type": "set", "path": "rooms/r1", "data": {} },
        { "type": "set", "path": "rooms/r2", "data": {} },
    ]);
    let refused = server.call_write(&token, "k", &ops).await.expect(408).json();
    assert_eq!(codes_of(&refused).0, "REQUEST_TIMEOUT");
    assert_eq!(refused["idempotencyKey"], "k");
    for path in ["rooms/r1", "rooms/r2"] {
        server.get_doc(path).await.expect(404);
    }
    server.stop().await;
    // It is not remembered: the same is done when there is time.
    let server = Setup::on(&clock).start_in(directory.path()).await;
    let done = server.call_write(&token, "k", &ops).await.expect(200);
    assert_eq!(done.get("idempotent-replayed"), None);
    server.stop().await;
}

/// Scenario 15.
#[tokio::test(flavor = "multi_thread")]
async fn ide_2_to_5_a_write_is_done_once_for_eight_hours_and_for_its_trigger() {
    let clock = HandClock::new();
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::on(&clock).start_in(directory.path()).await;
    let token = server.token_for(&["/rooms"]).await;
    let other =
        json!({ "triggerId": "other", "scopes": ["trigger.write"], "allowPaths": ["/rooms"] });
    let other = server.trigger_token(&other).await;
    let ops = json!([{ "type": "set", "path": "rooms/r1", "data": { "n": 1 } }]);
    let version = |answer: Answer| answer.expect(200).json()["results"][0]["version"].clone();
    assert_eq!(version(server.call_write(&token, "k", &ops).await), 1);
    // IDE-2: keys of another trigger, and of the API's callers, are others.
    assert_eq!(version(server.call_write(&other, "k", &ops).await), 2);
    assert_eq!(version(server.batch("k", &ops).await), 3);
    let again = server.call_write(&token, "k", &ops).await.expect(200);
    assert_eq!(again.need("idempotent-replayed"), "true");
    let replayed = json!({ "status": "success", "idempotencyKey": "k", "replayed": true });
    assert_eq!(again.json(), replayed);
    // IDE-5: the same key with another body.
    let different = json!([{ "type": "set", "path": "rooms/r1", "data": { "n": 2 } }]);
    let refused = server.call_write(&token, "k", &different).await.expect(409).json();
    assert_eq!(codes_of(&refused).0, "IDEMPOTENCY_REPLAY");
    server.stop().await;
    // IDE-4: it survives a restart, and ends after eight hours.
    let server = Setup::on(&clock).start_in(directory.path()).await;
    assert_eq!(server.call_write(&token, "k", &ops).await.expect(200).json(), replayed);
    clock.advance(8 * 3_600_000);
    let token = server.token_for(&["/rooms"]).await;
    assert_eq!(version(server.call_write(&token, "k", &ops).await), 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_say_which_trigger_wrote_them_and_the_audit_log_does_too() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    server.put_doc("rooms/r1", json!({})).await;
    let ops = json!([
        { "type": "patch", "path": "rooms/r1", "data": { "n": 1 } },
        { "type": "create", "path": "rooms/r2", "data": {} },
    ]);
    let named = [("idempotency-key", "k"), ("x-request-id", "req-7")];
    let done = server.call_with(&token, "write", &named, &json!({ "ops": ops })).await.expect(200);
    assert_eq!(done.need("x-request-id"), "req-7");
    let changes = server.get("/_changes/default?offset=-1").await.expect(200).json();
    let origins: Vec<&Value> =
        changes.as_array().unwrap().iter().map(|change| &change["origin"]).collect();
    let own = json!({ "trigger": "trg", "depth": 1, "chain": ["trg"] });
    assert_eq!(origins, [&Value::Null, &own, &own]);
    // What is done again is not written down again.
    server.call_with(&token, "write", &named, &json!({ "ops": ops })).await.expect(200);
    server.call_write(&token, "fails", &ops).await.expect(412);
    let rows = server.get("/admin/v1/audit?action=documents.written").await.expect(200).json();
    let rows = rows["audit"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = &rows[0];
    assert_eq!((&row["actor"], &row["subject"]), (&json!("trigger:trg"), &json!("trg")));
    assert_eq!(row["requestId"], "req-7");
    let diff = json!({
        "paths": ["rooms/r1", "rooms/r2"], "pathCount": 2, "scopes": ["trigger.write"],
        "result": "ok", "idempotencyKey": "k",
    });
    assert_eq!(row["diff"], diff);
    // ADM-13, OBS-3: whoever asks about the trigger finds what its code did.
    assert_eq!(row["triggerId"], "trg");
    let of_it = server.get("/admin/v1/audit?triggerId=trg&action=documents.written").await;
    assert_eq!(of_it.expect(200).json()["audit"].as_array().unwrap().len(), 1);
    // What was tried and denied is written down too.
    let users = json!({ "paths": ["users/u1"] });
    server.call(&token, "get", &users).await.expect(403);
    let rows = server.get("/admin/v1/audit?action=documents.denied").await.expect(200).json();
    let denied = json!({
        "paths": ["users/u1"], "pathCount": 1, "scopes": ["trigger.read"],
        "result": "denied", "errorCode": "PATH_NOT_ALLOWED",
    });
    assert_eq!(rows["audit"][0]["diff"], denied);
    let verified = server.get("/admin/v1/audit/verify").await.expect(200).json();
    assert!(!verified.to_string().contains("false"), "{verified}");
    server.stop().await;
}

/// OBS-3.
#[tokio::test(flavor = "multi_thread")]
async fn obs_3_calls_are_counted_by_trigger_scope_and_result() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    let value = async |labels: &[&str]| {
        let text = server.get("/metrics").await.expect(200).text();
        metric_of(&text, "reveille_trigger_calls_total", labels)
    };
    let get = json!({ "paths": ["rooms/r1"] });
    for _ in 0..3 {
        server.call(&token, "get", &get).await.expect(200);
    }
    server.call(&token, "get", &json!({ "paths": ["users/u1"] })).await.expect(403);
    server.call_write(&token, "k", &json!([])).await.expect(400);
    server.call("a.b.c", "get", &get).await.expect(401);
    let of = |scope, result| ["default", "trg", scope, result];
    assert_eq!(value(&of("trigger.read", "ok")).await, 3);
    assert_eq!(value(&of("trigger.read", "PERMISSION_DENIED")).await, 1);
    assert_eq!(value(&of("trigger.write", "INVALID_ARGUMENT")).await, 1);
    assert_eq!(value(&["UNAUTHENTICATED"]).await, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_name_patch_where_documents_are() {
    let server = Setup::default().start().await;
    for target in ["/api/v1/rooms/r1", "/api/v1/rooms", "/api/v1/batch", "/api/v1/trigger/write"] {
        let answer = server.ask("OPTIONS", target, &[], b"").await.expect(204);
        let methods: Vec<&str> = answer.need("allow").split(", ").collect();
        assert!(methods.contains(&"PATCH"), "{target}: {methods:?}");
    }
    server.stop().await;
}
