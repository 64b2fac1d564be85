//! Records of deliveries that ended long ago are forgotten, and no others.

use reveille_core::Millis;
use reveille_core::Tenant;
use reveille_core::delivery::policy::DeliveryLimits;
use reveille_core::event::EventPattern;
use reveille_core::event::hook::{EventHookSpec, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_engine::deliveries::{DeliveryError, DeliveryRejection};
use reveille_engine::events::hook::StartFrom;
use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn e37_what_has_ended_is_forgotten_after_its_time_and_the_rest_is_not() {
    let mut events = Deliveries::start().await;
    let dead = events.subscribe_with("dead", json!({ "maxRetries": 1 })).await;
    let done = events.subscribe_with("done", json!({})).await;
    let held = events.subscribe_with("held", json!({})).await;
    for (kind, id, status) in [("dead", &dead, 500), ("done", &done, 200), ("held", &held, 500)] {
        events.ingest(json!({ "type": kind })).await;
        events.called().await.answer(status, "");
        let wanted = if kind == "held" {
            "failed"
        } else if kind == "dead" {
            "dead"
        } else {
            "delivered"
        };
        events.until_status(id, wanted).await;
    }
    let body = json!({ "subscriptionId": held });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    let logged = events.deliveries(&done).await.remove(0);
    let cutoff = Millis(events.now());
    assert_eq!(events.server.engine.clean_up(None, cutoff).await.unwrap(), 0, "nothing is older");
    events.clock.advance(10_000);
    events.until(&held, |it| it["nextAttemptAt"].is_null()).await;
    let cutoff = Millis(events.now());
    assert_eq!(events.server.engine.clean_up(None, cutoff).await.unwrap(), 2);
    for id in [&dead, &done] {
        assert_eq!(events.deliveries(id).await, Vec::<Value>::new());
    }
    assert_eq!(events.dead_letters(&dead).await, Vec::<Value>::new());
    assert_eq!(events.logs(&logged).await, Vec::<Value>::new());
    let stats = events.status(&dead).await["stats"].clone();
    assert_eq!((&stats["deadLetters"], &stats["totalAttempts"]), (&json!(0), &json!(1)));
    assert_eq!(events.status(&done).await["stats"]["totalDelivered"], 1, "ever");
    // What waits is delivered still.
    events.post("/subscriptions/reactivate", &body).await.expect(200);
    events.called().await.ok();
    events.until_status(&held, "delivered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e41_the_same_can_be_done_in_the_process() {
    let mut events = Deliveries::start().await;
    let spec = EventHookSpec {
        pattern: EventPattern::parse("webhook.github.*").unwrap(),
        worker: WorkerId::parse("my-worker").unwrap(),
        binding: None,
        method: RpcMethod::parse("handle").unwrap(),
        max_retries: 1,
        timeout_ms: 30_000,
        secret: None,
        ordered: false,
        retry: Retry::default(),
        limits: DeliveryLimits::default(),
        former: FormerSpec::default(),
    };
    let (engine, tenant) = (events.server.engine.clone(), Tenant::default_tenant());
    let hook = engine.hook(&tenant, spec.clone(), StartFrom::Now, None).await.unwrap();
    let twice = engine.hook(&tenant, spec, StartFrom::Now, None).await;
    assert_eq!(twice.map(drop), Err(DeliveryError::Rejected(DeliveryRejection::Exists)));
    let shown = events.server.get(&format!("/subscriptions/{}", hook.name)).await.expect(200);
    assert_eq!(shown.json()["subscription"]["workerId"], "my-worker");
    events.ingest(json!({ "type": "webhook.github.push" })).await;
    events.called().await.ok();
    events.until_status(&hook.name, "delivered").await;
    events.clock.advance(1);
    assert_eq!(engine.clean_up(Some(&tenant), Millis(events.now())).await.unwrap(), 1);
}
