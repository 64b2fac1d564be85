//! Versions are rolled out by percent, rolled back by themselves, run dry, and held against what was.

use serde_json::{Value, json};

use crate::harness::*;

/// The paths of documents that are sent, of so many that are written, and by which version.
async fn written(triggers: &mut Triggers, count: usize) -> Vec<(String, u64)> {
    for number in 0..count {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
    }
    triggers.server.put_doc("last/one", json!({})).await;
    let mut sent = Vec::new();
    loop {
        let body = triggers.delivered().await;
        let path = body["path"].as_str().unwrap().to_owned();
        if path == "last/one" {
            return sent;
        }
        sent.push((path, body["triggerVersion"].as_u64().unwrap()));
    }
}

/// Another trigger, whose delivery shows that the others have been made.
async fn with_last(change: Value) -> Triggers {
    let triggers = Triggers::start().await;
    // One after another, all of them.
    let more = json!({ "concurrency": 1, "rateLimit": 0 });
    triggers.enabled("zz-last", json!({ "collection": "last" })).await;
    let mut definition = more;
    for (name, value) in change.as_object().unwrap() {
        definition[name] = value.clone();
    }
    triggers.enabled("t", definition).await;
    triggers
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_2_a_version_is_for_a_share_of_the_documents_and_the_others_stay_with_the_one_before() {
    let mut triggers = with_last(json!({})).await;
    let patch = json!({ "rollout": { "percent": 30 }, "label": "new" });
    triggers.patch("t", &patch).await.expect(200);
    for number in 0..40 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
    }
    let mut by_version = [Vec::new(), Vec::new()];
    for _ in 0..40 {
        let body = triggers.delivered().await;
        let version = usize::try_from(body["triggerVersion"].as_u64().unwrap()).unwrap();
        by_version[version - 1].push(body["id"].as_str().unwrap().to_owned());
    }
    let [old, new] = by_version;
    assert!(!new.is_empty() && new.len() < old.len(), "{} of 40", new.len());
    assert_eq!(triggers.status("t").await["rollout"]["state"], "in_progress");
    triggers.patch("t", &json!({ "rollout": { "percent": 60 } })).await.expect(200);
    for id in &new {
        triggers.server.put_doc(&format!("orders/{id}"), json!({ "n": 2 })).await;
        assert_eq!(triggers.delivered().await["triggerVersion"], 3, "who is covered stays so");
    }
    triggers.patch("t", &json!({ "rollout": null })).await.expect(200);
    assert_eq!(triggers.status("t").await["rollout"]["state"], "complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_3_a_version_that_misses_its_objective_is_rolled_back_by_itself() {
    let mut triggers = with_last(json!({})).await;
    let slo = json!({ "maxErrorRate": 0.5, "window": "5m", "minSamples": 4 });
    let patch =
        json!({ "rollout": { "percent": 100, "slo": slo }, "retryPolicy": { "maxAttempts": 1 } });
    triggers.patch("t", &patch).await.expect(200);
    for number in 0..4 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
        triggers.called().await.answer(500, "");
    }
    let shown = eventually("the rollback", async || {
        let shown = triggers.get("t").await.expect(200).json();
        (shown["state"] == "rolled_back").then_some(shown)
    })
    .await;
    assert_eq!((&shown["version"], &shown["isSending"]), (&json!(3), &json!(true)));
    assert_eq!(shown["rollout"]["slo"], Value::Null, "it is the version before");
    let audit = triggers.server.get("/admin/v1/audit?triggerId=t&limit=1").await.expect(200).json();
    let row = &audit["audit"][0];
    assert_eq!(row["action"], "trigger.rolled_back", "{row}");
    assert_eq!(row["actor"], "system:rollout");
    assert!(row["reason"].as_str().unwrap().contains("4 of 4 attempts failed"), "{row}");
    triggers.server.put_doc("orders/o9", json!({})).await;
    assert_eq!(triggers.delivered().await["triggerVersion"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_3_what_a_version_has_failed_at_counts_after_a_restart() {
    let triggers = with_last(json!({})).await;
    let slo = json!({ "maxErrorRate": 0.5, "window": "5m", "minSamples": 4 });
    let patch = json!({ "rollout": { "slo": slo }, "retryPolicy": { "maxAttempts": 1 } });
    triggers.patch("t", &patch).await.expect(200);
    let mut triggers = triggers;
    for number in 0..3 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
        triggers.called().await.answer(500, "");
    }
    triggers.until("t", |it| it["rollout"]["window"]["failed"] == 3).await;
    let mut triggers = triggers.restart().await;
    assert_eq!(triggers.status("t").await["state"], "enabled");
    triggers.server.put_doc("orders/o3", json!({})).await;
    triggers.called().await.answer(500, "");
    triggers.until("t", |it| it["state"] == "rolled_back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_3_where_there_was_no_version_before_nothing_matches_any_more() {
    let slo = json!({ "maxP95LatencyMs": 1, "minSamples": 1 });
    let mut triggers =
        with_last(json!({ "rollout": { "slo": slo }, "retryPolicy": { "maxAttempts": 1 } })).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let call = triggers.called().await;
    triggers.clock.advance(2);
    call.ok();
    eventually("the rollback", async || {
        let shown = triggers.get("t").await.expect(200).json();
        (shown["state"] == "rolled_back" && shown["isSending"] == false).then_some(())
    })
    .await;
    assert_eq!(written(&mut triggers, 3).await, []);
    triggers.enable("t").await;
    let sent: Vec<String> =
        written(&mut triggers, 1).await.into_iter().map(|(path, _)| path).collect();
    assert_eq!(sent, ["orders/o0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_1_a_dry_run_counts_and_sends_nothing_and_its_rate_is_that_of_the_real_one() {
    let mut triggers = with_last(json!({})).await;
    let condition = json!({ "condition": "event.document.n % 4 == 0" });
    triggers.create("dry", condition).await;
    triggers.act("t", "disable", &json!({})).await.expect(200);
    let state = triggers.act("dry", "dry-run", &json!({ "reason": "a look" })).await.expect(200);
    assert_eq!(state.json()["state"], "dry_run");
    for number in 0..20 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({ "n": number })).await;
    }
    triggers.server.put_doc("orders/bad", json!({})).await;
    triggers.only("last/one").await;
    let report = eventually("the dry run to have counted", async || {
        let report = triggers.get("dry/dry-run").await.expect(200).json();
        (report["evaluated"] == 21).then_some(report)
    })
    .await;
    assert_eq!((&report["matched"], &report["evalErrors"]), (&json!(5), &json!(1)));
    assert_eq!(report["samples"].as_array().unwrap().len(), 5);
    assert_eq!(report["samples"][0]["path"], "orders/o16");
    assert_eq!(report["baseline"], Value::Null);
    let real = json!({ "force": true, "reason": "it is good" });
    triggers.act("dry", "enable", &real).await.expect(200);
    for number in 0..20 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({ "n": number })).await;
    }
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(triggers.delivered().await["after"]["n"].clone());
    }
    sent.sort_by_key(Value::as_u64);
    assert_eq!(sent, [0, 4, 8, 12, 16], "as many as it said");
    triggers.only("last/one").await;
    assert_eq!(triggers.get("dry/dry-run").await.expect(404).code(), "DRY_RUN_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_1_a_candidate_runs_dry_beside_the_version_in_force_on_the_same_changes() {
    let mut triggers = with_last(json!({ "condition": "event.document.n < 6" })).await;
    let candidate = json!({ "definition": { "condition": "event.document.n < 3" } });
    let shown = triggers.act("t", "dry-run", &candidate).await.expect(200).json();
    assert_eq!((&shown["state"], &shown["version"]), (&json!("enabled"), &json!(1)));
    assert_eq!(shown["candidate"]["condition"], "event.document.n < 3");
    triggers.act("t", "dry-run", &json!({ "definition": { "url": 1 } })).await.expect(400);
    for number in 0..10 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({ "n": number })).await;
    }
    for _ in 0..6 {
        triggers.delivered().await;
    }
    let report = eventually("the dry run to have counted", async || {
        let report = triggers.get("t/dry-run").await.expect(200).json();
        (report["evaluated"] == 10).then_some(report)
    })
    .await;
    assert_eq!((&report["matched"], &report["hitRate"]), (&json!(3), &json!(0.3)));
    let baseline = json!({ "version": 1, "evaluated": 10, "matched": 6, "hitRate": 0.6 });
    assert_eq!(report["baseline"], baseline);
    triggers.get("t/dry-run?from=yesterday").await.expect(400);
    let target = format!("{TRIGGERS}/default/t/dry-run");
    triggers.server.ask("DELETE", &target, &[], b"").await.expect(204);
    triggers.get("t/dry-run").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_held_against_the_changes_that_are_kept() {
    let mut triggers = with_last(json!({ "condition": "event.document.n < 6" })).await;
    for number in 0..10 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({ "n": number })).await;
    }
    for _ in 0..6 {
        triggers.delivered().await;
    }
    let backtest = async |body: Value| triggers.act("t", "backtest", &body).await;
    let draft = json!({ "definition": { "condition": "event.document.n > 3" } });
    let report = backtest(draft).await.expect(200).json();
    for (name, value) in [
        ("changes", json!(10)),
        ("evaluated", json!(10)),
        ("matched", json!(6)),
        ("hitRate", json!(0.6)),
        ("evalErrors", json!(0)),
        ("difference", json!({ "onlyDraft": 4, "onlyLive": 4 })),
        ("nextAfter", Value::Null),
    ] {
        assert_eq!(report[name], value, "{name}: {report}");
    }
    assert_eq!((&report["live"]["matched"], &report["live"]["version"]), (&json!(6), &json!(1)));
    assert_eq!(report["samples"].as_array().unwrap().len(), 10);
    let live = backtest(json!({})).await.expect(200).json();
    assert_eq!((&live["matched"], &live["live"]), (&json!(6), &Value::Null));
    let later = json!({ "from": START_MS.to_string(), "to": (START_MS + 1).to_string() });
    assert_eq!(backtest(later).await.expect(200).json()["changes"], 10);
    let never = json!({ "from": "2030-01-01T00:00:00Z" });
    assert_eq!(backtest(never).await.expect(200).json()["changes"], 0);
    for bad in [
        json!({ "from": 1 }),
        json!({ "from": "soon" }),
        json!({ "from": "2026-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z" }),
        json!({ "definition": { "condition": "now()" } }),
        json!({ "since": "7d" }),
    ] {
        backtest(bad).await.expect(400);
    }
    // Nothing was sent.
    triggers.only("last/one").await;
}
