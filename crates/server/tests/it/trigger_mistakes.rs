//! Every field of every body of a trigger's calls, wrong in every way: whatever comes of it is a
//! refusal with a code that clients know, and never a failure of the server.

use serde_json::{Value, json};

use crate::harness::*;

/// The stable set.
const CODES: [(u16, &[&str]); 7] = [
    (400, &["INVALID_ARGUMENT", "MISSING_INDEX"]),
    (403, &["PERMISSION_DENIED"]),
    (404, &["NOT_FOUND"]),
    (409, &["IDEMPOTENCY_REPLAY"]),
    (412, &["PRECONDITION_FAILED"]),
    (429, &["RESOURCE_EXHAUSTED"]),
    (401, &["UNAUTHENTICATED"]),
];

fn wrong_values() -> Vec<Value> {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("x"),
        json!("\u{0}\u{ffff}\u{10ffff}"),
        json!("../.."),
        json!("/sys/x"),
        json!("rooms/r1/"),
        json!("x".repeat(3_000)),
        json!([]),
        json!([[]]),
        json!([null]),
        json!([{}]),
        json!(["rooms/r1", 1]),
        json!({}),
        json!({ "": {} }),
        json!({ "a.b": 1 }),
        json!({ "field": "a", "op": "==", "value": 1 }),
        deep,
    ]
}

/// The places of a body, as pointers: of objects their fields, of arrays their elements.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, it)| (name.clone(), it)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(n, it)| (n.to_string(), it)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in inner {
        let place = format!("{at}/{name}");
        found.push(place.clone());
        places(value, &place, found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_may_be_wrong_in_every_way() {
    let mut setup = Setup::default();
    setup.documents.trigger_calls_per_s = 0;
    let server = setup.start().await;
    let token = server.token_for(&["/rooms"]).await;
    let guard = json!([{ "field": "version", "op": "in", "value": [1, 2] }]);
    let query = json!({
        "collection": "rooms", "filters": [{ "field": "n", "op": "==", "value": 1 }],
        "orderBy": [{ "field": "n", "direction": "asc" }], "limit": 2, "showDeleted": false,
        "explain": true,
    });
    let bodies = [
        ("get", json!({ "paths": ["rooms/r1", "/rooms/r2"] })),
        ("query", query.clone()),
        ("query", json!({ "query": query })),
        (
            "write",
            json!({ "idempotencyKey": "k", "ops": [
                { "type": "set", "path": "rooms/r1", "data": { "n": 1, "at": { "x": [1] } } },
                { "type": "patch", "path": "rooms/r1", "data": { "at.x": 2 }, "precondition": guard,
                  "ifMatchVersion": 1, "ifModifiedSince": 9_999_999_999_999_u64 },
                { "type": "delete", "path": "rooms/r1" },
            ] }),
        ),
    ];
    let (mut refused, mut done) = (0, 0);
    for (what, body) in bodies {
        let mut all = Vec::new();
        places(&body, "", &mut all);
        for place in all {
            for wrong in wrong_values() {
                let mut body = body.clone();
                *body.pointer_mut(&place).unwrap() = wrong;
                let answer = server.call(&token, what, &body).await;
                if answer.status() == 200 {
                    done += 1;
                    continue;
                }
                refused += 1;
                let codes = CODES.iter().find(|(status, _)| *status == answer.status());
                let codes = codes.unwrap_or_else(|| panic!("{what} {place} {body}: {answer}")).1;
                let said = answer.json();
                let code = said["error"]["code"].as_str().unwrap_or_default();
                assert!(codes.contains(&code), "{what} {place} {body}: {answer}");
                let message = said["error"]["message"].as_str().unwrap_or_default();
                assert!(message.len() > 10, "{what} {place}: {answer}");
            }
        }
    }
    assert!(refused > 500 && done > 20, "{refused} refused, {done} done");
    server.stop().await;
}
