//! The way of an event: in by `/ingest`, out to every subscription that matches its type.

use serde_json::json;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn e01_every_active_subscription_that_matches_gets_one_delivery() {
    let mut events = Deliveries::start().await;
    let all = events.subscribe_with("**", json!({ "workerId": "all" })).await;
    let some = events.subscribe_with("webhook.github.*", json!({ "workerId": "some" })).await;
    let none = events.subscribe_with("webhook.stripe.*", json!({ "workerId": "none" })).await;
    let off = events.subscribe_with("webhook.**", json!({ "workerId": "off" })).await;
    let body = json!({ "subscriptionId": off });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    let id = events.ingest(json!({ "type": "webhook.github.push", "n": 1 })).await;
    let mut lines = Vec::new();
    for _ in 0..2 {
        let call = events.called().await;
        assert_eq!(call.json()["id"], id);
        lines.push(call.line.clone());
        call.ok();
    }
    lines.sort();
    assert_eq!(lines, ["POST /all/handle HTTP/1.1", "POST /some/handle HTTP/1.1"]);
    for id in [&all, &some] {
        events.until_status(id, "delivered").await;
        assert_eq!(events.deliveries(id).await.len(), 1);
    }
    for id in [&none, &off] {
        assert_eq!(events.deliveries(id).await.len(), 0);
    }
    events.quiet("only those that match and are active are called").await;
}
