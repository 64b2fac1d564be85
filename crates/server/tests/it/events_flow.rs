//! The way of an event: in by `/ingest`, out to every subscription that matches its type.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use reveille_core::event::worker::Binding;
use reveille_deliver::resolve::{Resolve, ResolveFuture};
use reveille_server::Workers;
use serde_json::{Value, json};

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

#[tokio::test(flavor = "multi_thread")]
async fn e02_the_first_attempt_is_made_at_once_and_ingest_does_not_wait_for_it() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    // The answer is there, and the worker has not answered: the time stands still.
    events.ingest(json!({ "type": "a.b" })).await;
    let hanging = events.called().await;
    for _ in 0..10 {
        events.ingest(json!({ "type": "a.b" })).await;
    }
    assert_eq!(events.status(&id).await["stats"]["pendingDeliveries"], 11);
    hanging.ok();
    for _ in 0..10 {
        events.called().await.ok();
    }
    let delivered =
        async || (events.status(&id).await["stats"]["totalDelivered"] == 11).then_some(());
    eventually("all to be delivered", delivered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e04_a_subscription_sees_events_from_after_its_creation_unless_it_asks_for_more() {
    let mut events = Deliveries::start().await;
    let mut ids = Vec::new();
    for n in 1..=3 {
        ids.push(events.ingest(json!({ "type": "a", "n": n })).await);
    }
    events.ingest(json!({ "type": "b" })).await;
    let ways = [
        (json!({ "workerId": "default" }), vec![4]),
        (json!({ "workerId": "new", "deliver": "new" }), vec![4]),
        (json!({ "workerId": "all", "deliver": "all" }), vec![1, 2, 3, 4]),
        (json!({ "workerId": "from", "deliver": { "from": ids[1] } }), vec![2, 3, 4]),
    ];
    let mut subscriptions = Vec::new();
    for (more, expected) in &ways {
        subscriptions.push((events.subscribe_with("a", more.clone()).await, expected.len()));
    }
    events.ingest(json!({ "type": "a", "n": 4 })).await;
    let mut seen: Vec<(String, u64)> = Vec::new();
    for _ in 0..9 {
        let call = events.called().await;
        let worker = call.line.split('/').nth(1).unwrap().to_owned();
        seen.push((worker, call.json()["payload"]["n"].as_u64().unwrap()));
        call.ok();
    }
    seen.sort();
    let mut wanted = Vec::new();
    for (more, expected) in &ways {
        let worker = more["workerId"].as_str().unwrap().to_owned();
        wanted.extend(expected.iter().map(|n| (worker.clone(), *n)));
    }
    wanted.sort();
    assert_eq!(seen, wanted);
    for (id, count) in &subscriptions {
        assert_eq!(events.deliveries(id).await.len(), *count);
    }
    let body = json!({ "workerId": "x", "pattern": "a", "rpcMethod": "m",
                       "deliver": { "from": "nobody" } });
    let refused = events.post("/subscriptions/subscribe", &body).await.expect(404);
    assert_eq!(refused.json()["code"], "EVENT_NOT_FOUND");
    events.quiet("everything is delivered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e05_where_a_delivery_stands_is_shown() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 2 })).await;
    let event = events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    let pending = events.deliveries(&id).await.remove(0);
    assert_eq!(pending["id"], call.get("x-events-delivery-id"));
    assert_eq!(
        pending,
        json!({
            "id": pending["id"], "subscriptionId": id, "eventId": event, "eventType": "a",
            "status": "pending", "attempts": 0, "nextAttemptAt": null, "createdAt": START_MS,
            "endedAt": null, "lastError": null,
        })
    );
    call.answer(500, "no");
    let failed = events.until_status(&id, "failed").await;
    assert_eq!((&failed["attempts"], &failed["endedAt"]), (&json!(1), &Value::Null));
    assert_eq!(failed["lastError"], "answered 500");
    let next = failed["nextAttemptAt"].as_u64().unwrap();
    assert!((START_MS + 1_000..=START_MS + 2_000).contains(&next), "{next}");
    events.advance_to(next);
    events.called().await.answer(500, "no");
    let dead = events.until_status(&id, "dead").await;
    assert_eq!((&dead["attempts"], &dead["endedAt"]), (&json!(2), &json!(next)));
    assert_eq!(dead["nextAttemptAt"], Value::Null);
    events.ingest(json!({ "type": "a" })).await;
    events.called().await.ok();
    let delivered = events.until_status(&id, "delivered").await;
    assert_eq!(delivered["lastError"], Value::Null);
    // A page at a time.
    let target = format!("/subscriptions/{id}/deliveries?limit=1");
    let page = events.server.get(&target).await.expect(200).json();
    assert_eq!(page["deliveries"][0]["id"], delivered["id"]);
    let target = format!("{target}&after={}", page["next"].as_str().unwrap());
    let page = events.server.get(&target).await.expect(200).json();
    assert_eq!(page["deliveries"][0]["id"], dead["id"]);
    let target = format!("{target}&limit=1000");
    assert_eq!(events.server.get(&target).await.expect(400).json()["code"], "INVALID_QUERY");
    for wrong in ["limit=0", "limit=1001", "limit=x", "after=x", "after=00000000000000000000000001"]
    {
        let target = format!("/subscriptions/{id}/deliveries?{wrong}");
        assert_eq!(events.server.get(&target).await.expect(400).json()["code"], "INVALID_QUERY");
    }
    let answer = events.server.get("/subscriptions/01ABC/deliveries").await.expect(404);
    assert_eq!(answer.json()["error"], "Subscription not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn e28_a_binding_that_exists_is_called_and_one_that_does_not_is_passed_over() {
    let mut bound = Sink::start().await;
    let url = format!("HANDLER=http://127.0.0.1:{}/base/", bound.port());
    let mut events = Deliveries::with(|setup| {
        setup.workers.bindings = [Binding::parse(&url).unwrap()].into();
    })
    .await;
    events.subscribe_with("a", json!({ "workerId": "x", "workerBinding": "HANDLER" })).await;
    events.subscribe_with("b", json!({ "workerId": "y", "workerBinding": "ABSENT" })).await;
    events.ingest(json!({ "type": "a" })).await;
    let call = bound.next().await;
    assert_eq!(call.line, "POST /base/handle HTTP/1.1");
    assert_eq!(call.json()["type"], "a");
    call.ok();
    events.ingest(json!({ "type": "b" })).await;
    let call = events.called().await;
    assert_eq!(call.line, "POST /y/handle HTTP/1.1");
    call.ok();
}

/// Remembers who was asked for, and knows nobody.
#[derive(Default)]
struct SubscriptionSpec(Mutex<Vec<(String, u16)>>);

impl Resolve for SubscriptionSpec {
    fn resolve(&self, _tenant: &Arc<str>, host: &str, port: u16) -> ResolveFuture {
        self.0.lock().unwrap().push((host.to_owned(), port));
        let address = SocketAddr::new("10.0.0.1".parse().unwrap(), port);
        Box::pin(async move { Ok(vec![address]) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e29_workers_without_a_binding_are_where_the_template_says() {
    let asked = Arc::new(SubscriptionSpec::default());
    let resolver = asked.clone();
    let events = Deliveries::with(|setup| {
        setup.workers = Workers::default();
        setup.resolver = Some(resolver);
    })
    .await;
    let id = events.subscribe_with("a", json!({ "workerId": "my-worker" })).await;
    events.ingest(json!({ "type": "a" })).await;
    let failed = events.until_status(&id, "failed").await;
    // Where the name leads is not for whoever the worker belongs to.
    assert_eq!(failed["lastError"], "the address is not allowed");
    let asked = asked.0.lock().unwrap().clone();
    assert_eq!(asked, [("my-worker.workers.dev".to_owned(), 443)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn e29_the_request_is_a_post_of_json_that_says_which_delivery_and_attempt() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "rpcMethod": "on_A1" })).await;
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert_eq!(call.line, "POST /w/on_A1 HTTP/1.1");
    assert_eq!(call.get("content-type"), "application/json");
    assert_eq!(call.get("x-events-attempt"), "1");
    let delivery = call.get("x-events-delivery-id").to_owned();
    assert!(call.headers.iter().all(|(name, _)| !name.starts_with("webhook-")), "unsigned");
    call.answer(503, "");
    events.to_next_attempt(&id, 1).await;
    let again = events.called().await;
    assert_eq!(again.get("x-events-attempt"), "2");
    assert_eq!(again.get("x-events-delivery-id"), delivery);
    again.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn e30_the_body_is_an_envelope_around_the_event_as_it_was_sent() {
    let mut events = Deliveries::start().await;
    events.subscribe("webhook.github.*").await;
    let sent = json!({
        "type": "webhook.github.push", "ts": "2026-01-15T10:30:00.000Z",
        "do": { "id": "1", "name": "n", "class": "c" }, "big": 1.0e300, "list": [1, null, "x"],
    });
    let id = events.ingest(sent.clone()).await;
    let call = events.called().await;
    let wanted = json!({ "id": id, "type": "webhook.github.push",
                         "ts": "2026-01-15T10:30:00.000Z", "payload": sent });
    assert_eq!(call.json(), wanted);
    call.ok();
    assert_eq!(id.len(), 26, "a ULID");
    // What is left out is filled in, and a client's own id is kept.
    let own = events.ingest(json!({ "type": "webhook.github.x", "id": "my id" })).await;
    assert_eq!(own, "my id");
    let call = events.called().await;
    let envelope = call.json();
    assert_eq!(envelope["id"], "my id");
    assert_eq!(envelope["ts"], "2025-06-01T00:00:00.000Z");
    assert_eq!(envelope["payload"]["ts"], envelope["ts"]);
    assert_eq!(envelope["payload"]["id"], "my id");
    assert!(envelope["payload"].get("_namespace").is_none());
    call.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn e31_success_is_any_2xx_and_everything_else_is_tried_again() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    for (status, body) in [(200, "{}"), (201, ""), (202, "text"), (204, ""), (299, "<x>")] {
        events.ingest(json!({ "type": "a" })).await;
        events.called().await.answer(status, body);
        let delivery = events.until(&id, |it| it["status"] == "delivered").await;
        let log = events.logs(&delivery).await.remove(0);
        assert_eq!((&log["status"], &log["workerResponse"]), (&json!("success"), &json!(body)));
    }
    let failures = [301, 302, 304, 400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504];
    for status in failures {
        let event = events.ingest(json!({ "type": "a" })).await;
        let elsewhere = [("location", "http://127.0.0.1:1/elsewhere")];
        events.called().await.answer_with(status, &elsewhere, "");
        let failed = events.until(&id, |it| it["eventId"] == event && it["attempts"] == 1).await;
        assert_eq!(failed["status"], "failed", "{status}");
        assert_eq!(failed["lastError"], format!("answered {status}"));
    }
    // Hung up on, also on the connection that is tried instead.
    let event = events.ingest(json!({ "type": "a" })).await;
    drop(events.called().await);
    let failed = async || {
        drop(events.sink.come());
        let last = events.deliveries(&id).await.pop().unwrap();
        (last["eventId"] == event && last["attempts"] == 1).then_some(last)
    };
    let failed = eventually("it to fail", failed).await;
    assert_eq!(failed["status"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn e31_an_answer_must_come_within_the_time_of_the_subscription() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "timeoutMs": 777 })).await;
    for half in [&b""[..], b"HTTP/1.1 200 x\r\ncontent-length: 9\r\n"] {
        let event = events.ingest(json!({ "type": "a" })).await;
        let call = events.called().await;
        let mut kept = Vec::new();
        if half.is_empty() {
            kept.push(call);
        } else {
            call.answer_raw(half.to_vec());
        }
        events.clock.sleeper(777).await;
        events.clock.advance(777);
        let failed = events.until(&id, |it| it["eventId"] == event && it["attempts"] == 1).await;
        assert_eq!(failed["status"], "failed");
        let log = events.logs(&failed).await.remove(0);
        assert_eq!((&log["status"], &log["durationMs"]), (&json!("failed"), &json!(777)));
        drop(kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_may_not_be_called_is_refused_at_once() {
    let events = Deliveries::with(|setup| {
        let bindings =
            ["IN=http://10.0.0.1/x", "PLAIN=http://example.com/x", "OK=https://a.example"];
        setup.workers.bindings = bindings.iter().map(|it| Binding::parse(it).unwrap()).collect();
    })
    .await;
    for (binding, status) in [("IN", 400), ("PLAIN", 400), ("OK", 200)] {
        let body = json!({ "workerId": "w", "pattern": "a", "rpcMethod": "m",
                           "workerBinding": binding });
        let answer = events.post("/subscriptions/subscribe", &body).await.expect(status).json();
        if status == 400 {
            assert_eq!(answer["code"], "WORKER_ADDRESS_REFUSED");
            assert!(answer["error"].as_str().unwrap().contains("cannot be called"), "{answer}");
        }
    }
    let list = events.server.get("/subscriptions/list").await.json();
    assert_eq!(list["subscriptions"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_deliveries_are_counted() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    events.ingest(json!({ "type": "a" })).await;
    events.called().await.ok();
    events.until_status(&id, "delivered").await;
    events.ingest(json!({ "type": "a" })).await;
    events.called().await.answer(500, "");
    events.until_status(&id, "failed").await;
    let text = events.server.get("/metrics").await.expect(200).text();
    for (name, labels, value) in [
        ("reveille_events_ingested_total", &[][..], 2),
        ("reveille_hooks", &[], 1),
        ("reveille_delivery_attempts_total", &["result=\"delivered\"", "kind=\"\""], 1),
        ("reveille_delivery_attempts_total", &["result=\"failed\"", "kind=\"status\""], 1),
        ("reveille_delivery_delay_seconds_count", &[], 2),
        ("reveille_delivery_attempt_seconds_count", &[], 2),
    ] {
        assert_eq!(metric_of(&text, name, labels), value, "{name} {labels:?}");
    }
}
