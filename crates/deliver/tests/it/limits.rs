//! Answers that are too long, or none at all.

use std::sync::Mutex;

use reveille_deliver::courier::SendError;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::sink::{Caller, Sink, read_request, within};

const BODY_BYTES_MAX: usize = 64 * 1024;

fn with_headers(headers: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{headers}\r\n")
}

async fn check_refused(answer: String) {
    let begins: String = answer.chars().take(40).collect();
    let (sink, caller) = (Sink::answering(answer).await, Caller::new());
    assert_eq!(caller.post(&sink.url()).await, Err(SendError::BadAnswer), "{begins:?}");
    assert_eq!(caller.courier.idle_connections(), 0, "{begins:?}");
    assert_eq!((sink.accepts(), caller.courier.retries()), (1, 0), "{begins:?}");
}

#[tokio::test]
async fn a_head_has_at_most_a_hundred_headers() {
    let sink = Sink::answering(with_headers(&"x: y\r\n".repeat(99))).await;
    assert_eq!(Caller::new().post(&sink.url()).await.unwrap().status, 200);
    check_refused(with_headers(&"x: y\r\n".repeat(100))).await;
}

#[tokio::test]
async fn a_head_has_at_most_64_kib() {
    let sink = Sink::answering(with_headers(&format!("x: {}\r\n", "y".repeat(60_000)))).await;
    assert_eq!(Caller::new().post(&sink.url()).await.unwrap().status, 200);
    check_refused(with_headers(&format!("x: {}\r\n", "y".repeat(66_000)))).await;
    check_refused("HTTP/1.1 200 ".to_owned() + &"y".repeat(1_000_000)).await;
}

#[tokio::test]
async fn what_is_not_http_is_a_bad_answer() {
    for answer in [
        "220 mail.example ESMTP\r\n\r\n",
        "\x16\x03\x01\x02",
        "HTTP/3.7 200 OK\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    ] {
        check_refused(answer.to_owned()).await;
    }
}

#[tokio::test]
async fn a_body_of_64_kib_is_read_whole_and_a_longer_one_cut() {
    for (length, truncated) in [(BODY_BYTES_MAX, false), (BODY_BYTES_MAX + 1, true)] {
        let body = "z".repeat(length);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        let (sink, caller) = (Sink::answering(answer).await, Caller::new());
        let answered = caller.post(&sink.url()).await.unwrap();
        assert_eq!((answered.body.len(), answered.truncated), (BODY_BYTES_MAX, truncated));
        assert!(answered.body.iter().all(|byte| *byte == b'z'));
        assert_eq!(caller.courier.idle_connections(), usize::from(!truncated));
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_and_its_connection_closed() {
    for framing in ["transfer-encoding: chunked", "connection: close", "content-length: 9999999999"]
    {
        let (hung_up, hangs_up) = oneshot::channel();
        let hung_up = Mutex::new(Some(hung_up));
        let sink = Sink::playing(move |mut socket, _| {
            let hung_up = hung_up.lock().unwrap().take().unwrap();
            async move {
                read_request(&mut socket).await.unwrap();
                let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
                socket.write_all(head.as_bytes()).await.unwrap();
                // Whatever the framing, these are bytes of a body.
                while socket.write_all(b"8\r\nendless!\r\n").await.is_ok() {}
                hung_up.send(()).unwrap();
            }
        })
        .await;
        let caller = Caller::new();
        let answered = caller.post(&sink.url()).await.unwrap();
        assert_eq!((answered.body.len(), answered.truncated), (BODY_BYTES_MAX, true));
        within(hangs_up).await.unwrap();
        assert_eq!(caller.courier.idle_connections(), 0);
    }
}

#[tokio::test]
async fn informational_answers_without_end_are_no_answer() {
    for information in ["100 Continue", "103 Early Hints\r\nlink: </x>"] {
        let sink = Sink::playing(move |mut socket, _| async move {
            read_request(&mut socket).await.unwrap();
            let information = format!("HTTP/1.1 {information}\r\n\r\n").repeat(100);
            while socket.write_all(information.as_bytes()).await.is_ok() {}
        })
        .await;
        let caller = Caller::new();
        assert_eq!(caller.post(&sink.url()).await, Err(SendError::BadAnswer), "{information}");
        assert_eq!((sink.accepts(), caller.courier.retries()), (1, 0));
    }
    let few = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100) + crate::sink::OK;
    let sink = Sink::answering(few).await;
    let caller = Caller::new();
    for _ in 0..100 {
        assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200, "each has its own limit");
    }
    assert_eq!(sink.accepts(), 1);
}

#[tokio::test]
async fn the_status_is_the_answer_although_the_body_never_comes() {
    for status in [200, 503] {
        let sink = Sink::playing(move |mut socket, _| async move {
            read_request(&mut socket).await.unwrap();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 10\r\n\r\nhalf");
            socket.write_all(head.as_bytes()).await.unwrap();
            crate::sink::wait_for_end(&mut socket).await;
        })
        .await;
        let caller = Caller::new();
        let answered = caller.post(&sink.url()).await.unwrap();
        assert_eq!(
            (answered.status, &answered.body[..], answered.truncated),
            (status, &b"half"[..], true)
        );
        assert_eq!(caller.courier.idle_connections(), 0);
    }
}
