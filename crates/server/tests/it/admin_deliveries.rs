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
