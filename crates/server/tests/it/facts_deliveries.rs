//! Deliveries of facts: what is sent, how often, and what an answer means.

use serde_json::{Value, json};

use crate::harness::facts::{Facts, text};
use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn s_9_s_14_s_15_s_17_an_event_is_delivered_in_its_envelope() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["company"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    let fact = facts.say(json!({ "confidence": 0.5 })).await;
    let call = facts.called().await;
    let event = call.json();
    let event_id = text(&event["event_id"]);
    let expected = json!({
        "subscription_id": id, "event_id": event_id, "event_type": "fact_assert",
        "entity": "user:alice", "scope": "company", "fact_id": fact["id"], "hlc": fact["hlc"],
        "payload": fact, "idempotency_key": event_id,
    });
    assert_eq!(event, expected);
    assert_eq!(call.get("content-type"), "application/json");
    assert_eq!(call.get("idempotency-key"), event_id);
    assert_eq!(call.get("stigmem-attempt"), "1");
    assert!(call.get("webhook-signature").contains("ed25519="), "{:?}", call.headers);
    call.ok();
    // What nobody has asked for is not delivered: another scope, and another kind.
    facts.say(json!({ "scope": "team" })).await;
    facts.say(json!({ "value": { "type": "string", "v": "other" } })).await;
    let call = facts.called().await;
    assert_eq!(call.json()["payload"]["value"]["v"], "other");
    assert_eq!(call.json()["payload"]["contradicted"], true);
    call.ok();
    facts.say(json!({ "confidence": 0 })).await;
    let call = facts.called().await;
    assert_eq!(call.json()["event_type"], "fact_retract");
    call.ok();
    facts.quiet("a contradiction was not asked for").await;
    let shown = facts.shown(&alice, &id).await;
    assert_eq!(shown["last_event_at"], START_MS);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_8_s_16_contradictions_and_cards_are_events_too() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let filter = json!({ "event_filter": ["contradiction_detected", "card_refreshed"] });
    facts.subscribe_with(&alice, "scope:global", filter).await;
    let first = facts.say(json!({})).await;
    let second = facts.say(json!({ "value": { "type": "string", "v": "globex" } })).await;
    let call = facts.called().await;
    let event = call.json();
    assert_eq!(event["event_type"], "contradiction_detected");
    assert_eq!(event["fact_id"], second["id"]);
    assert_eq!(event["entity"], "user:alice");
    let expected = json!({ "relation": "works_at", "fact_ids": [second["id"], first["id"]] });
    assert_eq!(event["payload"], expected);
    call.ok();
    let card = json!({ "entity": "user:alice", "scope": "company" });
    let card = facts.post(&facts.admin, "/v1/cards/refresh", &card).await.expect(200).json();
    let call = facts.called().await;
    let event = call.json();
    assert_eq!((&event["event_type"], &event["fact_id"]), (&json!("card_refreshed"), &Value::Null));
    let expected = json!({ "summary": card["summary"], "fact_count": card["fact_count"] });
    assert_eq!(event["payload"], expected);
    assert_eq!(event["hlc"], card["hlc"]);
    call.ok();
    facts.quiet("assertions were not asked for").await;
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_4_an_entity_is_the_same_however_it_is_written() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.subscribe(&alice, "entity:stigmem://Company.Example/User/Alice").await;
    facts.say(json!({ "entity": "stigmem://company.example/user/bob" })).await;
    facts.say(json!({ "entity": " Stigmem://company.example/user/ALICE " })).await;
    let call = facts.called().await;
    assert_eq!(call.json()["entity"], "stigmem://company.example/user/alice");
    call.ok();
    facts.quiet("it was about somebody else").await;
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_15_s_18_ten_attempts_with_pauses_that_double_under_one_id() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({})).await;
    let mut ids = Vec::new();
    let mut waited = 0;
    for attempt in 1..=10_u32 {
        let call = facts.called().await;
        assert_eq!(call.get("stigmem-attempt"), attempt.to_string());
        ids.push(call.json());
        call.answer(500, "no");
        if attempt < 10 {
            let pause = facts.to_next_attempt(&ids[0], ids.len()).await;
            assert_eq!(pause, 1 << (attempt - 1));
            waited += pause;
        }
    }
    assert_eq!(waited, 511);
    ids.dedup();
    assert_eq!(ids.len(), 1, "every attempt says the same");
    facts.clock.advance(400_000);
    facts.quiet("it was given up").await;
    let letters = facts.get(&facts.admin, "/admin/v1/dlq").await.expect(200).json();
    assert_eq!(letters["deadLetters"][0]["face"], "facts", "{letters}");
    // The subscription lives, and what was given up can be had once more.
    assert_eq!(facts.shown(&alice, &id).await["cancelled_at"], Value::Null);
    let replayed = facts.replay(&alice, &id).await;
    assert_eq!(replayed[0], ids[0]);
    facts.server.stop().await;
}

/// What came back may be what was sent: operators see that something did, and how it ended.
#[tokio::test(flavor = "multi_thread")]
async fn s_24_what_an_endpoint_repeats_is_kept_nowhere() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    facts.say(json!({ "garden_id": "atlas" })).await;
    for (attempt, status) in [(1, 500), (2, 200)] {
        let call = facts.called().await;
        let event = call.json();
        call.answer(status, &event.to_string());
        if attempt == 1 {
            facts.to_next_attempt(&event, attempt).await;
        }
    }
    let list = facts.get(&facts.admin, &format!("/admin/v1/deliveries?hook={id}")).await.json();
    let delivery = format!("/admin/v1/deliveries/{}", text(&list["deliveries"][0]["id"]));
    let look = async || {
        let shown = facts.get(&facts.admin, &delivery).await.expect(200).json();
        (shown["attempts"][1]["status"] == 200).then_some(shown)
    };
    let shown = eventually("both attempts to be written down", look).await;
    assert_eq!(shown["attempts"][0]["status"], 500);
    assert!(!shown.to_string().contains("acme"), "{shown}");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_19_whatever_fails_is_tried_again_and_whatever_succeeds_is_not() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.subscribe(&alice, "scope:company").await;
    for status in [301, 400, 401, 403, 404, 409, 422, 429, 500, 503] {
        facts.say(json!({})).await;
        let call = facts.called().await;
        let event = call.json();
        call.answer(status, "no");
        assert_eq!(facts.to_next_attempt(&event, 1).await, 1, "{status}");
        let call = facts.called().await;
        assert_eq!(call.get("stigmem-attempt"), "2", "{status}");
        call.answer(204, "");
    }
    // Nobody answers: after ten seconds that is a failure, too.
    facts.say(json!({})).await;
    let hanging = facts.called().await;
    facts.clock.sleeper(1_000).await;
    facts.clock.advance(1_000);
    facts.clock.sleeper(9_000).await;
    facts.clock.advance(9_000);
    assert_eq!(facts.to_next_attempt(&hanging.json(), 1).await, 1);
    let call = facts.called().await;
    assert_eq!(call.get("stigmem-attempt"), "2");
    call.answer(299, "whatever");
    drop(hanging);
    facts.clock.advance(1_000_000);
    facts.quiet("all was delivered").await;
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_20_an_endpoint_that_is_gone_removes_the_subscription() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({ "relation": "first" })).await;
    let first = facts.called().await;
    facts.say(json!({ "relation": "second" })).await;
    let second = facts.called().await;
    second.answer(500, "no");
    first.answer(410, "gone");
    let target = format!("/v1/subscriptions/{id}");
    let gone = async || {
        let answer = facts.get(&alice, &target).await;
        (answer.status() == 404).then(|| answer.code())
    };
    assert_eq!(eventually("the subscription to go", gone).await, "subscription_not_found");
    facts.get(&alice, &format!("{target}/events")).await.expect(404);
    facts.say(json!({ "relation": "third" })).await;
    facts.clock.advance(1_000_000);
    facts.quiet("what was queued is dropped").await;
    // The same again is a new one.
    let again = facts.subscribe(&alice, "scope:company").await;
    assert_ne!(again, id);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_17_what_was_answered_is_delivered_after_a_crash() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.subscribe(&alice, "scope:company").await;
    let said = facts.say(json!({})).await;
    let first = facts.called().await;
    let event = first.json();
    let mut facts = facts.crash().await;
    drop(first);
    let call = facts.called().await;
    assert_eq!(call.json(), event, "the same event, in every byte");
    assert_eq!(call.json()["payload"], said);
    call.ok();
    let later = facts.say(json!({})).await;
    assert!(text(&later["hlc"]) > text(&said["hlc"]), "time grows over restarts");
    facts.called().await.ok();
    facts.server.stop().await;
}
