//! What operators read in the log: who is in trouble, once a minute for each of them, with a counter
//! beside it for how often.

use reveille_core::consumer::{Phase, Stage};
use reveille_core::subscription::Timings;
use serde_json::json;

use crate::harness::logs::warnings_about;
use crate::harness::*;

/// The warnings of this sentence about whoever is called there.
fn warnings(port: u16, sentence: &str) -> Vec<String> {
    let all = warnings_about(port);
    all.into_iter().filter(|line| line.starts_with(sentence)).collect()
}

/// One line, with these fields.
#[track_caller]
fn check_one(lines: &[String], fields: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for field in fields {
        assert!(lines[0].contains(&format!(" {field}")), "{field} is missing: {}", lines[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_done_that_acknowledges_nothing_is_named() {
    let mut wakes = Wakes::with(Timings { retry_scale_milli: 100, ..Timings::default() }).await;
    wakes.subscribe("eager", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    for _ in 0..7 {
        let call = wakes.woken().await;
        wakes.call(&call, json!({ "epoch": call.epoch(), "done": true })).await.expect(200);
        wakes.clock.advance(500);
    }
    assert_eq!(wakes.server.metric("reveille_consumers_fruitless_total").await, 2);
    let lines = warnings(wakes.sink.port(), "a consumer says that it is done and acknowledges");
    check_one(&lines, &["subscription=\"eager\"", "stream=\"/a/1\"", "tenant=\"default\""]);
    assert!(lines[0].contains("send `acks` with `done`"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_was_taken_on_in_silence_is_named() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("silent", "/a/*").await;
    for path in ["/a/1", "/a/2"] {
        wakes.create(path, "[1]").await;
        let call = wakes.woken().await;
        wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    }
    wakes.clock.advance(45_000);
    for _ in 0..2 {
        assert_eq!(wakes.woken().await.epoch(), 2);
    }
    assert_eq!(wakes.server.metric("reveille_consumers_silent_total").await, 2);
    let lines = warnings(wakes.sink.port(), "a consumer took a wake on and was not heard of");
    check_one(&lines, &["subscription=\"silent\"", "stream=\"/a/", "tenant=\"default\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_given_up_is_named() {
    let mut wakes = Wakes::with(Timings { give_up_after_ms: 3_000, ..Timings::default() }).await;
    wakes.subscribe("lost", "/a/*").await;
    for path in ["/a/1", "/a/2"] {
        wakes.create(path, "[1]").await;
    }
    guarded("both to be given up", async {
        loop {
            let kept = ["/a/1", "/a/2"].map(|path| wakes.record("lost", path).unwrap().consumer);
            let phases = kept.each_ref().map(|it| &it.phase);
            let is_told =
                |phase: &&Phase| matches!(phase, Phase::Waking { stage: Stage::Sent { .. }, .. });
            let pauses = phases.iter().filter_map(|phase| match phase {
                Phase::Waking { stage: Stage::Paused { until }, .. } => Some(until.0),
                _ => None,
            });
            if phases.iter().any(is_told) {
                if let Some(call) = wakes.sink.come() {
                    call.answer(500, "");
                }
                tokio::task::yield_now().await;
            } else if let Some(until) = pauses.max() {
                wakes.advance_to(until);
                tokio::task::yield_now().await;
            } else {
                break;
            }
        }
    })
    .await;
    assert_eq!(wakes.server.metric("reveille_consumers_given_up_total").await, 2);
    let lines = warnings(wakes.sink.port(), "a consumer was given up: its endpoint failed");
    check_one(&lines, &["subscription=\"lost\"", "stream=\"/a/", "tenant=\"default\""]);
    assert!(lines[0].contains("`reveille consumers revive`"), "{lines:?}");
    // What led there was named as well.
    let lines = warnings(wakes.sink.port(), "an endpoint keeps failing");
    check_one(&lines, &["subscription=\"lost\"", "tenant=\"default\"", "error=\"answered 500\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_named_with_the_worker() {
    let mut events = Deliveries::start().await;
    let more = json!({ "maxRetries": 2, "workerId": "billing", "rpcMethod": "on" });
    let id = events.subscribe_with("a", more).await;
    for _ in 0..2 {
        events.ingest(json!({ "type": "a" })).await;
        events.called().await.answer(500, "");
    }
    events.until_status(&id, "failed").await;
    let dead = async || {
        events.clock.advance(1_000);
        let call = events.sink.come()?;
        call.answer(503, "");
        Some(())
    };
    eventually("another attempt", dead).await;
    eventually("another one", async || {
        let call = events.sink.come()?;
        call.answer(503, "");
        Some(())
    })
    .await;
    eventually("both to be dead", async || {
        let target = format!("/subscriptions/status/{id}");
        let status = events.server.get(&target).await.expect(200).json();
        (status["stats"]["deadLetters"] == 2).then_some(())
    })
    .await;
    let hook = format!("hook={id:?}");
    let lines = warnings(events.sink.port(), "a delivery was given up");
    let fields = ["worker=\"billing/on\"", "tenant=\"default\"", "event=", "attempt=2", &hook];
    check_one(&lines, &fields);
    assert!(lines[0].contains("error=\"answered 503\""), "{lines:?}");
}
