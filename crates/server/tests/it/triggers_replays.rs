//! Dead letters of triggers: previewed, made again under the same key, and discarded.

use serde_json::{Value, json};

use crate::harness::*;

/// A trigger of which each delivery dies at the first attempt.
async fn dead(triggers: &mut Triggers, id: &str, count: u64) {
    let more = json!({ "retryPolicy": { "maxAttempts": 1 }, "collection": id });
    triggers.enabled(id, more).await;
    for number in 0..count {
        triggers.server.put_doc(&format!("{id}/o{number}"), json!({ "n": number })).await;
        triggers.called().await.answer(500, "broken");
    }
    triggers.until(id, |it| it["dlq"] == count).await;
}

async fn replay(triggers: &Triggers, body: Value) -> Answer {
    triggers.post("/admin/v1/dlq/replay", &body).await
}

async fn ended(triggers: &Triggers, begun: &Value) -> Value {
    let target = format!("/admin/v1/dlq/replays/{}", begun["replayId"].as_str().unwrap());
    eventually("the replay to end", async || {
        let it = triggers.server.get(&target).await.expect(200).json();
        (it["state"] == "done").then_some(it)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn dlq_4_to_7_a_part_is_previewed_and_made_again_under_the_same_key_with_a_reason() {
    let mut triggers = Triggers::start().await;
    dead(&mut triggers, "a", 2).await;
    dead(&mut triggers, "b", 1).await;
    let preview = replay(&triggers, json!({ "dryRun": true, "triggerId": "a" })).await;
    let preview = preview.expect(200).json();
    assert_eq!((&preview["count"], &preview["byTrigger"]), (&json!(2), &json!({ "a": 2 })));
    assert!(preview["bytes"].as_u64().unwrap() > 0, "{preview}");
    let execute = json!({ "previewId": preview["previewId"] });
    replay(&triggers, execute.clone()).await.expect(400);
    let mut execute = execute;
    execute["reason"] = json!("the endpoint is mended");
    let begun = replay(&triggers, execute.clone()).await;
    assert!(matches!(begun.status(), 200 | 202), "{begun}");
    let begun = begun.json();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let call = triggers.called().await;
        let body = call.json();
        assert_eq!(body["replay"]["replayId"], begun["replayId"]);
        assert_eq!(body["replay"]["reason"], "the endpoint is mended");
        assert_eq!(body["replay"]["count"], 1);
        assert_eq!(call.get("x-syntrix-replay"), begun["replayId"].as_str().unwrap());
        assert_eq!(call.get("x-syntrix-attempt"), "1");
        let (time, tags) = signatures(&call);
        assert_eq!(tags, [tag(SECRET, &time, &call.body)]);
        keys.push(call.get("x-syntrix-idempotency-key").to_owned());
        call.ok();
    }
    keys.sort();
    assert_eq!(keys, ["default:a:1", "default:a:2"], "PAY-2");
    let ended = ended(&triggers, &begun).await;
    assert_eq!((&ended["succeeded"], &ended["failed"]), (&json!(2), &json!(0)), "DLQ-8");
    assert_eq!(replay(&triggers, execute).await.expect(409).code(), "PREVIEW_STALE");
    let audit = triggers.server.get("/admin/v1/audit?action=replay.executed").await.expect(200);
    let row = audit.json()["audit"][0].clone();
    assert_eq!(
        (&row["actor"], &row["reason"]),
        (&json!("local"), &json!("the endpoint is mended"))
    );
    assert_eq!(triggers.dead_letters("").await.len(), 1, "the other trigger's stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn dlq_9_a_replay_goes_where_the_trigger_sends_now_unless_it_says_otherwise() {
    let mut triggers = Triggers::start().await;
    dead(&mut triggers, "a", 1).await;
    let other = Sink::start().await;
    triggers.patch("a", &json!({ "url": other.url() })).await.expect(200);
    let mut other = other;
    let once = async |triggers: &Triggers, more: Value| {
        let mut body = json!({ "dryRun": true });
        body["useOriginalVersion"] = more;
        let preview = replay(triggers, body).await.expect(200).json();
        let execute = json!({ "previewId": preview["previewId"], "reason": "again" });
        let begun = replay(triggers, execute).await;
        assert!(begun.status() < 300, "{begun}");
        begun.json()
    };
    once(&triggers, json!(true)).await;
    let call = triggers.called().await;
    assert_eq!(call.json()["triggerVersion"], 1);
    call.answer(500, "still");
    triggers.until("a", |it| it["dlq"] == 1).await;
    once(&triggers, json!(false)).await;
    let call = other.next().await;
    assert_eq!(call.json()["triggerVersion"], 2);
    call.ok();
    triggers.until("a", |it| it["delivered"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dlq_9_letters_of_a_trigger_that_is_gone_are_looked_at_and_not_made_again() {
    let mut triggers = Triggers::start().await;
    dead(&mut triggers, "a", 1).await;
    let target = format!("{TRIGGERS}/default/a");
    triggers.server.ask("DELETE", &target, &[], b"").await.expect(204);
    let letter = triggers.letters(1).await.remove(0);
    let id = letter["dlqId"].as_str().unwrap();
    let preview =
        replay(&triggers, json!({ "dryRun": true, "ids": [id] })).await.expect(200).json();
    assert_eq!((&preview["count"], &preview["skipped"]["hookEnded"]), (&json!(0), &json!(1)));
    let refused = replay(&triggers, json!({ "dryRun": true, "triggerId": "a" })).await.expect(409);
    assert_eq!(refused.code(), "HOOK_GONE");
    let discard = format!("/admin/v1/dlq/{id}/discard");
    triggers.post(&discard, &json!({})).await.expect(400);
    let reason = json!({ "reason": "nobody wants it" });
    assert_eq!(triggers.post(&discard, &reason).await.expect(200).json()["state"], "discarded");
    assert_eq!(triggers.dead_letters("").await.len(), 0);
}
