//! Who may call back, and for which wake: tokens, claims, epochs (reading B.5).

use reveille_core::subscription::Timings;
use serde_json::{Value, json};

use crate::harness::*;

/// A server with one consumer that was just told of `/a/1`.
async fn told() -> (Wakes, Call, String) {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    (wakes, call, tail)
}

#[track_caller]
fn refused(answer: Answer, status: u16, code: &str) -> Option<String> {
    let answer = answer.expect(status);
    let body = answer.json();
    assert_eq!(answer.need("content-type"), "application/json");
    assert_eq!(body["ok"], false, "{answer}");
    assert_eq!(answer.code(), code, "{answer}");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    body.get("token").map(|token| token.as_str().unwrap().to_owned())
}

fn accepted(answer: Answer) -> Value {
    let body = answer.expect(200).json();
    assert_eq!(body["ok"], true);
    assert!(!body["token"].as_str().unwrap().is_empty());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_is_claimed_while_its_webhook_is_open_and_again_and_again() {
    let (mut wakes, call, _) = told().await;
    let claim = json!({ "epoch": 1, "wake_id": call.wake_id() });
    let body = accepted(wakes.call(&call, claim.clone()).await);
    assert_eq!(body["streams"], json!([{ "path": "/a/1", "offset": "-1" }]));
    assert_eq!(body["token"], call.token(), "it is far from its end");
    assert_eq!(wakes.live("s", "/a/1").await.0, wakes.now() + 45_000);
    assert_eq!(accepted(wakes.call(&call, claim.clone()).await), body);
    // The answer to the webhook comes after the claim, and the claim after the answer.
    let (consumer, token) = (call.consumer(), call.token());
    call.ok();
    wakes.quiet("it is claimed").await;
    accepted(wakes.call_as(&consumer, &token, claim.clone()).await);
    // No waking time-out is left over from before the claim.
    wakes.clock.advance(20_000);
    accepted(wakes.call_as(&consumer, &token, json!({ "epoch": 1 })).await);
    wakes.quiet("a claimed wake is told to nobody else").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_after_the_answer_is_as_good_and_one_without_a_wake_id_claims_too() {
    let (mut wakes, call, tail) = told().await;
    let (consumer, token, wake_id) = (call.consumer(), call.token(), call.wake_id());
    call.ok();
    wakes.live("s", "/a/1").await;
    accepted(wakes.call_as(&consumer, &token, json!({ "epoch": 1, "wake_id": wake_id })).await);
    let done = json!({ "epoch": 1, "done": true, "acks": [{ "path": "/a/1", "offset": tail }] });
    accepted(wakes.call_as(&consumer, &token, done).await);
    wakes.append("/a/1", "[2]").await;
    let call = wakes.woken().await;
    accepted(wakes.call(&call, json!({ "epoch": 2 })).await);
    wakes.live("s", "/a/1").await;
    wakes.clock.advance(11_000);
    wakes.quiet("it is claimed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_wake_id_is_refused_with_a_token_and_claims_nothing() {
    let (mut wakes, call, tail) = told().await;
    let shifted = call.wake_id().replace("w_", "W_");
    let upper = call.wake_id().to_uppercase();
    for wake_id in ["w_000000000000000000000000", "", "w_", "fabricated", &shifted, &upper] {
        let acks = json!([{ "path": "/a/1", "offset": tail }]);
        let body = json!({ "epoch": 1, "wake_id": wake_id, "acks": acks, "done": true });
        let token = refused(wakes.call(&call, body).await, 409, "ALREADY_CLAIMED").unwrap();
        let keep_alive = json!({ "epoch": 9 });
        refused(wakes.call_as(&call.consumer(), &token, keep_alive).await, 409, "STALE_EPOCH");
    }
    let consumer = wakes.record("s", "/a/1").unwrap().consumer;
    assert_eq!(consumer.links[0].acked, None, "nothing was applied");
    // It still waits to be claimed: the waking time-out runs.
    wakes.clock.advance(10_000);
    let (_, until) = wakes.paused("s", "/a/1").await;
    wakes.advance_to(until);
    assert_eq!(wakes.woken().await.wake(), call.wake());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_epoch_is_refused_in_either_direction_with_a_token() {
    let (mut wakes, call, tail) = told().await;
    for epoch in [0, 2, 9_007_199_254_740_993_u64, u64::MAX] {
        let body = json!({ "epoch": epoch, "wake_id": call.wake_id(), "done": true });
        let token = refused(wakes.call(&call, body).await, 409, "STALE_EPOCH").unwrap();
        accepted(wakes.call_as(&call.consumer(), &token, json!({ "epoch": 1 })).await);
    }
    wakes.finish(&call, &tail).await.expect(200);
    wakes.append("/a/1", "[2]").await;
    let next = wakes.woken().await;
    // The zombie of the first wake acknowledges and ends nothing.
    let token = refused(wakes.finish(&call, &tail).await, 409, "STALE_EPOCH").unwrap();
    assert_eq!(next.epoch(), 2);
    wakes.quiet("the second wake is untouched").await;
    // Whatever it says, its token speaks for the first wake: nothing is heard, and nothing appended.
    let acks = json!([{ "path": "/a/1", "offset": tail }]);
    let append = json!([{ "path": "/a/1", "messages": ["from the grave"] }]);
    for token in [call.token(), token] {
        for body in [
            json!({ "epoch": 2 }),
            json!({ "epoch": 2, "wake_id": next.wake_id(), "done": true }),
            json!({ "epoch": 2, "acks": acks, "append": append }),
        ] {
            let answer = wakes.call_as(&call.consumer(), &token, body).await;
            refused(answer, 409, "STALE_EPOCH").unwrap();
        }
    }
    let body = accepted(wakes.call(&next, json!({ "epoch": 2 })).await);
    assert_eq!(body["streams"][0]["offset"], tail);
    // Nor does the token of a wake speak for another one.
    let early = wakes.call(&next, json!({ "epoch": 1, "done": true })).await;
    refused(early, 409, "STALE_EPOCH").unwrap();
}

/// Who is done has nothing to say in the wake that begins with that.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_done_that_wakes_again_is_for_the_wake_that_is_over() {
    let (mut wakes, call, _) = told().await;
    let tail = wakes.append("/a/1", "[2]").await;
    let done = json!({ "epoch": 1, "wake_id": call.wake_id(), "done": true });
    let body = accepted(wakes.call(&call, done).await);
    let token = body["token"].as_str().unwrap().to_owned();
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2);
    let acks = json!([{ "path": "/a/1", "offset": tail }]);
    let late = json!({ "epoch": 2, "acks": acks, "done": true });
    let answer = wakes.call_as(&call.consumer(), &token, late).await;
    let renewed = refused(answer, 409, "STALE_EPOCH").unwrap();
    let answer = wakes.call_as(&call.consumer(), &renewed, json!({ "epoch": 2 })).await;
    refused(answer, 409, "STALE_EPOCH");
    wakes.finish(&next, &tail).await.expect(200);
    wakes.idle("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_no_good_token_learns_nothing() {
    let (wakes, call, _) = told().await;
    wakes.server.create("/text", "text/plain").await;
    let good = call.token();
    let mut flipped = good.clone().into_bytes();
    flipped[10] ^= 1;
    let flipped = String::from_utf8(flipped).unwrap();
    let cut = &good[..good.len() - 1];
    let longer = format!("{good}A");
    let (payload, tag) = good.split_once('.').unwrap();
    let swapped = format!("{tag}.{payload}");
    let long = "x".repeat(7_000);
    let tokens = ["totally-invalid-token", ".", "a.b", &flipped, cut, &longer, &swapped, &long];
    let consumers =
        ["s:%2Fa%2F1", "s:%2Fa%2Fmissing", "x:%2Fa%2F1", "s", "s:", ":", "%00", "a/b/c"];
    let bodies = [
        json!({ "epoch": 1 }),
        json!({ "epoch": 1, "wake_id": call.wake_id(), "done": true }),
        json!({ "epoch": 7, "acks": [{ "path": "/a/1", "offset": "x" }] }),
        json!({ "epoch": 1, "acks": [{ "path": "/a/1", "offset": "-1" }],
                "append": [{ "path": "/text", "messages": [1] }] }),
        json!({ "epoch": 1, "acks": [{ "path": "/a/1", "offset": "-1" }],
                "append": [{ "path": "/missing", "messages": [1] }] }),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for body in &bodies {
        for token in tokens {
            for consumer in consumers {
                let answer = wakes.call_as(consumer, token, body.clone()).await;
                assert_eq!(answer.need("www-authenticate"), "Bearer");
                seen.insert(answer.text());
                assert_eq!(refused(answer, 401, "TOKEN_INVALID"), None, "{body}");
            }
        }
        // A good token of this consumer, for any other: as bad.
        for consumer in &consumers[1..] {
            let answer = wakes.call_as(consumer, &good, body.clone()).await;
            seen.insert(answer.text());
            assert_eq!(refused(answer, 401, "TOKEN_INVALID"), None, "{body}");
        }
    }
    assert_eq!(seen.len(), 1, "all are answered alike: {seen:?}");
    accepted(wakes.call(&call, json!({ "epoch": 1 })).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_comes_before_the_body() {
    let (wakes, call, _) = told().await;
    let target = format!("/callback/{}", call.consumer());
    let ask = async |header: Option<&str>, body: &str| {
        let headers: Vec<(&str, &str)> =
            header.into_iter().map(|value| ("authorization", value)).chain([JSON]).collect();
        wakes.server.ask("POST", &target, &headers, body.as_bytes()).await
    };
    let basic = format!("Basic {}", call.token());
    for header in [None, Some("Bearer"), Some("Bearer "), Some(basic.as_str()), Some("x")] {
        refused(ask(header, "{").await, 401, "TOKEN_INVALID");
    }
    for body in ["{", "{}", r#"{"epoch":1}"#] {
        refused(ask(Some("Bearer x"), body).await, 401, "TOKEN_INVALID");
    }
    let lower = format!("bearer {}", call.token());
    assert_eq!(refused(ask(Some(&lower), "{").await, 400, "INVALID_REQUEST"), None);
    assert_eq!(refused(ask(Some(&lower), "{}").await, 400, "INVALID_REQUEST"), None);
    accepted(ask(Some(&lower), r#"{"epoch":1}"#).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_replaced_by_one_that_works_if_it_is_for_the_current_wake() {
    let timings = Timings { liveness_timeout_ms: 100_000_000, ..Timings::default() };
    let mut wakes = Wakes::with(timings).await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    accepted(wakes.call(&call, json!({ "epoch": 1 })).await);
    // Near its end it is replaced in passing, earlier it is not.
    wakes.clock.advance(3_600_000 - 300_001);
    let body = accepted(wakes.call(&call, json!({ "epoch": 1 })).await);
    assert_eq!(body["token"], call.token());
    wakes.clock.advance(1);
    let body = accepted(wakes.call(&call, json!({ "epoch": 1 })).await);
    let renewed = body["token"].as_str().unwrap().to_owned();
    assert_ne!(renewed, call.token());
    wakes.clock.advance(299_999);
    accepted(wakes.call(&call, json!({ "epoch": 1 })).await);
    wakes.clock.advance(1);
    let expired = json!({ "epoch": 1, "acks": [{ "path": "/a/1", "offset": tail }], "done": true });
    let fresh = refused(wakes.call(&call, expired.clone()).await, 401, "TOKEN_EXPIRED").unwrap();
    assert_eq!(wakes.record("s", "/a/1").unwrap().consumer.links[0].acked, None);
    accepted(wakes.call_as(&call.consumer(), &renewed, json!({ "epoch": 1 })).await);
    accepted(wakes.call_as(&call.consumer(), &fresh, expired.clone()).await);
    // A token of a wake that is over has no successor that it could ask for as expired.
    wakes.append("/a/1", "[2]").await;
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2);
    // What it is given instead is as dead as it is.
    for token in [call.token(), fresh] {
        let answer = wakes.call_as(&call.consumer(), &token, expired.clone()).await;
        let renewed = refused(answer, 409, "STALE_EPOCH").unwrap();
        let zombie = json!({ "epoch": 2, "wake_id": next.wake_id() });
        let answer = wakes.call_as(&call.consumer(), &renewed, zombie).await;
        refused(answer, 409, "STALE_EPOCH").unwrap();
    }
    // Expired, and somebody else's: nothing is said about the expiry.
    let answer = wakes.call_as("s:%2Fa%2F2", &call.token(), json!({ "epoch": 1 })).await;
    refused(answer, 401, "TOKEN_INVALID");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_was_never_told_has_no_callbacks() {
    let (wakes, call, _) = told().await;
    wakes.create("/a/2", "").await;
    let answer = wakes.call_as("s:%2Fa%2F2", &call.token(), json!({ "epoch": 0 })).await;
    refused(answer, 401, "TOKEN_INVALID");
    for target in ["/callback/", "/callback"] {
        wakes.server.ask("POST", target, &[], b"").await.expect(404);
    }
}
