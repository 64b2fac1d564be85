//! Facts, contradictions and cards: what is said, and what is known from that.

use serde_json::{Value, json};

use crate::harness::facts::{Facts, Party, make_party, statement, text};

async fn found(facts: &Facts, who: &Party, query: &str) -> Vec<Value> {
    let answer = facts.get(who, &format!("/v1/facts?{query}")).await.expect(200).json();
    answer["facts"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_is_said_shown_and_found() {
    let facts = Facts::start().await;
    let said = facts.say(json!({})).await;
    let expected = json!({
        "id": said["id"], "entity": "user:alice", "relation": "works_at",
        "value": { "type": "string", "v": "acme" }, "source": "agent:scribe",
        "timestamp": "2025-06-01T00:00:00.000Z", "hlc": "1748736000000.000", "confidence": 1.0,
        "scope": "company", "garden_id": null, "valid_until": null, "contradicted": false,
    });
    assert_eq!(said, expected);
    let target = format!("/v1/facts/{}", text(&said["id"]));
    assert_eq!(facts.get(&facts.admin, &target).await.expect(200).json(), said);
    assert_eq!(
        found(&facts, &facts.admin, "entity=User%3AAlice").await,
        std::slice::from_ref(&said)
    );
    // What is left out is as it says.
    let plain = json!({ "entity": "x", "relation": "r", "value": { "type": "null", "v": null } });
    let plain = facts.post(&facts.admin, "/v1/facts", &plain).await.expect(201).json();
    assert_eq!((&plain["scope"], &plain["confidence"]), (&json!("local"), &json!(1.0)));
    assert_eq!(plain["source"], "user:admin");
    assert_eq!(plain["hlc"], "1748736000000.001", "later than the one before");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_are_found_by_whom_they_are_about_page_by_page() {
    let facts = Facts::start().await;
    for n in 0..5 {
        let value = json!({ "type": "number", "v": n });
        let entity = format!("user:{}", n % 2);
        facts.say(json!({ "entity": entity, "relation": "age", "value": value })).await;
    }
    facts.say(json!({ "entity": "user:0", "scope": "team" })).await;
    let values = |found: &[Value]| -> Vec<Value> {
        found.iter().map(|it| it["value"]["v"].clone()).collect()
    };
    let admin = &facts.admin;
    assert_eq!(values(&found(&facts, admin, "entity=user:1").await), [json!(1), json!(3)]);
    assert_eq!(found(&facts, admin, "entity=user:0&relation=age").await.len(), 3);
    assert_eq!(found(&facts, admin, "entity=user:0&scope=team").await.len(), 1);
    assert_eq!(found(&facts, admin, "relation=age").await.len(), 5);
    assert_eq!(found(&facts, admin, "scope=company").await.len(), 5);
    assert_eq!(found(&facts, admin, "").await.len(), 6);
    assert_eq!(found(&facts, admin, "entity=nobody").await.len(), 0);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let target = format!("/v1/facts?limit=2&relation=age{cursor}");
        let page = facts.get(admin, &target).await.expect(200).json();
        let list = page["facts"].as_array().unwrap();
        assert!(list.len() <= 2);
        seen.extend(values(list));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, (0..5).map(|n| json!(n)).collect::<Vec<_>>(), "oldest first");
    for query in [
        "limit=0",
        "limit=501",
        "scope=nowhere",
        "entity=",
        "garden_id=A",
        "cursor=x",
        "live=maybe",
        "colour=red",
        "entity=a&entity=b",
    ] {
        let answer = facts.get(admin, &format!("/v1/facts?{query}")).await.expect(400);
        assert_eq!(answer.code(), "invalid_query", "{query}");
    }
    facts.server.stop().await;
}

/// A page may end at something that its reader may not see: where that is, is nobody's to read.
#[tokio::test(flavor = "multi_thread")]
async fn s_26_a_cursor_says_nothing_of_where_it_is() {
    let facts = Facts::start().await;
    for n in 0..3 {
        facts.say(json!({ "relation": format!("salary{n}") })).await;
    }
    let alice = facts.party("alice", &["company"]).await;
    for query in ["", "entity=user:alice"] {
        let page = facts.get(&alice, &format!("/v1/facts?limit=1&{query}")).await.json();
        let cursor = text(&page["cursor"]);
        let hex: String = "salary".bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!cursor.contains(&hex) && !cursor.contains("salary"), "{cursor}");
        assert_eq!(found(&facts, &alice, &format!("{query}&cursor={cursor}")).await.len(), 2);
        let beta = make_party(&facts.server, "beta", "user:alice", &["user"], &["*"]).await;
        let other = &cursor[..cursor.len() - 2];
        for (who, cursor) in [(&beta, &*cursor), (&alice, other), (&alice, "x"), (&alice, "30")] {
            let target = format!("/v1/facts?{query}&cursor={cursor}");
            assert_eq!(facts.get(who, &target).await.expect(400).code(), "invalid_query");
        }
    }
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_26_who_may_read_which_fact() {
    let facts = Facts::start().await;
    let some = facts.party("some", &["company"]).await;
    let none = facts.party("none", &[]).await;
    facts.garden("atlas").await;
    let plain = facts.say(json!({})).await;
    let team = facts.say(json!({ "scope": "team" })).await;
    let secret = facts.say(json!({ "garden_id": "atlas" })).await;
    let see = async |who, fact: &Value| {
        let answer = facts.get(who, &format!("/v1/facts/{}", text(&fact["id"]))).await;
        if answer.status() == 200 { (200, String::new()) } else { (answer.status(), answer.code()) }
    };
    let shown = (200, String::new());
    assert_eq!(see(&some, &plain).await, shown);
    let forbidden = || (403, "fact_forbidden".to_owned());
    for (who, fact) in [(&some, &team), (&none, &plain), (&some, &secret)] {
        assert_eq!(see(who, fact).await, forbidden());
    }
    assert_eq!(see(&facts.admin, &secret).await, shown, "who made the garden is its member");
    assert_eq!(found(&facts, &some, "").await, std::slice::from_ref(&plain));
    assert_eq!(found(&facts, &none, "").await, [Value::Null; 0]);
    assert_eq!(found(&facts, &facts.admin, "").await.len(), 3);
    assert_eq!(
        found(&facts, &some, "entity=user:alice&live=true").await,
        std::slice::from_ref(&plain)
    );
    let refused = facts.get(&some, "/v1/facts?garden_id=atlas").await.expect(403);
    assert_eq!(refused.code(), "garden_forbidden");
    facts.join("atlas", &some, "reader").await;
    assert_eq!(see(&some, &secret).await, shown);
    assert_eq!(found(&facts, &some, "garden_id=garden:atlas").await, std::slice::from_ref(&secret));
    assert_eq!(found(&facts, &some, "entity=user:alice").await.len(), 2);
    facts.leave("atlas", &some).await;
    assert_eq!(see(&some, &secret).await.0, 403);
    assert_eq!(found(&facts, &some, "entity=user:alice").await, [plain]);
    for unknown in ["x", "00000000-0000-8002-8000-0000000fffff"] {
        let answer = facts.get(&some, &format!("/v1/facts/{unknown}")).await.expect(404);
        assert_eq!(answer.code(), "fact_not_found");
    }
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_write_where() {
    let facts = Facts::start().await;
    let (writer, reader) = (facts.party("writer", &[]).await, facts.party("reader", &[]).await);
    let say = async |who: &Party, more: Value| {
        let answer = facts.post(who, "/v1/facts", &statement(more)).await;
        if answer.status() == 201 { (201, String::new()) } else { (answer.status(), answer.code()) }
    };
    facts.garden("atlas").await;
    facts.join("atlas", &writer, "writer").await;
    facts.join("atlas", &reader, "reader").await;
    let inside = || json!({ "garden_id": "atlas" });
    assert_eq!(say(&writer, inside()).await, (201, String::new()));
    assert_eq!(say(&reader, inside()).await, (403, "garden_forbidden".to_owned()));
    assert_eq!(say(&reader, json!({})).await, (201, String::new()));
    let elsewhere = json!({ "garden_id": "atlas", "scope": "team" });
    assert_eq!(say(&writer, elsewhere).await, (422, "scope_mismatch".to_owned()));
    let unknown = json!({ "garden_id": "nowhere" });
    assert_eq!(say(&writer, unknown).await, (404, "garden_not_found".to_owned()));
    let body = json!({ "tenant": "acme", "roles": ["user"], "permissions": ["read"] });
    let key = facts.server.post_key(crate::harness::keys::ADMIN, &body).await.expect(201).json();
    let looker = Party { key: text(&key["key"]), ..reader };
    assert_eq!(say(&looker, json!({})).await, (403, "forbidden".to_owned()));
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_values_contradict_until_they_are_taken_back_or_over() {
    let facts = Facts::start().await;
    let value = |v: &str| json!({ "value": { "type": "string", "v": v } });
    // Whoever writes where they may not read does not learn what is there.
    let blind = facts.party("blind", &["team"]).await;
    for v in ["a", "b"] {
        let said = statement(json!({ "entity": "x", "value": { "type": "string", "v": v } }));
        let said = facts.post(&blind, "/v1/facts", &said).await.expect(201).json();
        assert_eq!(said["contradicted"], Value::Null);
    }
    let contradicts = async |more: Value| facts.say(more).await["contradicted"] == true;
    assert!(!contradicts(value("acme")).await);
    assert!(!contradicts(value("acme")).await, "the same is no contradiction");
    assert!(contradicts(value("globex")).await);
    facts.say(json!({ "confidence": 0, "value": null })).await;
    assert!(!contradicts(value("initech")).await, "all was taken back");
    // Another scope and a garden are other places.
    let mut elsewhere = value("globex");
    elsewhere["scope"] = json!("team");
    assert!(!contradicts(elsewhere).await);
    facts.garden("atlas").await;
    let mut inside = value("globex");
    inside["garden_id"] = json!("atlas");
    assert!(!contradicts(inside).await);
    // What has run out contradicts nothing.
    let until = "2025-06-01T00:01:00Z";
    let mut short = value("now");
    short["relation"] = json!("mood");
    short["valid_until"] = json!(until);
    assert!(!contradicts(short).await);
    let mut other = value("then");
    other["relation"] = json!("mood");
    facts.clock.advance(59_999);
    let before = facts.say(other.clone()).await;
    assert_eq!(before["contradicted"], true);
    facts.say(json!({ "relation": "mood", "confidence": 0 })).await;
    let mut short = value("now");
    short["relation"] = json!("mood");
    short["valid_until"] = json!("2025-06-01T00:02:00Z");
    facts.say(short).await;
    facts.clock.advance(60_001);
    assert!(!contradicts(other).await);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_that_cannot_be_are_refused_with_a_sentence() {
    let facts = Facts::start().await;
    let value = |kind: &str, v: Value| json!({ "value": { "type": kind, "v": v } });
    let table = [
        json!({ "entity": null }),
        json!({ "entity": " " }),
        json!({ "entity": "x".repeat(1_025) }),
        json!({ "entity": 5 }),
        json!({ "relation": null }),
        json!({ "relation": "" }),
        json!({ "relation": "x".repeat(257) }),
        json!({ "relation": "a\nb" }),
        json!({ "source": "" }),
        json!({ "source": "x".repeat(1_025) }),
        json!({ "value": null }),
        json!({ "value": "acme" }),
        json!({ "value": { "type": "string" } }),
        json!({ "value": { "v": "x" } }),
        json!({ "value": { "type": "string", "v": "x", "w": 1 } }),
        value("json", json!({})),
        value("string", json!(1)),
        value("number", json!("1")),
        value("boolean", json!("true")),
        value("datetime", json!("soon")),
        value("ref", json!("")),
        value("null", json!(0)),
        value("text", json!("x".repeat(65_536))),
        json!({ "confidence": 1.1 }),
        json!({ "confidence": -0.1 }),
        json!({ "confidence": "sure" }),
        json!({ "scope": "global" }),
        json!({ "scope": "nowhere" }),
        json!({ "garden_id": "A" }),
        json!({ "garden_id": 1 }),
        json!({ "valid_until": "later" }),
        json!({ "colour": "red" }),
    ];
    for more in table {
        let answer = facts.post(&facts.admin, "/v1/facts", &statement(more.clone())).await;
        let shown = more.to_string().chars().take(80).collect::<String>();
        assert_eq!((answer.status(), answer.code().as_str()), (422, "invalid_fact"), "{shown}");
        assert!(!text(&answer.json()["error"]["message"]).is_empty());
    }
    for body in ["[]", "nonsense", "{", "null"] {
        let answer =
            facts.server.ask_as(&facts.admin.key, "POST", "/v1/facts", &[], body.as_bytes()).await;
        assert_eq!(answer.expect(400).code(), "invalid_json", "{body}");
    }
    assert_eq!(found(&facts, &facts.admin, "").await.len(), 0);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_says_what_is_known_and_nothing_of_gardens() {
    let facts = Facts::start().await;
    let reader = facts.party("reader", &["company"]).await;
    facts.garden("atlas").await;
    facts.say(json!({})).await;
    facts.say(json!({ "relation": "age", "value": { "type": "number", "v": 42 } })).await;
    facts.say(json!({ "relation": "gone" })).await;
    facts.say(json!({ "relation": "gone", "confidence": 0 })).await;
    facts.say(json!({ "relation": "secret", "garden_id": "atlas" })).await;
    facts.say(json!({ "relation": "elsewhere", "scope": "team" })).await;
    let target = "/v1/cards?entity=User:Alice&scope=company";
    assert_eq!(facts.get(&reader, target).await.expect(404).code(), "card_not_found");
    let body = json!({ "entity": "user:alice", "scope": "company" });
    let card = facts.post(&reader, "/v1/cards/refresh", &body).await.expect(200).json();
    assert_eq!(card["fact_count"], 2);
    let summary = text(&card["summary"]);
    assert!(summary.contains("works_at: acme") && summary.contains("age: 42"), "{summary}");
    assert!(!summary.contains("secret") && !summary.contains("gone"), "{summary}");
    assert_eq!(facts.get(&reader, target).await.expect(200).json(), card);
    // Its last line says how much there is no room for.
    for n in 0..300 {
        let value = json!({ "type": "text", "v": "x".repeat(100) });
        facts.say(json!({ "relation": format!("r{n}"), "value": value })).await;
    }
    let full = facts.post(&reader, "/v1/cards/refresh", &body).await.expect(200).json();
    let summary = text(&full["summary"]);
    let lines = summary.lines().count() - 1;
    assert_eq!(full["fact_count"], 302);
    assert!(summary.ends_with(&format!("\nand {} more", 302 - lines)), "{summary}");
    let other = facts.party("other", &["team"]).await;
    let refused = facts.get(&other, target).await.expect(403);
    assert_eq!(refused.code(), "insufficient_scope");
    facts.post(&other, "/v1/cards/refresh", &body).await.expect(403);
    for wrong in [json!({}), json!({ "entity": "x", "scope": "global" }), json!({ "entity": 1 })] {
        let answer = facts.post(&reader, "/v1/cards/refresh", &wrong).await.expect(422);
        assert_eq!(answer.code(), "invalid_card");
    }
    for query in ["", "scope=company", "entity=x&scope=y"] {
        facts.get(&reader, &format!("/v1/cards?{query}")).await.expect(400);
    }
    facts.server.stop().await;
}
