//! Consumers that somebody should look at: done with nothing done, silent, given up.

use reveille_core::consumer::{Consumer, Phase};
use reveille_core::subscription::Timings;
use serde_json::{Value, json};

use crate::harness::*;

const HELD_BACK: &str = "reveille_consumers_fruitless_total";
const SILENT: &str = "reveille_consumers_silent_total";
const GIVEN_UP: &str = "reveille_consumers_given_up_total";

/// Says that it is done, and acknowledges nothing.
async fn give_nothing(wakes: &Wakes, call: &Call) {
    wakes.call(call, json!({ "epoch": call.epoch(), "done": true })).await.expect(200);
}

fn held_back(consumer: &Consumer) -> Option<u64> {
    match consumer.phase {
        Phase::Idle { wake_at: Some(at) } => Some(at.0),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_done_that_acknowledges_nothing_is_told_again_and_then_held_back() {
    let timings = Timings { retry_scale_milli: 100, ..Timings::default() };
    let mut wakes = Wakes::with(timings).await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    for epoch in 1..=5 {
        let call = wakes.woken().await;
        assert_eq!(call.epoch(), epoch, "L3: it is woken again at once");
        give_nothing(&wakes, &call).await;
    }
    for pause in [100, 200, 400] {
        let call = wakes.woken().await;
        give_nothing(&wakes, &call).await;
        let kept = wakes.record("s", "/a/1").unwrap().consumer;
        assert_eq!(held_back(&kept), Some(wakes.now() + pause), "{kept:?}");
        // What is said once more is not heard as anything else.
        give_nothing(&wakes, &call).await;
        assert_eq!(wakes.record("s", "/a/1").unwrap().consumer, kept);
        wakes.clock.advance(pause);
    }
    let shown = wakes.server.get("/admin/v1/consumers/s:%2Fa%2F1").await.expect(200).json();
    assert_eq!(shown["fruitless_dones"], 8, "{shown}");
    assert_eq!(wakes.server.metric(HELD_BACK).await, 3);
    // An ack that moves is heard, and what is left is told at once.
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 9);
    wakes.finish(&call, &tail).await.expect(200);
    wakes.idle("s", "/a/1").await;
    wakes.append("/a/1", "[2]").await;
    let call = wakes.woken().await;
    give_nothing(&wakes, &call).await;
    assert_eq!(wakes.woken().await.epoch(), 11, "it has five again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_ends_the_pause_also_of_one_that_answers_done() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "sync_done": "snapshot" })).await;
    wakes.create("/a/1", "[1]").await;
    let first = wakes.woken().await;
    // What it is for has grown since it was told, and it only ever answers for what it was told.
    let body = json!({ "epoch": 1, "subscribe": ["/b"] });
    wakes.call(&first, body).await.expect(200);
    for _ in 0..5 {
        let kept = wakes.record("s", "/a/1").unwrap().consumer;
        let report = json!({ "epoch": kept.epoch, "done": true });
        if kept.epoch == 1 {
            wakes.call(&first, report).await.expect(200);
        } else {
            let call = wakes.woken().await;
            give_nothing(&wakes, &call).await;
        }
    }
    let call = wakes.woken().await;
    give_nothing(&wakes, &call).await;
    assert!(held_back(&wakes.record("s", "/a/1").unwrap().consumer).is_some());
    wakes.quiet("it is held back").await;
    wakes.append("/a/1", "[2]").await;
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 7);
    // This one answers for everything that it was told of.
    call.done();
    wakes.idle("s", "/a/1").await;
    let kept = wakes.record("s", "/a/1").unwrap().consumer;
    assert_eq!((kept.fruitless_dones, kept.phase), (0, Phase::Idle { wake_at: None }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_a_crash() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    for _ in 0..6 {
        let call = wakes.woken().await;
        give_nothing(&wakes, &call).await;
    }
    let kept = wakes.record("s", "/a/1").unwrap().consumer;
    let at = held_back(&kept).unwrap();
    let mut wakes = wakes.crash().await;
    assert_eq!(wakes.record("s", "/a/1").unwrap().consumer, kept);
    wakes.quiet("it is held back").await;
    wakes.advance_to(at);
    assert_eq!(wakes.woken().await.epoch(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_a_wake_on_and_falls_silent_is_counted() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    assert_eq!(wakes.server.metric(SILENT).await, 0);
    wakes.clock.advance(45_000);
    let call = wakes.woken().await;
    assert_eq!((call.epoch(), wakes.server.metric(SILENT).await), (2, 1));
    wakes.finish(&call, &tail).await.expect(200);
    wakes.clock.advance(100_000);
    wakes.quiet("it is done").await;
    assert_eq!(wakes.server.metric(SILENT).await, 1);
}

/// A consumer that was given up with one of two messages acknowledged.
async fn given_up(timings: Timings) -> (Wakes, String) {
    let mut wakes = Wakes::with(timings).await;
    wakes.subscribe("s", "/a/*").await;
    let first = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    wakes.append("/a/1", "[2]").await;
    wakes.finish(&call, &first).await.expect(200);
    loop {
        let call = wakes.woken().await;
        assert_eq!(call.epoch(), 2);
        let failures = wakes.record("s", "/a/1").unwrap().failures;
        call.answer(500, "");
        let failed = async || {
            let kept = wakes.record("s", "/a/1")?;
            (kept.failures > failures).then_some(kept.consumer)
        };
        let kept = eventually("a failure", failed).await;
        if matches!(kept.phase, Phase::Gone(_)) {
            return (wakes, first);
        }
        wakes.advance_to(kept.deadline().unwrap().0);
    }
}

fn short() -> Timings {
    Timings { give_up_after_ms: 3_000, ..Timings::default() }
}

async fn consumer(wakes: &Wakes) -> Value {
    wakes.server.get("/admin/v1/consumers/s:%2Fa%2F1").await.expect(200).json()
}

async fn listed(wakes: &Wakes, state: &str) -> Vec<Value> {
    let answer = wakes.server.get(&format!("/admin/v1/consumers?state={state}")).await.expect(200);
    answer.json()["consumers"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_given_up_is_kept_and_goes_on_where_it_stood() {
    let (wakes, first) = given_up(short()).await;
    assert_eq!(wakes.server.metric(GIVEN_UP).await, 1);
    let found = consumer(&wakes).await;
    assert_eq!(found["state"], "given_up");
    assert_eq!(found["given_up_at"], wakes.now());
    assert_eq!(found["kept_until"], wakes.now() + 30 * 86_400_000);
    assert_eq!(found["last_error"]["message"], "answered 500");
    assert!(found["failing_since"].as_u64().is_some_and(|since| since + 3_000 <= wakes.now()));
    assert_eq!(found["streams"][0]["acked"], first);
    assert_eq!(listed(&wakes, "given_up").await.len(), 1);
    assert_eq!(listed(&wakes, "live").await.len(), 0);
    let refused = wakes.server.get("/admin/v1/consumers?state=lost").await.expect(400);
    assert!(refused.text().contains("`given_up`"), "{refused}");

    // What comes meanwhile wakes nobody, and is not lost.
    let tail = wakes.append("/a/1", "[3]").await;
    let mut wakes = wakes.restart().await;
    wakes.quiet("it was given up").await;
    let target = "/admin/v1/consumers/s:%2Fa%2F1/revive";
    let shown = wakes.server.ask("POST", target, &[], b"").await.expect(200).json();
    assert_eq!((&shown["state"], &shown["epoch"]), (&json!("waking"), &json!(3)));
    let call = wakes.woken().await;
    assert_eq!((call.epoch(), &call.json()["streams"][0]["offset"]), (3, &json!(first)));
    wakes.finish(&call, &tail).await.expect(200);
    let again = wakes.server.ask("POST", target, &[], b"").await.expect(409);
    assert_eq!(again.code(), "NOT_GIVEN_UP");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_is_kept_for_so_long_and_then_begins_anew() {
    let (mut wakes, _) = given_up(Timings { keep_given_up_ms: 7_200_000, ..short() }).await;
    let until = consumer(&wakes).await["kept_until"].as_u64().unwrap();
    assert_eq!(until, wakes.now() + 7_200_000);
    wakes.append("/a/1", "[3]").await;
    wakes.advance_to(until);
    eventually("it to be forgotten", async || {
        let found = consumer(&wakes).await;
        (found["state"] == "idle").then_some(())
    })
    .await;
    let found = consumer(&wakes).await;
    assert_eq!((&found["pending"], &found["given_up_at"]), (&json!(false), &Value::Null));
    wakes.append("/a/1", "[4]").await;
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 3, "nobody who spoke for it before is heard");
}
