//! Readers that do not read: what waits for them is shared and counted, and they are let go.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reveille_engine::doors::Clock;
use tokio::net::TcpStream;

use crate::harness::*;

const TEXT: &str = "text/plain";
const ARRAYS: &str = "application/json";
const MIB: usize = 1 << 20;

/// A server with a stream of 20 MiB in two appends: more than sockets take without a reader.
async fn with_a_long_stream(clock: &HandClock) -> TestServer {
    let server = Setup { segment_bytes: 64 << 20, ..Setup::on(clock) }.start().await;
    server.create("/long", TEXT).await;
    for letter in [b'a', b'b'] {
        server.append("/long", TEXT, &vec![letter; 10 * MIB]).await.expect(204);
    }
    server
}

/// The bytes of a body until it ends, and whether it ended in order.
async fn read_body(connection: &mut Connection) -> (usize, bool) {
    let mut len = 0;
    loop {
        match connection.piece().await {
            Piece::Bytes(bytes) => len += bytes.len(),
            Piece::End => return (len, true),
            Piece::Cut => return (len, false),
        }
    }
}

/// Time goes on until nothing waits for anybody. (A socket that is full may take a little more
/// later, and then the time begins anew.)
async fn let_go(clock: &HandClock, server: &TestServer) {
    let gone = eventually("the readers to be gone", async || {
        let is_over = server.engine.reply_bytes() == 0;
        (is_over && server.metric("reveille_live_readers").await == 0).then_some(())
    });
    clock.run_out(READER_MS, gone).await;
}

const TARGETS: [&str; 3] = ["/long", "/long?offset=-1&live=long-poll", "/long?offset=-1&live=sse"];

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_nothing_for_too_long_is_let_go() {
    let clock = HandClock::new();
    let server = with_a_long_stream(&clock).await;
    let mut readers = Vec::new();
    for target in TARGETS {
        let mut connection = server.connect().await;
        connection.send(&request("GET", target, &[], b"")).await;
        assert_eq!(connection.head("GET").await.unwrap().status, 200);
        readers.push(connection);
    }
    clock.sleepers(READER_MS, readers.len()).await;
    let_go(&clock, &server).await;
    for mut connection in readers {
        let (len, is_whole) = read_body(&mut connection).await;
        assert!(!is_whole && len < 20 * MIB, "{len} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_pauses_and_goes_on_gets_everything() {
    let clock = HandClock::new();
    let server = with_a_long_stream(&clock).await;
    for target in TARGETS {
        let mut connection = server.connect().await;
        connection.send(&request("GET", target, &[("connection", "close")], b"")).await;
        assert_eq!(connection.head("GET").await.unwrap().status, 200);
        clock.sleeper(READER_MS).await;
        clock.advance(READER_MS - 1);
        let mut len = 0;
        while len < 20 * MIB {
            let Piece::Bytes(bytes) = connection.piece().await else { panic!("cut at {len}") };
            len += bytes.len();
        }
    }
}

/// Those that hold all of their tenant's room are let go sooner when somebody waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_nothing_keeps_nobody_waiting_for_long() {
    let clock = HandClock::new();
    let server = with_a_long_stream(&clock).await;
    let room = server.engine.reply_room(&reveille_core::Tenant::default_tenant());
    let mut stalled = server.connect().await;
    stalled.send(&request("GET", "/long", &[], b"")).await;
    assert_eq!(stalled.head("GET").await.unwrap().status, 200);
    clock.sleeper(READER_MS).await;
    let held = room.count(32 << 20);
    let mut reader = server.connect().await;
    reader.send(&request("GET", "/long", &[], b"")).await;
    reader.head("GET").await.unwrap();
    eventually("the reader to wait", async || room.is_short().then_some(())).await;
    let gone = eventually("the one to be gone", async || {
        (server.engine.reply_bytes() == held.bytes()).then_some(())
    });
    clock.run_out(5_000, gone).await;
    assert!(clock.now().0 < START_MS + READER_MS);
    assert!(!read_body(&mut stalled).await.1, "it is let go");
    drop(held);
    assert_eq!(read_body(&mut reader).await, (20 * MIB, true));
}

/// One request after another, and no answer is ever read.
#[tokio::test(flavor = "multi_thread")]
async fn pipelines_that_nobody_reads_end() {
    let clock = HandClock::new();
    let server = with_a_long_stream(&clock).await;
    let mut connection = server.connect().await;
    for _ in 0..50 {
        connection.send(&request("GET", "/long", &[], b"")).await;
    }
    clock.sleeper(READER_MS).await;
    let_go(&clock, &server).await;
    connection.head("GET").await.unwrap();
    assert!(!read_body(&mut connection).await.1, "the connection ends");
}

async fn connect_http2(server: &TestServer, window: u32) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window).initial_connection_window_size(64 * 1024 * 1024);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn get(client: &mut SendRequest<Empty<Bytes>>, path: &str) -> Response<Incoming> {
    let request = Request::builder().uri(format!("http://localhost{path}"));
    let answer = client.send_request(request.body(Empty::new()).unwrap());
    guarded("an answer", answer).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_http2_that_stands_still_is_reset_and_others_go_on() {
    let clock = HandClock::new();
    let server = with_a_long_stream(&clock).await;
    let mut client = connect_http2(&server, 1 << 20).await;
    let mut stalled = Vec::new();
    for target in TARGETS {
        stalled.push(get(&mut client, target).await);
    }
    clock.sleepers(READER_MS, TARGETS.len()).await;
    let read = get(&mut client, "/long").await.into_body().collect();
    assert_eq!(guarded("a body", read).await.unwrap().to_bytes().len(), 20 * MIB);
    let_go(&clock, &server).await;
    for answer in stalled {
        let read = guarded("the end", answer.into_body().collect()).await;
        assert!(read.is_err(), "it was reset");
    }
    assert_eq!(get(&mut client, "/healthz").await.status(), 200, "the connection goes on");
}

/// What is complete cannot be reset: the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_on_http2_that_nobody_takes_ends_the_connection() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.create("/s", TEXT).await;
    server.append("/s", TEXT, b"hundreds of bytes, or a few").await.expect(204);
    let mut client = connect_http2(&server, 1).await;
    let answer = get(&mut client, "/s").await;
    let closed = eventually("the connection to end", async || client.is_closed().then_some(()));
    clock.run_out(READER_MS, closed).await;
    drop(answer);
}

/// Its socket was taken over for the events; after them it is for requests again.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_on_after_an_event_stream() {
    let server = Setup::default().start().await;
    server.create("/s", TEXT).await;
    let mut connection = server.connect().await;
    connection.send(&request("GET", "/s?offset=-1&live=sse", &[], b"")).await;
    assert_eq!(connection.head("GET").await.unwrap().get("transfer-encoding"), Some("chunked"));
    // One that waits for its turn, and one that comes later.
    connection.send(&request("HEAD", "/s", &[], b"")).await;
    server.ask("POST", "/s", &[("content-type", TEXT), ("stream-closed", "true")], b"x").await;
    let (len, is_whole) = read_body(&mut connection).await;
    assert!(is_whole && len > 0);
    connection.answer("HEAD").await.expect(200);
    connection.ask("GET", "/s", &[], b"").await.expect(200);

    let mut last = server.connect().await;
    let close = [("connection", "close")];
    last.send(&request("GET", "/s?offset=-1&live=sse", &close, b"")).await;
    last.head("GET").await.unwrap();
    assert!(read_body(&mut last).await.1);
    assert!(last.rest().await.is_empty(), "the connection ends");
}

/// However it travels, a message is one event.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_many_pieces_is_one_event() {
    let server = Setup { segment_bytes: 64 << 20, ..Setup::default() }.start().await;
    let lines = "line after line\r\n".repeat(200_000);
    let json = format!("[{}]", vec!["{\"a\": [1,\n2]}"; 100_000].join(","));
    let array = json.replace("\n", "");
    let cases = [("/t", TEXT, &lines, lines.replace("\r\n", "\n")), ("/j", ARRAYS, &json, array)];
    for (path, kind, body, expected) in cases {
        server.create(path, kind).await;
        let mut live = Events::open(&server, &format!("{path}?offset=now&live=sse")).await;
        live.control().await;
        server.append(path, kind, body.as_bytes()).await.expect(204);
        let mut later = Events::open(&server, &format!("{path}?offset=-1&live=sse")).await;
        for events in [&mut live, &mut later] {
            let (data, control) = events.data().await;
            let data = if kind == ARRAYS { data.replace("\n", "") } else { data };
            assert!(data == expected, "{} and {} bytes", data.len(), expected.len());
            assert!(control.up_to_date);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_documents_and_takes_nothing_is_let_go() {
    let clock = HandClock::new();
    let server = Setup { segment_bytes: 64 << 20, ..Setup::on(&clock) }.start().await;
    for n in 0..24 {
        let text = "x".repeat(900_000);
        server.put_doc(&format!("rooms/r{n}"), serde_json::json!({ "text": text })).await;
    }
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut connection = server.connect().await;
        connection.send(&request("GET", "/api/v1/rooms?live=sse", &[], b"")).await;
        assert_eq!(connection.head("GET").await.unwrap().status, 200);
        readers.push(connection);
    }
    clock.sleepers(READER_MS, readers.len()).await;
    // A step each, however much there is: 18 MB of 432.
    assert!(server.engine.reply_bytes() <= 20 * MIB, "{}", server.engine.reply_bytes());
    // Changes meanwhile wait for nobody and are kept for nobody.
    for n in 0..24 {
        server.put_doc(&format!("rooms/r{n}"), serde_json::json!({ "n": n })).await;
    }
    assert!(server.engine.reply_bytes() <= 20 * MIB, "{}", server.engine.reply_bytes());
    let_go(&clock, &server).await;
    for mut connection in readers {
        let (len, is_whole) = read_body(&mut connection).await;
        assert!(!is_whole && len < 20 * MIB, "{len} bytes");
    }
    // One who reads gets them as they are by now.
    let mut picture = Picture::open(&server, "rooms?live=sse").await;
    assert_eq!(picture.ready().await.len(), 24);
    server.stop().await;
}
