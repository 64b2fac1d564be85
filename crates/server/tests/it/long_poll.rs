//! Long-polls: what is there at once, what comes next, or nothing after a while.

use tokio::task::JoinSet;

use crate::harness::*;

/// The cursor at the time when every test begins: 20-second intervals since 2024-10-09.
const CURSOR: u64 = (START_MS - 1_728_432_000_000) / 20_000;

async fn with_stream(clock: &HandClock) -> TestServer {
    let server = Setup::on(clock).start().await;
    server.create("/s", "text/plain").await;
    server
}

/// A connection on which a long-poll waits.
async fn waiting(server: &TestServer, clock: &HandClock, target: &str) -> Connection {
    let mut connection = server.connect().await;
    connection.send(&request("GET", target, &[], b"")).await;
    clock.sleeper(LONG_POLL_MS).await;
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_said_after_the_time_out_and_not_before() {
    let clock = HandClock::new();
    let server = with_stream(&clock).await;
    server.append("/s", "text/plain", b"old").await.expect(204);
    for target in ["/s?offset=now&live=long-poll", "/s?offset=0_3&live=long-poll"] {
        let mut connection = waiting(&server, &clock, target).await;
        clock.advance(LONG_POLL_MS - 1);
        assert_eq!(server.metric("reveille_live_readers").await, 1, "still waiting");
        clock.advance(1);
        let answer = connection.answer("GET").await.expect(204);
        assert_eq!(answer.next_offset(), "0000000000000000_0000000000000003");
        assert_eq!(answer.need("stream-up-to-date"), "true");
        assert!(answer.need("stream-cursor").parse::<u64>().unwrap() >= CURSOR);
        assert_eq!(answer.get("stream-closed"), None);
        // The connection is good for the next one.
        connection.ask("HEAD", "/s", &[], b"").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_answered_at_once() {
    let clock = HandClock::new();
    let server = with_stream(&clock).await;
    server.append("/s", "text/plain", b"one").await.expect(204);
    server.append("/s", "text/plain", b"two").await.expect(204);
    for (offset, text) in [("-1", "onetwo"), ("0_0", "onetwo"), ("0_3", "two")] {
        let answer = server.get(&format!("/s?offset={offset}&live=long-poll")).await.expect(200);
        assert_eq!(answer.text(), text);
        assert_eq!(answer.next_offset(), "0000000000000000_0000000000000006");
        assert_eq!(answer.need("stream-cursor"), CURSOR.to_string());
        assert_eq!(answer.need("content-type"), "text/plain");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_wakes_all_of_fifty_readers() {
    let clock = HandClock::new();
    let server = with_stream(&clock).await;
    let mut readers = Vec::new();
    for number in 0..50 {
        let offset = ["now", "-1", "0_0"][number % 3];
        let mut connection = server.connect().await;
        let target = format!("/s?offset={offset}&live=long-poll");
        connection.send(&request("GET", &target, &[], b"")).await;
        readers.push(connection);
    }
    clock.sleepers(LONG_POLL_MS, 50).await;
    server.append("/s", "text/plain", b"news").await.expect(204);
    let mut answers = JoinSet::new();
    for mut connection in readers {
        answers.spawn(async move { connection.answer("GET").await });
    }
    for answer in answers.join_all().await {
        let answer = answer.expect(200);
        assert_eq!(answer.text(), "news");
        assert_eq!(answer.need("stream-up-to-date"), "true");
        assert_eq!(answer.next_offset(), "0000000000000000_0000000000000004");
        assert_eq!(answer.need("stream-cursor"), CURSOR.to_string());
    }
    eventually("nobody to be counted", async || {
        (server.metric("reveille_live_readers").await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_wait_with_the_data_if_there_is_some() {
    let clock = HandClock::new();
    let server = with_stream(&clock).await;
    let close = [("content-type", "text/plain"), ("stream-closed", "true")];
    let mut connection = waiting(&server, &clock, "/s?offset=-1&live=long-poll").await;
    server.ask("POST", "/s", &close, b"last").await.expect(204);
    let answer = connection.answer("GET").await.expect(200);
    assert_eq!((answer.text().as_str(), answer.need("stream-closed")), ("last", "true"));

    server.create("/t", "text/plain").await;
    let mut connection = waiting(&server, &clock, "/t?offset=-1&live=long-poll").await;
    server.ask("POST", "/t", &close, b"").await.expect(204);
    let answer = connection.answer("GET").await.expect(204);
    assert_eq!(answer.need("stream-closed"), "true");
    // At the end of a closed stream there is nothing to wait for.
    for target in ["/t?offset=now&live=long-poll", "/s?offset=0_4&live=long-poll"] {
        assert_eq!(server.get(target).await.expect(204).need("stream-closed"), "true");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_or_recreating_the_stream_ends_the_wait() {
    let clock = HandClock::new();
    let server = with_stream(&clock).await;
    let mut connection = waiting(&server, &clock, "/s?offset=now&live=long-poll").await;
    server.delete("/s").await.expect(204);
    connection.answer("GET").await.expect(404);
    // One that is re-created is another stream; its bytes are not what was waited for at 0_3.
    server.create("/s", "text/plain").await;
    server.append("/s", "text/plain", b"old").await.expect(204);
    let mut connection = waiting(&server, &clock, "/s?offset=0_3&live=long-poll").await;
    server.delete("/s").await.expect(204);
    let answer = connection.answer("GET").await;
    assert!([404, 400].contains(&answer.status()), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_never_answered_with_itself() {
    let clock = HandClock::new();
    let server = with_stream(&clock).await;
    server.append("/s", "text/plain", b"x").await.expect(204);
    let cursor = async |given: &str| {
        let answer = server.get(&format!("/s?offset=-1&live=long-poll&cursor={given}")).await;
        answer.expect(200).need("stream-cursor").parse::<u64>().unwrap()
    };
    for given in ["", "abc", "-5", "1.5", "0", "18446744073709551616"] {
        assert_eq!(cursor(given).await, CURSOR, "{given}");
    }
    for ahead in [CURSOR, CURSOR + 1, CURSOR + 1_000_000] {
        let next = cursor(&ahead.to_string()).await;
        assert!(next > ahead && next <= ahead + 180, "{ahead} -> {next}");
    }
    clock.advance(20_000);
    assert_eq!(cursor("0").await, CURSOR + 1);
    assert_eq!(cursor(&CURSOR.to_string()).await, CURSOR + 1);
}

/// A reader that goes from answer to answer sees every append once, in order, however the writer's
/// batches fall.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_on_misses_and_repeats_nothing() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    let expected: String = (0..400).map(|number| format!("{number};")).collect();
    let writer = async {
        let mut connection = server.connect().await;
        for number in 0..400 {
            let body = format!("{number};");
            let headers = [("content-type", "text/plain")];
            connection.ask("POST", "/s", &headers, body.as_bytes()).await.expect(204);
        }
        connection.ask("POST", "/s", &[("stream-closed", "true")], b"").await.expect(204);
    };
    let reader = async {
        let mut connection = server.connect().await;
        let (mut seen, mut offset) = (String::new(), "-1".to_owned());
        loop {
            let target = format!("/s?offset={offset}&live=long-poll");
            let answer = connection.ask("GET", &target, &[], b"").await;
            seen.push_str(&answer.text());
            offset = answer.next_offset().to_owned();
            if answer.get("stream-closed").is_some() {
                return seen;
            }
        }
    };
    let ((), one, two) = tokio::join!(writer, reader, async {
        let mut events = Events::open(&server, "/s?offset=-1&live=sse").await;
        let mut seen = String::new();
        while let Some(event) = events.next().await {
            if event.kind == "data" {
                seen.push_str(&event.data);
            }
        }
        seen
    });
    assert_eq!(one, expected);
    assert_eq!(two, expected);
}
