//! Waking agents: a delivery that is an append to a stream of theirs, through the same gate.

use serde_json::{Value, json};

use crate::harness::facts::{Facts, Party, text};
use crate::harness::*;

const AGENT: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const STREAM: &str = "/agents/0f8fad5b-d9cb-469f-a165-70867728950e";

async fn subscribe(facts: &Facts, who: &Party, target: &str) -> String {
    let more = json!({ "on_change": "wake", "webhook_url": null, "wake_agent_id": AGENT });
    facts.subscribe_with(who, target, more).await
}

/// What is in the stream of the agent, once there is so much.
async fn woken(facts: &Facts, who: &Party, count: usize) -> Vec<Value> {
    let look = async || {
        let answer = facts.get(who, &format!("{STREAM}?offset=-1")).await;
        let found = (answer.status() == 200).then(|| answer.json().as_array().unwrap().clone());
        found.filter(|found| found.len() >= count)
    };
    eventually("the agent to be woken", look).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s_7_a_wake_is_an_append_of_two_names_to_the_agents_stream() {
    let facts = Facts::with_agents().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let id = subscribe(&facts, &alice, "scope:company").await;
    let shown = facts.shown(&alice, &id).await;
    assert_eq!((&shown["on_change"], &shown["wake_agent_id"]), (&json!("wake"), &json!(AGENT)));
    assert_eq!(shown["webhook_url"], Value::Null);
    facts.say(json!({})).await;
    let notes = woken(&facts, &alice, 1).await;
    let events = facts.replay(&alice, &id).await;
    let expected = json!([{ "subscription_id": id, "event_id": events[0]["event_id"] }]);
    assert_eq!(json!(notes), expected, "and nothing of the content");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_22_s_25_a_revoked_token_wakes_nobody() {
    let facts = Facts::with_agents().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "scope:company").await;
    let id = subscribe(&facts, &alice, "scope:company").await;
    facts.say(json!({})).await;
    woken(&facts, &alice, 1).await;
    facts.revoke_token(&token).await;
    facts.say(json!({})).await;
    let cancelled = facts.cancelled(&alice, &id).await;
    assert_eq!(cancelled["cancelled_by"], "token_revoked");
    assert_eq!(woken(&facts, &alice, 1).await.len(), 1);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_26_whoever_is_in_no_garden_is_not_woken_by_its_facts() {
    let facts = Facts::with_agents().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    let id = subscribe(&facts, &alice, "scope:global").await;
    facts.say(json!({ "garden_id": "atlas" })).await;
    facts.say(json!({})).await;
    assert_eq!(woken(&facts, &alice, 1).await.len(), 1);
    facts.join("atlas", &alice, "reader").await;
    facts.say(json!({ "garden_id": "atlas" })).await;
    assert_eq!(woken(&facts, &alice, 2).await.len(), 2);
    assert_eq!(facts.shown(&alice, &id).await["cancelled_at"], Value::Null);
    facts.server.stop().await;
}

/// The stream is a stream: who subscribes to it is woken as for any other.
#[tokio::test(flavor = "multi_thread")]
async fn s_7_the_consumer_of_the_agents_stream_is_woken_by_a_webhook() {
    let mut facts = Facts::with_agents().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let webhook = json!({ "webhook": facts.sink.url() }).to_string();
    let target = "/agents/*?subscription=agents";
    facts.server.ask_as(&alice.key, "PUT", target, &[], webhook.as_bytes()).await.expect(201);
    subscribe(&facts, &alice, "scope:company").await;
    facts.say(json!({})).await;
    let call = facts.called().await;
    assert_eq!(call.primary(), STREAM);
    call.done();
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_5_agents_have_ids_and_no_endpoint() {
    let facts = Facts::with_agents().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    for (agent, url) in [
        (json!(null), json!(null)),
        (json!("x"), json!(null)),
        (json!("../../etc/passwd"), json!(null)),
        (json!(5), json!(null)),
        (json!(AGENT), json!("https://example.com/")),
    ] {
        let more = json!({ "on_change": "wake", "webhook_url": url, "wake_agent_id": agent });
        let wish = facts.wish("scope:company", more);
        let answer = facts.post(&alice, "/v1/subscriptions", &wish).await.expect(422);
        assert_eq!(answer.code(), "invalid_wake_agent_id", "{agent} {url}");
    }
    let id = subscribe(&facts, &alice, "scope:company").await;
    let upper = json!({ "on_change": "wake", "webhook_url": null,
                        "wake_agent_id": AGENT.to_uppercase() });
    let same = facts.post(&alice, "/v1/subscriptions", &facts.wish("scope:company", upper)).await;
    assert_eq!(text(&same.expect(200).json()["id"]), id);
    facts.server.stop().await;
}
