//! Subscriptions to facts: what is asked for, who may have it, and which two are the same.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::facts::{Facts, make_party, text};
use crate::harness::*;

const SUBSCRIPTIONS: &str = "/v1/subscriptions";

#[tokio::test(flavor = "multi_thread")]
async fn s_1_s_2_s_13_a_subscription_is_made_shown_listed_and_deleted() {
    let facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let wish = facts.wish("scope:company", json!({}));
    let made = facts.post(&alice, SUBSCRIPTIONS, &wish).await.expect(201).json();
    let id = text(&made["id"]);
    let expected = json!({
        "id": id, "target": "scope:company", "on_change": "webhook",
        "webhook_url": facts.sink.url(), "wake_agent_id": null,
        "event_filter": ["fact_assert", "fact_retract"], "scope": "company",
        "idempotency_key": null, "created_at": START_MS, "last_event_at": null,
        "cancelled_at": null, "cancel_reason": null, "cancelled_by": null,
        "replay_window_s": 3_600,
    });
    assert_eq!(made, expected);
    assert_eq!(facts.shown(&alice, &id).await, expected);
    facts.clock.advance(5);
    let second = facts.subscribe(&alice, "entity:user:bob").await;
    let list = facts.get(&alice, SUBSCRIPTIONS).await.expect(200).json();
    let ids: Vec<&Value> =
        list["subscriptions"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&json!(second), &json!(id)], "newest first");
    assert_eq!(list["total"], 2);
    facts.delete(&alice, &format!("{SUBSCRIPTIONS}/{id}")).await.expect(204);
    let gone = facts.get(&alice, &format!("{SUBSCRIPTIONS}/{id}")).await.expect(404);
    assert_eq!(gone.code(), "subscription_not_found");
    let gone = facts.delete(&alice, &format!("{SUBSCRIPTIONS}/{id}")).await.expect(404);
    assert_eq!(gone.code(), "subscription_not_found");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_3_s_4_s_5_s_6_s_8_what_cannot_be_is_refused_and_nothing_is_kept() {
    let facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let url = |url: &str| json!({ "webhook_url": url });
    let table = [
        (json!({ "target": null }), "invalid_target"),
        (json!({ "target": "global" }), "invalid_target"),
        (json!({ "target": "garden:atlas" }), "invalid_target"),
        (json!({ "target": "scope:nowhere" }), "invalid_target"),
        (json!({ "target": "entity:" }), "invalid_target"),
        (json!({ "target": 5 }), "invalid_target"),
        (json!({ "on_change": null }), "invalid_on_change"),
        (json!({ "on_change": "email" }), "invalid_on_change"),
        (json!({ "on_change": ["webhook"] }), "invalid_on_change"),
        (json!({ "webhook_url": null }), "invalid_webhook_url"),
        (url("http://example.com/h"), "invalid_webhook_url"),
        (url("ftp://example.com/h"), "invalid_webhook_url"),
        (url("https://"), "invalid_webhook_url"),
        (url("https://user:pw@h/"), "invalid_webhook_url"),
        (url("https://169.254.169.254/"), "invalid_webhook_url"),
        (url("https://10.0.0.1/"), "invalid_webhook_url"),
        (url("not a url"), "invalid_webhook_url"),
        (json!({ "wake_agent_id": "x" }), "invalid_wake_agent_id"),
        (json!({ "event_filter": [] }), "invalid_event_filter"),
        (json!({ "event_filter": ["nope"] }), "invalid_event_filter"),
        (json!({ "event_filter": "fact_assert" }), "invalid_event_filter"),
        (json!({ "event_filter": [1] }), "invalid_event_filter"),
        (
            json!({ "event_filter": ["subscription_cancelled_access_revoked"] }),
            "invalid_event_filter",
        ),
        (json!({ "idempotency_key": "" }), "invalid_idempotency_key"),
        (json!({ "idempotency_key": "x".repeat(129) }), "invalid_idempotency_key"),
        (json!({ "scope": "public" }), "scope_mismatch"),
        (json!({ "scope": "nowhere" }), "scope_mismatch"),
        (json!({ "colour": "red" }), "invalid_subscription"),
    ];
    for (more, code) in table {
        let wish = facts.wish("scope:company", more.clone());
        let answer = facts.post(&alice, SUBSCRIPTIONS, &wish).await.expect(422);
        assert_eq!(answer.code(), code, "{more}");
        assert!(!answer.json()["error"]["message"].as_str().unwrap().is_empty());
    }
    for body in ["", "[]", "nonsense", "{\"target\":", "\"x\""] {
        let answer =
            facts.server.ask_as(&alice.key, "POST", SUBSCRIPTIONS, &[], body.as_bytes()).await;
        let expected =
            if body.is_empty() { (422, "invalid_target") } else { (400, "invalid_json") };
        assert_eq!((answer.status(), answer.code().as_str()), expected, "{body}");
    }
    let list = facts.get(&alice, SUBSCRIPTIONS).await.expect(200).json();
    assert_eq!(list["total"], 0);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_6_loopback_is_refused_where_the_server_does_not_allow_it() {
    let facts = Facts::with(|setup| setup.rules.allow_http_loopback = false).await;
    let alice = facts.subscriber("alice", &["*"]).await;
    for url in ["http://127.0.0.1:9/", "https://127.0.0.1/", "https://[::1]/", "http://localhost/"]
    {
        let wish = facts.wish("scope:company", json!({ "webhook_url": url }));
        let answer = facts.post(&alice, SUBSCRIPTIONS, &wish).await.expect(422);
        assert_eq!(answer.code(), "invalid_webhook_url", "{url}");
    }
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_7_s_28_a_server_that_wakes_nobody_says_so_and_keeps_nothing() {
    let facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let agent = "0f8fad5b-d9cb-469f-a165-70867728950e";
    let more = json!({ "on_change": "wake", "webhook_url": null, "wake_agent_id": agent });
    let wish = facts.wish("scope:company", more);
    let answer = facts.post(&alice, SUBSCRIPTIONS, &wish).await.expect(422);
    assert_eq!(answer.code(), "wake_not_supported");
    assert!(answer.text().contains("--wake-stream-template"), "{answer}");
    assert_eq!(facts.get(&alice, SUBSCRIPTIONS).await.expect(200).json()["total"], 0);
    // Without a token the answer is the same: what this server cannot do comes first.
    let bob = facts.party("bob", &["*"]).await;
    let answer = facts.post(&bob, SUBSCRIPTIONS, &wish).await.expect(422);
    assert_eq!(answer.code(), "wake_not_supported");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_10_subscribing_takes_a_token_for_exactly_the_target() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let ask = async |target: &str, token: Option<&str>| {
        let wish = facts.wish(target, json!({})).to_string();
        let token = token.map(|token| ("stigmem-capability", token));
        let headers: Vec<_> = token.into_iter().collect();
        let answer =
            facts.server.ask_as(&alice.key, "POST", SUBSCRIPTIONS, &headers, wish.as_bytes()).await;
        match answer.status() {
            201 | 200 => String::new(),
            _ => answer.expect(403).code(),
        }
    };
    assert_eq!(ask("scope:company", None).await, "insufficient_capability");
    facts.issue(&alice, json!({ "object": "scope:company", "verb": "read" })).await;
    facts.grant(&alice, "scope:public").await;
    facts.grant(&alice, "scope:global").await;
    for target in ["scope:company", "entity:user:bob"] {
        assert_eq!(ask(target, None).await, "insufficient_capability", "{target}");
    }
    let bob = facts.party("bob", &["*"]).await;
    let bobs = text(&facts.issue(&bob, json!({})).await["token"]);
    assert_eq!(ask("scope:company", Some(&bobs)).await, "token_invalid");
    for token in ["nonsense", "a.b", &"x".repeat(4_000)] {
        assert_eq!(ask("scope:company", Some(token)).await, "token_invalid");
    }
    let good = facts.issue(&alice, json!({ "object": "company", "ttl_seconds": 60 })).await;
    let token = text(&good["token"]);
    assert_eq!(ask("entity:user:bob", Some(&token)).await, "insufficient_capability");
    assert_eq!(ask("scope:company", Some(&token)).await, "");
    facts.clock.advance(60_000);
    assert_eq!(ask("scope:company", Some(&token)).await, "token_expired");
    facts.revoke_token(&text(&good["token_id"])).await;
    assert_eq!(ask("scope:company", Some(&token)).await, "token_revoked");
    // One that is held and covers the target is found without being sent.
    facts.grant(&alice, "entity:User:Bob").await;
    assert_eq!(ask("entity:user:bob", None).await, "");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_11_subscribing_takes_the_right_to_read_the_scope() {
    let facts = Facts::start().await;
    let some = facts.subscriber("some", &["company"]).await;
    let all = facts.subscriber("all", &["*"]).await;
    facts.garden("atlas").await;
    let ask = async |who, target: &str, more: Value| {
        let answer = facts.post(who, SUBSCRIPTIONS, &facts.wish(target, more)).await;
        (answer.status(), if answer.status() == 201 { String::new() } else { answer.code() })
    };
    let refused = (403, "insufficient_scope".to_owned());
    let made = (201, String::new());
    assert_eq!(ask(&some, "scope:global", json!({})).await, refused);
    assert_eq!(ask(&some, "scope:public", json!({})).await, refused);
    assert_eq!(ask(&some, "entity:user:bob", json!({})).await, refused, "of all scopes");
    assert_eq!(ask(&some, "entity:user:bob", json!({ "scope": "company" })).await, made);
    assert_eq!(ask(&some, "scope:company", json!({})).await, made);
    assert_eq!(ask(&all, "scope:global", json!({})).await, made);
    assert_eq!(ask(&all, "scope:garden:atlas", json!({})).await, refused);
    let nowhere = ask(&all, "scope:garden:nowhere", json!({})).await;
    assert_eq!(nowhere, refused, "whoever belongs to no garden does not learn which there are");
    facts.join("atlas", &some, "reader").await;
    assert_eq!(ask(&some, "scope:garden:atlas", json!({})).await, made);
    let by_uri = json!({ "target": "scope:stigmem://acme/garden/atlas" });
    let same = facts.post(&some, SUBSCRIPTIONS, &facts.wish("", by_uri)).await.expect(200);
    assert_eq!(same.json()["target"], "scope:garden:atlas");
    // A key that does not read does not subscribe.
    let body = json!({ "tenant": "acme", "roles": ["user"], "entity_uri": "user:all",
                       "permissions": ["write"], "scopes": ["*"] });
    let key = facts.server.post_key(keys::ADMIN, &body).await.expect(201).json();
    let writer = crate::harness::facts::Party { key: text(&key["key"]), ..all };
    facts.post(&writer, SUBSCRIPTIONS, &facts.wish("scope:global", json!({}))).await.expect(403);
    facts.server.stop().await;
}

/// The server's settings may name another tomorrow, and no look at what is kept would find that out.
#[tokio::test(flavor = "multi_thread")]
async fn s_23_the_admin_key_of_the_server_does_not_subscribe() {
    let facts = Facts::start().await;
    let wish = facts.wish("scope:global", json!({})).to_string();
    let headers = [("x-tenant-namespace", "acme")];
    let asked =
        facts.server.ask_as(keys::ADMIN, "POST", SUBSCRIPTIONS, &headers, wish.as_bytes()).await;
    assert_eq!(asked.expect(403).code(), "key_of_all_tenants");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_12_the_same_again_is_the_same_subscription() {
    let facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let bob = facts.subscriber("bob", &["*"]).await;
    let ask = async |who, target: &str, more: Value| {
        let answer = facts.post(who, SUBSCRIPTIONS, &facts.wish(target, more)).await;
        (answer.status(), text(&answer.json()["id"]))
    };
    let (status, first) = ask(&alice, "scope:company", json!({})).await;
    assert_eq!(status, 201);
    assert_eq!(ask(&alice, "scope:company", json!({})).await, (200, first.clone()));
    let filter = json!({ "event_filter": ["fact_retract", "fact_assert", "fact_assert"] });
    assert_eq!(ask(&alice, "scope:company", filter).await, (200, first.clone()));
    let other = json!({ "event_filter": ["fact_assert"] });
    let (status, second) = ask(&alice, "scope:company", other).await;
    assert!(status == 201 && second != first);
    assert_eq!(ask(&bob, "scope:company", json!({})).await.0, 201);
    // A key decides alone, for each subscriber by itself.
    let keyed = || json!({ "idempotency_key": "k" });
    let (status, third) = ask(&alice, "scope:company", keyed()).await;
    assert!(status == 201 && third != first, "a key is no structure");
    assert_eq!(ask(&alice, "scope:public", keyed()).await, (200, third.clone()));
    assert_eq!(facts.shown(&alice, &third).await["target"], "scope:company");
    let (status, fourth) = ask(&bob, "scope:company", keyed()).await;
    assert!(status == 201 && fourth != third);
    // What is gone is not found again.
    facts.delete(&alice, &format!("{SUBSCRIPTIONS}/{first}")).await.expect(204);
    let (status, again) = ask(&alice, "scope:company", json!({})).await;
    assert!(status == 201 && again != first);
    // An answer about what is there is one to somebody who may still ask.
    let key_target = format!("/admin/v1/keys/{}", alice.key_id);
    facts.server.ask_as(keys::ADMIN, "DELETE", &key_target, &[], b"").await.expect(204);
    facts.post(&alice, SUBSCRIPTIONS, &facts.wish("scope:company", json!({}))).await.expect(401);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_12_sixteen_at_once_make_one() {
    let facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    for more in [json!({}), json!({ "idempotency_key": "k" })] {
        let wish = facts.wish("scope:company", more).to_string();
        let mut connections = Vec::new();
        for _ in 0..16 {
            connections.push(facts.server.connect().await);
        }
        let bearer = format!("Bearer {}", alice.key);
        let asked = connections.into_iter().map(|mut connection| {
            let (wish, bearer) = (wish.clone(), bearer.clone());
            tokio::spawn(async move {
                let headers = [("authorization", bearer.as_str())];
                let answer = connection.ask("POST", SUBSCRIPTIONS, &headers, wish.as_bytes()).await;
                (answer.status(), text(&answer.json()["id"]))
            })
        });
        let mut answers = Vec::new();
        for asked in asked.collect::<Vec<_>>() {
            answers.push(asked.await.unwrap());
        }
        let ids: BTreeSet<&String> = answers.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), 1);
        let made = answers.iter().filter(|(status, _)| *status == 201).count();
        let same = answers.iter().filter(|(status, _)| *status == 200).count();
        assert_eq!((made, same), (1, 15));
    }
    assert_eq!(facts.get(&alice, SUBSCRIPTIONS).await.expect(200).json()["total"], 2);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_28_somebody_elses_subscription_is_none() {
    let facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let bob = facts.subscriber("bob", &["*"]).await;
    let stranger = make_party(&facts.server, "beta", "user:alice", &["admin"], &["*"]).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    for who in [&bob, &stranger] {
        for target in [format!("{SUBSCRIPTIONS}/{id}"), format!("{SUBSCRIPTIONS}/{id}/events")] {
            let answer = facts.get(who, &target).await.expect(404);
            assert_eq!(answer.code(), "subscription_not_found", "{target}");
        }
        let answer = facts.delete(who, &format!("{SUBSCRIPTIONS}/{id}")).await.expect(404);
        assert_eq!(answer.code(), "subscription_not_found");
        assert_eq!(facts.get(who, SUBSCRIPTIONS).await.expect(200).json()["total"], 0);
    }
    // Whoever runs the tenant may look.
    assert_eq!(facts.shown(&facts.admin, &id).await["id"], id);
    for unknown in ["x", "0f8fad5b-d9cb-469f-a165-70867728950e", "%00"] {
        let answer = facts.get(&alice, &format!("{SUBSCRIPTIONS}/{unknown}")).await.expect(404);
        assert_eq!(answer.code(), "subscription_not_found", "{unknown}");
    }
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_everybody_is_the_admin_and_needs_a_token_all_the_same() {
    let server = Setup::default().start().await;
    let wish = json!({ "target": "scope:global", "on_change": "webhook",
                       "webhook_url": "http://127.0.0.1:9/" });
    let answer = server.post(SUBSCRIPTIONS, &wish).await.expect(403);
    assert_eq!(answer.code(), "insufficient_capability");
    let body = json!({ "subject": "key:local", "verb": "subscribe", "object": "scope:global" });
    server.post("/v1/federation/capability-tokens", &body).await.expect(201);
    server.post(SUBSCRIPTIONS, &wish).await.expect(201);
    server.post(SUBSCRIPTIONS, &wish).await.expect(200);
    server.stop().await;
}
