//! Going down: nobody waits in vain, and what was answered is stored.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
/// What a short body may take: whoever waits this long is reading one.
const BODY_MS: u64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn long_polls_and_event_streams_end_at_once_and_in_order() {
    // The clock stands still: nothing here ends because its time is over.
    let clock = HandClock::new();
    let mut server = Setup::on(&clock).start().await;
    server.create("/s", "text/plain").await;
    let mut polls = Vec::new();
    for _ in 0..10 {
        let mut connection = server.connect().await;
        let target = "/s?offset=now&live=long-poll";
        connection.send(&request("GET", target, &[], b"")).await;
        polls.push(connection);
    }
    clock.sleepers(LONG_POLL_MS, 10).await;
    let mut events = Vec::new();
    for _ in 0..10 {
        let mut one = Events::open(&server, "/s?offset=now&live=sse").await;
        one.control().await;
        events.push(one);
    }
    let idle = server.connect().await;
    let mut used = server.connect().await;
    used.ask("HEAD", "/s", &[], b"").await.expect(200);
    server.begin_stop();
    for mut connection in polls {
        let answer = connection.answer("GET").await.expect(204);
        assert_eq!(answer.next_offset(), "0000000000000000_0000000000000000");
        assert!(connection.rest().await.is_empty(), "the connection ends");
    }
    for mut one in events {
        assert_eq!(one.next().await, None, "it ends in order");
    }
    assert!(used.rest().await.is_empty(), "the connection ends");
    server.served().await;
    drop(idle);
    guarded("the engine to stop", server.engine.shutdown()).await;
    assert!(server.fatal().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_never_asked_or_half_asked_does_not_hold_up_the_end() {
    let clock = HandClock::new();
    let mut server = Setup::on(&clock).start().await;
    let silent = server.connect().await;
    let mut half = server.connect().await;
    half.send(b"GET /s HTTP/1.1\r\nhost: localhost\r\n").await;
    // Both are known to the server when it has answered somebody who came later.
    server.get("/healthz").await.expect(200);
    server.begin_stop();
    clock.sleeper(10_000).await;
    clock.advance(10_000);
    server.served().await;
    drop((silent, half));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_begun_may_finish() {
    let clock = HandClock::new();
    let directory = tempfile::tempdir().unwrap();
    let mut server = Setup::on(&clock).start_in(directory.path()).await;
    server.create("/s", "text/plain").await;
    let mut connection = server.connect().await;
    let whole = request("POST", "/s", &[TEXT], b"begun and finished");
    connection.send(&whole[..whole.len() - 8]).await;
    clock.sleeper(BODY_MS).await;
    server.begin_stop();
    clock.sleeper(10_000).await;
    connection.send(&whole[whole.len() - 8..]).await;
    connection.answer("POST").await.expect(204);
    assert!(connection.rest().await.is_empty(), "the connection ends");
    server.served().await;
    guarded("the engine to stop", server.engine.shutdown()).await;
    server.drop_all().await;
    let server = Setup::default().start_in(directory.path()).await;
    assert_eq!(server.get("/s").await.expect(200).text(), "begun and finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_finishes_holds_up_the_end_for_ten_seconds_and_no_longer() {
    let clock = HandClock::new();
    let mut server = Setup::on(&clock).start().await;
    server.create("/s", "text/plain").await;
    server.append("/s", "text/plain", &vec![b'x'; 1 << 20]).await.expect(204);
    let mut upload = server.connect().await;
    let whole = request("POST", "/s", &[TEXT], b"never");
    upload.send(&whole[..whole.len() - 1]).await;
    clock.sleeper(BODY_MS).await;
    // And one that does not read what it asked for.
    let mut reader = server.connect().await;
    for _ in 0..20 {
        reader.send(&request("GET", "/s", &[], b"")).await;
    }
    reader.head("GET").await.unwrap();
    server.begin_stop();
    clock.sleeper(10_000).await;
    clock.advance(10_000);
    server.served().await;
    guarded("the engine to stop", server.engine.shutdown()).await;
    assert!(server.fatal().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_answered_under_load_is_there_after_the_end() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut server = Setup::default().start_in(directory.path()).await;
        let mut writers = JoinSet::new();
        for writer in 0..16 {
            let path = format!("/{round}/{writer}");
            server.create(&path, "text/plain").await;
            let address = server.address;
            writers.spawn(async move { (path.clone(), write_until_refused(address, &path).await) });
        }
        // In the middle of it all.
        eventually("some appends", async || {
            (server.metric("reveille_log_commands_total").await > 500).then_some(())
        })
        .await;
        server.begin_stop();
        server.served().await;
        guarded("the engine to stop", server.engine.shutdown()).await;
        server.drop_all().await;
        let written = writers.join_all().await;
        assert!(written.iter().map(|(_, (answered, _))| answered).sum::<usize>() > 300);
        let server = Setup::default().start_in(directory.path()).await;
        for (path, (answered, sent)) in written {
            let text = server.get(&path).await.expect(200).text();
            let stored: Vec<&str> = text.split_terminator(';').collect();
            let expected: Vec<String> =
                (0..stored.len()).map(|number| number.to_string()).collect();
            assert_eq!(stored, expected, "{path}: in order, once");
            // One that was sent and not answered may be there or not.
            assert!(stored.len() >= answered && stored.len() <= sent, "{path} {answered} {sent}");
        }
        server.stop().await;
    }
}

/// Appends until the server does not take any more: how many were answered, and how many sent.
async fn write_until_refused(address: std::net::SocketAddr, path: &str) -> (usize, usize) {
    let mut connection = Connection::open(address).await;
    for number in 0.. {
        let body = format!("{number};");
        let sent = connection.try_send(&request("POST", path, &[TEXT], body.as_bytes())).await;
        if sent.is_err() {
            return (number, number);
        }
        match connection.head("POST").await {
            None => return (number, number + 1),
            Some(head) if head.status == 503 => return (number, number),
            Some(head) => assert_eq!(head.status, 204, "{head:?}"),
        }
    }
    unreachable!("it goes on until it is refused")
}

/// Whoever asks while the server goes down is refused or not connected, never left waiting.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_down_refuses_and_says_when_to_come_back() {
    let clock = HandClock::new();
    let server = Arc::new(Setup::on(&clock).start().await);
    server.create("/s", "text/plain").await;
    server.append("/s", "text/plain", b"x").await.expect(204);
    guarded("the engine to stop", server.engine.shutdown()).await;
    for (method, target) in [("POST", "/s"), ("PUT", "/t"), ("DELETE", "/s")] {
        let answer = server.ask(method, target, &[TEXT], b"x").await.expect(503);
        assert_eq!((answer.code().as_str(), answer.need("retry-after")), ("STOPPING", "1"));
    }
    assert_eq!(server.get("/s").await.expect(200).text(), "x");
    server.get("/healthz").await.expect(200);
    server.get("/readyz").await.expect(503);
}
