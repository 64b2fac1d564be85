//! What answers to webhooks mean, and what happens without one: retries, time-outs, giving up.

use reveille_core::consumer::Phase;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_done_acknowledges_up_to_the_tail_of_that_moment() {
    let (mut wakes, call, _) = told().await;
    let tail = wakes.append("/a/1", "[2]").await;
    call.answer(200, " {\"done\" : true, \"more\": [1]}\n");
    wakes.idle("s", "/a/1").await;
    wakes.quiet("everything up to then is done").await;
    wakes.append("/a/1", "[3]").await;
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), &next.json()["streams"][0]["offset"]), (2, &json!(tail)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_done_acknowledges_what_was_announced_and_wakes_for_the_rest() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "sync_done": "snapshot" })).await;
    let first = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    wakes.append("/a/1", "[2]").await;
    call.done();
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), &next.json()["streams"][0]["offset"]), (2, &json!(first)));
    next.done();
    wakes.idle("s", "/a/1").await;
    wakes.quiet("the second announced everything").await;
    let shown = wakes.server.get("/**?subscription=s").await.json();
    assert_eq!(shown["sync_done"], "snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn done_is_the_word_true_in_an_object_and_nothing_else() {
    let (mut wakes, call, tail) = told().await;
    let mut call = Some(call);
    let deep = "[".repeat(100_000);
    let large = format!(r#"{{"done":true,"x":"{}"}}"#, "x".repeat(4 << 20));
    let bodies = [
        "",
        "{}",
        "[]",
        "null",
        "true",
        "{\"done\":false}",
        "{\"done\":1}",
        "{\"done\":\"true\"}",
        "{\"done\":true",
        "[{\"done\":true}]",
        "{\"x\":{\"done\":true}}",
        "<html>",
        &deep,
        &large,
    ];
    for (number, body) in bodies.iter().enumerate() {
        let notification = match call.take() {
            Some(call) => call,
            None => wakes.woken().await,
        };
        let (consumer, token, epoch) =
            (notification.consumer(), notification.token(), notification.epoch());
        notification.answer([200, 201, 202, 299][number % 4], body);
        let start: String = body.chars().take(30).collect();
        wakes.live("s", "/a/1").await;
        let kept = wakes.record("s", "/a/1").unwrap().consumer;
        assert!(kept.links[0].acked < Some(tail.parse().unwrap()), "{start}");
        wakes.call_as(&consumer, &token, json!({ "epoch": epoch, "done": true })).await.expect(200);
        // Nobody is held back for acknowledging nothing while there are events.
        wakes.append("/a/1", "[2]").await;
    }
    // A 204 has no body at all.
    let notification = wakes.woken().await;
    notification.answer_raw(b"HTTP/1.1 204 x\r\n\r\n".to_vec());
    wakes.live("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_success_is_a_failure_and_redirects_are_not_followed() {
    let (mut wakes, call, _) = told().await;
    let mut trap = Sink::start().await;
    let (wake, mut next) = (call.wake(), call);
    for (failed, status) in
        [301, 302, 303, 307, 308, 304, 400, 404, 410, 429, 500].iter().enumerate()
    {
        let url = trap.url();
        next.answer_with(
            *status,
            &[("location", &url), ("retry-after", "9999")],
            "{\"done\":true}",
        );
        let (attempt, until) = wakes.paused("s", "/a/1").await;
        assert_eq!(attempt as usize, failed + 1, "{status}");
        wakes.advance_to(until);
        next = wakes.woken().await;
        assert_eq!(next.wake(), wake, "{status}");
    }
    assert!(trap.come().is_none());
    let kept = wakes.record("s", "/a/1").unwrap();
    assert_eq!((kept.failures, kept.consumer.links[0].acked), (11, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_cut_and_garbled_connections_are_failures() {
    let (mut wakes, call, _) = told().await;
    let wake = call.wake();
    let mut next = call;
    let answers: [&[u8]; 5] = [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"done\":",
        b"HTTP/1.1 200",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ];
    for (failed, bytes) in answers.iter().enumerate() {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        next.answer_and_close(bytes.to_vec());
        let (attempt, until) = wakes.paused("s", "/a/1").await;
        assert_eq!(attempt as usize, failed + 1, "{shown:?}");
        wakes.advance_to(until);
        next = wakes.woken().await;
        assert_eq!(next.wake(), wake, "{shown:?}");
    }
    next.done();
    wakes.idle("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_between_attempts_follow_the_schedule_on_both_sides_of_the_tenth() {
    let wakes = Wakes::start().await;
    let nobody = Sink::nobody().await;
    let body = json!({ "webhook": format!("http://{nobody}/x") });
    wakes.put_subscription("s", "/a/*", &body).await.expect(201);
    wakes.create("/a/1", "[1]").await;
    let bases = [
        200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000, 60_000, 60_000, 60_000,
    ];
    let mut last = 0;
    for (number, base) in bases.iter().enumerate() {
        let is =
            |it: &reveille_core::consumer::Consumer| it.deadline().is_some_and(|at| at.0 != last);
        wakes.until("s", "/a/1", is).await;
        let (attempt, until) = wakes.paused("s", "/a/1").await;
        assert_eq!(attempt as usize, number + 1);
        let pause = until - wakes.now();
        let jitter = if number < 10 { 1_000 } else { 5_000 };
        assert!((*base..=base + jitter).contains(&pause), "retry {attempt} after {pause} ms");
        last = until;
        wakes.advance_to(until);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unclaimed_wake_is_told_again_after_ten_seconds_while_the_first_request_stays_open() {
    let (mut wakes, first, tail) = told().await;
    wakes.clock.advance(9_990);
    wakes.quiet("ten seconds are not over").await;
    wakes.clock.advance(10);
    let (attempt, until) = wakes.paused("s", "/a/1").await;
    assert_eq!(attempt, 1);
    let (_, error) = wakes.record("s", "/a/1").unwrap().last_error.unwrap();
    assert_eq!(&*error, "no answer so far");
    wakes.advance_to(until);
    let second = wakes.woken().await;
    assert_eq!(second.wake(), first.wake());
    // The second fails; the first, late as it is, is the same wake and counts.
    second.answer(500, "");
    wakes.paused("s", "/a/1").await;
    let (consumer, token) = (first.consumer(), first.token());
    first.ok();
    wakes.live("s", "/a/1").await;
    let body = json!({ "epoch": 1, "acks": [{ "path": "/a/1", "offset": tail }], "done": true });
    wakes.call_as(&consumer, &token, body).await.expect(200);
    wakes.clock.advance(100_000);
    wakes.quiet("it is done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_given_up_after_thirty_seconds_and_a_late_answer_goes_nowhere() {
    let (mut wakes, first, _) = told().await;
    let mut open = vec![first];
    while wakes.now() < START_MS + 30_000 {
        let deadline = wakes.record("s", "/a/1").unwrap().consumer.deadline().unwrap().0;
        wakes.advance_to(deadline.max(wakes.now()));
        let (_, until) = wakes.paused("s", "/a/1").await;
        wakes.advance_to(until);
        open.push(wakes.woken().await);
    }
    let wake = open[0].wake();
    assert!(open.iter().all(|call| call.wake() == wake), "one wake");
    let count = open.len();
    assert!((3..=4).contains(&count), "{count}");
    let first = open.remove(0);
    first.done();
    wakes.quiet("the request of the first attempt was given up").await;
    let kept = wakes.record("s", "/a/1").unwrap().consumer;
    assert!(matches!(kept.phase, Phase::Waking { .. }), "{:?}", kept.phase);
    open.remove(0).done();
    wakes.idle("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_of_an_old_wake_is_not_taken_for_the_next_ones() {
    let (mut wakes, first, tail) = told().await;
    wakes.finish(&first, &tail).await.expect(200);
    let second_tail = wakes.append("/a/1", "[2]").await;
    let second = wakes.woken().await;
    assert_eq!(second.epoch(), 2);
    // Each of these would claim, acknowledge or fail the second wake.
    first.done();
    wakes.quiet("an old answer starts nothing").await;
    let kept = wakes.record("s", "/a/1").unwrap().consumer;
    assert!(matches!(kept.phase, Phase::Waking { attempt: 1, .. }), "{:?}", kept.phase);
    assert_eq!(kept.links[0].acked, Some(tail.parse().unwrap()));
    wakes.finish(&second, &second_tail).await.expect(200);
    wakes.append("/a/1", "[3]").await;
    let third = wakes.woken().await;
    second.answer(500, "");
    wakes.quiet("an old failure is nobody's").await;
    let kept = wakes.record("s", "/a/1").unwrap();
    assert_eq!((kept.consumer.epoch, kept.failures), (3, 0));
    third.ok();
    wakes.live("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_the_claim_neither_fails_nor_repeats_the_wake() {
    let (mut wakes, call, _) = told().await;
    wakes.call(&call, json!({ "epoch": 1, "wake_id": call.wake_id() })).await.expect(200);
    let consumer = call.consumer();
    let token = call.token();
    call.answer(500, "");
    wakes.quiet("it is claimed").await;
    wakes.live("s", "/a/1").await;
    wakes.clock.advance(30_000);
    wakes.call_as(&consumer, &token, json!({ "epoch": 1 })).await.expect(200);
    wakes.quiet("and stays so").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_done_that_answers_after_the_claim_ends_the_work() {
    let (mut wakes, call, _) = told().await;
    wakes.call(&call, json!({ "epoch": 1, "wake_id": call.wake_id() })).await.expect(200);
    call.done();
    wakes.idle("s", "/a/1").await;
    wakes.quiet("it is done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_for_three_days_removes_the_consumer_and_a_success_begins_anew() {
    let timings = Timings { give_up_after_ms: 5_000, ..Timings::default() };
    let mut wakes = Wakes::with(timings).await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let fail = async |wakes: &mut Wakes| {
        let call = wakes.woken().await;
        let (consumer, token, epoch) = (call.consumer(), call.token(), call.epoch());
        call.answer(500, "");
        (consumer, token, epoch)
    };
    for _ in 0..2 {
        fail(&mut wakes).await;
        let (_, until) = wakes.paused("s", "/a/1").await;
        wakes.advance_to(until);
    }
    wakes.woken().await.ok();
    wakes.live("s", "/a/1").await;
    let begun = wakes.now() + 45_000;
    wakes.clock.advance(45_000);
    loop {
        let (consumer, token, epoch) = fail(&mut wakes).await;
        assert_eq!(epoch, 2);
        let over = wakes.now() >= begun + 5_000;
        let settled = |it: &reveille_core::consumer::Consumer| {
            matches!(it.phase, Phase::Gone(_))
                || it.deadline().is_some_and(|at| at.0 < wakes.now() + 10_000)
        };
        let kept = wakes.until("s", "/a/1", settled).await;
        if over {
            assert!(matches!(kept.phase, Phase::Gone(_)), "{:?}", kept.phase);
            let answer = wakes.call_as(&consumer, &token, json!({ "epoch": 2 })).await;
            assert_eq!(answer.expect(410).code(), "CONSUMER_GONE");
            break;
        }
        let (_, until) = wakes.paused("s", "/a/1").await;
        wakes.advance_to(until);
    }
    wakes.append("/a/1", "[2]").await;
    wakes.clock.advance(1_000_000);
    wakes.quiet("it is gone").await;
    wakes.create("/a/2", "[1]").await;
    assert_eq!(wakes.woken().await.primary(), "/a/2");
}
