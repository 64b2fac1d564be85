//! Subscriptions that begin before now: streams that were there are told, once, whatever happens.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::*;

/// So many streams need several slices.
const STREAMS: usize = 600;

async fn subscribe(wakes: &Wakes, start: Value) -> Answer {
    let body = json!({ "webhook": wakes.sink.url(), "start": start });
    wakes.put_subscription("s", "/a/*", &body).await
}

/// Makes streams of one message each, on one connection.
async fn make(wakes: &Wakes, count: usize) {
    let mut connection = wakes.server.connect().await;
    for number in 0..count {
        connection.ask("PUT", &format!("/a/{number:04}"), &[JSON], b"[1]").await.expect(201);
    }
}

async fn listed(wakes: &Wakes, state: &str) -> Vec<Value> {
    let target = format!("/admin/v1/consumers?state={state}&limit=1000");
    let answer = wakes.server.get(&target).await.expect(200).json();
    answer["consumers"].as_array().unwrap().clone()
}

/// The wakes that come until all have come, by stream: the first epoch and place of each.
async fn first_wakes(wakes: &mut Wakes, count: usize) -> BTreeMap<String, (u64, String)> {
    let mut found = BTreeMap::new();
    while found.len() < count {
        let call = wakes.woken().await;
        let body = call.json();
        let offset = body["streams"][0]["offset"].as_str().unwrap().to_owned();
        let known = found.insert(call.primary(), (call.epoch(), offset.clone()));
        // One that was on its way in a crash comes again, as the same wake.
        assert!(known.is_none_or(|known| known == (call.epoch(), offset)), "{body}");
        call.ok();
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_were_there_are_woken_for_from_their_beginning() {
    let mut wakes = Wakes::start().await;
    make(&wakes, STREAMS).await;
    wakes.create("/b/1", "[1]").await;
    wakes.create("/a/empty", "").await;
    let made = subscribe(&wakes, json!("beginning")).await.expect(201).json();
    assert_eq!(made["start"], "beginning");
    let found = first_wakes(&mut wakes, STREAMS).await;
    assert!(found.values().all(|it| *it == (1, "-1".to_owned())), "{found:?}");
    wakes.quiet("each of them was told once").await;
    // An empty one has nothing to tell, until something comes.
    wakes.append("/a/empty", "[1]").await;
    assert_eq!(wakes.woken().await.primary(), "/a/empty");
    // Asking again for the same is the same, and for another start it is another.
    assert_eq!(
        subscribe(&wakes, json!("beginning")).await.expect(200).json()["start"],
        "beginning"
    );
    for other in [json!("now"), json!({ "offset": ZERO })] {
        let refused = subscribe(&wakes, other).await.expect(409);
        assert_eq!(refused.code(), "SUBSCRIPTION_ALREADY_EXISTS");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_goes_on_after_a_crash_and_with_what_is_appended_meanwhile() {
    let wakes = Wakes::start().await;
    make(&wakes, STREAMS).await;
    subscribe(&wakes, json!("beginning")).await.expect(201);
    // While it walks, streams grow at both ends, and others begin.
    wakes.append("/a/0000", "[2]").await;
    wakes.append(&format!("/a/{:04}", STREAMS - 1), "[2]").await;
    wakes.create("/a/new", "[1]").await;
    let mut wakes = wakes.crash().await;
    let found = first_wakes(&mut wakes, STREAMS + 1).await;
    assert!(found.values().all(|it| *it == (1, "-1".to_owned())), "{found:?}");
    guarded("all to be at work", async {
        while listed(&wakes, "live").await.len() < STREAMS + 1 {
            // What was told before the crash is told again, and wants its answer.
            while let Some(call) = wakes.sink.come() {
                assert_eq!(call.epoch(), 1);
                call.ok();
            }
        }
    })
    .await;
    for consumer in listed(&wakes, "live").await {
        assert_eq!(consumer["epoch"], 1, "{consumer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_is_where_longer_streams_begin() {
    let mut wakes = Wakes::start().await;
    let first = wakes.create("/a/long", "[1]").await;
    wakes.append("/a/long", "[2]").await;
    wakes.create("/a/same", "[1]").await;
    let short = wakes.create("/a/short", "").await;
    subscribe(&wakes, json!({ "offset": first })).await.expect(201);
    let call = wakes.woken().await;
    assert_eq!(call.primary(), "/a/long");
    assert_eq!(call.json()["streams"][0]["offset"], first);
    wakes.quiet("the others are not longer than that").await;
    let shown = wakes.server.get("/admin/v1/consumers/s:%2Fa%2Fshort").await.expect(200).json();
    assert_eq!((&shown["streams"][0]["acked"], &shown["pending"]), (&json!(short), &json!(false)));
    // What comes is told from where they ended, and a new stream from its beginning.
    for (path, offset) in [("/a/same", first.as_str()), ("/a/short", short.as_str())] {
        wakes.append(path, "[7]").await;
        let call = wakes.woken().await;
        assert_eq!(
            (call.primary(), &call.json()["streams"][0]["offset"]),
            (path.into(), &json!(offset))
        );
    }
    wakes.create("/a/new", "[1]").await;
    let call = wakes.woken().await;
    assert_eq!(call.json()["streams"][0]["offset"], "-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_ends_with_its_subscription() {
    let wakes = Wakes::start().await;
    make(&wakes, 300).await;
    subscribe(&wakes, json!("beginning")).await.expect(201);
    wakes.server.delete("/a/*?subscription=s").await.expect(204);
    let mut wakes = wakes.restart().await;
    while wakes.sink.come().is_some() {}
    wakes.quiet("the subscription is gone").await;
    assert_eq!(listed(&wakes, "waking").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_none_is_refused() {
    let wakes = Wakes::start().await;
    for start in [
        json!("end"),
        json!(1),
        json!([]),
        json!({}),
        json!({ "offset": 7 }),
        json!({ "offset": "x" }),
    ] {
        let refused = subscribe(&wakes, start.clone()).await.expect(400);
        assert_eq!(refused.code(), "INVALID_REQUEST", "{start}");
        assert!(refused.text().contains("start") || refused.text().contains("offset"), "{refused}");
    }
    let refused = subscribe(&wakes, json!({ "ofset": "-1" })).await.expect(400);
    assert!(refused.text().contains("did you mean `offset`?"), "{refused}");
    let made = subscribe(&wakes, json!({ "offset": "-1" })).await.expect(201).json();
    assert_eq!(made["start"], "beginning");
}
