//! Requests and answers over plain TCP.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use reveille_deliver::courier::{Answer, Courier, SendError};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::sink::{Caller, OK, Sink, read_request, request, wait_for_end, while_pending, within};

#[tokio::test]
async fn a_request_arrives_as_it_was_given_and_its_answer_comes_back() {
    let received = Arc::new(Mutex::new(None));
    let receiver = received.clone();
    let sink = Sink::playing(move |mut socket, _| {
        let receiver = receiver.clone();
        async move {
            let request = read_request(&mut socket).await;
            *receiver.lock().unwrap() = request;
            let answer = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nlate";
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let url = format!("http://LocalHost:{}/hook/%2F?a=b&c", sink.port);
    let headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        // What the courier writes itself cannot be overwritten, or smuggled in.
        (header::HOST, HeaderValue::from_static("other.example")),
        (header::CONTENT_LENGTH, HeaderValue::from_static("1")),
        (header::TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
    ];
    let request = request(&url, headers, Bytes::from_static(b"{\"a\":1}"));
    let answer = within(Caller::new().courier.post(request)).await;
    let mut answer = answer.unwrap();
    let headers = std::mem::take(&mut answer.headers);
    assert_eq!(headers.get(header::RETRY_AFTER), Some(&HeaderValue::from_static("7")));
    let expected = Answer {
        status: 503,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"late"),
        truncated: false,
        retry_after_s: Some(7),
    };
    assert_eq!(answer, expected);
    let received = received.lock().unwrap().take().unwrap();
    assert_eq!(received.body, b"{\"a\":1}");
    let mut lines: Vec<&str> = received.head.trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /hook/%2F?a=b&c HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: localhost:{}", sink.port);
    let agent = concat!("user-agent: reveille/", env!("CARGO_PKG_VERSION"));
    let expected = ["content-length: 7", "content-type: application/json", &host, agent];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn whoever_writes_a_request_may_say_by_whom_it_is_sent() {
    let received = Arc::new(Mutex::new(None));
    let receiver = received.clone();
    let sink = Sink::playing(move |mut socket, _| {
        let receiver = receiver.clone();
        async move {
            *receiver.lock().unwrap() = read_request(&mut socket).await;
            socket.write_all(OK.as_bytes()).await.unwrap();
        }
    })
    .await;
    let url = format!("http://localhost:{}/", sink.port);
    let headers = vec![(header::USER_AGENT, HeaderValue::from_static("other/1.0"))];
    let request = request(&url, headers, Bytes::new());
    within(Caller::new().courier.post(request)).await.unwrap();
    let received = received.lock().unwrap().take().unwrap();
    let agents = received.head.lines().filter(|line| line.starts_with("user-agent:"));
    assert_eq!(agents.collect::<Vec<_>>(), ["user-agent: other/1.0"]);
}

#[tokio::test]
async fn bodies_of_every_framing_are_read() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\ntrailer: x\r\n\r\n";
    let upgrade = "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nother";
    for (answer, status, body, kept) in [
        (upgrade, 101, "", 0),
        (OK, 200, "ok", 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, "", 1),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", 1),
        (chunked, 200, "abcdefg", 1),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Later\r\ncontent-length: 0\r\n\r\n",
            202,
            "",
            1,
        ),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbye", 200, "bye", 0),
    ] {
        let (sink, caller) = (Sink::answering(answer).await, Caller::new());
        let answered = caller.post(&sink.url()).await.unwrap();
        assert_eq!((answered.status, &answered.body[..]), (status, body.as_bytes()), "{answer}");
        assert!(!answered.truncated && answered.retry_after_s.is_none());
        assert_eq!(caller.courier.idle_connections(), kept, "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_read() {
    for answer in ["HTTP/1.1 200 OK\r\n\r\nto the end", "HTTP/1.0 200 OK\r\n\r\nto the end"] {
        let (sink, caller) = (Sink::answering_once(answer).await, Caller::new());
        let answered = caller.post(&sink.url()).await.unwrap();
        assert_eq!(&answered.body[..], b"to the end");
        assert_eq!(caller.courier.idle_connections(), 0);
    }
}

#[tokio::test]
async fn a_large_body_is_sent_whole() {
    let (sent, received) = oneshot::channel();
    let sent = Mutex::new(Some(sent));
    let sink = Sink::playing(move |mut socket, _| {
        let sent = sent.lock().unwrap().take();
        async move {
            let request = read_request(&mut socket).await.unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            sent.unwrap().send(request.body).unwrap();
        }
    })
    .await;
    let body: Bytes = (0..5_000_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
    let request = request(&sink.url(), Vec::new(), body.clone());
    assert_eq!(within(Caller::new().courier.post(request)).await.unwrap().status, 200);
    assert!(within(received).await.unwrap() == body);
}

#[tokio::test]
async fn redirects_are_answers() {
    let elsewhere = Sink::answering(OK).await;
    let here = format!("http://127.0.0.1:{}/", elsewhere.port);
    for location in ["http://169.254.169.254/latest/meta-data/", &here] {
        for status in [301, 302, 303, 307, 308] {
            let answer = format!(
                "HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
            );
            let sink = Sink::answering(answer).await;
            let answered = Caller::new().post(&sink.url()).await.unwrap();
            assert_eq!(answered.status, status);
            assert_eq!(sink.accepts(), 1);
        }
    }
    assert_eq!(elsewhere.accepts(), 0);
}

/// A sink that reads a request, says these bytes, reports, waits for the end, and reports that.
async fn silent_after(said: &'static str) -> (Sink, oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let (arrived, arrives) = oneshot::channel();
    let (ended, ends) = oneshot::channel();
    let reports = Mutex::new(Some((arrived, ended)));
    let sink = Sink::playing(move |mut socket, _| {
        let (arrived, ended) = reports.lock().unwrap().take().unwrap();
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(said.as_bytes()).await.unwrap();
            arrived.send(()).unwrap();
            wait_for_end(&mut socket).await;
            ended.send(()).unwrap();
        }
    })
    .await;
    (sink, arrives, ends)
}

#[tokio::test]
async fn dropping_a_request_closes_its_connection() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    for said in ["", "HTTP/1.1 200", half] {
        let (sink, arrives, ends) = silent_after(said).await;
        let caller = Caller::new();
        let mut posting = caller.begin(&sink.url());
        while_pending(&mut posting, arrives).await.unwrap();
        drop(posting);
        within(ends).await.unwrap();
        assert_eq!(caller.courier.idle_connections(), 0);
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_is_broken() {
    for said in [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
    ] {
        let (sink, caller) = (Sink::answering_once(said).await, Caller::new());
        assert_eq!(caller.post(&sink.url()).await, Err(SendError::Broken), "{said:?}");
        assert_eq!((sink.accepts(), caller.courier.retries()), (1, 0), "{said:?}");
        assert_eq!(caller.courier.idle_connections(), 0);
    }
}
