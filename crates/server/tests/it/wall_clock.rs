//! A machine whose clock is set while the server runs: dates follow it, nothing else does.

use reveille_core::signature;
use serde_json::json;

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
