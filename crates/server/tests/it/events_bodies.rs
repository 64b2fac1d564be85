//! Every field of every body, wrong in every way: it is refused by name, and nothing changes.

use serde_json::{Value, json};

use crate::harness::*;

fn wrong_texts() -> Vec<Value> {
    vec![json!(1), json!(true), json!([]), json!({}), json!(["a"]), json!(1.5)]
}

async fn everything(events: &Deliveries) -> Value {
    events.server.get("/subscriptions/list").await.expect(200).json()
}

fn good() -> Value {
    json!({ "workerId": "w", "pattern": "b", "rpcMethod": "m" })
}

/// The error of a body with this field.
async fn refused(events: &Deliveries, name: &str, value: &Value) -> (String, String) {
    let mut body = good();
    body[name] = value.clone();
    let answer = events.post("/subscriptions/subscribe", &body).await.expect(400).json();
    assert_eq!(answer["ok"], false);
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("error"), text("code"))
}

#[tokio::test(flavor = "multi_thread")]
async fn e15_what_is_wrong_about_a_new_subscription_is_named() {
    let events = Deliveries::start().await;
    events.subscribe("a").await;
    let before = everything(&events).await;
    for name in ["workerId", "pattern", "rpcMethod"] {
        let mut missing = wrong_texts();
        missing.extend([json!(null), json!("")]);
        for value in &missing {
            let (error, code) = refused(&events, name, value).await;
            assert_eq!(error, format!("Missing required field: {name} (string)"), "{value}");
            assert_eq!(code, "MISSING_FIELD");
        }
        let mut body = good();
        body.as_object_mut().unwrap().remove(name);
        events.post("/subscriptions/subscribe", &body).await.expect(400);
    }
    let long = "a".repeat(300);
    let bad: &[(&str, &[Value])] = &[
        (
            "workerId",
            &[
                json!("-a"),
                json!("a..b"),
                json!("a/b"),
                json!("a b"),
                json!("a@b"),
                json!("é"),
                json!(long),
            ],
        ),
        ("rpcMethod", &[json!("1a"), json!("a-b"), json!("a/b"), json!("a b"), json!(long)]),
        (
            "workerBinding",
            &[
                json!(""),
                json!("a b"),
                json!("a=b"),
                json!(long),
                json!(1),
                json!([]),
                json!(false),
            ],
        ),
        (
            "maxRetries",
            &[json!(-1), json!(101), json!(1e300), json!(18_446_744_073_709_551_615_u64)],
        ),
        ("timeoutMs", &[json!(0), json!(-5), json!(300_001), json!(1e18)]),
        (
            "secret",
            &[
                json!("x"),
                json!(""),
                json!("whsec_"),
                json!("whsec_AAAA"),
                json!("whsec_!"),
                json!(1),
                json!({}),
                json!(format!("whsec_{}", "A".repeat(88))),
            ],
        ),
        (
            "deliver",
            &[
                json!("some"),
                json!(""),
                json!(1),
                json!(true),
                json!([]),
                json!({}),
                json!({ "from": 1 }),
                json!({ "from": "x", "to": "y" }),
                json!({ "to": "x" }),
            ],
        ),
    ];
    for (name, values) in bad {
        for value in *values {
            let (error, code) = refused(&events, name, value).await;
            assert!(error.starts_with(&format!("Invalid field: {name} ")), "{value}: {error}");
            assert_eq!(code, "INVALID_FIELD");
        }
    }
    for name in ["maxRetries", "timeoutMs"] {
        for value in [json!(1.5), json!("5"), json!(true), json!([]), json!({})] {
            let (error, _) = refused(&events, name, &value).await;
            assert_eq!(error, format!("Invalid field: {name} must be an integer"));
        }
    }
    for target in
        ["/subscriptions/subscribe", "/subscriptions/unsubscribe", "/subscriptions/reactivate"]
    {
        for body in ["", "{", "[]", "1", "null", "\"x\"", "{\"a\":1} x"] {
            let answer = events.server.ask("POST", target, &[JSON], body.as_bytes()).await;
            let answer = answer.expect(400).json();
            assert_eq!(
                answer,
                json!({ "ok": false, "error": "Invalid JSON body", "code": "INVALID_JSON" })
            );
        }
    }
    assert_eq!(everything(&events).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_about_a_change_is_named() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let before = everything(&events).await;
    let target = format!("/subscriptions/{id}");
    let put = async |body: &str| {
        events.server.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(400).json()
    };
    for body in ["", "{", "[]", "1", "null"] {
        assert_eq!(put(body).await["error"], "Invalid JSON body");
    }
    // One bad field, and the good ones beside it are not applied either.
    for (name, value) in [
        ("maxRetries", json!(101)),
        ("maxRetries", json!("5")),
        ("maxRetries", json!(-1)),
        ("timeoutMs", json!(0)),
        ("timeoutMs", json!(1.5)),
        ("timeoutMs", json!(300_001)),
        ("rpcMethod", json!(1)),
        ("rpcMethod", json!("")),
        ("rpcMethod", json!("a b")),
    ] {
        let mut body = json!({ "maxRetries": 1, "timeoutMs": 1, "rpcMethod": "x" });
        body[name] = value;
        let answer = put(&body.to_string()).await;
        assert!(answer["error"].as_str().unwrap().contains(name), "{body}: {answer}");
        assert_eq!(answer["code"], "INVALID_FIELD");
    }
    for target in ["/subscriptions/unsubscribe", "/subscriptions/reactivate"] {
        for value in [json!(null), json!(""), json!(1), json!([]), json!({}), json!(true)] {
            let answer = events.post(target, &json!({ "subscriptionId": value })).await.expect(400);
            let wanted = "Missing required field: subscriptionId (string)";
            assert_eq!(answer.json()["error"], wanted);
        }
        for value in wrong_texts() {
            let body = json!({ "subscriptionId": id, "shard": value });
            let answer = events.post(target, &body).await.expect(400).json();
            assert_eq!(answer["error"], "Invalid field: shard must be a string");
        }
    }
    assert_eq!(everything(&events).await, before);
}
