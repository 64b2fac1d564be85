//! Dead letters of triggers: previewed, made again under the same key, and discarded.

use std::collections::BTreeSet;

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
    let target = match begun["replayId"].as_str() {
        Some(id) => format!("/admin/v1/dlq/replays/{id}"),
        None => format!("/admin/v1/dlq/discards/{}", begun["discardId"].as_str().unwrap()),
    };
    eventually("it to end", async || {
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

/// Scenario 5.
#[tokio::test(flavor = "multi_thread")]
async fn lim_4_ten_attempts_fail_and_a_part_of_the_letters_is_made_again_under_its_key() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    let mut keys = BTreeSet::new();
    for attempt in 1..=10 {
        let call = triggers.called().await;
        assert_eq!(call.get("x-syntrix-attempt"), attempt.to_string());
        keys.insert(call.get("x-syntrix-idempotency-key").to_owned());
        // Never the same twice in a row: that would be poison.
        call.answer(if attempt % 2 == 0 { 502 } else { 500 }, "broken");
        if attempt < 10 {
            let longest = (1_000 << (attempt - 1)).min(300_000);
            triggers.to_next_attempt("t", attempt, longest).await;
        }
    }
    let exhausted = triggers.letters(1).await.remove(0);
    assert_eq!((&exhausted["reason"], &exhausted["attempts"]), (&json!("EXHAUSTED"), &json!(10)));
    triggers.server.put_doc("orders/o2", json!({})).await;
    triggers.called().await.answer(400, "no");
    triggers.letters(2).await;
    let selection = json!({ "dryRun": true, "triggerId": "t", "deadReason": "EXHAUSTED" });
    let preview = replay(&triggers, selection).await.expect(200).json();
    assert_eq!((&preview["count"], &preview["byTrigger"]), (&json!(1), &json!({ "t": 1 })));
    assert!(preview["bytes"].as_u64().unwrap() > 0, "DLQ-7: {preview}");
    let why = "the shop is open again";
    let execute = json!({ "previewId": preview["previewId"], "reason": why });
    let begun = replay(&triggers, execute).await.expect(202).json();
    let call = triggers.called().await;
    keys.insert(call.get("x-syntrix-idempotency-key").to_owned());
    assert_eq!(keys, BTreeSet::from(["default:t:1".to_owned()]), "PAY-2");
    assert_eq!(call.get("x-syntrix-attempt"), "1", "DLQ-4: counted anew");
    assert_eq!(call.json()["replay"]["reason"], why);
    call.ok();
    assert_eq!(ended(&triggers, &begun).await["succeeded"], 1);
    let id = exhausted["dlqId"].as_str().unwrap();
    let shown = triggers.server.get(&format!("/admin/v1/dlq/{id}")).await.expect(200).json();
    assert_eq!(shown["state"], "replayed");
    let (kept, row) = (&shown["replays"][0], &begun["replayId"]);
    assert_eq!((&kept["replayId"], &kept["reason"]), (row, &json!(why)));
    assert_eq!((&kept["operator"], &kept["outcome"]), (&json!("local"), &json!("succeeded")));
    let rows = triggers.server.get("/admin/v1/audit?action=replay.executed").await.expect(200);
    let rows = rows.json()["audit"].clone();
    assert_eq!((&rows[0]["subject"], &rows[0]["reason"]), (row, &json!(why)), "DLQ-6");
    let left = triggers.letters(1).await.remove(0);
    assert_eq!(left["reason"], "FATAL_STATUS", "DLQ-5: what was not meant stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_9_many_are_discarded_after_a_preview_and_with_a_reason() {
    let mut triggers = Triggers::start().await;
    dead(&mut triggers, "a", 3).await;
    dead(&mut triggers, "b", 1).await;
    // Also letters of one that has ended, and of another that has its name now.
    triggers.server.ask("DELETE", &format!("{TRIGGERS}/default/a"), &[], b"").await.expect(204);
    dead(&mut triggers, "a", 1).await;
    let discard = async |triggers: &Triggers, body: Value| {
        triggers.post("/admin/v1/dlq/discard", &body).await
    };
    let preview = discard(&triggers, json!({ "dryRun": true, "triggerId": "a" })).await;
    let preview = preview.expect(200).json();
    assert_eq!((&preview["count"], &preview["byTrigger"]), (&json!(4), &json!({ "a": 4 })));
    assert_eq!(preview["skipped"], json!({ "hookEnded": 0, "versionGone": 0 }));
    let mut execute = json!({ "previewId": preview["previewId"] });
    discard(&triggers, execute.clone()).await.expect(400);
    execute["reason"] = json!("nobody wants them");
    let other = replay(&triggers, execute.clone()).await.expect(409);
    assert_eq!(other.code(), "PREVIEW_STALE", "what was shown is a discard, and no replay");
    let begun = discard(&triggers, execute.clone()).await.expect(202).json();
    let done = ended(&triggers, &begun).await;
    assert_eq!((&done["total"], &done["discarded"]), (&json!(4), &json!(4)));
    assert_eq!((&done["operator"], &done["reason"]), (&json!("local"), &execute["reason"]));
    let again = discard(&triggers, execute).await.expect(409);
    assert_eq!(again.code(), "PREVIEW_STALE");
    let left = triggers.letters(1).await.remove(0);
    assert_eq!(left["triggerId"], "b", "the other trigger's stays");
    assert_eq!(triggers.dead_letters("?state=discarded&triggerId=a").await.len(), 4);
    assert_eq!(triggers.status("a").await["dlq"], 0);
    let rows = triggers.server.get("/admin/v1/audit?action=dead_letters.discarded").await;
    let row = rows.expect(200).json()["audit"][0].clone();
    assert_eq!((&row["subject"], &row["reason"]), (&begun["discardId"], &done["reason"]));
    assert_eq!(row["diff"], json!({ "deadLetters": 4 }));
    let name = begun["discardId"].as_str().unwrap().replace("dsc_", "rpl_");
    triggers.server.get(&format!("/admin/v1/dlq/replays/{name}")).await.expect(404);
    let versions = json!({ "dryRun": true, "useOriginalVersion": true });
    discard(&triggers, versions).await.expect(400);
    let unknown = discard(&triggers, json!({ "dryRun": true, "triggerId": "c" })).await;
    assert_eq!(unknown.expect(404).code(), "TRIGGER_NOT_FOUND");
    triggers.only("b/o9").await;
}
