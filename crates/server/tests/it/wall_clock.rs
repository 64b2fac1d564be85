//! A machine whose clock is set while the server runs: dates follow it, nothing else does.

use reveille_core::signature;
use serde_json::{Value, json};

use crate::harness::*;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn signatures_show_the_clock_as_it_is_set() {
    for step in [HOUR_MS, -HOUR_MS] {
        let mut wakes = Wakes::start().await;
        let secret = wakes.subscribe_with("s", "/a/*", json!({})).await;
        wakes.clock.step_wall(step);
        wakes.create("/a/1", "[1]").await;
        let call = wakes.woken().await;
        let header = call.get("webhook-signature");
        let wall_s = wakes.now().saturating_add_signed(step) / 1_000;
        signature::verify_hmac(&secret, header, &call.body, wall_s, 0).unwrap();
        // What was claimed in time is heard, whatever the clock shows.
        wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
        call.done();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_when_the_clock_says_so() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    wakes.clock.step_wall(2 * HOUR_MS);
    let refused = wakes.call(&call, json!({ "epoch": 1 })).await.expect(401).json();
    assert_eq!(refused["error"]["code"], "TOKEN_EXPIRED");
    wakes.clock.step_wall(-2 * HOUR_MS);
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_a_date_ends_at_that_date() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    // The clock of a test begins at 2025-06-01T00:00:00Z.
    let headers = [("content-type", "text/plain"), ("stream-expires-at", "2025-06-01T01:00:00Z")];
    server.ask("PUT", "/s", &headers, b"x").await.expect(201);
    clock.step_wall(HOUR_MS - 1);
    server.get("/s").await.expect(200);
    clock.step_wall(1);
    server.get("/s").await.expect(404);
    server.append("/s", "text/plain", b"y").await.expect(404);
    // Whoever was refused has changed nothing: the date is in the future again.
    clock.step_wall(-HOUR_MS);
    server.get("/s").await.expect(200);
}

/// Every date in an answer: numbers of milliseconds that are of this century.
fn dates(value: &Value, found: &mut Vec<u64>) {
    match value {
        Value::Number(number) => found.extend(number.as_u64().filter(|ms| *ms > 1_000_000_000_000)),
        Value::Array(items) => items.iter().for_each(|item| dates(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| dates(field, found)),
        _ => {}
    }
}

/// The dates of each of these answers, of which every one has some.
async fn dates_of(server: &TestServer, targets: &[String]) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    for target in targets {
        let mut found = Vec::new();
        dates(&server.get(target).await.expect(200).json(), &mut found);
        assert!(!found.is_empty(), "{target} has no date");
        all.push(found);
    }
    all
}

fn moved(dates: &[Vec<u64>], step: i64) -> Vec<Vec<u64>> {
    let of_one = |dates: &Vec<u64>| dates.iter().map(|it| it.saturating_add_signed(step)).collect();
    dates.iter().map(of_one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_that_were_kept_are_shown_as_the_clock_has_them_now() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 1 })).await;
    let waiting = events.subscribe_with("b", json!({ "maxRetries": 2 })).await;
    for kind in ["a", "b"] {
        events.ingest(json!({ "type": kind })).await;
        events.called().await.answer(500, "no");
    }
    let dead = events.until_status(&id, "dead").await;
    events.until_status(&waiting, "failed").await;
    let delivery = dead["id"].as_str().unwrap();
    let targets = [
        "/subscriptions/list".to_owned(),
        format!("/subscriptions/{id}"),
        format!("/subscriptions/status/{id}"),
        format!("/subscriptions/{id}/deliveries"),
        format!("/subscriptions/{waiting}/deliveries"),
        format!("/subscriptions/{id}/dead-letters"),
        format!("/subscriptions/deliveries/{delivery}/logs"),
        "/admin/v1/deliveries".to_owned(),
        format!("/admin/v1/deliveries/{delivery}"),
        "/admin/v1/dlq".to_owned(),
        "/admin/v1/streams".to_owned(),
    ];
    let before = dates_of(&events.server, &targets).await;
    for step in [HOUR_MS, -2 * HOUR_MS, HOUR_MS] {
        events.clock.step_wall(step);
    }
    assert_eq!(dates_of(&events.server, &targets).await, before);
    events.clock.step_wall(HOUR_MS);
    assert_eq!(dates_of(&events.server, &targets).await, moved(&before, HOUR_MS));
    // Who asks for a time means the clock that is shown.
    let died = before[5][0] + u64::try_from(HOUR_MS).unwrap();
    let count = async |from: u64| {
        let found = events.server.get(&format!("/admin/v1/dlq?from={from}")).await.expect(200);
        found.json()["deadLetters"].as_array().unwrap().len()
    };
    assert_eq!((count(died).await, count(died + 1).await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_of_consumers_follow_the_clock() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    wakes.woken().await.answer(500, "no");
    wakes.paused("s", "/a/1").await;
    let targets = ["/admin/v1/consumers".to_owned(), "/admin/v1/consumers/s:%2Fa%2F1".to_owned()];
    let before = dates_of(&wakes.server, &targets).await;
    wakes.clock.step_wall(-HOUR_MS);
    assert_eq!(dates_of(&wakes.server, &targets).await, moved(&before, -HOUR_MS));
}
