//! What is counted of triggers.

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
    triggers.until("t", |it| !it["evalErrors"].is_null()).await;
    let own = r#"tenant="default",triggerId="t""#;
    for line in [
        format!("reveille_trigger_delivery_total{{{own},status=\"2xx\"}} 1"),
        format!("reveille_trigger_delivery_total{{{own},status=\"4xx\"}} 1"),
        format!("reveille_trigger_delivery_total{{{own},status=\"5xx\"}} 1"),
        format!("reveille_trigger_delivery_total{{{own},status=\"error\"}} 0"),
        format!("reveille_trigger_delivery_retries_total{{{own}}} 1"),
        format!("reveille_trigger_eval_total{{{own},result=\"match\"}} 2"),
        format!("reveille_trigger_eval_total{{{own},result=\"error\"}} 1"),
        format!("reveille_trigger_dlq_size{{{own}}} 1"),
        format!("reveille_trigger_delivery_duration_seconds_count{{{own}}} 3"),
        format!("reveille_trigger_rollbacks_total{{{own}}} 0"),
    ] {
        eventually(&line, async || {
            let text = triggers.server.get("/metrics").await.expect(200).text();
            text.lines().any(|it| it == line).then_some(())
        })
        .await;
    }
}
