//! Triggers that write back with the token of their delivery: how the next trigger knows of it, and
//! where a loop ends.

use serde_json::{Value, json};

use crate::harness::triggers::codes_of;
use crate::harness::*;

fn token_of(delivery: &Value) -> String {
    delivery["systemToken"].as_str().unwrap().to_owned()
}

fn patch(path: &str, data: Value) -> Value {
    json!([{ "type": "patch", "path": path, "data": data }])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_trigger_knows_which_one_wrote_the_change() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("first", json!({ "condition": "event.origin == null" })).await;
    let condition = "event.origin != null && event.origin.trigger == 'first' \
                     && event.origin.depth == 1";
    triggers.enabled("second", json!({ "condition": condition })).await;
    triggers.server.put_doc("orders/o1", json!({ "status": "new" })).await;
    let delivery = triggers.delivered().await;
    assert_eq!(delivery["triggerId"], "first");
    let token = token_of(&delivery);
    let ops = patch("orders/o1", json!({ "status": "checked" }));
    triggers.server.call_write(&token, "once", &ops).await.expect(200);
    // The handler is called again, and says the same again: nothing more comes of it.
    let again = triggers.server.call_write(&token, "once", &ops).await.expect(200);
    assert_eq!(again.need("idempotent-replayed"), "true");
    let delivery = triggers.delivered().await;
    assert_eq!(delivery["triggerId"], "second");
    assert_eq!(delivery["after"]["status"], "checked");
    let ops = patch("orders/o1", json!({ "status": "done" }));
    triggers.server.call_write(&token_of(&delivery), "done", &ops).await.expect(200);
    let changes = triggers.server.get("/_changes/default?offset=-1").await.expect(200).json();
    let origins: Vec<Value> = changes
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["origin"]["chain"].clone())
        .collect();
    assert_eq!(origins, [Value::Null, json!(["first"]), json!(["first", "second"])]);
}

/// Scenario 24.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_writes_into_its_own_collection_is_stopped_by_the_loop_guard() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("loop", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 0 })).await;
    for turn in 1..=8 {
        let delivery = triggers.delivered().await;
        assert_eq!(delivery["after"]["n"], turn - 1);
        let ops = patch("orders/o1", json!({ "n": turn }));
        let key = format!("turn-{turn}");
        triggers.server.call_write(&token_of(&delivery), &key, &ops).await.expect(200);
    }
    let letters = triggers.letters(1).await;
    assert_eq!(letters[0]["reason"], "LOOP_GUARD", "{}", letters[0]);
    // Whoever wants it delivered after all has that, without a token to go on with.
    let replay = "/admin/v1/dlq/replay";
    let preview = triggers.post(replay, &json!({ "dryRun": true })).await.expect(200).json();
    let execute = json!({ "previewId": preview["previewId"], "reason": "it is mended" });
    triggers.post(replay, &execute).await.expect(202);
    let delivery = triggers.delivered().await;
    assert_eq!((&delivery["after"]["n"], delivery.get("systemToken")), (&json!(8), None));
    triggers.letters(0).await;
    // A client's own write is heard again.
    assert_eq!(triggers.only("orders/o2").await["event"], "create");
}

#[tokio::test(flavor = "multi_thread")]
async fn rul_1_a_delivery_passes_over_the_rules_only_where_its_definition_says_so() {
    let mut triggers = Triggers::start().await;
    let rules = json!({ "match": { "orders/{order}": { "allow": { "read": "true" } } } });
    triggers.server.tenant("PUT", "default/rules", &rules).await.expect(200);
    triggers.enabled("plain", json!({})).await;
    let wide = json!({ "bypassRules": true });
    let refused = triggers.post(TRIGGERS, &triggers.definition(json!({ "token": wide }))).await;
    assert!(refused.expect(400).text().contains("allowPaths"), "rules are passed over narrowly");
    let narrow = json!({ "bypassRules": true, "allowPaths": ["/orders/{id}/"] });
    triggers.create("bypass", json!({ "collection": "orders/*", "token": narrow })).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 0 })).await;
    let ops = patch("orders/o1", json!({ "n": 1 }));
    let token = token_of(&triggers.delivered().await);
    let refused = triggers.server.call_write(&token, "k", &ops).await.expect(403).json();
    assert_eq!(codes_of(&refused), ("PERMISSION_DENIED".into(), vec!["RULE_DENY".into()]));
    triggers.act("plain", "disable", &json!({ "reason": "enough" })).await.expect(200);
    triggers.enable("bypass").await;
    triggers.server.put_doc("orders/o2", json!({ "n": 0 })).await;
    let token = token_of(&triggers.delivered().await);
    let ops = patch("orders/o2", json!({ "n": 1 }));
    triggers.server.call_write(&token, "k", &ops).await.expect(200);
    let rows = triggers.server.get("/admin/v1/audit").await.expect(200).json();
    let rows = rows["audit"].as_array().unwrap();
    let of = |action: &str| rows.iter().find(|row| row["action"] == action).unwrap();
    assert_eq!(of("documents.written")["actor"], "trigger:bypass");
    assert_eq!(of("documents.written")["diff"]["bypassRules"], true);
    assert_eq!(of("documents.denied")["actor"], "trigger:plain");
}
