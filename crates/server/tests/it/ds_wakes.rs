//! Wakes by webhook under `__ds`: generations, fences, leases, retries, and what a restart keeps.

use reveille_core::subscription::Timings;
use serde_json::{Value, json};

use crate::harness::*;

async fn on_clock() -> (HandClock, TestServer, Endpoint) {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    (clock, server, Endpoint::open().await)
}

/// The next wake, which is answered with a plain 200.
async fn woken(endpoint: &mut Endpoint) -> Value {
    let call = endpoint.call().await;
    let wake = call.json();
    call.answer(200, "thanks");
    wake
}

/// Reports on a wake of `s`.
async fn report(server: &TestServer, wake: &Value, acks: &[(&str, &str)], done: bool) -> Answer {
    let body = ds::report(wake, acks, done);
    server.ds_post("s/callback", Some(ds::token(wake)), &body).await
}

#[track_caller]
fn refused(answer: Answer, status: u16, code: &str) {
    let answer = answer.expect(status);
    assert_eq!(answer.code(), code, "{answer}");
    assert_eq!(answer.json().get("ok"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_wake_says_what_is_to_be_done_and_where_to_report() {
    let (_clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let tail = server.ds_stream("events/a").await;
    let call = endpoint.call().await;
    assert_eq!(call.get("content-type"), "application/json");
    let wake = call.json();
    let stream = json!({
        "path": "events/a", "link_type": "glob", "acked_offset": "-1", "tail_offset": tail,
        "has_pending": true,
    });
    let expected = json!({
        "subscription_id": "s",
        "wake_id": wake["wake_id"],
        "generation": 1,
        "streams": [stream],
        "callback_url": "http://localhost/v1/stream/__ds/subscriptions/s/callback",
        "callback_token": wake["callback_token"],
    });
    assert_eq!(wake, expected);
    let answer = report(&server, &wake, &[("events/a", &tail)], true).await.expect(200);
    assert_eq!(answer.json(), json!({ "ok": true, "next_wake": false }));
    assert_eq!(server.ds_links("s").await[0].2, tail);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_urls_begin_with_the_public_one_if_the_operator_gave_it() {
    let mut endpoint = Endpoint::open().await;
    let public_url = Some("https://streams.example/".into());
    let server = Setup { public_url, ..Setup::default() }.start().await;
    let made = server.ds_webhook("s", "events/*", &endpoint.url).await;
    let root = "https://streams.example/v1/stream/__ds";
    assert_eq!(made["webhook"]["signing"]["jwks_url"], format!("{root}/jwks.json"));
    server.ds_stream("events/a").await;
    let wake = woken(&mut endpoint).await;
    assert_eq!(wake["callback_url"], format!("{root}/subscriptions/s/callback"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_every_wake_has_a_generation_and_earlier_ones_are_fenced() {
    let (_clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let tail = server.ds_stream("events/a").await;
    let first = woken(&mut endpoint).await;
    report(&server, &first, &[("events/a", &tail)], true).await.expect(200);
    // The same once more is not heard, and changes nothing.
    refused(report(&server, &first, &[("events/a", &tail)], true).await, 409, "FENCED");

    let tail = server.ds_append("events/a").await;
    let second = woken(&mut endpoint).await;
    assert_eq!(second["generation"], 2);
    assert_ne!(second["wake_id"], first["wake_id"]);
    refused(report(&server, &first, &[], false).await, 409, "FENCED");
    // Token, generation and wake id must all be those of the wake.
    for (field, value) in [
        ("callback_token", &first["callback_token"]),
        ("generation", &first["generation"]),
        ("generation", &json!(3)),
        ("wake_id", &first["wake_id"]),
        ("wake_id", &json!("w_x")),
    ] {
        let mut mixed = second.clone();
        mixed[field] = value.clone();
        refused(report(&server, &mixed, &[("events/a", &tail)], true).await, 409, "FENCED");
    }
    report(&server, &second, &[("events/a", &tail)], true).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_only_the_subscriptions_own_token_is_good() {
    let clock = HandClock::new();
    let timings = Timings { token_ttl_ms: 10_000, ..Timings::default() };
    let server = Setup { timings, ..Setup::on(&clock) }.start().await;
    let (mut endpoint, mut others) = (Endpoint::open().await, Endpoint::open().await);
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_webhook("t", "events/*", &others.url).await;
    server.ds_stream("events/a").await;
    let (wake, other) = (woken(&mut endpoint).await, woken(&mut others).await);
    let body = ds::report(&wake, &[], false);
    for token in [None, Some(""), Some("x"), Some("x.y"), Some(ds::token(&other))] {
        let answer = server.ds_post("s/callback", token, &body).await.expect(401);
        assert_eq!(answer.need("www-authenticate"), "Bearer");
        refused(answer, 401, "TOKEN_INVALID");
    }
    let basic = [("authorization", "Basic eDp5")];
    let answer = server.ask("POST", &ds::at("s/callback"), &basic, b"{}").await;
    refused(answer, 401, "TOKEN_INVALID");
    // Signs of life keep the lease, and with it the token, for longer than it was made for.
    for _ in 0..20 {
        clock.advance(999);
        report(&server, &wake, &[], false).await.expect(200);
    }
    clock.advance(1_001);
    // The lease has ended once the next wake comes.
    woken(&mut endpoint).await;
    refused(report(&server, &wake, &[], false).await, 401, "TOKEN_EXPIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_acks_hold_all_together_or_not_at_all() {
    let (_clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_stream("other").await;
    let half = server.ds_stream("events/a").await;
    let wake = woken(&mut endpoint).await;
    let a = server.ds_append("events/a").await;
    let b = server.ds_stream("events/b").await;
    report(&server, &wake, &[("events/a", &half)], false).await.expect(200);
    let before = server.ds_links("s").await;
    let zero = "0000000000000000_0000000000000000";
    for (stream, offset) in [
        ("events/none", b.as_str()),
        ("other", &b),
        ("/events/a", &a),
        ("", &a),
        ("events/a", "-1"),
        ("events/a", zero),
        ("events/a", "now"),
        ("events/a", "0000000000000000_0000000000000100"),
        ("events/a", "9999999999999999_9999999999999999"),
    ] {
        let acks = [("events/b", b.as_str()), (stream, offset)];
        refused(report(&server, &wake, &acks, true).await, 409, "INVALID_OFFSET");
        assert_eq!(server.ds_links("s").await, before, "{stream} {offset}");
    }
    let acks = [("events/b", b.as_str()), ("events/a", &a), ("events/a", &a)];
    let answer = report(&server, &wake, &acks, true).await.expect(200);
    assert_eq!(answer.json()["next_wake"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_what_came_meanwhile_is_told_by_the_next_wake() {
    let (_clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let first = server.ds_stream("events/a").await;
    let call = endpoint.call().await;
    // Not while one is told, nor while somebody works.
    server.ds_append("events/a").await;
    let wake = call.json();
    call.answer(200, "{}");
    let tail = server.ds_append("events/a").await;
    report(&server, &wake, &[], false).await.expect(200);
    assert!(endpoint.is_quiet());
    let answer = report(&server, &wake, &[("events/a", &first)], true).await.expect(200);
    assert_eq!(answer.json(), json!({ "ok": true, "next_wake": true }));
    let next = woken(&mut endpoint).await;
    assert_eq!(next["generation"], 2);
    assert_eq!(next["streams"][0]["acked_offset"], first);
    assert_eq!(next["streams"][0]["tail_offset"], tail);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_an_answer_that_says_done_acknowledges_what_was_announced_and_no_more() {
    let (_clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let announced = server.ds_stream("events/a").await;
    let call = endpoint.call().await;
    let tail = server.ds_append("events/a").await;
    call.answer(200, r#"{"done":true}"#);
    let call = endpoint.call().await;
    let wake = call.json();
    assert_eq!(wake["generation"], 2);
    assert_eq!(wake["streams"][0]["acked_offset"], announced);
    assert_eq!(wake["streams"][0]["tail_offset"], tail);
    call.answer(200, r#"{"done":true}"#);
    eventually("all of it to be acknowledged", async || {
        (server.ds_links("s").await[0].2 == tail).then_some(())
    })
    .await;
    assert!(endpoint.is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_lease_that_ends_wakes_again_and_fences_the_one_before() {
    let (clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let tail = server.ds_stream("events/a").await;
    let first = woken(&mut endpoint).await;
    // A report prolongs the lease by its whole length.
    clock.advance(900);
    report(&server, &first, &[], false).await.expect(200);
    clock.advance(900);
    report(&server, &first, &[], false).await.expect(200);
    clock.advance(999);
    assert!(endpoint.is_quiet());
    clock.advance(1);
    let second = woken(&mut endpoint).await;
    assert_eq!(second["generation"], 2);
    refused(report(&server, &first, &[("events/a", &tail)], true).await, 409, "FENCED");
    report(&server, &second, &[("events/a", &tail)], true).await.expect(200);
    // Nothing is pending: nobody is woken however long it takes.
    clock.advance(10_000);
    stays("quiet", async || endpoint.is_quiet()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_an_endpoint_that_fails_is_called_again_after_one_to_sixty_seconds() {
    let (clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let tail = server.ds_stream("events/a").await;
    let mut wakes = Vec::new();
    for base in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        let call = endpoint.call().await;
        wakes.push(call.json()["wake_id"].clone());
        call.answer(503, "");
        let at = eventually("the next attempt to be planned", async || {
            let shown = server.ds_get("s").await;
            shown["next_attempt_at"].as_str().map(|at| {
                assert_eq!(shown["status"], "failed");
                reveille_core::Millis::parse_rfc3339(at).unwrap().0
            })
        })
        .await;
        let delay = at - server.engine.clock().now().0;
        assert!((base - base / 5..=base + base / 5).contains(&delay), "{delay} for {base}");
        clock.advance(delay - 1);
        assert!(endpoint.is_quiet());
        clock.advance(1);
    }
    let wake = woken(&mut endpoint).await;
    assert!(wakes.iter().all(|id| *id == wake["wake_id"]), "it is one wake all the time");
    assert_eq!(wake["generation"], 1);
    eventually("it to be well again", async || {
        let shown = server.ds_get("s").await;
        (shown["status"] == "active" && shown.get("next_attempt_at").is_none()).then_some(())
    })
    .await;
    report(&server, &wake, &[("events/a", &tail)], true).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_links_leases_and_wakes_outlive_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut endpoint = Endpoint::open().await;
    let server = Setup::on(&clock).start_in(directory.path()).await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    let tail = server.ds_stream("events/a").await;
    let first = woken(&mut endpoint).await;
    report(&server, &first, &[], false).await.expect(200);
    let shown = server.ds_get("s").await;
    server.stop().await;

    let server = Setup::on(&clock).start_in(directory.path()).await;
    assert_eq!(server.ds_get("s").await, shown);
    // The lease is still held: its holder reports, and the work is done.
    clock.advance(900);
    assert!(endpoint.is_quiet());
    report(&server, &first, &[("events/a", &tail)], true).await.expect(200);
    let tail = server.ds_append("events/a").await;
    let second = woken(&mut endpoint).await;
    assert_eq!(second["generation"], 2);
    report(&server, &second, &[], false).await.expect(200);
    server.stop().await;

    // A lease that ends while nobody serves is over when somebody does.
    clock.advance(60_000);
    let server = Setup::on(&clock).start_in(directory.path()).await;
    let third = woken(&mut endpoint).await;
    assert_eq!(third["generation"], 3);
    refused(report(&server, &second, &[("events/a", &tail)], true).await, 409, "FENCED");
    report(&server, &third, &[("events/a", &tail)], true).await.expect(200);
    assert_eq!(server.ds_links("s").await[0].2, tail);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_planned_attempt_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let mut endpoint = Endpoint::open().await;
    let server = Setup::on(&clock).start_in(directory.path()).await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_stream("events/a").await;
    let call = endpoint.call().await;
    let wake_id = call.json()["wake_id"].clone();
    call.answer(500, "");
    let planned = eventually("the next attempt to be planned", async || {
        let shown = server.ds_get("s").await;
        shown.get("next_attempt_at").is_some().then_some(shown)
    })
    .await;
    server.stop().await;
    let server = Setup::on(&clock).start_in(directory.path()).await;
    assert_eq!(server.ds_get("s").await, planned);
    clock.advance(1_200);
    assert_eq!(woken(&mut endpoint).await["wake_id"], wake_id);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_done_says_nothing_of_a_stream_that_was_made_again_meanwhile() {
    let (_clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_stream("events/a").await;
    let call = endpoint.call().await;
    server.delete("/v1/stream/events/a").await.expect(204);
    let tail = server.ds_stream("events/a").await;
    call.answer(200, r#"{"done":true}"#);
    let wake = woken(&mut endpoint).await;
    assert_eq!(wake["streams"][0]["acked_offset"], "-1");
    assert_eq!(wake["streams"][0]["tail_offset"], tail);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_an_endpoint_that_fails_is_not_called_for_a_stream_that_is_gone() {
    let (clock, server, mut endpoint) = on_clock().await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_stream("events/a").await;
    endpoint.call().await.answer(500, "");
    eventually("the attempt to have failed", async || {
        (server.ds_get("s").await["status"] == "failed").then_some(())
    })
    .await;
    server.delete("/v1/stream/events/a").await.expect(204);
    clock.advance(2_000);
    eventually("nothing to be left to do", async || {
        (server.ds_get("s").await["status"] == "active").then_some(())
    })
    .await;
    assert!(endpoint.is_quiet());
    server.ds_stream("events/b").await;
    assert_eq!(woken(&mut endpoint).await["generation"], 2);
}
