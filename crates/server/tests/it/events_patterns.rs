//! Patterns and shards over HTTP: every vector, and that shards never change what is found.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../core/tests/vectors/event-patterns.json")).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn e06_e08_match_and_delivery_give_the_answers_of_the_vectors() {
    let mut events = Deliveries::start().await;
    let vectors = vectors();
    let cases = vectors["patterns"].as_array().unwrap();
    let mut ids: BTreeMap<&str, String> = BTreeMap::new();
    for case in cases {
        let pattern = text(case, "pattern");
        if !ids.contains_key(pattern) {
            let more = json!({ "workerId": format!("w{}", ids.len()) });
            ids.insert(pattern, events.subscribe_with(pattern, more).await);
        }
    }
    let kinds: BTreeMap<&str, ()> = cases.iter().map(|case| (text(case, "type"), ())).collect();
    for kind in kinds.keys() {
        let target = format!("/subscriptions/match?eventType={kind}");
        let answer = events.server.get(&target).await.expect(200).json();
        let found: Vec<&str> =
            answer["subscriptions"].as_array().unwrap().iter().map(|it| text(it, "id")).collect();
        for case in cases.iter().filter(|case| text(case, "type") == *kind) {
            let id = ids[text(case, "pattern")].as_str();
            assert_eq!(found.contains(&id), case["match"] == true, "{case}");
        }
        // Those that match, and only they, get a delivery.
        events.ingest(json!({ "type": kind })).await;
        let mut called = Vec::new();
        for _ in &found {
            let call = events.called().await;
            called.push(call.get("x-events-delivery-id").to_owned());
            assert_eq!(call.json()["type"], *kind);
            call.ok();
        }
        called.sort();
        called.dedup();
        assert_eq!(called.len(), found.len(), "{kind}");
    }
    for (pattern, id) in &ids {
        let stats = events.status(id).await["stats"].clone();
        let wanted = kinds.keys().filter(|kind| {
            let known = cases
                .iter()
                .find(|it| text(it, "pattern") == *pattern && text(it, "type") == **kind);
            known.is_some_and(|case| case["match"] == true)
        });
        let total = stats["totalDelivered"].as_u64().unwrap()
            + stats["pendingDeliveries"].as_u64().unwrap();
        assert!(total >= wanted.count() as u64, "{pattern}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e07_e36_patterns_that_are_not_valid_are_refused_and_the_others_are_not() {
    let events = Deliveries::start().await;
    let vectors = vectors();
    let body = |pattern: &Value| json!({ "workerId": "w", "pattern": pattern, "rpcMethod": "m" });
    for case in vectors["invalid_patterns"].as_array().unwrap() {
        let answer = events.post("/subscriptions/subscribe", &body(&case["pattern"])).await;
        let answer = answer.expect(400).json();
        assert_eq!(answer["ok"], false);
        let error = text(&answer, "error");
        let is_text = case["pattern"].as_str().is_some_and(|text| !text.is_empty());
        let said = if is_text { "Invalid pattern" } else { "Missing required field" };
        assert!(error.starts_with(said), "{case}: {error}");
    }
    for wrong in [json!(null), json!(42), json!(["a"]), json!({}), json!(true)] {
        let answer = events.post("/subscriptions/subscribe", &body(&wrong)).await.expect(400);
        assert_eq!(answer.json()["error"], "Missing required field: pattern (string)");
    }
    let list = events.server.get("/subscriptions/list").await.json();
    assert_eq!(list["subscriptions"], json!([]), "nothing was made of them");
    for pattern in vectors["valid_patterns"].as_array().unwrap() {
        events.post("/subscriptions/subscribe", &body(pattern)).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e09_e10_shards_are_labels_by_the_first_segment() {
    let events = Deliveries::start().await;
    let vectors = vectors();
    for case in vectors["shard_of_pattern"].as_array().unwrap() {
        let made = events.server.subscribed(text(case, "pattern"), json!({})).await;
        assert_eq!(made["shard"], case["shard"], "{case}");
        let target = format!("/subscriptions/{}", text(&made, "subscriptionId"));
        let shown = events.server.get(&target).await.expect(200).json();
        assert_eq!(shown["subscription"]["shard"], case["shard"], "{case}");
    }
    for case in vectors["shard_of_event"].as_array().unwrap() {
        let target = format!("/subscriptions/match?eventType={}", text(case, "type"));
        let answer = events.server.get(&target).await.expect(200).json();
        assert_eq!(answer["shard"], case["shard"], "{case}");
        // E-12: whoever is found is in one of the shards that the event consults.
        for found in answer["subscriptions"].as_array().unwrap() {
            assert!(case["lookup"].as_array().unwrap().contains(&found["shard"]), "{found}");
        }
    }
    // Every subscription is listed in its shard, and in no other.
    let all = events.server.get("/subscriptions/list").await.json();
    let all = all["subscriptions"].as_array().unwrap();
    let mut listed = 0;
    for shard in ["collection", "rpc", "do", "ws", "webhook", "default"] {
        let target = format!("/subscriptions/list?shard={shard}");
        let page = events.server.get(&target).await.expect(200).json();
        assert_eq!(page["shard"], shard);
        for item in page["subscriptions"].as_array().unwrap() {
            assert_eq!((&item["shard"], &item["_shard"]), (&json!(shard), &json!(shard)));
            listed += 1;
        }
    }
    assert_eq!(listed, all.len());
    let none = events.server.get("/subscriptions/list?shard=custom").await.expect(200).json();
    assert_eq!(none["subscriptions"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn e12_an_event_finds_the_subscriptions_of_its_shard_and_of_default() {
    let mut events = Deliveries::start().await;
    for (worker, pattern) in [("own", "webhook.**"), ("any", "**"), ("second", "*.github.*")] {
        events.subscribe_with(pattern, json!({ "workerId": worker })).await;
    }
    for (kind, workers) in [
        ("webhook.github.push", vec!["any", "own", "second"]),
        ("webhook", vec!["any", "own"]),
        ("custom.github.x", vec!["any", "second"]),
        ("a.b.c.d.e.f.g.h.i.j.k.l", vec!["any"]),
    ] {
        events.ingest(json!({ "type": kind })).await;
        let mut called = Vec::new();
        for _ in &workers {
            let call = events.called().await;
            called.push(call.line.split('/').nth(1).unwrap().to_owned());
            call.ok();
        }
        called.sort();
        assert_eq!(called, workers, "{kind}");
    }
    events.quiet("all are told").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e24_match_needs_a_type_and_shows_only_active_subscriptions() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    for (query, error) in [
        ("", "Missing required query param: eventType"),
        ("?eventType=", "Missing required query param: eventType"),
    ] {
        let answer = events.server.get(&format!("/subscriptions/match{query}")).await.expect(400);
        assert_eq!(answer.json()["error"], error);
    }
    for wrong in ["a..b", ".a", "a.", "a*b", "a%20b", "a/b"] {
        let target = format!("/subscriptions/match?eventType={wrong}");
        assert_eq!(
            events.server.get(&target).await.expect(400).json()["code"],
            "INVALID_EVENT_TYPE"
        );
    }
    let target = "/subscriptions/match?eventType=a.b";
    let found = events.server.get(target).await.expect(200).json();
    assert_eq!(found["subscriptions"][0]["id"], id);
    assert_eq!((&found["namespace"], &found["eventType"]), (&Value::Null, &json!("a.b")));
    let body = json!({ "subscriptionId": id });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    assert_eq!(events.server.get(target).await.expect(200).json()["subscriptions"], json!([]));
}
