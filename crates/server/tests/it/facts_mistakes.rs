//! Every refusal of the facts face, reached through HTTP, and the whole table as a golden file.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::harness::Answer;
use crate::harness::facts::{Facts, Party, statement, text};
use crate::harness::keys::ADMIN;

/// Refused for what they ask: method, target, body, status and code.
type Refused = (&'static str, &'static str, Value, u16, &'static str);

fn refused() -> Vec<Refused> {
    let garden = || statement(json!({ "garden_id": "nowhere" }));
    let wish = |more: Value| {
        let mut wish = json!({ "target": "scope:company", "on_change": "webhook",
                               "webhook_url": "https://example.com/" });
        for (name, value) in more.as_object().unwrap() {
            wish[name] = value.clone();
        }
        wish
    };
    let (tokens, subscriptions) = ("/v1/federation/capability-tokens", "/v1/subscriptions");
    let wake = json!({ "on_change": "wake", "webhook_url": null });
    vec![
        ("POST", "/v1/facts", json!([]), 400, "invalid_json"),
        ("POST", "/v1/facts", json!({ "entity": "x" }), 422, "invalid_fact"),
        ("POST", "/v1/facts", garden(), 404, "garden_not_found"),
        ("GET", "/v1/facts?limit=0", json!(null), 400, "invalid_query"),
        ("GET", "/v1/facts/x", json!(null), 404, "fact_not_found"),
        ("DELETE", "/v1/facts", json!(null), 405, "method_not_allowed"),
        ("POST", "/v1/cards/refresh", json!({}), 422, "invalid_card"),
        ("GET", "/v1/cards?entity=nobody&scope=company", json!(null), 404, "card_not_found"),
        ("POST", "/v1/gardens", json!({}), 422, "invalid_garden"),
        ("POST", "/v1/gardens/atlas/members", json!({}), 422, "invalid_member"),
        ("DELETE", "/v1/gardens/atlas/members/nobody", json!(null), 404, "member_not_found"),
        ("DELETE", "/v1/gardens/atlas/members/user:admin", json!(null), 403, "last_admin"),
        ("POST", "/v1/gardens", json!({ "slug": "atlas" }), 409, "garden_exists"),
        ("POST", tokens, json!({}), 422, "invalid_token_request"),
        ("POST", "/v1/federation/capability-tokens/x/revoke", json!({}), 404, "token_not_found"),
        ("GET", "/v1/subscriptions/x", json!(null), 404, "subscription_not_found"),
        ("POST", subscriptions, wish(json!({ "x": 1 })), 422, "invalid_subscription"),
        ("POST", subscriptions, wish(json!({ "target": "x" })), 422, "invalid_target"),
        ("POST", subscriptions, wish(json!({ "on_change": "x" })), 422, "invalid_on_change"),
        ("POST", subscriptions, wish(json!({ "webhook_url": "x" })), 422, "invalid_webhook_url"),
        (
            "POST",
            subscriptions,
            wish(json!({ "wake_agent_id": "x" })),
            422,
            "invalid_wake_agent_id",
        ),
        ("POST", subscriptions, wish(json!({ "event_filter": [] })), 422, "invalid_event_filter"),
        (
            "POST",
            subscriptions,
            wish(json!({ "idempotency_key": "" })),
            422,
            "invalid_idempotency_key",
        ),
        ("POST", subscriptions, wish(json!({ "scope": "team" })), 422, "scope_mismatch"),
        ("POST", subscriptions, wish(wake), 422, "wake_not_supported"),
        ("POST", subscriptions, wish(json!({})), 403, "insufficient_capability"),
    ]
}

async fn ask(facts: &Facts, who: &Party, method: &str, target: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    facts.server.ask_as(&who.key, method, target, &[], body.as_bytes()).await
}

/// Those that somebody else meets, or that take something before.
async fn refused_otherwise(facts: &mut Facts) -> Vec<(Answer, u16, &'static str)> {
    let alice = facts.party("alice", &["company"]).await;
    let mut seen = Vec::new();
    let fact = facts.say(json!({ "garden_id": "atlas" })).await;
    let target = format!("/v1/facts/{}", text(&fact["id"]));
    seen.push((facts.get(&alice, &target).await, 403, "fact_forbidden"));
    seen.push((facts.get(&alice, "/v1/gardens/atlas").await, 403, "garden_forbidden"));
    let card = facts.get(&alice, "/v1/cards?entity=x&scope=team").await;
    seen.push((card, 403, "insufficient_scope"));
    let tokens = facts.get(&alice, "/v1/federation/capability-tokens").await;
    seen.push((tokens, 403, "admin_required"));
    seen.push((facts.server.get("/v1/facts").await, 401, "unauthenticated"));
    facts.join("atlas", &alice, "reader").await;
    let again = json!({ "entity_uri": alice.entity, "role": "reader" });
    let again = facts.post(&facts.admin, "/v1/gardens/atlas/members", &again).await;
    seen.push((again, 409, "member_exists"));
    let body = json!({ "tenant": "acme", "roles": ["user"], "permissions": ["read"] });
    let key = facts.server.post_key(ADMIN, &body).await.expect(201).json();
    let reader = Party { key: text(&key["key"]), ..alice.clone() };
    let denied = facts.post(&reader, "/v1/facts", &statement(json!({}))).await;
    seen.push((denied, 403, "forbidden"));
    let issued = facts.issue(&alice, json!({ "ttl_seconds": 60 })).await;
    let wish = facts.wish("scope:company", json!({})).to_string();
    let with = async |token: &str| {
        let headers = [("stigmem-capability", token)];
        let target = "/v1/subscriptions";
        facts.server.ask_as(&alice.key, "POST", target, &headers, wish.as_bytes()).await
    };
    seen.push((with("x.y").await, 403, "token_invalid"));
    let id = text(&with(issued["token"].as_str().unwrap()).await.expect(201).json()["id"]);
    let events = format!("/v1/subscriptions/{id}/events?after=x");
    seen.push((facts.get(&alice, &events).await, 404, "event_not_found"));
    facts.clock.advance(60_000);
    seen.push((with(issued["token"].as_str().unwrap()).await, 403, "token_expired"));
    let revoke = format!("/v1/federation/capability-tokens/{}/revoke", text(&issued["token_id"]));
    facts.post(&facts.admin, &revoke, &json!({})).await.expect(200);
    seen.push((with(issued["token"].as_str().unwrap()).await, 403, "token_revoked"));
    let twice = facts.post(&facts.admin, &revoke, &json!({})).await;
    seen.push((twice, 409, "token_already_revoked"));
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_of_this_face_is_reached_and_is_as_documented() {
    let mut facts = Facts::start().await;
    facts.garden("atlas").await;
    let mut seen = Vec::new();
    for (method, target, body, status, code) in refused() {
        let answer = ask(&facts, &facts.admin, method, target, &body).await;
        assert_eq!((answer.status(), answer.code().as_str()), (status, code), "{method} {target}");
        seen.push(answer);
    }
    for (answer, status, code) in refused_otherwise(&mut facts).await {
        assert_eq!((answer.status(), answer.code().as_str()), (status, code), "{answer}");
        seen.push(answer);
    }
    seen.sort_by_key(|answer| (answer.code(), answer.text()));
    let (mut table, mut codes) = (String::new(), BTreeSet::new());
    for answer in &seen {
        let message = text(&answer.json()["error"]["message"]);
        let _ = writeln!(table, "{} {}\n    {message}", answer.status(), answer.code());
        codes.insert(answer.code());
    }
    // Nobody makes a thousand gardens here, and a key of all tenants is met where keys are.
    codes.extend(["quota_exceeded".to_owned(), "key_of_all_tenants".to_owned()]);
    assert_eq!(codes, documented(), "codes seen, codes in the tables");
    let golden = include_str!("golden/facts_errors.txt");
    assert!(table == golden, "the golden file is otherwise; now it is\n{table}");
    facts.server.stop().await;
}

/// The codes in the tables of this face.
fn documented() -> BTreeSet<String> {
    let tables = [
        include_str!("../../src/facts/error.rs"),
        include_str!("../../src/facts/token.rs"),
        include_str!("../../src/facts/garden.rs"),
        include_str!("../../src/facts/member.rs"),
        include_str!("../../src/facts/card.rs"),
        include_str!("../../src/facts/fact.rs"),
        include_str!("../../src/facts/subscription.rs"),
    ];
    let is_code = |text: &&str| {
        let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let words = ["invalid_", "_not_found", "forbidden", "_exists", "_revoked", "_required"];
        let others = ["insufficient_scope", "quota_exceeded", "last_admin", "scope_mismatch"];
        let more = ["unauthenticated", "method_not_allowed", "key_of_all_tenants"];
        is_word
            && (words.iter().any(|word| text.contains(word))
                || others.contains(text)
                || more.contains(text))
    };
    let codes = tables.iter().flat_map(|table| table.split('"')).filter(is_code);
    let of_core = [
        "invalid_target",
        "invalid_on_change",
        "invalid_webhook_url",
        "invalid_wake_agent_id",
        "invalid_event_filter",
        "invalid_idempotency_key",
        "wake_not_supported",
        "token_invalid",
        "token_revoked",
        "token_expired",
        "insufficient_capability",
    ];
    codes.map(str::to_owned).chain(of_core.map(str::to_owned)).collect()
}
