//! Acknowledging, following more streams or fewer, being done, and falling silent.

use serde_json::{Value, json};

use crate::harness::*;

async fn told() -> (Wakes, Call, String) {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    (wakes, call, tail)
}

fn streams(answer: Answer) -> Vec<(String, String)> {
    let body = answer.expect(200).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let streams = body["streams"].as_array().unwrap();
    streams.iter().map(|it| (text(&it["path"]), text(&it["offset"]))).collect()
}

fn pair(path: &str, offset: &str) -> (String, String) {
    (path.to_owned(), offset.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_move_forward_up_to_the_tail_and_nothing_else_moves_them() {
    let (wakes, call, first) = told().await;
    let second = wakes.append("/a/1", "[2]").await;
    let ack = async |acks: Value| wakes.call(&call, json!({ "epoch": 1, "acks": acks })).await;
    let at = |offset: &str| json!([{ "path": "/a/1", "offset": offset }]);
    assert_eq!(streams(ack(at(ZERO)).await), [pair("/a/1", ZERO)]);
    assert_eq!(streams(ack(at(&second)).await), [pair("/a/1", &second)]);
    // Lower ones and `-1` change nothing, and are no error.
    for lower in [&first, ZERO, "-1"] {
        assert_eq!(streams(ack(at(lower)).await), [pair("/a/1", &second)]);
    }
    let beyond = "9999999999999999_9999999999999999";
    let next = format!("0000000000000000_{:016}", 1_000);
    let garbage = ["", "now", "1002", "x", "-2", "0_0_0", " ", "1 _1", beyond, &next, "\u{e9}"];
    for bad in garbage {
        let answer = ack(at(bad)).await.expect(409);
        assert_eq!(answer.code(), "INVALID_OFFSET", "{bad:?}");
        assert!(answer.json()["token"].is_string());
    }
    // Of paths that it does not follow nothing is said, whatever the offset.
    let others = json!([{ "path": "/b", "offset": "x" }, { "path": "nonsense", "offset": beyond }]);
    assert_eq!(streams(ack(others).await), [pair("/a/1", &second)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_with_one_bad_ack_applies_nothing_of_itself() {
    let (mut wakes, call, tail) = told().await;
    let body = json!({
        "epoch": 1, "wake_id": call.wake_id(), "done": true, "subscribe": ["/b"],
        "acks": [{ "path": "/a/1", "offset": tail }, { "path": "/a/1", "offset": "9_9" }],
    });
    assert_eq!(wakes.call(&call, body).await.expect(409).code(), "INVALID_OFFSET");
    let consumer = wakes.record("s", "/a/1").unwrap().consumer;
    assert_eq!((consumer.links.len(), consumer.links[0].acked), (1, None));
    // It was not claimed either.
    wakes.clock.advance(10_000);
    wakes.paused("s", "/a/1").await;
    wakes.create("/b", "[1]").await;
    wakes.quiet("nobody follows /b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn done_without_pending_work_rests_and_with_it_wakes_at_once() {
    let (mut wakes, call, first) = told().await;
    let second = wakes.append("/a/1", "[2]").await;
    wakes.finish(&call, &first).await.expect(200);
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), &next.json()["streams"][0]["offset"]), (2, &json!(first)));
    assert_ne!(next.wake_id(), call.wake_id());
    let claim = json!({ "epoch": 2, "wake_id": next.wake_id() });
    wakes.call(&next, claim).await.expect(200);
    wakes.finish(&next, &second).await.expect(200);
    wakes.idle("s", "/a/1").await;
    wakes.clock.advance(100_000);
    wakes.quiet("there is nothing to do").await;
    wakes.append("/a/1", "[3]").await;
    assert_eq!(wakes.woken().await.epoch(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_callback_can_be_repeated_for_as_long_as_nothing_new_has_come() {
    let (mut wakes, call, tail) = told().await;
    for _ in 0..3 {
        let answer = wakes.finish(&call, &tail).await;
        assert_eq!(streams(answer), [pair("/a/1", &tail)]);
    }
    wakes.idle("s", "/a/1").await;
    wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
    wakes.idle("s", "/a/1").await;
    wakes.quiet("repetitions do nothing").await;
    wakes.append("/a/1", "[2]").await;
    assert_eq!(wakes.woken().await.epoch(), 2);
    assert_eq!(wakes.finish(&call, &tail).await.expect(409).code(), "STALE_EPOCH");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_callback_prolongs_a_life_and_without_one_it_ends() {
    let (mut wakes, call, tail) = told().await;
    wakes.call(&call, json!({ "epoch": 1, "wake_id": call.wake_id() })).await.expect(200);
    for _ in 0..3 {
        wakes.clock.advance(44_999);
        wakes.call(&call, json!({ "epoch": 1 })).await.expect(200);
        assert_eq!(wakes.live("s", "/a/1").await.0, wakes.now() + 45_000);
    }
    // A refused one is no sign of life.
    wakes.clock.advance(44_999);
    wakes.call(&call, json!({ "epoch": 1, "wake_id": "x" })).await.expect(409);
    wakes.clock.advance(1);
    // It had acknowledged nothing: somebody else is told.
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), &next.json()["streams"][0]["offset"]), (2, &json!("-1")));
    let (consumer, token) = (next.consumer(), next.token());
    next.ok();
    wakes.live("s", "/a/1").await;
    let acks = json!([{ "path": "/a/1", "offset": tail }]);
    let body = json!({ "epoch": 2, "acks": acks });
    wakes.call_as(&consumer, &token, body).await.expect(200);
    wakes.clock.advance(45_000);
    wakes.idle("s", "/a/1").await;
    wakes.quiet("everything was acknowledged").await;
    // One that was taken for dead and is not may still say so, for as long as nobody took over.
    let late = json!({ "epoch": 2, "done": true });
    wakes.call_as(&consumer, &token, late).await.expect(200);
    wakes.quiet("and that changes nothing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_followed_from_their_tail_on_and_no_longer_when_dropped() {
    let (mut wakes, call, tail) = told().await;
    let tools = wakes.create("/tools", "[1,2]").await;
    let body = json!({ "epoch": 1, "subscribe": ["/tools", "/tools", "/a/1"] });
    let both = [pair("/a/1", "-1"), pair("/tools", &tools)];
    assert_eq!(streams(wakes.call(&call, body.clone()).await), both);
    assert_eq!(streams(wakes.call(&call, body).await), both, "again, and nothing moved");
    wakes.finish(&call, &tail).await.expect(200);
    wakes.quiet("what it followed from its tail has nothing new").await;
    let later = wakes.append("/tools", "[3]").await;
    let next = wakes.woken().await;
    assert_eq!(next.primary(), "/a/1");
    assert_eq!(next.json()["triggered_by"], json!(["/tools"]));
    let offsets =
        json!([{ "path": "/a/1", "offset": tail }, { "path": "/tools", "offset": tools }]);
    assert_eq!(next.json()["streams"], offsets);
    let body = json!({ "epoch": 2, "wake_id": next.wake_id(), "done": true,
                       "acks": [{ "path": "/tools", "offset": later }],
                       "unsubscribe": ["/tools", "/never/followed"] });
    assert_eq!(streams(wakes.call(&next, body).await), [pair("/a/1", &tail)]);
    wakes.append("/tools", "[4]").await;
    wakes.quiet("it follows that no longer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_not_there_yet_can_be_followed() {
    let (mut wakes, call, tail) = told().await;
    let body = json!({ "epoch": 1, "subscribe": ["/x/silent", "/x/loud", "/x/never"] });
    let found = streams(wakes.call(&call, body).await);
    let missing = ["/x/silent", "/x/loud", "/x/never"].map(|path| pair(path, "-1"));
    assert_eq!(found[1..], missing);
    // `-1` is the only place of a stream that is not there.
    let zero = json!({ "epoch": 1, "acks": [{ "path": "/x/never", "offset": ZERO }] });
    assert_eq!(wakes.call(&call, zero).await.expect(409).code(), "INVALID_OFFSET");
    let none = json!({ "epoch": 1, "acks": [{ "path": "/x/never", "offset": "-1" }] });
    wakes.call(&call, none).await.expect(200);
    wakes.finish(&call, &tail).await.expect(200);
    wakes.create("/x/silent", "").await;
    wakes.quiet("a stream without a body tells nobody").await;
    wakes.create("/x/loud", "[]").await;
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2);
    assert!(next.json()["triggered_by"].as_array().unwrap().contains(&json!("/x/loud")));
    next.done();
    wakes.idle("s", "/a/1").await;
    wakes.append("/x/silent", "[1]").await;
    let next = wakes.woken().await;
    assert_eq!(next.json()["triggered_by"], json!(["/x/silent"]));
    let at = |path: &str| {
        let streams = next.json()["streams"].as_array().unwrap().clone();
        streams.into_iter().find(|it| it["path"] == path).unwrap()["offset"].clone()
    };
    assert_eq!(
        (at("/x/silent"), at("/x/loud"), at("/x/never")),
        (json!(ZERO), json!(ZERO), json!("-1"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ended_is_followed_no_longer_and_its_successor_is_another() {
    let (mut wakes, call, tail) = told().await;
    wakes.create("/b", "[1]").await;
    wakes.call(&call, json!({ "epoch": 1, "subscribe": ["/b"] })).await.expect(200);
    wakes.server.delete("/b").await.expect(204);
    assert_eq!(streams(wakes.call(&call, json!({ "epoch": 1 })).await), [pair("/a/1", "-1")]);
    wakes.finish(&call, &tail).await.expect(200);
    let new = wakes.create("/b", "[1,2,3]").await;
    wakes.quiet("that one was not followed").await;
    wakes.append("/a/1", "[2]").await;
    let next = wakes.woken().await;
    let body = json!({ "epoch": 2, "subscribe": ["/b"] });
    assert_eq!(streams(wakes.call(&next, body).await)[1], pair("/b", &new));
    let tail = wakes.append("/a/1", "[3]").await;
    wakes.finish(&next, &tail).await.expect(200);
    wakes.append("/b", "[4]").await;
    assert_eq!(wakes.woken().await.json()["triggered_by"], json!(["/b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_it_is_for_can_be_dropped_and_taken_up_again() {
    let (mut wakes, call, tail) = told().await;
    let other = wakes.create("/b", "[1]").await;
    let body = json!({ "epoch": 1, "subscribe": ["/b"], "unsubscribe": ["/a/1"], "done": true });
    assert_eq!(streams(wakes.call(&call, body).await), [pair("/b", &other)]);
    wakes.append("/a/1", "[2]").await;
    wakes.quiet("it follows its own stream no longer").await;
    wakes.append("/b", "[2]").await;
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), next.primary()), (2, "/a/1".into()));
    assert_eq!(next.json()["triggered_by"], json!(["/b"]));
    let body = json!({ "epoch": 2, "subscribe": ["/a/1"] });
    let now = streams(wakes.call(&next, body).await);
    assert!(now[1].1 > tail, "from its tail on: {now:?}");
    next.done();
    wakes.idle("s", "/a/1").await;
    wakes.append("/a/1", "[3]").await;
    let last = wakes.woken().await;
    assert_eq!(last.json()["triggered_by"], json!(["/a/1"]));
    wakes.quiet("once is enough").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_nothing_is_gone_in_that_answer_and_ever_after() {
    let (mut wakes, call, tail) = told().await;
    let body = json!({ "epoch": 1, "unsubscribe": ["/a/1"], "done": true });
    let answer = wakes.call(&call, body.clone()).await.expect(410);
    assert_eq!((answer.code().as_str(), answer.json().get("token")), ("CONSUMER_GONE", None));
    for body in [body, json!({ "epoch": 1 }), json!({ "epoch": 5, "subscribe": ["/a/1"] })] {
        assert_eq!(wakes.call(&call, body).await.expect(410).code(), "CONSUMER_GONE");
    }
    assert_eq!(wakes.finish(&call, &tail).await.expect(410).code(), "CONSUMER_GONE");
    wakes.append("/a/1", "[2]").await;
    wakes.clock.advance(100_000);
    wakes.quiet("it is gone").await;
    // Another stream's consumer knows nothing of that.
    wakes.create("/a/2", "[1]").await;
    assert_eq!(wakes.woken().await.primary(), "/a/2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_follows_a_thousand_streams_and_not_one_more() {
    let (wakes, call, _) = told().await;
    let paths: Vec<String> = (0..1_000).map(|number| format!("/n/{number}")).collect();
    let body = json!({ "epoch": 1, "subscribe": paths });
    let answer = wakes.call(&call, body).await.expect(400);
    assert_eq!(answer.code(), "INVALID_REQUEST");
    assert_eq!(streams(wakes.call(&call, json!({ "epoch": 1 })).await).len(), 1);
    let body = json!({ "epoch": 1, "subscribe": paths[1..] });
    assert_eq!(streams(wakes.call(&call, body).await).len(), 1_000);
}
