//! Why an event was delivered, or was not: told step by step.

use serde_json::{Value, json};

use crate::harness::*;

async fn explain(events: &Deliveries, id: &str, query: &str) -> Value {
    let target = format!("/subscriptions/{id}/explain?{query}");
    events.server.get(&target).await.expect(200).json()
}

/// The steps without their sentences.
fn steps(answer: &Value) -> Vec<(String, bool)> {
    let all = answer["steps"].as_array().unwrap().iter();
    let step = |it: &Value| {
        assert!(!it["detail"].as_str().unwrap().is_empty());
        (it["step"].as_str().unwrap().to_owned(), it["ok"].as_bool().unwrap())
    };
    all.map(step).collect()
}

#[track_caller]
fn check(answer: &Value, outcome: &str, wanted: &[(&str, bool)]) {
    let wanted: Vec<_> = wanted.iter().map(|(name, ok)| ((*name).to_owned(), *ok)).collect();
    assert_eq!((answer["outcome"].as_str().unwrap(), steps(answer)), (outcome, wanted), "{answer}");
}

const BEGUN: [(&str, bool); 4] =
    [("active", true), ("age", true), ("pattern", true), ("delivery", true)];

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_told_attempt_by_attempt() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a.*", json!({ "maxRetries": 2 })).await;
    let event = events.ingest(json!({ "type": "a.b" })).await;
    let query = format!("eventId={event}");
    let call = events.called().await;
    let told = explain(&events, &id, &query).await;
    check(&told, "under_way", &[&BEGUN[..], &[("queue", true)]].concat());
    assert_eq!(told["steps"][4]["detail"], "attempt 1 is on its way");
    call.answer(500, "");
    events.until_status(&id, "failed").await;
    let told = explain(&events, &id, &query).await;
    check(
        &told,
        "waiting_for_retry",
        &[&BEGUN[..], &[("attempt", false), ("next", true)]].concat(),
    );
    assert_eq!(told["steps"][4]["detail"], "attempt 1 failed: answered 500, after 0 ms");
    assert!(told["steps"][5]["detail"].as_str().unwrap().starts_with("attempt 2 is made at 2025-"));
    let body = json!({ "subscriptionId": id });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    events.clock.advance(2_000);
    let held = async || {
        let told = explain(&events, &id, &query).await;
        (told["outcome"] == "held").then_some(told)
    };
    assert_eq!(steps(&eventually("it to be held", held).await)[0], ("active".to_owned(), false));
    events.post("/subscriptions/reactivate", &body).await.expect(200);
    events.called().await.answer(404, "");
    events.until_status(&id, "dead").await;
    let told = explain(&events, &id, &query).await;
    let dead = [("attempt", false), ("attempt", false), ("end", false)];
    check(&told, "dead", &[&BEGUN[..], &dead].concat());
    events.retry_dead_letter(&id).await;
    events.called().await.ok();
    events.until_status(&id, "delivered").await;
    let told = explain(&events, &id, &query).await;
    let again = [("delivery", true), ("attempt", true), ("end", true)];
    check(&told, "delivered", &[&BEGUN[..], &dead, &again].concat());
    assert!(told["steps"][6]["detail"].as_str().unwrap().ends_with("it was retried since"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_delivered_has_its_reason() {
    let events = Deliveries::start().await;
    let old = events.ingest(json!({ "type": "a.b" })).await;
    let id = events.subscribe("a.*").await;
    let told = explain(&events, &id, &format!("eventId={old}")).await;
    check(&told, "not_asked_for", &[("active", true), ("age", false), ("pattern", true)]);
    let other = events.ingest(json!({ "type": "b.c" })).await;
    let told = explain(&events, &id, &format!("eventId={other}")).await;
    check(&told, "not_matched", &[("active", true), ("age", true), ("pattern", false)]);
    assert_eq!(told["steps"][2]["detail"], "segment 1 `a` does not match `b`");
    let body = json!({ "subscriptionId": id });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    let missed = events.ingest(json!({ "type": "a.c" })).await;
    events.post("/subscriptions/reactivate", &body).await.expect(200);
    let told = explain(&events, &id, &format!("eventId={missed}")).await;
    let wanted = [("active", true), ("age", true), ("pattern", true), ("fan-out", false)];
    check(&told, "inactive", &wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_become_of_an_event_is_told_by_its_type() {
    let events = Deliveries::start().await;
    let id = events.subscribe("webhook.git*").await;
    let told = explain(&events, &id, "eventType=webhook.github").await;
    check(&told, "would_be_delivered", &[("active", true), ("pattern", true)]);
    let told = explain(&events, &id, "eventType=webhook.stripe").await;
    check(&told, "not_matched", &[("active", true), ("pattern", false)]);
    let body = json!({ "subscriptionId": id });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    let told = explain(&events, &id, "eventType=webhook.github").await;
    check(&told, "inactive", &[("active", false), ("pattern", true)]);
    for (query, status, code) in [
        ("", 400, "MISSING_PARAM"),
        ("eventType=a&eventId=b", 400, "MISSING_PARAM"),
        ("eventType=a..b", 400, "INVALID_EVENT_TYPE"),
        ("eventId=nobody", 404, "EVENT_NOT_FOUND"),
    ] {
        let target = format!("/subscriptions/{id}/explain?{query}");
        assert_eq!(events.server.get(&target).await.expect(status).json()["code"], code, "{query}");
    }
    let target = "/subscriptions/01ABC/explain?eventType=a";
    assert_eq!(events.server.get(target).await.expect(404).json()["code"], "NOT_FOUND");
}

/// What operators are told of a hook and an event, whatever face they are of.
async fn explain_to_operators(events: &Deliveries, hook: &str, event: &str) -> Value {
    let target = format!("/admin/v1/deliveries/explain?hook={hook}&event={event}");
    events.server.get(&target).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_told_the_same_in_their_words() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a.*", json!({ "maxRetries": 1 })).await;
    let event = events.ingest(json!({ "type": "a.b", "id": "evt-1" })).await;
    events.called().await.answer(500, "");
    events.until_status(&id, "dead").await;
    let told = explain_to_operators(&events, &id, &event).await;
    let steps = [("active", true), ("age", true), ("match", true), ("delivery", true)];
    check(&told, "dead", &[&steps[..], &[("attempt", false), ("end", false)]].concat());
    assert_eq!(told["hook"], id.as_str());
    assert_eq!((&told["event_id"], &told["event_type"]), (&json!("evt-1"), &json!("a.b")));
    assert_eq!(told["steps"][1]["detail"], "the hook was there before the event");
    assert!(told["steps"][5]["detail"].as_str().unwrap().ends_with(": no attempts left"));
    for (query, status, code) in [
        ("hook=01NONE&event=evt-1".to_owned(), 404, "SUBSCRIPTION_NOT_FOUND"),
        (format!("hook={id}&event=nobody"), 404, "EVENT_NOT_FOUND"),
        (format!("hook={id}"), 400, "INVALID_QUERY"),
        (format!("hook={id}&event=a&why="), 400, "INVALID_QUERY"),
    ] {
        let target = format!("/admin/v1/deliveries/explain?{query}");
        let answer = events.server.get(&target).await.expect(status).json();
        assert_eq!(answer["error"]["code"], code, "{query}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_of_before_is_named() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    let event = events.ingest(json!({ "type": "b.c" })).await;
    let body = json!({ "pattern": "b.*" }).to_string();
    let target = format!("/subscriptions/{id}");
    events.server.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(200);
    let told = explain(&events, &id, &format!("eventId={event}")).await;
    assert_eq!(told["outcome"], "no_delivery", "{told}");
    let detail = told["steps"][2]["detail"].as_str().unwrap();
    assert_eq!(detail, "the pattern was another one when the event came");
}
