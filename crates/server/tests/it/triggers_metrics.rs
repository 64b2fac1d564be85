//! What is counted of triggers.

use reveille_engine::triggers::status::TriggerGauge;
use serde_json::json;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn obs_1_a_trigger_has_its_counters_with_its_tenant_and_its_id() {
    let mut triggers = Triggers::start().await;
    let more = json!({ "condition": "event.document.n > 0", "retryPolicy": { "maxAttempts": 2 } });
    triggers.enabled("t", more).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    triggers.called().await.answer(500, "");
    triggers.to_next_attempt("t", 1, 1_000).await;
    triggers.called().await.ok();
    triggers.server.put_doc("orders/o2", json!({ "n": 1 })).await;
    triggers.called().await.answer(400, "");
    triggers.letters(1).await;
    triggers.server.put_doc("orders/o3", json!({})).await;
    for n in [0, -1] {
        triggers.server.put_doc("orders/o4", json!({ "n": n })).await;
    }
    // One that is for creations alone does not come to its condition.
    let more = json!({ "condition": "event.document.n > 0", "events": ["create"] });
    triggers.enabled("created", more).await;
    triggers.server.put_doc("orders/o4", json!({ "n": 0 })).await;
    triggers.until("t", |it| !it["evalErrors"].is_null()).await;
    let own = r#"tenant="default",triggerId="t""#;
    let other = r#"tenant="default",triggerId="created""#;
    for line in [
        format!("reveille_trigger_delivery_total{{{own},status=\"2xx\"}} 1"),
        format!("reveille_trigger_delivery_total{{{own},status=\"4xx\"}} 1"),
        format!("reveille_trigger_delivery_total{{{own},status=\"5xx\"}} 1"),
        format!("reveille_trigger_delivery_total{{{own},status=\"error\"}} 0"),
        format!("reveille_trigger_delivery_retries_total{{{own}}} 1"),
        format!("reveille_trigger_eval_total{{{own},result=\"match\"}} 2"),
        format!("reveille_trigger_eval_total{{{own},result=\"error\"}} 1"),
        format!("reveille_trigger_eval_total{{{own},result=\"no_match\"}} 3"),
        format!("reveille_trigger_eval_total{{{other},result=\"no_match\"}} 0"),
        format!("reveille_trigger_dlq_size{{{own}}} 1"),
        format!("reveille_trigger_delivery_duration_seconds_count{{{own}}} 3"),
        format!("reveille_trigger_rollbacks_total{{{own}}} 0"),
    ] {
        counted(&triggers, &line).await;
    }
}

/// Waits until a line is among the metrics.
async fn counted(triggers: &Triggers, line: &str) {
    eventually(line, async || {
        let text = triggers.server.get("/metrics").await.expect(200).text();
        text.lines().any(|it| it == line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn obs_1_what_replays_have_come_to_is_counted_by_trigger() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "retryPolicy": { "maxAttempts": 1 } })).await;
    for path in ["orders/o1", "orders/o2"] {
        triggers.server.put_doc(path, json!({})).await;
        triggers.called().await.answer(500, "");
    }
    triggers.letters(2).await;
    let replay = async |body| triggers.post("/admin/v1/dlq/replay", &body).await;
    let preview = replay(json!({ "dryRun": true, "triggerId": "t" })).await.expect(200).json();
    let begun = replay(json!({ "previewId": preview["previewId"], "reason": "mended" })).await;
    assert!(matches!(begun.status(), 200 | 202), "{begun}");
    triggers.called().await.answer(500, "");
    triggers.called().await.ok();
    for (result, count) in [("succeeded", 1), ("failed", 1), ("dropped", 0)] {
        let labels = format!("tenant=\"default\",triggerId=\"t\",result=\"{result}\"");
        counted(&triggers, &format!("reveille_trigger_replay_total{{{labels}}} {count}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn obs_1_triggers_beyond_the_first_of_a_tenant_are_counted_together() {
    let mut triggers = Triggers::start().await;
    for id in ["a", "b", "c", "d"] {
        triggers.enabled(id, json!({})).await;
    }
    triggers.server.put_doc("orders/o1", json!({})).await;
    for _ in 0..4 {
        triggers.delivered().await;
    }
    let counted = |per_tenant, max| {
        let gauges = triggers.server.engine.trigger_gauges(per_tenant, max).unwrap();
        let row = |it: &TriggerGauge| (it.id.as_deref().unwrap_or("other").to_owned(), it.matched);
        gauges.iter().map(row).collect::<Vec<_>>()
    };
    let rows = |rows: &[(&str, u64)]| {
        rows.iter().map(|(id, matched)| ((*id).to_owned(), *matched)).collect::<Vec<_>>()
    };
    assert_eq!(counted(2, 10), rows(&[("a", 1), ("b", 1), ("other", 2)]));
    assert_eq!(counted(10, 3), rows(&[("a", 1), ("b", 1), ("c", 1), ("other", 1)]));
    assert_eq!(counted(4, 4), rows(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]));
}
