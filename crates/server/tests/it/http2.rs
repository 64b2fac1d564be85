//! The same server to clients that speak HTTP/2 from the first byte.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::*;

async fn connect(server: &TestServer) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A request for a path of the server as the client knows it.
fn ask(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://localhost:8080{path}");
    let request = Request::builder().method(method).uri(uri).header("content-type", "text/plain");
    request.body(Full::new(body.into())).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = guarded("a body", response.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_created_appended_to_and_read() {
    let server = Setup::default().start().await;
    let mut client = connect(&server).await;
    let created = client.send_request(ask("PUT", "/s", "one")).await.unwrap();
    assert_eq!(created.status(), StatusCode::CREATED);
    let appended = client.send_request(ask("POST", "/s", "two")).await.unwrap();
    assert_eq!(appended.status(), StatusCode::NO_CONTENT);
    let read = client.send_request(ask("GET", "/s", "")).await.unwrap();
    assert_eq!(read.headers()["access-control-allow-origin"], "*");
    assert_eq!(text(read).await, "onetwo");
    let missing = client.send_request(ask("GET", "/absent", "")).await.unwrap();
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    let large = client.send_request(ask("POST", "/s", vec![0; 11_000_000])).await.unwrap();
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let read = client.send_request(ask("GET", "/s", "")).await.unwrap();
    assert_eq!(text(read).await, "onetwo", "the connection goes on");
}

/// The host is in `:authority` here, and in no header.
#[tokio::test(flavor = "multi_thread")]
async fn the_location_of_a_new_stream_is_its_whole_url() {
    let server = Setup::default().start().await;
    let mut client = connect(&server).await;
    let created = client.send_request(ask("PUT", "/s", "")).await.unwrap();
    assert_eq!(created.headers()["location"], "http://localhost:8080/s");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_share_a_connection_with_a_live_reader() {
    let server = Setup::default().start().await;
    let mut client = connect(&server).await;
    client.send_request(ask("PUT", "/s", "")).await.unwrap();
    let mut live = client.send_request(ask("GET", "/s?offset=-1&live=sse", "")).await.unwrap();
    assert_eq!(live.headers()["content-type"], "text/event-stream");
    let mut appends = JoinSet::new();
    for _ in 0..200 {
        let mut client = client.clone();
        appends.spawn(async move {
            client.send_request(ask("POST", "/s", "x")).await.unwrap().status()
        });
    }
    let statuses = guarded("the answers", appends.join_all()).await;
    assert!(statuses.iter().all(|status| *status == StatusCode::NO_CONTENT), "{statuses:?}");
    let mut close = ask("POST", "/s", "");
    close.headers_mut().insert("stream-closed", "true".parse().unwrap());
    client.send_request(close).await.unwrap();
    let mut events = Vec::new();
    while let Some(frame) = guarded("an event", live.body_mut().frame()).await {
        events.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    let events = String::from_utf8(events).unwrap();
    let data: String =
        events.split("\n\n").filter_map(|e| e.strip_prefix("event: data\ndata:")).collect();
    assert_eq!(data, "x".repeat(200));
    assert!(events.contains("\"streamClosed\":true"));
}
