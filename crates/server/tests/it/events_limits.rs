//! Limits of subscriptions: how many attempts are on their way, and how many are made in a second.

use serde_json::{Value, json};

use crate::harness::keys::guarded_by_keys;
use crate::harness::*;

impl Deliveries {
    async fn change(&self, id: &str, body: Value) -> Answer {
        let (target, body) = (format!("/subscriptions/{id}"), body.to_string());
        self.server.ask("PUT", &target, &[JSON], body.as_bytes()).await
    }

    /// Takes events of a type in, numbered.
    async fn ingest_many(&self, kind: &str, count: u64) {
        let batch: Vec<Value> = (0..count).map(|n| json!({ "type": kind, "n": n })).collect();
        self.post("/ingest", &json!({ "events": batch })).await.expect(200);
    }

    /// The next request, which is a first attempt.
    async fn called_first(&mut self) -> Call {
        let call = self.called().await;
        assert_eq!(call.get("x-events-attempt"), "1", "waiting is no attempt");
        call
    }

    async fn until_all_delivered(&self, id: &str, count: u64) {
        let all = async || {
            let stats = self.status(id).await["stats"].clone();
            (stats["totalDelivered"] == count).then_some(stats)
        };
        let stats = eventually("everything to be delivered", all).await;
        assert_eq!(stats["totalAttempts"], count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_attempts_are_on_their_way_than_the_subscription_allows() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "concurrency": 1 })).await;
    events.ingest_many("a", 4).await;
    let first = events.called_first().await;
    events.quiet("one is on its way").await;
    let metrics = events.server.get("/metrics").await.expect(200).text();
    let held = |line: &&str| {
        line.starts_with("reveille_outbox_held{") && line.contains("state=\"concurrency\"")
    };
    let held = metrics.lines().find(held).expect("a gauge of what waits");
    assert!(held.ends_with(" 3"), "{held}");
    first.ok();
    let second = events.called_first().await;
    events.quiet("one is on its way").await;
    // A change holds at once.
    events.change(&id, json!({ "concurrency": 2 })).await.expect(200);
    let third = events.called_first().await;
    events.quiet("two are on their way").await;
    events.change(&id, json!({ "concurrency": null })).await.expect(200);
    let fourth = events.called_first().await;
    for call in [second, third, fourth] {
        call.ok();
    }
    events.until_all_delivered(&id, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_attempts_begin_in_a_second_than_the_subscription_allows() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "rateLimit": 1 })).await;
    // The last of them wait for longer than an attempt may take.
    events.ingest_many("a", 70).await;
    for number in 0..70 {
        events.called_first().await.ok();
        if number % 23 == 0 {
            events.quiet("the second is not over").await;
            events.clock.advance(999);
            events.quiet("it is almost over").await;
            events.clock.advance(1);
        } else {
            events.clock.advance(1_000);
        }
    }
    events.until_all_delivered(&id, 70).await;
    events.quiet("all were delivered once").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_the_rate_is_held_by_a_pause_and_outlives_a_crash() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "rateLimit": 1 })).await;
    events.ingest_many("a", 3).await;
    events.called_first().await.ok();
    events.post("/subscriptions/pause", &json!({ "subscriptionId": id })).await.expect(200);
    events.clock.advance(10_000);
    events.quiet("it is paused").await;
    events.post("/subscriptions/resume", &json!({ "subscriptionId": id })).await.expect(200);
    events.called_first().await.ok();
    events.until_all_delivered(&id, 2).await;
    let mut events = events.crash().await;
    events.called_first().await.ok();
    events.until_all_delivered(&id, 3).await;
    events.quiet("nothing is left").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_waits_keeps_no_other_and_no_other_tenant_waiting() {
    let mut events = Deliveries::with(|setup| {
        setup.auth = guarded_by_keys().auth;
        setup.partitions = Some(1);
    })
    .await;
    let (_, own) = events.server.make_key("own", &["user"]).await;
    let (_, other) = events.server.make_key("other", &["user"]).await;
    let post = async |key: &str, target: &str, body: Value| {
        let body = body.to_string();
        let answer = events.server.ask_as(key, "POST", target, &[JSON], body.as_bytes()).await;
        answer.expect(200).json()
    };
    let subscribe = async |key: &str, pattern: &str, more: Value| {
        let mut body = json!({ "workerId": "w", "rpcMethod": "handle", "pattern": pattern });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        post(key, "/subscriptions/subscribe", body).await;
    };
    for (pattern, limit) in
        [("one", json!({ "concurrency": 1 })), ("rate", json!({ "rateLimit": 1 }))]
    {
        subscribe(&own, pattern, limit).await;
        let batch: Vec<Value> = (0..500).map(|_| json!({ "type": pattern })).collect();
        post(&own, "/ingest", json!({ "events": batch })).await;
    }
    subscribe(&own, "free", json!({})).await;
    subscribe(&other, "free", json!({})).await;
    for n in 0..20 {
        for key in [&own, &other] {
            post(key, "/ingest", json!({ "type": "free", "n": n })).await;
        }
    }
    let mut held = Vec::new();
    let mut seen = 0;
    while seen < 40 || held.len() < 2 {
        let call = events.sink.next().await;
        if call.json()["type"] == "free" {
            seen += 1;
            call.ok();
        } else {
            held.push(call);
        }
    }
    let mut kinds: Vec<_> = held.iter().map(|call| call.json()["type"].clone()).collect();
    kinds.sort_by_key(Value::to_string);
    assert_eq!(kinds, ["one", "rate"], "one of each, and no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_shown_changed_and_checked() {
    let events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "concurrency": 8, "rateLimit": 50 })).await;
    let shown = async || {
        let answer = events.server.get(&format!("/subscriptions/{id}")).await.expect(200).json();
        let subscription = &answer["subscription"];
        (subscription["concurrency"].clone(), subscription["rateLimit"].clone())
    };
    assert_eq!(shown().await, (json!(8), json!(50)));
    events.change(&id, json!({ "timeoutMs": 9 })).await.expect(200);
    assert_eq!(shown().await, (json!(8), json!(50)), "what is not said stays");
    events.change(&id, json!({ "concurrency": null, "rateLimit": 3.0 })).await.expect(200);
    assert_eq!(shown().await, (Value::Null, json!(3)));
    for (body, sentence) in [
        (json!({ "concurrency": 0 }), "concurrency must be from 1 to 512"),
        (json!({ "concurrency": 513 }), "concurrency must be from 1 to 512"),
        (json!({ "concurrency": "2" }), "concurrency must be an integer"),
        (json!({ "rateLimit": 0.5 }), "rateLimit must be an integer"),
        (json!({ "rateLimit": 10_001 }), "rateLimit must be from 1 to 10000"),
    ] {
        let error = events.change(&id, body).await.expect(400).json();
        assert_eq!(error["code"], "INVALID_FIELD", "{error}");
        assert!(error["error"].as_str().unwrap().contains(sentence), "{error}");
    }
}
