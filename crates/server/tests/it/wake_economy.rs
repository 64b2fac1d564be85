//! Fewer wakes: a distance between them, and events that wait to be told together.

use serde_json::json;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn wakes_keep_their_distance_and_lose_nothing() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "min_interval": "60s" })).await;
    wakes.create("/a/1", "[1]").await;
    // The first one comes at once.
    wakes.woken().await.done();
    wakes.idle("s", "/a/1").await;
    let tail = wakes.append("/a/1", "[2]").await;
    wakes.append("/a/1", "[3]").await;
    wakes.quiet("a minute is not over").await;
    wakes.advance_to(START_MS + 59_000);
    wakes.quiet("a minute is not over").await;
    wakes.advance_to(START_MS + 60_000);
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 2);
    // Done with something pending waits its time as well.
    wakes.finish(&call, &tail).await.expect(200);
    wakes.quiet("the next minute is not over").await;
    wakes.advance_to(START_MS + 120_000);
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), &next.json()["streams"][0]["offset"]), (3, &json!(tail)));
    next.done();
    wakes.idle("s", "/a/1").await;
    // After a long rest nothing waits.
    wakes.clock.advance(600_000);
    wakes.append("/a/1", "[4]").await;
    assert_eq!(wakes.woken().await.epoch(), 4);
    let shown = wakes.server.get("/**?subscription=s").await.json();
    assert_eq!(shown["min_interval"], "60000ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_wait_for_company_but_not_longer_than_asked() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "max_delay": 5_000 })).await;
    let begun = wakes.now();
    wakes.create("/a/1", "[1]").await;
    for _ in 0..3 {
        wakes.append("/a/1", "[2]").await;
        wakes.clock.advance(1_000);
    }
    wakes.quiet("they wait for company").await;
    wakes.advance_to(begun + 4_999);
    assert!(wakes.sink.come().is_none());
    wakes.advance_to(begun + 5_000);
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 1);
    call.done();
    wakes.idle("s", "/a/1").await;
    wakes.quiet("all four were told by one").await;
    assert_eq!(wakes.server.get("/**?subscription=s").await.json()["max_delay"], "5000ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_longer_than_its_delay_for_the_sake_of_a_distance() {
    let mut wakes = Wakes::start().await;
    let coalescing = json!({ "max_delay": "5s", "min_interval": "1h" });
    wakes.subscribe_with("s", "/a/*", coalescing).await;
    for epoch in 1..=3 {
        let at = wakes.now();
        if epoch == 1 {
            wakes.create("/a/1", "[1]").await;
        } else {
            wakes.append("/a/1", "[1]").await;
        }
        wakes.advance_to(at + 5_000);
        let call = wakes.woken().await;
        assert_eq!(call.epoch(), epoch);
        call.done();
        wakes.idle("s", "/a/1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collected_events_of_a_stream_that_ends_are_told_to_nobody() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "max_delay": "5s" })).await;
    wakes.create("/a/1", "[1]").await;
    wakes.create("/a/2", "[1]").await;
    wakes.server.delete("/a/1").await.expect(204);
    wakes.server.delete("/**?subscription=s").await.expect(204);
    wakes.clock.advance(5_000);
    wakes.quiet("one stream and the subscription are gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_delays_are_no_trouble() {
    let mut wakes = Wakes::start().await;
    let never = u64::MAX;
    wakes.subscribe_with("s", "/a/*", json!({ "max_delay": never, "min_interval": never })).await;
    wakes.create("/a/1", "[1]").await;
    wakes.append("/a/1", "[2]").await;
    wakes.clock.advance(1_000_000_000);
    wakes.quiet("it waits").await;
}
