//! Subscriptions that are changed in place: whom they call, what they are for, what signs.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::*;

/// Changes a subscription.
async fn put(events: &Deliveries, id: &str, body: Value) -> Answer {
    let target = format!("/subscriptions/{id}");
    events.server.ask("PUT", &target, &[JSON], body.to_string().as_bytes()).await
}

/// As the specification of Standard Webhooks writes it.
fn signature(secret: &str, call: &Call) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let (id, timestamp) = (call.get("webhook-id"), call.get("webhook-timestamp"));
    let mut signed = format!("{id}.{timestamp}.").into_bytes();
    signed.extend_from_slice(&call.body);
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed)))
}

fn is_signed(call: &Call) -> bool {
    call.headers.iter().any(|(name, _)| name == "webhook-signature")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_worker_is_replaced_and_what_waits_goes_to_the_other() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("order.*").await;
    events.ingest(json!({ "type": "order.paid" })).await;
    let call = events.called().await;
    assert!(call.line.starts_with("POST /w/handle"), "{}", call.line);
    call.answer(500, "");
    events.until_status(&id, "failed").await;
    let answer = put(&events, &id, json!({ "workerId": "w2", "rpcMethod": "on" })).await;
    let shown = answer.expect(200).json()["subscription"].clone();
    assert_eq!((&shown["workerId"], &shown["rpcMethod"]), (&json!("w2"), &json!("on")));
    events.to_next_attempt(&id, 1).await;
    let call = events.called().await;
    assert!(call.line.starts_with("POST /w2/on"), "{}", call.line);
    assert_eq!(call.get("x-events-attempt"), "2");
    call.ok();
    events.until_status(&id, "delivered").await;
    // A binding is set, and cleared by null; one that is not there is warned of.
    let answer = put(&events, &id, json!({ "workerBinding": "NONE" })).await.expect(200).json();
    assert_eq!(answer["subscription"]["workerBinding"], "NONE");
    assert_eq!(answer["warnings"].as_array().map(Vec::len), Some(1));
    let answer = put(&events, &id, json!({ "timeoutMs": 9 })).await.expect(200).json();
    assert_eq!(answer["subscription"]["workerBinding"], "NONE");
    let answer = put(&events, &id, json!({ "workerBinding": null })).await.expect(200).json();
    assert_eq!(answer["subscription"]["workerBinding"], Value::Null);
    assert_eq!(answer.get("warnings"), None);
    for (name, value) in [
        ("workerId", json!("a..b")),
        ("workerId", json!(1)),
        ("workerBinding", json!("a b")),
        ("workerBinding", json!(1)),
        ("pattern", json!("a..b")),
        ("pattern", json!(7)),
        ("secret", json!("short")),
        ("secret", json!(1)),
    ] {
        let answer = put(&events, &id, json!({ name: value, "maxRetries": 1 })).await.expect(400);
        assert!(answer.text().contains(name), "{answer}");
    }
    assert_eq!(events.status(&id).await["subscription"]["maxRetries"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_is_changed_for_what_comes_from_then_on() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    let other = events.subscribe_with("c.*", json!({})).await;
    let old = events.ingest(json!({ "type": "a.1" })).await;
    events.called().await.answer(500, "");
    events.until_status(&id, "failed").await;
    let answer = put(&events, &id, json!({ "pattern": "b.*" })).await.expect(200).json();
    assert_eq!(answer["subscription"]["pattern"], "b.*");
    assert_eq!(answer["subscription"]["patternPrefix"], "b");
    // What it is for is found by what it is now, and the old one is free.
    let matched = events.server.get("/subscriptions/match?eventType=a.1").await.json();
    assert_eq!(matched["subscriptions"], json!([]));
    let matched = events.server.get("/subscriptions/match?eventType=b.1").await.json();
    assert_eq!(matched["subscriptions"][0]["id"], id);
    events.ingest(json!({ "type": "a.2" })).await;
    events.ingest(json!({ "type": "b.2" })).await;
    let call = events.called().await;
    assert_eq!(call.json()["type"], "b.2");
    call.ok();
    // What was promised before is kept.
    let waits = events.deliveries(&id).await.remove(0);
    assert_eq!(waits["eventId"], old);
    events.advance_to(waits["nextAttemptAt"].as_u64().unwrap());
    let call = events.called().await;
    assert_eq!((&call.json()["type"], call.get("x-events-attempt")), (&json!("a.1"), "2"));
    call.ok();
    let target = format!("/subscriptions/{id}/explain?eventId={old}");
    let said = events.server.get(&target).await.expect(200).json();
    assert_eq!(said["steps"][2]["detail"], "the pattern was another one when the event came");
    assert_eq!(said["steps"][2]["ok"], true);
    // Becoming like another is refused, as when it is made.
    let wanted = "Subscription already exists for this worker/pattern/method combination";
    let answer = put(&events, &other, json!({ "pattern": "b.*" })).await.expect(409).json();
    assert_eq!((&answer["error"], &answer["code"]), (&json!(wanted), &json!("DUPLICATE_ENTRY")));
    put(&events, &other, json!({ "pattern": "a.*" })).await.expect(200);
    events = events.crash().await;
    events.ingest(json!({ "type": "a.3" })).await;
    events.ingest(json!({ "type": "c.3" })).await;
    let call = events.called().await;
    assert_eq!(call.json()["type"], "a.3");
    call.ok();
    events.until_status(&other, "delivered").await;
    events.quiet("nobody is for the others").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_set_replaced_and_removed() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let answer = put(&events, &id, json!({ "secret": true })).await.expect(200).json();
    let secret = answer["secret"].as_str().unwrap().to_owned();
    assert_eq!(answer["subscription"]["signed"], true);
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-signature"), signature(&secret, &call));
    call.ok();
    let own = format!("whsec_{}", STANDARD.encode([9; 32]));
    let answer = put(&events, &id, json!({ "secret": own })).await.expect(200);
    assert!(!answer.text().contains("whsec_"), "whoever gave it knows it: {answer}");
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-signature"), signature(&own, &call));
    call.ok();
    // What is not said stays as it is.
    put(&events, &id, json!({ "maxRetries": 2 })).await.expect(200);
    assert_eq!(events.status(&id).await["subscription"]["signed"], true);
    for removal in [json!(null), json!(false)] {
        put(&events, &id, json!({ "secret": own })).await.expect(200);
        let answer = put(&events, &id, json!({ "secret": removal })).await.expect(200).json();
        assert_eq!(answer["subscription"]["signed"], false);
    }
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert!(!is_signed(&call));
    call.ok();
}

const DAY_MS: u64 = 86_400_000;

#[tokio::test(flavor = "multi_thread")]
async fn while_a_secret_is_rotated_both_sign_and_the_one_before_comes_first() {
    let mut events = Deliveries::start().await;
    let made = events.server.subscribed("a", json!({ "secret": true })).await;
    let (id, old) = (made["subscriptionId"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let (id, old) = (id.to_owned(), old.to_owned());
    let rotate = format!("/subscriptions/{id}/rotate-secret");
    let answer = events.server.ask("POST", &rotate, &[], b"").await.expect(200).json();
    let new = answer["secret"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(answer["previousSecretUntil"], events.now() + DAY_MS);
    let shown = events.status(&id).await;
    assert_eq!(shown["subscription"]["previousSecretUntil"], events.now() + DAY_MS);
    assert!(!shown.to_string().contains("whsec_"), "it is shown once");
    events = events.restart().await;
    events.clock.advance(DAY_MS - 1);
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    let both = format!("{} {}", signature(&old, &call), signature(&new, &call));
    assert_eq!(call.get("webhook-signature"), both);
    call.answer(500, "");
    // The next attempt is later, and so is signed with the new one alone.
    events.to_next_attempt(&id, 1).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-signature"), signature(&new, &call));
    call.ok();
    // Without an overlap the old one is worth nothing at once.
    let answer = events.post(&rotate, &json!({ "overlap": 0 })).await.expect(200).json();
    let newest = answer["secret"].as_str().unwrap().to_owned();
    assert_eq!(answer["previousSecretUntil"], Value::Null);
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-signature"), signature(&newest, &call));
    call.ok();
    for wrong in ["31d", "soon", ""] {
        events.post(&rotate, &json!({ "overlap": wrong })).await.expect(400);
    }
    let answer = events.post(&rotate, &json!({ "overlp": "1h" })).await.expect(400);
    assert!(answer.text().contains("did you mean `overlap`"), "{answer}");
    events.post(&rotate, &json!({ "overlap": "30d" })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_nothing_to_rotate_where_nothing_signs() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let rotate = format!("/subscriptions/{id}/rotate-secret");
    let answer = events.post(&rotate, &json!({})).await.expect(409).json();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("NO_SECRET")));
    assert!(answer["error"].as_str().unwrap().contains("{\"secret\": true}"), "{answer}");
    let nobody = "/subscriptions/01ARZ3NDEKTSV4RRFFQ69G5FAV/rotate-secret";
    events.post(nobody, &json!({})).await.expect(404);
    events.server.get(&rotate).await.expect(405);
}
