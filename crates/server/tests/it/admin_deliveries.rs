//! What operators see of deliveries.

use serde_json::{Value, json};

use crate::harness::*;

async fn look(events: &Deliveries, query: &str) -> Vec<Value> {
    let answer = events.server.get(&format!("/admin/v1/deliveries{query}")).await.expect(200);
    answer.json()["deliveries"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_followed_to_every_hook_that_it_went_to() {
    let mut events = Deliveries::start().await;
    let good = events.subscribe("order.*").await;
    let bad = events.subscribe_with("**", json!({ "workerId": "bad", "maxRetries": 1 })).await;
    let other = events.ingest(json!({ "type": "user.made" })).await;
    events.called().await.ok();
    let event = events.ingest(json!({ "type": "order.paid" })).await;
    for _ in 0..2 {
        let call = events.called().await;
        let refuses = call.line.contains("/bad/");
        call.answer(if refuses { 500 } else { 200 }, "so be it");
    }
    events.until_status(&good, "delivered").await;
    events.until_status(&bad, "dead").await;

    let found = look(&events, &format!("?event={event}")).await;
    let states: Vec<(&str, &str)> = found
        .iter()
        .map(|it| (it["hook"].as_str().unwrap(), it["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [(bad.as_str(), "dead"), (good.as_str(), "delivered")]);
    assert_eq!(found[0]["last_error"], "answered 500");
    assert_eq!(found[0]["event_type"], "order.paid");

    let of_bad = look(&events, &format!("?hook={bad}")).await;
    let ids: Vec<&Value> = of_bad.iter().map(|it| &it["event_id"]).collect();
    assert_eq!(ids, [&json!(event), &json!(other)]);

    let first = look(&events, "?limit=2").await;
    assert_eq!(first.len(), 2);
    let after = first[1]["id"].as_str().unwrap();
    let rest = look(&events, &format!("?after={after}")).await;
    let all = look(&events, "").await;
    assert_eq!([first.clone(), rest].concat(), all);
    assert_eq!(all.len(), 3);

    let id = found[1]["id"].as_str().unwrap();
    let one = events.server.get(&format!("/admin/v1/deliveries/{id}")).await.expect(200).json();
    let attempts = one["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["status"], 200);
    assert_eq!(attempts[0]["response"], "so be it");
    assert_eq!(
        (&attempts[0]["error_kind"], &attempts[0]["headers_hash"]),
        (&Value::Null, &Value::Null)
    );
}

/// The attempts of the only delivery to a hook.
async fn attempts_to(events: &Deliveries, hook: &str) -> Vec<Value> {
    let found = look(events, &format!("?hook={hook}")).await;
    let id = found[0]["id"].as_str().unwrap();
    let one = events.server.get(&format!("/admin/v1/deliveries/{id}")).await.expect(200).json();
    one["attempts"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_keeps_its_kind_and_how_it_was_answered() {
    let mut events = Deliveries::start().await;
    let hook = events.subscribe_with("**", json!({ "maxRetries": 3 })).await;
    events.ingest(json!({ "type": "order.paid" })).await;
    let long = "x".repeat(5_000);
    events.called().await.answer_with(503, &[("x-why", "busy")], &long);
    events.to_next_attempt(&hook, 1).await;
    events.called().await.answer_with(503, &[("x-why", "busy")], "short");
    events.to_next_attempt(&hook, 2).await;
    events.called().await.answer_and_close(b"no HTTP at all\r\n\r\n".to_vec());
    events.until_status(&hook, "dead").await;

    let attempts = attempts_to(&events, &hook).await;
    let kinds: Vec<&Value> = attempts.iter().map(|it| &it["error_kind"]).collect();
    assert_eq!(kinds, ["http", "http", "http"]);
    assert_eq!(attempts[0]["response"], long[..2_048]);
    assert_eq!(attempts[1]["response"], "short");
    assert_eq!(attempts[2]["response"], Value::Null);
    let hash = |it: &Value| it["headers_hash"].as_str().map(str::to_owned);
    assert!(hash(&attempts[0]).unwrap().starts_with("sha256:"));
    // The bodies are of other lengths, and so are the headers.
    assert_ne!(hash(&attempts[0]), hash(&attempts[1]));
    assert_eq!(hash(&attempts[2]), None);

    // What a worker says of a failure is not in the log that its owner reads, which has a shape.
    let id = events.deliveries(&hook).await[0]["id"].as_str().unwrap().to_owned();
    let logs = events.server.get(&format!("/subscriptions/deliveries/{id}/logs")).await;
    let logs = logs.expect(200).json();
    assert!(logs["logs"].as_array().unwrap().iter().all(|it| it.get("workerResponse").is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_said_to_be_so() {
    let events = Deliveries::start().await;
    for (query, status, code) in [
        ("?event=nothing", 404, "EVENT_NOT_FOUND"),
        ("?hook=01HQXYZ", 404, "SUBSCRIPTION_NOT_FOUND"),
        ("?after=x", 400, "INVALID_QUERY"),
        ("?limit=0", 400, "INVALID_QUERY"),
        ("/x", 404, "DELIVERY_NOT_FOUND"),
        ("/01HQXYZ123456789ABCDEF0123", 404, "DELIVERY_NOT_FOUND"),
    ] {
        let answer = events.server.get(&format!("/admin/v1/deliveries{query}")).await;
        assert_eq!(answer.expect(status).code(), code, "{query}");
    }
    events.server.ask("POST", "/admin/v1/deliveries", &[], b"").await.expect(405);
}
