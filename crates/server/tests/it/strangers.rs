//! Those who have no key, or send as little as they can: nobody else notices them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const LARGE: usize = 10 << 20;

/// The head of a request that announces much, and its first byte.
fn announce(target: &str, authorization: &str) -> Vec<u8> {
    let length = LARGE.to_string();
    let headers = [("authorization", authorization), JSON, ("content-length", &length)];
    let mut bytes = head_of("POST", target, &headers);
    bytes.extend_from_slice(b"\r\n[");
    bytes
}

/// A body of which one byte comes, and then nothing more.
struct Drip(Option<Bytes>);

impl Body for Drip {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

async fn connect_http2(server: &TestServer) -> SendRequest<Drip> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn drip(path: &str, authorization: &str) -> Request<Drip> {
    let uri = format!("http://localhost:8080{path}");
    let request = Request::builder()
        .method("POST")
        .uri(uri)
        .header("content-type", "text/plain")
        .header("content-length", LARGE)
        .header("authorization", authorization);
    request.body(Drip(Some(Bytes::from_static(b"x")))).unwrap()
}

/// Who asks is looked at before the body is: its sender is refused while it still sends.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_a_key_or_a_token_has_a_body_read() {
    let server = guarded_by_keys().start().await;
    for (target, code) in [
        ("/callback/a:%2Fb", "TOKEN_INVALID"),
        ("/v1/stream/__ds/subscriptions/a/ack", "TOKEN_INVALID"),
        ("/v1/stream/__ds/subscriptions/a/callback", "TOKEN_INVALID"),
        ("/v1/stream/__ds/subscriptions/a/claim", "INVALID_API_KEY"),
        ("/s", "INVALID_API_KEY"),
        ("/api/v1/trigger/get", "UNAUTHENTICATED"),
        ("/api/v1/trigger/query", "UNAUTHENTICATED"),
        ("/api/v1/trigger/write", "UNAUTHENTICATED"),
        ("/ingest", "INVALID_API_KEY"),
        ("/subscriptions/subscribe", "INVALID_API_KEY"),
        ("/admin/v1/keys", "INVALID_API_KEY"),
        ("/admin/v1/signing-keys/rotate", "INVALID_API_KEY"),
    ] {
        let mut connection = server.connect().await;
        connection.send(&announce(target, "Bearer no-such-token")).await;
        let answer = connection.answer("POST").await.expect(401);
        assert_eq!(answer.code(), code, "{target}");
    }
    let mut client = connect_http2(&server).await;
    let answer = client.send_request(drip("/callback/a:%2Fb", "Bearer no-such-token"));
    let answer = guarded("a refusal", answer).await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    server.stop().await;
}

/// Whoever has no good token is not told what is wrong with the body either.
#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_callback_comes_before_its_body() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    for body in ["", "{", "null", "{}", "[[[["] {
        let answer = wakes.call_raw(&call.consumer(), "no-such-token", body.as_bytes()).await;
        assert_eq!(answer.expect(401).code(), "TOKEN_INVALID", "{body}");
    }
    wakes.stop().await;
}

/// Millions of brackets become no tree, whoever sends them.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_brackets_is_refused_where_it_becomes_large() {
    let mut wakes = Wakes::of(HandClock::new(), Setup::large()).await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    let many = |item: &str| vec![item; 9 << 20 >> item.len().ilog2()].join(",");
    for (field, said) in [
        (format!("\"acks\":[{}]", many("{\"\":0}")), "more than 1024 objects"),
        (format!("\"x\":[{}]", many("[]")), "more than 8000 values"),
        (format!("\"append\":[{}]", many("[]")), "entries; 1000 are the most"),
    ] {
        let field = field.get(..LARGE - 64).map_or(field.clone(), |cut| {
            let whole = cut.rsplit_once(',').unwrap().0;
            format!("{whole}]")
        });
        let body = format!("{{\"epoch\":1,{field}}}");
        let answer = wakes.call_raw(&call.consumer(), &call.token(), body.as_bytes()).await;
        let answer = answer.expect(400);
        assert!(answer.text().contains(said), "{answer}");
    }
    wakes.stop().await;
}

/// Five connections carry a thousand bodies of which a byte has come. The tenant whose they are
/// holds its own part of the memory, and they end when they are too slow.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_drip_over_http2_keep_nobody_out() {
    let clock = HandClock::new();
    let setup = Setup { clock: std::sync::Arc::new(clock.clone()), ..guarded_by_keys() };
    let server = Setup { segment_bytes: 64 << 20, ..setup }.start().await;
    let (_, loud) = server.make_key("loud", &["user"]).await;
    let (_, quiet) = server.make_key("quiet", &["user"]).await;
    let text = [("content-type", "text/plain")];
    for key in [&loud, &quiet] {
        server.ask_as(key, "PUT", "/s", &text, b"").await.expect(201);
    }
    let bearer = format!("Bearer {loud}");
    let mut answers = Vec::new();
    for _ in 0..5 {
        let client = connect_http2(&server).await;
        for _ in 0..220 {
            let mut client = client.clone();
            let request = drip("/s", &bearer);
            answers.push(tokio::spawn(async move { client.send_request(request).await }));
        }
    }
    // All of them are being read.
    clock.sleepers(20_000, 1_100).await;
    for bytes in [1, 64 << 10, 9 << 20] {
        let body = vec![b'q'; bytes];
        server.ask_as(&quiet, "POST", "/s", &text, &body).await.expect(204);
        server.ask_as(&loud, "POST", "/s", &text, &body).await.expect(204);
    }
    clock.advance(20_000);
    for answer in answers {
        let answer = guarded("an answer", answer).await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
        let body = guarded("its body", answer.into_body().collect()).await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains("BODY_TOO_SLOW"));
    }
}

/// Those who say nothing make room for those who do.
#[tokio::test(flavor = "multi_thread")]
async fn silent_sockets_are_closed_for_those_who_have_a_key() {
    let server = Setup { connections_max: 12, ..guarded_by_keys() }.start().await;
    let mut known = server.connect().await;
    let bearer = format!("Bearer {ADMIN}");
    let by_admin = [("authorization", bearer.as_str())];
    known.ask("PUT", "/s", &[by_admin[0], JSON], b"").await.expect(201);
    let mut reader = server.connect().await;
    reader.send(&request("GET", "/s?offset=now&live=sse", &by_admin, b"")).await;
    assert_eq!(reader.head("GET").await.unwrap().status, 200);
    let mut silent = Vec::new();
    for _ in 0..60 {
        silent.push(server.connect().await);
        // Half a request is as good as none.
        let mut half = server.connect().await;
        let _ = half.try_send(b"GET /s HTTP/1.1\r\nhost: x\r\n").await;
        silent.push(half);
        server.ask_as(ADMIN, "POST", "/s", &[JSON], b"1").await.expect(204);
    }
    // Whoever has shown a key keeps its connection, and who reads goes on.
    known.ask("GET", "/s", &by_admin, b"").await.expect(200);
    reads(&mut reader, "event: data").await;
    for mut connection in silent.drain(..40) {
        assert!(connection.rest().await.is_empty(), "it was closed without a word");
    }
}

/// When nobody can be closed, whoever comes waits; nobody who is served is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_everybody_is_busy_waits_for_an_end() {
    let clock = HandClock::new();
    let server = Setup { connections_max: 3, ..Setup::on(&clock) }.start().await;
    server.create("/s", "text/plain").await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut reader = server.connect().await;
        reader.send(&request("GET", "/s?offset=now&live=sse", &[], b"")).await;
        assert_eq!(reader.head("GET").await.unwrap().status, 200);
        readers.push(reader);
    }
    let mut late = server.connect().await;
    late.send(&request("POST", "/s", &[("content-type", "text/plain")], b"late")).await;
    stays("waiting", async || server.engine.clock().now().0 == START_MS).await;
    readers.pop();
    late.answer("POST").await.expect(204);
    for mut reader in readers {
        reads(&mut reader, "late").await;
    }
}

/// Reads on until this comes.
async fn reads(reader: &mut Connection, wanted: &str) {
    let mut all = String::new();
    while !all.contains(wanted) {
        let Piece::Bytes(event) = reader.piece().await else { panic!("closed after {all}") };
        all.push_str(&String::from_utf8_lossy(&event));
    }
}
