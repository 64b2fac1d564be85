//! Dead letters of hooks that have ended, and of those that keep former versions. No face has such
//! hooks by itself: the policy of one for events is changed where it is stored.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::{Letters, Policy, Versions};
use reveille_core::event::hook::FACE;
use reveille_core::event::worker::RpcMethod;
use reveille_schema::events::{decode_hook_spec, encode_hook_spec};
use reveille_schema::{keys, record};
use reveille_store::batch::Batch;
use reveille_store::disk::RealDisk;
use reveille_store::log;
use reveille_store::table::LsmTable;
use serde_json::{Value, json};

use crate::harness::*;

const KIND: &str = "order.made";

/// Has the only hook keep its versions, and its dead letters outlive it; `former` versions of it are
/// kept, which are called by another method.
fn plant(directory: &Path, former: u64) {
    let partition = directory.join("data/partition-0000");
    let table = Arc::new(LsmTable::open(&partition.join("table")).unwrap());
    let disk = Arc::new(RealDisk::open(partition.join("log")).unwrap());
    let config = log::Config { segment_bytes: 2 << 20, sync: true };
    let mut opened =
        reveille_store::open::open(disk, table, config, 8 << 20, Box::new(|| 1)).unwrap();
    let (from, to) = keys::hooks();
    let pairs = opened.state.reader().range(&from, &to, 2).unwrap();
    let [(key, value)] = &pairs[..] else { panic!("there is one hook") };
    let hook = record::decode_hook(value).unwrap();
    let (letters, versions) = (Letters::OutliveHook, Versions::Matched);
    let policy = Policy { letters, versions, ..hook.policy.clone() };
    let mut spec = decode_hook_spec(&hook).unwrap();
    spec.method = RpcMethod::parse("changed").unwrap();
    let before = Hook { policy: policy.clone(), ..hook.clone() };
    let after = Hook { version: 2, policy, spec: encode_hook_spec(&spec), ..hook.clone() };
    let mut batch = Batch::default();
    batch.set(key.clone(), Some(record::encode_hook(&after)));
    if former > 0 {
        let value: Bytes = record::encode_hook(&before);
        batch.set(keys::hook_version(hook.id, 1), Some(value));
    }
    assert_eq!(hook.face, FACE);
    opened.log.commit(&[&batch.encode().0]).unwrap();
}

async fn letters(events: &Deliveries, query: &str) -> Vec<Value> {
    let answer = events.server.get(&format!("/admin/v1/dlq{query}")).await.expect(200);
    answer.json()["deadLetters"].as_array().unwrap().clone()
}

/// A server with one hook of another policy and so many dead letters, and the hook's id.
async fn planted(count: usize, former: u64) -> (Deliveries, String) {
    let mut events = Deliveries::start().await;
    let hook = events.subscribe_with(KIND, json!({ "maxRetries": 1 })).await;
    for number in 0..count {
        events.ingest(json!({ "type": KIND, "data": { "number": number } })).await;
        events.called().await.answer(500, "no such thing");
    }
    eventually("they are dead", async || (letters(&events, "").await.len() == count).then_some(()))
        .await;
    let directory = events.directory().to_owned();
    (events.restart_after(|| plant(&directory, former)).await, hook)
}

const REPLAY: &str = "/admin/v1/dlq/replay";

async fn replayed(events: &Deliveries, preview: &Value) -> Answer {
    let body = json!({ "previewId": preview["previewId"], "reason": "it is mended" });
    events.post(REPLAY, &body).await
}

async fn ended(events: &Deliveries, begun: &Value) -> Value {
    let target = format!("/admin/v1/replays/{}", begun["replayId"].as_str().unwrap());
    eventually("the replay to end", async || {
        let it = events.server.get(&target).await.expect(200).json();
        (it["state"] == "done").then_some(it)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_hook_that_has_ended_are_looked_at_and_discarded_and_not_replayed() {
    let (events, hook) = planted(2, 1).await;
    let preview = events.post(REPLAY, &json!({ "dryRun": true })).await.expect(200).json();
    events.server.delete(&format!("/subscriptions/{hook}")).await.expect(200);
    events.server.get(&format!("/subscriptions/{hook}")).await.expect(404);
    for query in ["", &format!("?hook={hook}")] {
        let left = letters(&events, query).await;
        assert_eq!(left.len(), 2, "{query}");
        assert_eq!((&left[0]["hookId"], &left[0]["state"]), (&json!(hook), &json!("dead")));
        assert_eq!(left[0]["hookEndedAt"], json!(events.now()));
    }
    let id = letters(&events, "").await[0]["dlqId"].as_str().unwrap().to_owned();
    let shown = events.server.get(&format!("/admin/v1/dlq/{id}")).await.expect(200).json();
    assert_eq!(shown["payload"]["payload"]["data"]["number"], 0, "of one time they stand by event");
    // Nobody is there to be called.
    assert_eq!(replayed(&events, &preview).await.expect(409).code(), "PREVIEW_STALE");
    let named = events.post(REPLAY, &json!({ "dryRun": true, "hook": hook })).await.expect(409);
    assert_eq!(named.code(), "HOOK_GONE");
    assert!(named.text().contains("looked at and discarded"), "{named}");
    let all = events.post(REPLAY, &json!({ "dryRun": true })).await.expect(200).json();
    let skipped = json!({ "hookEnded": 2, "versionGone": 0 });
    assert_eq!((&all["count"], &all["skipped"]), (&json!(0), &skipped));
    assert_eq!(replayed(&events, &all).await.expect(409).code(), "HOOK_GONE");
    // Others are replayed, and what is skipped is said.
    let mut events = events;
    let other = events.subscribe_with("other", json!({ "maxRetries": 1 })).await;
    events.ingest(json!({ "type": "other" })).await;
    events.called().await.answer(500, "");
    eventually("it is dead", async || {
        (letters(&events, &format!("?hook={other}")).await.len() == 1).then_some(())
    })
    .await;
    let all = events.post(REPLAY, &json!({ "dryRun": true })).await.expect(200).json();
    assert_eq!((&all["count"], &all["skipped"]), (&json!(1), &skipped));
    let begun = replayed(&events, &all).await.expect(202).json();
    events.called().await.ok();
    let done = ended(&events, &begun).await;
    assert_eq!((&done["total"], &done["succeeded"]), (&json!(3), &json!(1)));
    let because = json!({ "hookEnded": 2, "versionGone": 0, "notDead": 0 });
    assert_eq!((&done["skipped"], &done["skippedBecause"]), (&json!(2), &because));
    let discard = format!("/admin/v1/dlq/{id}/discard");
    events.post(&discard, &json!({ "reason": "nobody wants it" })).await.expect(200);
    assert_eq!(letters(&events, &format!("?hook={hook}")).await.len(), 1);
    // A name can be given again, and the server starts with what is left.
    let events = events.restart().await;
    assert_eq!(letters(&events, &format!("?hook={hook}")).await.len(), 1);
    assert_eq!(letters(&events, &format!("?hook={hook}&state=discarded")).await.len(), 1);
    // In the end all of it goes.
    assert!(events.server.engine.clean_up(None, reveille_core::Millis::NEVER).await.unwrap() > 1);
    events.server.get(&format!("/admin/v1/dlq?hook={hook}")).await.expect(404);
    assert_eq!(letters(&events, "").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_follows_the_version_that_a_letter_had() {
    for (original, method) in [(true, "handle"), (false, "changed")] {
        let (mut events, _) = planted(1, 1).await;
        let asked = json!({ "dryRun": true, "useOriginalVersion": original });
        let preview = events.post(REPLAY, &asked).await.expect(200).json();
        assert_eq!(
            (&preview["count"], &preview["useOriginalVersion"]),
            (&json!(1), &json!(original))
        );
        let begun = replayed(&events, &preview).await.expect(202).json();
        let call = events.called().await;
        assert!(call.line.contains(&format!("/w/{method}")), "{original}: {}", call.line);
        call.ok();
        let done = ended(&events, &begun).await;
        assert_eq!(
            (&done["succeeded"], &done["useOriginalVersion"]),
            (&json!(1), &json!(original))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_kept_is_said_before_and_after() {
    let (mut events, _) = planted(1, 0).await;
    let asked = json!({ "dryRun": true, "useOriginalVersion": true });
    let preview = events.post(REPLAY, &asked).await.expect(200).json();
    let skipped = json!({ "hookEnded": 0, "versionGone": 1 });
    assert_eq!((&preview["count"], &preview["skipped"]), (&json!(0), &skipped));
    let begun = replayed(&events, &preview).await.expect(202).json();
    let done = ended(&events, &begun).await;
    assert_eq!((&done["total"], &done["skipped"]), (&json!(1), &json!(1)));
    assert_eq!(done["skippedBecause"]["versionGone"], 1);
    events.quiet("nothing was replayed").await;
    assert_eq!(letters(&events, "").await.len(), 1, "it can still be replayed as the hook is");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_versions_are_kept_none_can_be_followed() {
    let mut events = Deliveries::start().await;
    let hook = events.subscribe_with(KIND, json!({ "maxRetries": 1 })).await;
    let asked = json!({ "dryRun": true, "useOriginalVersion": true, "hook": hook });
    let refused = events.post(REPLAY, &asked).await.expect(400);
    assert_eq!(refused.code(), "VERSIONS_NOT_KEPT");
    assert!(refused.text().contains(&hook) && refused.text().contains("leave it out"), "{refused}");
    events.ingest(json!({ "type": KIND })).await;
    events.called().await.answer(500, "");
    eventually("it is dead", async || (letters(&events, "").await.len() == 1).then_some(())).await;
    let all = json!({ "dryRun": true, "useOriginalVersion": true });
    assert_eq!(events.post(REPLAY, &all).await.expect(400).code(), "VERSIONS_NOT_KEPT");
    let wrong = json!({ "dryRun": true, "useOriginalVersion": "yes" });
    events.post(REPLAY, &wrong).await.expect(400);
}
