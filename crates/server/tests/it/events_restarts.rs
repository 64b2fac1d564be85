//! What deliveries find after the server was stopped, or fell.

use serde_json::{Value, json};

use crate::harness::*;

async fn again(events: Deliveries, in_order: bool) -> Deliveries {
    if in_order { events.restart().await } else { events.crash().await }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_was_on_its_way_is_made_again_under_the_same_ids() {
    for in_order in [true, false] {
        let mut events = Deliveries::start().await;
        let id = events.subscribe("a").await;
        let event = events.ingest(json!({ "type": "a", "n": 1 })).await;
        let call = events.called().await;
        let mut events = again(events, in_order).await;
        let next = events.called().await;
        assert_eq!(next.json(), call.json());
        assert_eq!(next.json()["id"], event);
        assert_eq!(next.get("x-events-delivery-id"), call.get("x-events-delivery-id"));
        assert_eq!(next.get("x-events-attempt"), "1");
        next.ok();
        events.until_status(&id, "delivered").await;
        assert_eq!(events.deliveries(&id).await.len(), 1);
        assert_eq!(events.status(&id).await["stats"]["totalAttempts"], 1);
        let mut events = again(events, in_order).await;
        events.quiet("it was delivered").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_shown_survives_and_retries_go_on() {
    for in_order in [true, false] {
        let mut events = Deliveries::start().await;
        let dead = events.subscribe_with("dead", json!({ "maxRetries": 1 })).await;
        let waits = events.subscribe_with("waits", json!({ "maxRetries": 3 })).await;
        let off = events.subscribe_with("off", json!({})).await;
        let body = json!({ "subscriptionId": off });
        events.post("/subscriptions/unsubscribe", &body).await.expect(200);
        for kind in ["dead", "waits", "off"] {
            events.ingest(json!({ "type": kind })).await;
        }
        for _ in 0..2 {
            events.called().await.answer(500, "no");
        }
        events.until_status(&dead, "dead").await;
        let failed = events.until_status(&waits, "failed").await;
        let look = async |events: &Deliveries| -> Vec<Value> {
            let mut all = vec![events.server.get("/subscriptions/list").await.json()];
            for id in [&dead, &waits, &off] {
                all.push(events.status(id).await);
                all.extend(events.deliveries(id).await);
                all.extend(events.dead_letters(id).await);
            }
            all.extend(events.logs(&failed).await);
            all.push(events.server.get("/_events/default?offset=-1").await.json());
            all
        };
        let before = look(&events).await;
        let mut events = again(events, in_order).await;
        assert_eq!(look(&events).await, before);
        events.to_next_attempt(&waits, 1).await;
        let call = events.called().await;
        assert_eq!(call.get("x-events-attempt"), "2");
        call.ok();
        events.until_status(&waits, "delivered").await;
        // A dead letter from before is retried after it.
        events.retry_dead_letter(&dead).await;
        let call = events.called().await;
        assert_eq!(call.json()["type"], "dead");
        call.ok();
        events.until_status(&dead, "delivered").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deliveries_in_the_middle_of_everything_are_all_made() {
    let mut events = Deliveries::start().await;
    let mut ids = Vec::new();
    // More than get their deliveries in the batch that brings the event.
    for n in 0..100 {
        ids.push(events.subscribe_with("a", json!({ "workerId": format!("w{n}") })).await);
    }
    let batch: Vec<Value> = (0..5).map(|n| json!({ "type": "a", "n": n })).collect();
    events.post("/ingest", &json!(batch)).await.expect(200);
    // Some are answered before it falls.
    let mut accepted = std::collections::BTreeSet::new();
    for _ in 0..120 {
        let call = events.called().await;
        accepted.insert(call.get("x-events-delivery-id").to_owned());
        call.ok();
    }
    let mut events = events.crash().await;
    let all = async || {
        while let Some(call) = events.sink.come() {
            accepted.insert(call.get("x-events-delivery-id").to_owned());
            call.ok();
        }
        let mut delivered = 0;
        for id in &ids {
            delivered += events.status(id).await["stats"]["totalDelivered"].as_u64().unwrap();
        }
        (delivered == 500).then_some(())
    };
    eventually("every event to be delivered to every subscription", all).await;
    assert_eq!(accepted.len(), 500);
}
