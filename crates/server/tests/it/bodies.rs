//! Bodies that are too large, too slow, cut short, or come in crumbs.

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");
const MAX: usize = 10 << 20;

/// The head of an append that announces this many bytes.
fn announce(bytes: usize) -> Vec<u8> {
    let mut head = head_of("POST", "/s", &[TEXT, ("content-length", &bytes.to_string())]);
    head.extend_from_slice(b"\r\n");
    head
}

/// The head of an append without a length.
fn chunked() -> Vec<u8> {
    let mut head = head_of("POST", "/s", &[TEXT, CHUNKED]);
    head.extend_from_slice(b"\r\n");
    head
}

async fn with_stream(setup: Setup) -> TestServer {
    let server = setup.start().await;
    server.create("/s", "text/plain").await;
    server
}

/// How many bytes `/s` holds.
async fn stored(server: &TestServer) -> usize {
    let head = server.head("/s").await.expect(200);
    head.next_offset().split_once('_').unwrap().1.parse().unwrap()
}

/// Sends as much as the server takes; true if it took everything.
async fn pour(connection: &mut Connection, mut bytes: usize) -> bool {
    let block = vec![b'x'; 64 << 10];
    while bytes > 0 {
        let count = bytes.min(block.len());
        if connection.try_send(&block[..count]).await.is_err() {
            return false;
        }
        bytes -= count;
    }
    true
}

/// Announces a body, sends as much of it as is taken, and waits for the answer.
async fn upload(connection: &mut Connection, bytes: usize) -> Answer {
    connection.send(&announce(bytes)).await;
    pour(connection, bytes).await;
    connection.answer("POST").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_the_limit_is_taken_and_one_byte_more_is_not() {
    let server = with_stream(Setup::large()).await;
    let answer = server.append("/s", "text/plain", &vec![b'x'; MAX]).await.expect(204);
    assert_eq!(answer.next_offset(), format!("0000000000000000_{MAX:016}"));
    let mut connection = server.connect().await;
    connection.send(&announce(MAX + 1)).await;
    // Refused before the body is sent.
    let answer = connection.answer("POST").await.expect(413);
    assert_eq!(answer.code(), "BODY_TOO_LARGE");
    assert_eq!(answer.need("connection"), "close");
    assert!(connection.rest().await.is_empty(), "the connection ends");
    assert_eq!(stored(&server).await, MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_all_of_an_oversized_body_first_still_gets_its_413() {
    let server = with_stream(Setup::large()).await;
    for head in [announce(11_000_000), chunked()] {
        let mut connection = server.connect().await;
        connection.send(&head).await;
        if head == chunked() {
            let _ = connection.try_send(b"A7D8C0\r\n").await;
        }
        pour(&mut connection, 11_000_000).await;
        let answer = connection.answer("POST").await.expect(413);
        assert_eq!(answer.code(), "BODY_TOO_LARGE");
        assert_eq!(answer.need("connection"), "close");
        assert!(connection.rest().await.is_empty(), "the connection ends");
    }
    assert_eq!(stored(&server).await, 0);
    server.append("/s", "text/plain", b"fine").await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn lengths_that_are_no_lengths_are_refused() {
    let server = with_stream(Setup::default()).await;
    for length in ["-1", "+5", "5x", "0x5", "99999999999999999999", "5, 6", ""] {
        let mut connection = server.connect().await;
        let mut request = head_of("POST", "/s", &[TEXT, ("content-length", length)]);
        request.extend_from_slice(b"\r\nhello");
        connection.send(&request).await;
        let answer = String::from_utf8(connection.rest().await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{length:?}: {answer}");
    }
    let mut connection = server.connect().await;
    connection.send(&announce(usize::MAX / 2)).await;
    connection.answer("POST").await.expect(413);
    assert_eq!(stored(&server).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_coming_is_given_up() {
    for begin in ["", "half"] {
        let clock = HandClock::new();
        let server = with_stream(Setup::on(&clock)).await;
        let mut connection = server.connect().await;
        connection.send(&[&announce(10), begin.as_bytes()].concat()).await;
        // The body is being read.
        clock.sleeper(20_000).await;
        let answer = clock.run_out(20_000, connection.answer("POST")).await.expect(408);
        assert_eq!(answer.code(), "BODY_TOO_SLOW");
        assert!(connection.rest().await.is_empty(), "the connection ends");
        assert_eq!(stored(&server).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_byte_by_byte_has_no_more_than_its_time() {
    let clock = HandClock::new();
    let server = with_stream(Setup::on(&clock)).await;
    let mut connection = server.connect().await;
    // However much was announced: time is given for what has come.
    connection.send(&announce(MAX)).await;
    clock.sleeper(20_000).await;
    // Every byte is in time; all of them together are not.
    for left in [16_000, 2_000] {
        clock.advance(14_000);
        connection.send(b"x").await;
        clock.sleeper(left).await;
    }
    clock.advance(2_000);
    let answer = connection.answer("POST").await.expect(408);
    assert_eq!(answer.code(), "BODY_TOO_SLOW");
    assert_eq!(stored(&server).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_off_in_the_middle_of_a_body_appends_nothing() {
    let server = with_stream(Setup::default()).await;
    let begun: Vec<Vec<u8>> = vec![
        [announce(10), b"123456789".to_vec()].concat(),
        announce(10),
        [chunked(), b"5\r\nhello\r\n".to_vec()].concat(),
        [chunked(), b"5\r\nhello\r\n0\r\n".to_vec()].concat(),
        [chunked(), b"5\r\nhel".to_vec()].concat(),
    ];
    let count = begun.len();
    for request in begun {
        let mut connection = server.connect().await;
        connection.send(&request).await;
        drop(connection);
    }
    // A request whose client is gone ends too, and is counted or forgotten.
    stays("empty", async || stored(&server).await == 0).await;
    server.append("/s", "text/plain", b"fine").await.expect(204);
    assert_eq!(server.get("/s").await.text(), "fine", "after {count} broken ones");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_its_body_early_and_listens_is_told() {
    let server = with_stream(Setup::default()).await;
    for begun in
        [[announce(10), b"half".to_vec()].concat(), [chunked(), b"9\r\nhalf".to_vec()].concat()]
    {
        let mut connection = server.connect().await;
        connection.send(&begun).await;
        connection.finish_sending().await;
        let rest = String::from_utf8(connection.rest().await).unwrap();
        assert!(rest.is_empty() || rest.contains("BODY_INCOMPLETE"), "{rest}");
    }
    assert_eq!(stored(&server).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_crumbs_is_one_append() {
    let server = with_stream(Setup::default()).await;
    let body: Vec<u8> = (0..20_000u32).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
    let mut request = chunked();
    for byte in &body {
        request.extend_from_slice(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let mut connection = server.connect().await;
    connection.send(&request).await;
    connection.answer("POST").await.expect(204);
    // The same with extensions and trailers, which mean nothing here.
    let mut request = chunked();
    request.extend_from_slice(b"3;a=b\r\nend\r\n0;x\r\nstream-closed: true\r\n\r\n");
    connection.send(&request).await;
    let answer = connection.answer("POST").await.expect(204);
    assert_eq!(answer.get("stream-closed"), None, "a trailer is no header");
    let all = server.get("/s").await.expect(200).body;
    assert!(all == [body.as_slice(), b"end"].concat());
    // Only the ends of appends are offsets.
    server.get("/s?offset=0_10").await.expect(400);
    assert_eq!(server.get("/s?offset=0_20000").await.expect(200).text(), "end");
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_that_are_no_chunks_append_nothing() {
    let server = with_stream(Setup::default()).await;
    let bad: [&[u8]; 7] = [
        b"5\r\nhello\r\nxyz\r\n",
        b"-1\r\n",
        b"\r\n",
        b"5\r\nhelloworld\r\n0\r\n\r\n",
        b"FFFFFFFFFFFFFFFFFF\r\n",
        b"5 hello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
    ];
    for body in bad {
        let mut connection = server.connect().await;
        connection.send(&[chunked(), body.to_vec()].concat()).await;
        let answer = connection.answer("POST").await.expect(400);
        assert_eq!(answer.code(), "BODY_INCOMPLETE", "{}", String::from_utf8_lossy(body));
        assert!(connection.rest().await.is_empty(), "the connection ends");
    }
    let mut connection = server.connect().await;
    connection.send(&[chunked(), b"0\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(connection.answer("POST").await.expect(400).code(), "EMPTY_BODY");
    assert_eq!(stored(&server).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_before_it_sends_is_answered_first() {
    let server = with_stream(Setup::default()).await;
    let expect = |length: &str| {
        let headers = [TEXT, ("content-length", length), ("expect", "100-continue")];
        let mut head = head_of("POST", "/s", &headers);
        head.extend_from_slice(b"\r\n");
        head
    };
    let mut connection = server.connect().await;
    connection.send(&expect("5")).await;
    assert_eq!(connection.head("POST").await.unwrap().status, 100);
    connection.send(b"hello").await;
    connection.answer("POST").await.expect(204);
    let mut connection = server.connect().await;
    connection.send(&expect("99999999")).await;
    // No invitation to send what will be refused.
    assert_eq!(connection.head("POST").await.unwrap().status, 413);
    assert_eq!(server.get("/s").await.text(), "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_without_room_wait_and_then_are_told_to_come_back_while_small_ones_pass() {
    let clock = HandClock::new();
    let server = with_stream(Setup { segment_bytes: 64 << 20, ..Setup::on(&clock) }).await;
    let tenant = reveille_core::Tenant::default_tenant();
    let all = server.engine.admit(&tenant, 32 << 20).await.unwrap();
    let mut connection = server.connect().await;
    let large = upload(&mut connection, MAX);
    let others = async {
        clock.sleeper(2_000).await;
        for _ in 0..10 {
            server.append("/s", "text/plain", &[b's'; 60_000]).await.expect(204);
        }
        server.get("/s").await.expect(200);
        clock.advance(2_000);
    };
    let (answer, ()) = tokio::join!(large, others);
    let answer = answer.expect(503);
    assert_eq!((answer.code().as_str(), answer.need("retry-after")), ("BUSY", "1"));
    assert_eq!(stored(&server).await, 600_000);
    // One that waits goes on as soon as there is room.
    let mut connection = server.connect().await;
    let large = upload(&mut connection, MAX);
    let others = async {
        clock.sleeper(2_000).await;
        drop(all);
    };
    let (answer, ()) = tokio::join!(large, others);
    answer.expect(204);
    assert_eq!(stored(&server).await, 600_000 + MAX);
}

/// An announcement is no body: what has not come takes no room from those whose bodies have.
async fn announcements_keep_nobody_out(bytes: usize, begin: &[u8]) {
    let server = with_stream(Setup::large()).await;
    let mut stalled = Vec::new();
    for _ in 0..300 {
        let mut connection = server.connect().await;
        connection.send(&[&announce(bytes), begin].concat()).await;
        stalled.push(connection);
    }
    for _ in 0..3 {
        let mut connection = server.connect().await;
        upload(&mut connection, bytes).await.expect(204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_announcements_of_64_kib_keep_nobody_out() {
    announcements_keep_nobody_out(64 << 10, b"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_announcements_of_10_mib_keep_nobody_out() {
    announcements_keep_nobody_out(MAX, b"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_announcements_of_64_kib_with_one_byte_each_keep_nobody_out() {
    announcements_keep_nobody_out(64 << 10, b"x").await;
}

/// Room follows what has come: a thousand that drip take a kilobyte each.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_bodies_of_one_byte_keep_nobody_out() {
    let server = with_stream(Setup::large()).await;
    let mut dripping = Vec::new();
    for _ in 0..1_100 {
        let mut connection = server.connect().await;
        connection.send(&[&announce(MAX), &b"x"[..]].concat()).await;
        dripping.push(connection);
    }
    for bytes in [1, 64 << 10, MAX] {
        let mut connection = server.connect().await;
        upload(&mut connection, bytes).await.expect(204);
    }
}
