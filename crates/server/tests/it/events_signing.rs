//! Deliveries that are signed after Standard Webhooks, checked by a computation of its own.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::harness::*;

/// As the specification of Standard Webhooks writes it.
fn signature(secret: &str, call: &Call) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let (id, timestamp) = (call.get("webhook-id"), call.get("webhook-timestamp"));
    let mut signed = format!("{id}.{timestamp}.").into_bytes();
    signed.extend_from_slice(&call.body);
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed)))
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_a_subscription_with_a_secret_are_signed() {
    let mut events = Deliveries::start().await;
    let given = format!("whsec_{}", STANDARD.encode([7; 24]));
    let answer = events.server.subscribed("a", json!({ "secret": given })).await;
    assert!(answer.get("secret").is_none(), "whoever gave it knows it: {answer}");
    let id = answer["subscriptionId"].as_str().unwrap().to_owned();
    let event = events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-id"), event);
    assert_eq!(call.get("webhook-timestamp"), (START_MS / 1_000).to_string());
    assert_eq!(call.get("webhook-signature"), signature(&given, &call));
    let first = call.get("webhook-signature").to_owned();
    call.answer(500, "");
    // The next attempt is signed anew, for the same event.
    events.to_next_attempt(&id, 1).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-id"), event);
    assert_eq!(call.get("webhook-timestamp"), (events.now() / 1_000).to_string());
    assert_eq!(call.get("webhook-signature"), signature(&given, &call));
    assert_ne!(call.get("webhook-signature"), first);
    call.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_the_server_makes_is_shown_once() {
    let mut events = Deliveries::start().await;
    let answer = events.server.subscribed("a", json!({ "secret": true })).await;
    let secret = answer["secret"].as_str().unwrap().to_owned();
    let other = events.server.subscribed("b", json!({ "secret": true })).await;
    assert_ne!(other["secret"], secret);
    let id = answer["subscriptionId"].as_str().unwrap();
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert_eq!(call.get("webhook-signature"), signature(&secret, &call));
    call.ok();
    let put = json!({ "maxRetries": 1 }).to_string();
    let target = format!("/subscriptions/{id}");
    let events = events.restart().await;
    let answers = [
        events.server.ask("PUT", &target, &[JSON], put.as_bytes()).await.expect(200),
        events.server.get(&target).await.expect(200),
        events.server.get("/subscriptions/list").await.expect(200),
        events.server.get("/subscriptions/match?eventType=a").await.expect(200),
        events.server.get(&format!("/subscriptions/status/{id}")).await.expect(200),
    ];
    for answer in answers {
        assert!(!answer.text().contains("whsec"), "{answer}");
        assert!(answer.text().contains("\"signed\":true"), "{answer}");
    }
    let unsigned = events.server.subscribed("c", json!({ "secret": false })).await;
    let target = format!("/subscriptions/{}", unsigned["subscriptionId"].as_str().unwrap());
    assert_eq!(events.server.get(&target).await.json()["subscription"]["signed"], false);
}
