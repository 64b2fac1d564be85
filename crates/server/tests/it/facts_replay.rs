//! Replays: what a subscription was told, once more, for as long as the window is.

use serde_json::{Value, json};

use crate::harness::facts::{Facts, text};

async fn page(facts: &Facts, who: &crate::harness::facts::Party, target: &str) -> Value {
    facts.get(who, target).await.expect(200).json()
}

fn relations(page: &Value) -> Vec<String> {
    let events = page["events"].as_array().unwrap();
    events.iter().map(|it| text(&it["payload"]["relation"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn s_15_s_21_events_are_replayed_in_their_order_as_they_were_delivered() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    let mut delivered = Vec::new();
    for n in 0..5 {
        facts.say(json!({ "relation": format!("r{n}") })).await;
        let call = facts.called().await;
        delivered.push(call.json());
        call.ok();
        facts.clock.advance(1);
    }
    let target = format!("/v1/subscriptions/{id}/events");
    let all = page(&facts, &alice, &target).await;
    assert_eq!(all["events"], json!(delivered), "the same in every field");
    assert_eq!((&all["replay_window_s"], &all["has_more"]), (&json!(3_600), &json!(false)));
    // Page by page it is the same.
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = page(&facts, &alice, &format!("{target}?limit=2{after}")).await;
        seen.extend(page["events"].as_array().unwrap().clone());
        if page["has_more"] == false {
            assert_eq!(page["next_after"], delivered[4]["event_id"]);
            break;
        }
        after = format!("&after={}", text(&page["next_after"]));
    }
    assert_eq!(seen, delivered);
    let after = text(&delivered[1]["event_id"]);
    let rest = page(&facts, &alice, &format!("{target}?after={after}")).await;
    assert_eq!(relations(&rest), ["r2", "r3", "r4"]);
    let last = text(&delivered[4]["event_id"]);
    let nothing = page(&facts, &alice, &format!("{target}?after={last}")).await;
    assert_eq!((&nothing["events"], &nothing["has_more"]), (&json!([]), &json!(false)));
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_what_was_never_delivered_is_replayed_too() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({ "relation": "waits" })).await;
    let call = facts.called().await;
    let target = format!("/v1/subscriptions/{id}/events");
    assert_eq!(relations(&page(&facts, &alice, &target).await), ["waits"]);
    call.ok();
    let facts = facts.restart().await;
    assert_eq!(
        relations(&page(&facts, &alice, &target).await),
        ["waits"],
        "after a restart as well"
    );
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_the_window_ends_and_what_came_before_it_is_gone() {
    let mut facts = Facts::with(|setup| setup.facts.replay_window_s = 60).await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    assert_eq!(facts.shown(&alice, &id).await["replay_window_s"], 60);
    facts.say(json!({ "relation": "old" })).await;
    let old = facts.called().await;
    let old_id = text(&old.json()["event_id"]);
    old.ok();
    facts.clock.advance(30_000);
    facts.say(json!({ "relation": "new" })).await;
    facts.called().await.ok();
    let target = format!("/v1/subscriptions/{id}/events");
    assert_eq!(relations(&page(&facts, &alice, &target).await), ["old", "new"]);
    let after = format!("{target}?after={old_id}");
    assert_eq!(relations(&page(&facts, &alice, &after).await), ["new"]);
    facts.clock.advance(30_001);
    let left = page(&facts, &alice, &target).await;
    assert_eq!((relations(&left), &left["replay_window_s"]), (vec!["new".to_owned()], &json!(60)));
    let gone = facts.get(&alice, &after).await.expect(404);
    assert_eq!(gone.code(), "event_not_found", "so the subscriber knows of the gap");
    facts.server.stop().await;
}

/// What is replayed are a subscription's events, which end with the window; facts are kept for ever.
#[tokio::test(flavor = "multi_thread")]
async fn s_27_the_replay_buffer_is_not_the_table_of_facts() {
    let mut facts = Facts::with(|setup| setup.facts.replay_window_s = 60).await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let before = facts.say(json!({ "relation": "before" })).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    let shown = facts.shown(&alice, &id).await;
    for column in [
        "id",
        "target",
        "on_change",
        "webhook_url",
        "wake_agent_id",
        "event_filter",
        "scope",
        "idempotency_key",
        "created_at",
        "last_event_at",
        "cancelled_at",
        "replay_window_s",
    ] {
        assert!(shown.get(column).is_some(), "{column} of {shown}");
    }
    assert_eq!(
        facts.replay(&alice, &id).await,
        [Value::Null; 0],
        "facts are there, events are not"
    );
    let fact = facts.say(json!({ "relation": "after" })).await;
    facts.called().await.ok();
    facts.say(json!({ "relation": "after", "confidence": 0 })).await;
    facts.called().await.ok();
    let kinds: Vec<Value> =
        facts.replay(&alice, &id).await.iter().map(|it| it["event_type"].clone()).collect();
    assert_eq!(kinds, ["fact_assert", "fact_retract"]);
    facts.clock.advance(60_001);
    let facts = facts.crash().await;
    assert_eq!(facts.replay(&alice, &id).await, [Value::Null; 0], "the window has ended");
    for fact in [&before, &fact] {
        let target = format!("/v1/facts/{}", text(&fact["id"]));
        assert_eq!(facts.get(&alice, &target).await.expect(200).json(), *fact);
    }
    let all = facts.get(&alice, "/v1/facts").await.expect(200).json();
    assert_eq!(all["facts"].as_array().unwrap().len(), 3);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_a_place_that_is_none_is_refused() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let first = facts.subscribe(&alice, "scope:company").await;
    let second = facts.subscribe(&alice, "scope:global").await;
    let said = facts.say(json!({})).await;
    let mut events = Vec::new();
    for _ in 0..2 {
        let call = facts.called().await;
        events.push(call.json());
        call.ok();
    }
    let others = events.iter().find(|it| it["subscription_id"] == second).unwrap();
    let target = format!("/v1/subscriptions/{first}/events");
    for after in [
        text(&others["event_id"]),
        text(&said["id"]),
        "0f8fad5b-d9cb-469f-a165-70867728950e".to_owned(),
        "x".to_owned(),
        String::new(),
    ] {
        let answer = facts.get(&alice, &format!("{target}?after={after}")).await.expect(404);
        assert_eq!(answer.code(), "event_not_found", "{after}");
    }
    for query in ["limit=0", "limit=501", "limit=x", "limit=-1", "since=1", "limit=1&limit=2"] {
        let answer = facts.get(&alice, &format!("{target}?{query}")).await.expect(400);
        assert_eq!(answer.code(), "invalid_query", "{query}");
    }
    facts.server.stop().await;
}

/// Most of what came is in gardens that she does not belong to: pages are full of what is hers.
#[tokio::test(flavor = "multi_thread")]
async fn s_24_what_is_withheld_leaves_no_trace_and_no_gap_in_the_pages() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    let id = facts.subscribe(&alice, "scope:global").await;
    for n in 0..6 {
        if n % 3 == 0 {
            facts.say(json!({ "relation": format!("r{n}") })).await;
            facts.called().await.ok();
        } else {
            facts.say(json!({ "relation": format!("r{n}"), "garden_id": "atlas" })).await;
        }
    }
    facts.quiet("she is no member").await;
    let target = format!("/v1/subscriptions/{id}/events?limit=1");
    // The last of all is in the garden.
    let hidden = facts.say(json!({ "relation": "r6", "garden_id": "atlas" })).await;
    let (mut seen, mut ids) = (Vec::new(), Vec::new());
    let mut after = String::new();
    loop {
        let answer = facts.get(&alice, &format!("{target}{after}")).await.expect(200);
        let page = answer.json();
        seen.extend(relations(&page).into_iter().filter(|it| it != "sings"));
        ids.push(page["events"][0]["event_id"].clone());
        assert!(!answer.text().contains("atlas"), "{answer}");
        assert_eq!(page["next_after"], *ids.last().unwrap(), "it names what was shown");
        if page["has_more"] == false {
            break;
        }
        after = format!("&after={}", text(&page["next_after"]));
    }
    assert_eq!(seen, ["r0", "r3"]);
    let last = text(ids.last().unwrap());
    let rest = page(&facts, &alice, &format!("{target}&after={last}")).await;
    assert_eq!((&rest["events"], &rest["has_more"]), (&json!([]), &json!(false)));
    // The last part of a name is the number of the event, which is that of the fact.
    let number = text(&hidden["id"])[24..].to_owned();
    assert!(!rest.to_string().contains(&number), "{rest}");
    facts.server.stop().await;
}
