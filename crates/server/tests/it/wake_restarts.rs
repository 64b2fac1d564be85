//! What consumers find after the server was stopped, or fell.

use reveille_core::consumer::Phase;
use reveille_core::signature;
use serde_json::json;

use crate::harness::*;

async fn again(wakes: Wakes, in_order: bool) -> Wakes {
    if in_order { wakes.restart().await } else { wakes.crash().await }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_secrets_tokens_and_cursors_survive() {
    for in_order in [true, false] {
        let mut wakes = Wakes::start().await;
        let secret = wakes.subscribe_with("s", "/a/*", json!({ "description": "d" })).await;
        let list = wakes.server.get("/**?subscriptions").await.json();
        let tail = wakes.create("/a/1", "[1]").await;
        let call = wakes.woken().await;
        let body = json!({ "epoch": 1, "acks": [{ "path": "/a/1", "offset": tail }],
                           "subscribe": ["/b", "/c"] });
        let before = wakes.call(&call, body).await.expect(200).json();
        let mut wakes = again(wakes, in_order).await;
        assert_eq!(wakes.server.get("/**?subscriptions").await.json(), list);
        let same = json!({ "webhook": wakes.sink.url() });
        wakes.put_subscription("s", "/a/*", &same).await.expect(200);
        let keep_alive = json!({ "epoch": 1 });
        assert_eq!(wakes.call(&call, keep_alive).await.expect(200).json(), before);
        assert_eq!(wakes.live("s", "/a/1").await.0, wakes.now() + 45_000);
        wakes.finish(&call, &tail).await.expect(200);
        wakes.create("/c", "").await;
        wakes.append("/c", "[1]").await;
        let next = wakes.woken().await;
        assert_eq!((next.epoch(), next.json()["triggered_by"].clone()), (2, json!(["/c"])));
        let header = next.get("webhook-signature");
        signature::verify_hmac(&secret, header, &next.body, wakes.now() / 1_000, 0).unwrap();
        next.done();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_was_on_its_way_is_told_again_and_is_the_same() {
    for in_order in [true, false] {
        let mut wakes = Wakes::start().await;
        wakes.subscribe("s", "/a/*").await;
        let tail = wakes.create("/a/1", "[1]").await;
        let call = wakes.woken().await;
        let mut wakes = again(wakes, in_order).await;
        let next = wakes.woken().await;
        assert_eq!(next.wake(), call.wake());
        assert_ne!(next.wake_id(), "");
        // Either token claims it.
        wakes.call(&call, json!({ "epoch": 1, "wake_id": call.wake_id() })).await.expect(200);
        wakes.finish(&next, &tail).await.expect(200);
        wakes.quiet("it is done").await;
        wakes.append("/a/1", "[2]").await;
        assert_eq!(wakes.woken().await.epoch(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_keeps_its_end_and_its_count() {
    for in_order in [true, false] {
        let mut wakes = Wakes::start().await;
        wakes.subscribe("s", "/a/*").await;
        wakes.create("/a/1", "[1]").await;
        let mut wake = None;
        for _ in 0..6 {
            let call = wakes.woken().await;
            wake = Some(call.wake());
            call.answer(500, "");
            let (_, until) = wakes.paused("s", "/a/1").await;
            wakes.advance_to(until);
        }
        let call = wakes.woken().await;
        call.answer(500, "");
        let (attempt, until) = wakes.paused("s", "/a/1").await;
        assert_eq!(attempt, 7);
        let mut wakes = again(wakes, in_order).await;
        assert_eq!(wakes.paused("s", "/a/1").await, (attempt, until));
        wakes.quiet("its time has not come").await;
        wakes.advance_to(until - 3);
        wakes.quiet("or just").await;
        wakes.advance_to(until);
        let call = wakes.woken().await;
        assert_eq!(Some(call.wake()), wake);
        call.answer(500, "");
        let paused = |it: &reveille_core::consumer::Consumer| {
            matches!(it.phase, Phase::Waking { attempt: 8, .. })
                && it.deadline().is_some_and(|at| at.0 > until + 20_000)
        };
        wakes.until("s", "/a/1", paused).await;
        assert_eq!(wakes.record("s", "/a/1").unwrap().failures, 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_and_a_life_that_ended_while_nobody_ran_are_noticed_at_the_start() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/paused", "[1]").await;
    wakes.woken().await.answer(500, "");
    wakes.paused("s", "/a/paused").await;
    wakes.create("/a/live", "[1]").await;
    wakes.woken().await.ok();
    wakes.live("s", "/a/live").await;
    wakes.clock.advance(100_000);
    let mut wakes = wakes.crash().await;
    let mut calls = [wakes.woken().await, wakes.woken().await];
    calls.sort_by_key(Call::primary);
    let found = calls.each_ref().map(|call| (call.primary(), call.epoch()));
    // Whether the first server noticed a moment before it fell is all the same.
    assert_eq!(found, [("/a/live".into(), 2), ("/a/paused".into(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_whose_stream_has_ended_is_not_told_again_after_a_restart() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/deleted", "[1]").await;
    let deleted = wakes.woken().await;
    let ttl = [JSON, ("stream-expires-at", "2025-06-01T00:00:05Z")];
    wakes.server.ask("PUT", "/a/expired", &ttl, b"[1]").await.expect(201);
    let expired = wakes.woken().await;
    wakes.server.delete("/a/deleted").await.expect(204);
    let clock = wakes.clock.clone();
    let mut wakes = wakes.restart_after(|| clock.advance(5_000)).await;
    wakes.quiet("their streams are gone").await;
    for call in [&deleted, &expired] {
        let answer = wakes.call(call, json!({ "epoch": 1 })).await.expect(410);
        assert_eq!(answer.code(), "CONSUMER_GONE");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endings_survive_too() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.subscribe("ended", "/ended/*").await;
    wakes.create("/a/1", "[1]").await;
    let unsubscribed = wakes.woken().await;
    let body = json!({ "epoch": 1, "unsubscribe": ["/a/1"] });
    wakes.call(&unsubscribed, body).await.expect(410);
    wakes.create("/ended/1", "[1]").await;
    let ended = wakes.woken().await;
    wakes.server.delete("/**?subscription=ended").await.expect(204);
    wakes.create("/a/2", "[1]").await;
    let deleted = wakes.woken().await;
    wakes.server.delete("/a/2").await.expect(204);
    let mut wakes = wakes.crash().await;
    wakes.quiet("all three are gone").await;
    for call in [&unsubscribed, &ended, &deleted] {
        wakes.call(call, json!({ "epoch": 1 })).await.expect(410);
    }
    wakes.create("/a/2", "[1]").await;
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2, "the count goes on over a crash");
    wakes.append("/a/1", "[2]").await;
    wakes.append("/ended/1", "[2]").await;
    wakes.quiet("and they stay gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_being_collected_are_told_on_time_after_a_restart() {
    let wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "max_delay": "10s" })).await;
    wakes.create("/a/1", "[1]").await;
    wakes.clock.advance(5_000);
    let mut wakes = wakes.restart().await;
    let due = START_MS + 10_000;
    wakes.quiet("it is collected").await;
    wakes.advance_to(due - 1);
    assert!(wakes.sink.come().is_none());
    wakes.advance_to(due);
    assert_eq!(wakes.woken().await.epoch(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_were_being_told_all_are_told_again_and_once() {
    const MANY: usize = 300;
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let mut connection = wakes.server.connect().await;
    let mut open = Vec::new();
    for number in 0..MANY {
        connection.ask("PUT", &format!("/a/{number}"), &[JSON], b"[1]").await.expect(201);
        open.push(wakes.woken().await);
    }
    let mut before: Vec<_> = open.iter().map(Call::wake).collect();
    // Time-outs that ran out while nobody ran are nobody's failure: they are told at once as well.
    let clock = wakes.clock.clone();
    for pause in [0, 20_000] {
        wakes = wakes.restart_after(|| clock.advance(pause)).await;
        let mut after = Vec::new();
        for _ in 0..MANY {
            let call = wakes.woken().await;
            after.push(call.wake());
            open.push(call);
        }
        before.sort();
        after.sort();
        assert_eq!(after, before);
        wakes.quiet("once is enough").await;
        for number in 0..MANY {
            let kept = wakes.record("s", &format!("/a/{number}")).unwrap();
            assert!(matches!(kept.consumer.phase, Phase::Waking { attempt: 1, .. }));
            assert_eq!((kept.failures, kept.consumer.failing_since), (0, None));
        }
    }
}
