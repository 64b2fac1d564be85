//! A subscription that is paused: nothing is sent to it, and nothing is lost.

use reveille_core::Millis;
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const DAY_MS: u64 = 86_400_000;

async fn pause(events: &Deliveries, id: &str) -> Value {
    events.post("/subscriptions/pause", &json!({ "subscriptionId": id })).await.expect(200).json()
}

async fn resume(events: &Deliveries, id: &str) -> Value {
    events.post("/subscriptions/resume", &json!({ "subscriptionId": id })).await.expect(200).json()
}

async fn stats(events: &Deliveries, id: &str) -> Value {
    events.status(id).await["stats"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_a_subscription_is_paused_waits_and_is_counted() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let answer = pause(&events, &id).await;
    assert_eq!(
        answer,
        json!({ "ok": true, "subscriptionId": id, "active": true, "paused": true, "waiting": 0,
                "namespace": null })
    );
    // Doing it twice is doing it once.
    assert_eq!(pause(&events, &id).await, answer);
    for n in 0..100 {
        events.ingest(json!({ "type": "a", "n": n })).await;
    }
    events.quiet("it is paused").await;
    assert_eq!(stats(&events, &id).await["waiting"], 100);
    let target = "/subscriptions/list?paused=true";
    let listed = events.server.get(target).await.expect(200).json();
    assert_eq!(listed["subscriptions"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["subscriptions"][0]["paused"], true);
    let target = format!("/subscriptions/{id}/deliveries?limit=1");
    let shown = events.server.get(&target).await.expect(200).json();
    assert_eq!(shown["deliveries"][0]["status"], "pending");
    events = events.crash().await;
    events.quiet("it is paused still").await;
    let answer = resume(&events, &id).await;
    assert_eq!((&answer["paused"], &answer["waiting"]), (&json!(false), &json!(0)));
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 100 {
        let call = events.called().await;
        let event = call.json();
        if event["type"] == "a" {
            assert!(seen.insert(event["payload"]["n"].as_u64().unwrap()), "once each");
        }
        call.ok();
    }
    eventually("all to be delivered", async || {
        (stats(&events, &id).await["totalDelivered"] == 100).then_some(())
    })
    .await;
    for wrong in ["pause", "resume"] {
        let target = format!("/subscriptions/{wrong}");
        let nobody = json!({ "subscriptionId": "01ARZ3NDEKTSV4RRFFQ69G5FAV" });
        events.post(&target, &nobody).await.expect(404);
        events.post(&target, &json!({})).await.expect(400);
        let body = json!({ "subscriptionId": id, "until": "tomorrow" });
        events.post(&target, &body).await.expect(400);
        events.server.get(&target).await.expect(405);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_waits_too_and_goes_on_where_it_was() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    events.ingest(json!({ "type": "a" })).await;
    let under_way = events.called().await;
    pause(&events, &id).await;
    // What is under way ends as it does.
    under_way.answer(500, "");
    let failed = events.until_status(&id, "failed").await;
    assert_eq!(stats(&events, &id).await["waiting"], 1);
    events.advance_to(failed["nextAttemptAt"].as_u64().unwrap());
    events.until(&id, |it| it["nextAttemptAt"].is_null()).await;
    events.quiet("its time has come, and it is paused").await;
    resume(&events, &id).await;
    let call = events.called().await;
    assert_eq!(call.get("x-events-attempt"), "2");
    call.ok();
    events.until_status(&id, "delivered").await;
}

/// Both hold what had begun; what comes meanwhile is kept by a pause alone, and answers say so.
#[tokio::test(flavor = "multi_thread")]
async fn pausing_is_not_unsubscribing() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let body = json!({ "subscriptionId": id });
    let off = events.post("/subscriptions/unsubscribe", &body).await.expect(200).json();
    assert!(off["note"].as_str().unwrap().contains("/subscriptions/pause"), "{off}");
    events.ingest(json!({ "type": "a", "n": "missed" })).await;
    pause(&events, &id).await;
    let on = events.post("/subscriptions/reactivate", &body).await.expect(200).json();
    assert!(on["note"].as_str().unwrap().contains("is not"), "{on}");
    events.ingest(json!({ "type": "a", "n": "kept" })).await;
    events.quiet("it is active and paused").await;
    resume(&events, &id).await;
    let call = events.called().await;
    assert_eq!(call.json()["payload"]["n"], "kept");
    call.ok();
    events.until_status(&id, "delivered").await;
    events.quiet("the other is not owed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_waited_for_too_long_expires_and_retention_goes_on() {
    let mut events = Deliveries::start().await;
    let paused = events.subscribe_with("a", json!({ "workerId": "paused" })).await;
    let left = events.subscribe_with("a", json!({ "workerId": "left" })).await;
    let body = json!({ "subscriptionId": left });
    events.ingest(json!({ "type": "a" })).await;
    for _ in 0..2 {
        events.called().await.answer(500, "");
    }
    for id in [&paused, &left] {
        events.until_status(id, "failed").await;
    }
    pause(&events, &paused).await;
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    events.clock.advance(10_000);
    for id in [&paused, &left] {
        events.until(id, |it| it["nextAttemptAt"].is_null()).await;
    }
    // It is the time of waiting that counts: nothing has waited since before the pause.
    let cutoff = Millis(events.now() - 10_000);
    assert_eq!(events.server.engine.expire_deliveries(cutoff).await, Ok(0));
    // 30 days, and an hour until the next look.
    events.clock.advance(30 * DAY_MS + 3_600_000);
    for id in [&paused, &left] {
        events.until_status(id, "dead").await;
        let letters = events.dead_letters(id).await;
        assert_eq!((letters.len(), &letters[0]["reason"]), (1, &json!("EXPIRED")));
        assert_eq!(stats(&events, id).await["waiting"], 0);
    }
    // A dead letter can be made again, and waits if nothing is sent.
    events.retry_dead_letter(&paused).await;
    assert_eq!(stats(&events, &paused).await["waiting"], 1);
    resume(&events, &paused).await;
    let call = events.called().await;
    assert!(call.line.contains("/paused/"), "{}", call.line);
    call.ok();
    events.until_status(&paused, "delivered").await;
    // In the end nothing is left of either, and the event goes.
    events.clock.advance(30 * DAY_MS + 3_600_000);
    eventually("dead letters to be forgotten", async || {
        events.dead_letters(&left).await.is_empty().then_some(())
    })
    .await;
    events.clock.advance(3_600_000);
    eventually("the event to be forgotten", async || {
        let all = events.server.get("/_events/default?offset=-1").await.expect(200).text();
        event_kinds(&all).is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_pause_and_resume_what_others_have_made() {
    let server = guarded_by_keys().start().await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    let (_, operator) = server.make_key("acme", &["operator"]).await;
    let (_, stranger) = server.make_key("other", &["operator"]).await;
    let hook = br#"{"workerId":"w","pattern":"a","rpcMethod":"m"}"#;
    let made = server.ask_as(&user, "POST", "/subscriptions/subscribe", &[], hook).await;
    let id = made.expect(200).json()["subscriptionId"].as_str().unwrap().to_owned();
    let body = json!({ "subscriptionId": id }).to_string();
    for (step, paused) in [("pause", true), ("resume", false)] {
        let target = format!("/subscriptions/{step}");
        let answer = server.ask_as(&stranger, "POST", &target, &[], body.as_bytes()).await;
        answer.expect(404);
        let answer = server.ask_as(&operator, "POST", &target, &[], body.as_bytes()).await;
        assert_eq!(answer.expect(200).json()["paused"], paused);
    }
    // What it is, is its owner's.
    let target = format!("/subscriptions/{id}");
    server.ask_as(&operator, "PUT", &target, &[], b"{}").await.expect(403);
    let target = format!("/subscriptions/{id}/rotate-secret");
    server.ask_as(&operator, "POST", &target, &[], b"{}").await.expect(403);
    server.ask_as(ADMIN, "POST", "/subscriptions/pause", &[], body.as_bytes()).await.expect(200);
    server.stop().await;
}
