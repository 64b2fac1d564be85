//! What an operator does to a consumer: wakes it now, moves it, with whoever is at work fenced off.

use serde_json::{Value, json};

use crate::harness::*;

const ID: &str = "s:%2Fa%2F1";

async fn order(wakes: &Wakes, id: &str, verb: &str, body: Value) -> Answer {
    let target = format!("/admin/v1/consumers/{id}/{verb}");
    wakes.server.ask("POST", &target, &[JSON], body.to_string().as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_wakes_a_consumer_that_waits() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "max_delay": "1h" })).await;
    wakes.create("/a/1", "").await;
    let refused = order(&wakes, ID, "wake", json!({})).await.expect(409);
    assert_eq!(refused.code(), "NOTHING_PENDING");
    assert!(refused.text().contains("acknowledged up to its tail"), "{refused}");
    let tail = wakes.append("/a/1", "[1]").await;
    // It collects for an hour.
    wakes.quiet("it collects").await;
    let shown = order(&wakes, ID, "wake", json!({})).await.expect(200).json();
    assert_eq!((&shown["state"], &shown["epoch"]), (&json!("waking"), &json!(1)));
    let call = wakes.woken().await;
    call.answer(500, "");
    wakes.paused("s", "/a/1").await;
    // And now for the next attempt, which is made at once.
    order(&wakes, ID, "wake", json!({})).await.expect(200);
    let call = wakes.woken().await;
    assert_eq!(call.epoch(), 1);
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    let refused = order(&wakes, ID, "wake", json!({})).await.expect(409);
    assert_eq!(refused.code(), "CONSUMER_LIVE");
    assert!(refused.text().contains("force"), "{refused}");
    order(&wakes, ID, "wake", json!({ "force": true })).await.expect(200);
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2);
    let late = wakes.call(&call, json!({ "epoch": 1 })).await.expect(409);
    assert_eq!(late.code(), "STALE_EPOCH");
    wakes.finish(&next, &tail).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_moves_a_consumer_and_fences_whoever_is_at_work() {
    let mut wakes = Wakes::start().await;
    wakes.create("/a/1", "[1]").await;
    let second = wakes.append("/a/1", "[2]").await;
    let third = wakes.append("/a/1", "[3]").await;
    wakes.subscribe("s", "/a/*").await;
    // Nobody was ever told of it: it stands at the tail.
    let shown = order(&wakes, ID, "seek", json!({ "offset": second })).await.expect(200).json();
    assert_eq!(shown["streams"][0]["acked"], second);
    let call = wakes.woken().await;
    assert_eq!((call.epoch(), &call.json()["streams"][0]["offset"]), (1, &json!(second)));
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    order(&wakes, ID, "seek", json!({ "stream": "/a/1", "offset": "-1" })).await.expect(200);
    let late = wakes.finish(&call, &third).await.expect(409);
    assert_eq!(late.code(), "STALE_EPOCH");
    let call = wakes.woken().await;
    assert_eq!((call.epoch(), &call.json()["streams"][0]["offset"]), (2, &json!("-1")));
    let shown = order(&wakes, ID, "seek", json!({ "offset": "now" })).await.expect(200).json();
    assert_eq!((&shown["state"], &shown["pending"]), (&json!("idle"), &json!(false)));
    assert_eq!(shown["streams"][0]["acked"], third);
    let late = wakes.finish(&call, &third).await.expect(409);
    assert_eq!(late.code(), "STALE_EPOCH");
    wakes.quiet("there is nothing to do").await;
    wakes.append("/a/1", "[4]").await;
    assert_eq!(wakes.woken().await.epoch(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_followed_says_why_and_changes_nothing() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    wakes.create("/other", "[1]").await;
    let call = wakes.woken().await;
    wakes.finish(&call, &tail).await.expect(200);
    let before = wakes.record("s", "/a/1").unwrap();
    let beyond = "0000000000000000_0000000000009999";
    for (id, verb, body, status, code, part) in [
        (ID, "seek", json!({ "offset": beyond }), 400, "INVALID_OFFSET", tail.as_str()),
        (ID, "seek", json!({ "offset": "x" }), 400, "INVALID_REQUEST", "`offset`"),
        (ID, "seek", json!({}), 400, "INVALID_REQUEST", "`offset` is missing"),
        (ID, "seek", json!({ "ofset": "now" }), 400, "INVALID_REQUEST", "did you mean `offset`"),
        (ID, "wake", json!({ "force": 1 }), 400, "INVALID_REQUEST", "`force`"),
        (ID, "revive", json!({ "force": true }), 400, "INVALID_REQUEST", "known are `reason`"),
        (ID, "revive", json!({}), 409, "NOT_GIVEN_UP", "not given up"),
        (
            ID,
            "seek",
            json!({ "stream": "/other", "offset": "now" }),
            404,
            "STREAM_NOT_FOLLOWED",
            "/other",
        ),
        ("s:%2Fother", "wake", json!({}), 404, "CONSUMER_NOT_FOUND", "/other"),
        ("none:%2Fa%2F1", "wake", json!({}), 404, "CONSUMER_NOT_FOUND", "none"),
        (ID, "sleep", json!({}), 404, "CONSUMER_NOT_FOUND", "`/seek`"),
    ] {
        let answer = order(&wakes, id, verb, body.clone()).await;
        assert_eq!((answer.status(), answer.code()), (status, code.into()), "{verb} {body}");
        assert!(answer.text().contains(part), "{answer}");
    }
    assert_eq!(wakes.record("s", "/a/1").unwrap(), before);
    wakes.quiet("nothing was done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_many_streams_is_moved_in_one() {
    let wakes = Wakes::start().await;
    let server = &wakes.server;
    let body = json!({ "type": "pull-wake", "pattern": "b/*", "wake_stream": "wakes" });
    let target = "/v1/stream/__ds/subscriptions/pool";
    server.ask("PUT", target, &[JSON], body.to_string().as_bytes()).await.expect(201);
    let mut tails = Vec::new();
    for number in 0..7 {
        tails.push(wakes.create(&format!("/v1/stream/b/{number}"), "[1]").await);
    }
    let claim = async || {
        let body = json!({ "worker": "w" }).to_string();
        server.ask("POST", &format!("{target}/claim"), &[JSON], body.as_bytes()).await
    };
    let claimed = claim().await.expect(200).json();
    let refused = order(&wakes, "pool", "seek", json!({ "offset": "-1" })).await.expect(400);
    assert!(refused.text().contains("name the one"), "{refused}");
    // Everything is done, and one of them is to be done again.
    let acks: Vec<Value> = (0..7)
        .map(|number| json!({ "stream": format!("b/{number}"), "offset": tails[number] }))
        .collect();
    let report = json!({ "wake_id": claimed["wake_id"], "generation": claimed["generation"],
                         "acks": acks, "done": true });
    let bearer = format!("Bearer {}", claimed["token"].as_str().unwrap());
    let headers: Headers<'_> = &[("authorization", &bearer), JSON];
    let done = report.to_string();
    server.ask("POST", &format!("{target}/ack"), headers, done.as_bytes()).await.expect(200);
    assert_eq!(claim().await.expect(409).code(), "NO_PENDING_WORK");
    let refused = order(&wakes, "pool", "wake", json!({})).await.expect(409);
    assert_eq!(refused.code(), "NOTHING_PENDING");
    let back = json!({ "stream": "/v1/stream/b/3", "offset": "-1" });
    let shown = order(&wakes, "pool", "seek", back).await.expect(200).json();
    assert_eq!((&shown["state"], &shown["pending"]), (&json!("waking"), &json!(true)));
    let again = claim().await.expect(200).json();
    let streams = again["streams"].as_array().unwrap();
    let pending: Vec<&Value> = streams.iter().filter(|it| it["has_pending"] == true).collect();
    assert_eq!(pending.len(), 1, "{again}");
    assert_eq!(pending[0]["path"], "b/3");
}
