//! What ends a consumer, and what its successors at the same name inherit: nothing but the count.

use reveille_core::subscription::Timings;
use serde_json::json;

use crate::harness::*;

async fn told() -> (Wakes, Call, String) {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    (wakes, call, tail)
}

async fn is_gone(wakes: &Wakes, call: &Call) {
    for body in [json!({ "epoch": call.epoch() }), json!({ "epoch": 99, "wake_id": "x" })] {
        let answer = wakes.call(call, body).await.expect(410);
        assert_eq!(answer.code(), "CONSUMER_GONE");
        assert_eq!(answer.json().get("token"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_ends_with_its_stream_whatever_it_was_doing() {
    let (mut wakes, waking, _) = told().await;
    wakes.create("/a/live", "[1]").await;
    let live = wakes.woken().await;
    wakes.call(&live, json!({ "epoch": 1, "subscribe": ["/b"] })).await.expect(200);
    let tail = wakes.create("/a/idle", "[1]").await;
    let idle = wakes.woken().await;
    wakes.finish(&idle, &tail).await.expect(200);
    for path in ["/a/1", "/a/live", "/a/idle"] {
        wakes.server.delete(path).await.expect(204);
    }
    for call in [&waking, &live, &idle] {
        is_gone(&wakes, call).await;
    }
    // What they followed beside it wakes nobody, and nothing is told again.
    wakes.create("/b", "[1]").await;
    waking.answer(500, "");
    wakes.clock.advance(50_000);
    wakes.quiet("they are gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_in_the_place_of_another_goes_on_counting_and_old_tokens_stay_dead() {
    let (mut wakes, old, tail) = told().await;
    wakes.finish(&old, &tail).await.expect(200);
    wakes.append("/a/1", "[2]").await;
    let second = wakes.woken().await;
    assert_eq!(second.epoch(), 2);
    wakes.server.delete("/a/1").await.expect(204);
    wakes.create("/a/1", "[1]").await;
    let third = wakes.woken().await;
    assert_eq!((third.epoch(), &third.json()["streams"][0]["offset"]), (3, &json!("-1")));
    for call in [&old, &second] {
        is_gone(&wakes, call).await;
        let body = json!({ "epoch": 3, "wake_id": third.wake_id() });
        assert_eq!(wakes.call(call, body).await.expect(410).code(), "CONSUMER_GONE");
    }
    second.done();
    wakes.quiet("an answer to the old stream's wake is nothing to the new one").await;
    wakes.call(&third, json!({ "epoch": 3, "wake_id": third.wake_id() })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_stream_that_ended_while_it_was_told_has_time_outs_of_its_own() {
    // The timer of the old consumer fires for nobody; the new one must not rely on it.
    let (mut wakes, old, _) = told().await;
    wakes.server.delete("/a/1").await.expect(204);
    wakes.clock.advance(20_000);
    wakes.quiet("it is gone").await;
    wakes.create("/a/1", "[1]").await;
    let second = wakes.woken().await;
    assert_eq!(second.epoch(), 2);
    wakes.clock.advance(10_000);
    let (_, until) = wakes.paused("s", "/a/1").await;
    wakes.advance_to(until);
    let again = wakes.woken().await;
    assert_eq!(again.wake(), second.wake());
    again.ok();
    wakes.live("s", "/a/1").await;
    wakes.clock.advance(45_000);
    assert_eq!(wakes.woken().await.epoch(), 3);
    drop(old);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_consumer_is_forgotten_with_the_last_token() {
    let (mut wakes, call, _) = told().await;
    wakes.server.delete("/a/1").await.expect(204);
    wakes.clock.advance(3_600_000);
    wakes.quiet("it is gone").await;
    is_gone(&wakes, &call).await;
    wakes.create("/a/1", "[1]").await;
    let next = wakes.woken().await;
    is_gone(&wakes, &call).await;
    next.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_time_is_over_ends_its_consumer() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let ttl = [JSON, ("stream-ttl", "100")];
    wakes.server.ask("PUT", "/a/1", &ttl, b"[1]").await.expect(201);
    let call = wakes.woken().await;
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    wakes.clock.advance(40_000);
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    wakes.clock.advance(40_000);
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    wakes.clock.advance(19_999);
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    wakes.clock.advance(1);
    is_gone(&wakes, &call).await;
    wakes.clock.advance(50_000);
    wakes.quiet("it is gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_stream_is_told_to_nobody_although_nobody_looked_at_it() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let ttl = [JSON, ("stream-ttl", "1")];
    wakes.server.ask("PUT", "/a/1", &ttl, b"[1]").await.expect(201);
    let call = wakes.woken().await;
    call.answer(500, "");
    wakes.paused("s", "/a/1").await;
    wakes.clock.advance(2_000);
    wakes.quiet("the stream is over").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_kept_for_its_forks_alone_ends_its_consumer() {
    let (mut wakes, call, _) = told().await;
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    let fork = [JSON, ("stream-forked-from", "/a/1")];
    wakes.server.ask("PUT", "/fork", &fork, b"").await.expect(201);
    wakes.server.delete("/a/1").await.expect(204);
    wakes.server.get("/a/1").await.expect(410);
    is_gone(&wakes, &call).await;
    wakes.clock.advance(45_000);
    wakes.quiet("it is gone").await;
    wakes.server.delete("/fork").await.expect(204);
    eventually("the path to be free", async || {
        let put = wakes.server.ask("PUT", "/a/1", &[JSON], b"[1]").await;
        (put.status() == 201).then_some(())
    })
    .await;
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2, "the count goes on");
    is_gone(&wakes, &call).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_deleted_takes_its_consumers_along() {
    let (mut wakes, waking, _) = told().await;
    wakes.create("/a/2", "[1]").await;
    let live = wakes.woken().await;
    wakes.call(&live, json!({ "epoch": 1, "subscribe": ["/b"] })).await.expect(200);
    wakes.create("/a/3", "[1]").await;
    wakes.woken().await.answer(500, "");
    wakes.paused("s", "/a/3").await;
    wakes.server.delete("/**?subscription=s").await.expect(204);
    is_gone(&wakes, &waking).await;
    is_gone(&wakes, &live).await;
    wakes.append("/a/1", "[2]").await;
    wakes.create("/b", "[1]").await;
    wakes.clock.advance(50_000);
    wakes.quiet("the subscription is gone").await;
    // The same name again is another subscription: nothing is revived.
    wakes.subscribe("s", "/a/*").await;
    is_gone(&wakes, &live).await;
    wakes.quiet("existing streams wake on new events alone").await;
    let tail = wakes.append("/a/1", "[3]").await;
    let fresh = wakes.woken().await;
    assert_eq!(fresh.consumer(), waking.consumer());
    is_gone(&wakes, &waking).await;
    let body = json!({ "epoch": fresh.epoch(), "wake_id": fresh.wake_id() });
    assert_eq!(wakes.call(&waking, body).await.expect(410).code(), "CONSUMER_GONE");
    waking.done();
    wakes.finish(&fresh, &tail).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_in_a_queue_is_not_told_after_its_subscription_has_ended() {
    let timings = Timings { waking_timeout_ms: 600_000, ..Timings::default() };
    let mut wakes = Wakes::with(timings).await;
    wakes.subscribe("s", "/a/*").await;
    let mut connection = wakes.server.connect().await;
    for number in 0..600 {
        let path = format!("/a/{number}");
        connection.ask("PUT", &path, &[JSON], b"[1]").await.expect(201);
    }
    let mut open = Vec::new();
    for _ in 0..512 {
        open.push(wakes.woken().await);
    }
    wakes.quiet("so many may be on their way at once").await;
    wakes.server.delete("/**?subscription=s").await.expect(204);
    for call in open {
        call.ok();
    }
    wakes.quiet("the subscription is gone").await;
}
