//! What operators see of deliveries, whatever face they are of.

use serde_json::{Value, json};

use crate::harness::facts::{Facts, text};
use crate::harness::*;

/// The deliveries that `target` lists, once the first of them has come to its end.
async fn ended(server: &TestServer, key: Option<&str>, target: &str) -> Vec<Value> {
    eventually("a delivery to end", async || {
        let answer = match key {
            Some(key) => server.get_as(key, target).await,
            None => server.get(target).await,
        };
        let found = answer.expect(200).json()["deliveries"].as_array().unwrap().clone();
        (found.first()?["state"] == "delivered").then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_triggers_are_listed_shown_and_found_by_their_change() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.enabled("u", json!({ "collection": "others" })).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    triggers.delivered().await;
    for target in ["", "?hook=t", "?event=1", "?hook=t&event=1", "?state=delivered"] {
        let target = format!("/admin/v1/deliveries{target}");
        let found = ended(&triggers.server, None, &target).await;
        assert_eq!((found.len(), &found[0]["hook"]), (1, &json!("t")), "{target}: {found:?}");
        assert_eq!(found[0]["event_id"], "1");
    }
    let found = ended(&triggers.server, None, "/admin/v1/deliveries").await;
    let id = text(&found[0]["id"]);
    let shown = triggers.server.get(&format!("/admin/v1/deliveries/{id}")).await.expect(200).json();
    assert_eq!((&shown["attempts"][0]["status"], &shown["hook"]), (&json!(200), &json!("t")));
    for (target, status) in [("?event=2", 404), ("?hook=v", 404), ("?hook=u&event=1", 200)] {
        let answer = triggers.server.get(&format!("/admin/v1/deliveries{target}")).await;
        assert!(answer.status() == status, "{target}: {answer}");
        assert!(!answer.text().contains("\"hook\":\"t\""), "{target}: {answer}");
    }
    // Whoever asks for events gets those alone.
    let logs = format!("/subscriptions/deliveries/{id}/logs");
    assert_eq!(triggers.server.get(&logs).await.expect(200).json()["logs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_facts_are_listed_without_what_they_say() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["company"]).await;
    let hook = facts.subscribe(&alice, "scope:company").await;
    let fact = facts.say(json!({ "confidence": 0.5 })).await;
    facts.called().await.ok();
    let (admin, fact) = (facts.admin.key.clone(), text(&fact["id"]));
    for target in [String::new(), format!("?hook={hook}"), format!("?event={fact}")] {
        let target = format!("/admin/v1/deliveries{target}");
        let found = ended(&facts.server, Some(&admin), &target).await;
        assert_eq!((found.len(), &found[0]["hook"]), (1, &json!(hook)), "{target}: {found:?}");
        assert_eq!(found[0]["event_type"], "fact_assert");
        let shown = format!("/admin/v1/deliveries/{}", text(&found[0]["id"]));
        let shown = facts.server.get_as(&admin, &shown).await.expect(200);
        assert_eq!(shown.json()["attempts"][0]["status"], 200);
        assert!(!shown.text().contains("works_at"), "{shown}");
    }
    facts.server.stop().await;
}
