//! Subscriptions that are paused: nobody is told, nothing is lost, and those under way may finish.

use std::collections::BTreeSet;

use reveille_core::consumer::Phase;
use serde_json::json;

use crate::harness::*;

async fn pause(wakes: &Wakes, name: &str, paused: bool) -> Answer {
    let (target, body) = (format!("/**?subscription={name}"), json!({ "paused": paused }));
    wakes.server.ask("PATCH", &target, &[JSON], body.to_string().as_bytes()).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_matches_a_paused_subscription_waits_and_is_told_when_it_goes_on() {
    let mut wakes = Wakes::start().await;
    wakes.create("/a/before", "[0]").await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/known", "[1]").await;
    let call = wakes.woken().await;
    wakes.finish(&call, &tail).await.expect(200);
    call.ok();
    let paused = pause(&wakes, "s", true).await.json();
    assert_eq!((&paused["paused"], &paused["paused_since"]), (&json!(true), &json!(wakes.now())));
    let since = wakes.now();
    // One that was told before, one of which it has no record, and one that begins now.
    wakes.append("/a/known", "[2]").await;
    wakes.append("/a/before", "[1]").await;
    wakes.create("/a/new", "[1]").await;
    wakes.clock.advance(10 * 86_400_000);
    wakes.append("/a/new", "[2]").await;
    wakes.quiet("the subscription is paused").await;
    let again = pause(&wakes, "s", true).await.json();
    assert_eq!(again["paused_since"], since, "a pause has one beginning");
    let list = wakes.server.get("/admin/v1/consumers?subscription=s").await.expect(200).json();
    for consumer in list["consumers"].as_array().unwrap() {
        assert_eq!((&consumer["state"], &consumer["pending"]), (&json!("idle"), &json!(true)));
    }
    let mut wakes = wakes.restart().await;
    wakes.quiet("it is paused still").await;
    let resumed = pause(&wakes, "s", false).await.json();
    assert_eq!((resumed.get("paused"), resumed.get("paused_since")), (None, None));
    let mut told = BTreeSet::new();
    for _ in 0..3 {
        let call = wakes.woken().await;
        assert!(told.insert(call.primary()), "each of them is told once");
        call.done();
    }
    assert_eq!(told.into_iter().collect::<Vec<_>>(), ["/a/before", "/a/known", "/a/new"]);
    for path in ["/a/before", "/a/known", "/a/new"] {
        wakes.idle("s", path).await;
    }
    wakes.quiet("everybody was told").await;
    let known = wakes.record("s", "/a/known").unwrap().consumer;
    assert_eq!((known.epoch, known.failing_since), (2, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_is_under_way_may_finish_and_none_begins() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    pause(&wakes, "s", true).await;
    let (consumer, token, epoch) = (call.consumer(), call.token(), call.epoch());
    call.ok();
    wakes.live("s", "/a/1").await;
    wakes.append("/a/1", "[2]").await;
    let acks = json!([{ "path": "/a/1", "offset": tail }]);
    let body = json!({ "epoch": epoch, "acks": acks, "done": true });
    let heard = wakes.call_as(&consumer, &token, body).await.expect(200).json();
    assert_eq!(heard.get("next_wake"), None, "{heard}");
    wakes.quiet("no other wake begins").await;
    let kept = wakes.record("s", "/a/1").unwrap().consumer;
    assert_eq!((kept.phase, kept.epoch), (Phase::Idle { wake_at: None }, 1));
    assert_eq!(kept.links[0].acked, Some(tail.parse().unwrap()));
    pause(&wakes, "s", false).await;
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 2);
    call.done();
    wakes.idle("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_while_paused_is_no_failure_and_is_not_tried_again() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    wakes.create("/a/2", "[1]").await;
    let (first, second) = (wakes.woken().await, wakes.woken().await);
    let path = second.primary();
    // One has failed and waits for its next attempt, the other fails later.
    let waiting = first.primary();
    first.answer(500, "");
    let (_, until) = wakes.paused("s", &waiting).await;
    pause(&wakes, "s", true).await;
    second.answer(500, "");
    wakes.idle("s", &path).await;
    wakes.advance_to(until);
    wakes.idle("s", &waiting).await;
    // Far longer than a consumer may fail for.
    wakes.clock.advance(10 * 86_400_000);
    wakes.quiet("it is paused").await;
    for path in [&path, &waiting] {
        assert_eq!(wakes.record("s", path).unwrap().consumer.failing_since, None);
    }
    pause(&wakes, "s", false).await;
    for _ in 0..2 {
        let call = wakes.woken().await;
        assert_eq!(call.epoch(), 2, "a wake of its own");
        call.answer(500, "");
    }
    for path in [&path, &waiting] {
        wakes.paused("s", path).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_waited_are_told_in_slices_also_after_a_crash() {
    const STREAMS: usize = 200;
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    pause(&wakes, "s", true).await;
    let mut connection = wakes.server.connect().await;
    for number in 0..STREAMS {
        let target = format!("/a/{number}");
        connection.ask("PUT", &target, &[JSON], b"[1]").await.expect(201);
    }
    drop(connection);
    wakes.quiet("it is paused").await;
    pause(&wakes, "s", false).await;
    let mut wakes = wakes.crash().await;
    let mut told = BTreeSet::new();
    while told.len() < STREAMS {
        let call = wakes.woken().await;
        assert_eq!(call.epoch(), 1);
        told.insert(call.primary());
        call.done();
    }
    // A subscription that was paused and goes on is told as any other is.
    wakes.create("/a/more", "[1]").await;
    loop {
        let call = wakes.woken().await;
        let path = call.primary();
        call.done();
        if path == "/a/more" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_possible_while_another_review_goes_on() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    pause(&wakes, "s", true).await;
    wakes.create("/a/1", "[1]").await;
    for _ in 0..20 {
        pause(&wakes, "s", false).await;
        pause(&wakes, "s", true).await;
    }
    pause(&wakes, "s", false).await;
    // A wake that began between two pauses may not have left: its time finds that out.
    wakes.clock.advance(10_000);
    let call = wakes.woken().await;
    assert_eq!(call.primary(), "/a/1");
    call.done();
    wakes.idle("s", "/a/1").await;
}
