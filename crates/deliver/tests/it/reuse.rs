//! Connections that wait for the next request: reused, found closed, expired, bounded.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use reveille_deliver::courier::SendError;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Barrier, Notify};

use crate::sink::{Caller, OK, Sink, read_request, wait_for_end, within};

#[tokio::test]
async fn one_request_after_another_goes_over_the_same_connection() {
    let (sink, caller) = (Sink::answering(OK).await, Caller::new());
    for _ in 0..10 {
        assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
        assert_eq!(caller.courier.idle_connections(), 1);
    }
    assert_eq!((sink.accepts(), caller.courier.retries()), (1, 0));
}

#[tokio::test]
async fn other_origins_have_other_connections() {
    let (one, two, caller) = (Sink::answering(OK).await, Sink::answering(OK).await, Caller::new());
    let by_name = format!("http://localhost:{}/", one.port);
    for url in [&one.url(), &two.url(), &by_name] {
        assert_eq!(caller.post(url).await.unwrap().status, 200);
    }
    assert_eq!((one.accepts(), two.accepts()), (2, 1));
    assert_eq!(caller.courier.idle_connections(), 3);
}

/// Connections that wait count as well: they make room for those that are needed.
#[tokio::test]
async fn there_are_never_more_connections_than_allowed() {
    let caller = Caller::new();
    let caller = Caller { courier: caller.courier.with_connections_max(2), ..caller };
    let sinks = [Sink::answering(OK).await, Sink::answering(OK).await, Sink::answering(OK).await];
    for _ in 0..3 {
        for sink in &sinks {
            assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
            assert!(caller.courier.idle_connections() <= 2);
        }
    }
    // Those that are under way wait for each other.
    let urls = [sinks[0].url(), sinks[1].url(), sinks[2].url()];
    let post = |number: usize| caller.post(&urls[number % 3]);
    let (a, b, c, d) = within(async { tokio::join!(post(0), post(1), post(2), post(3)) }).await;
    for answer in [a, b, c, d] {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert!(caller.courier.idle_connections() <= 2);
}

/// On the first connection: one answer, then the second request is read, these bytes are said, and
/// the connection is closed, as when a server's idle timeout meets a request on its way.
async fn closing_on_second(said: &'static str, then: &'static str) -> Sink {
    Sink::playing(move |mut socket, number| async move {
        if number == 1 {
            read_request(&mut socket).await.unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            read_request(&mut socket).await.unwrap();
            socket.write_all(said.as_bytes()).await.unwrap();
        } else {
            read_request(&mut socket).await.unwrap();
            socket.write_all(then.as_bytes()).await.unwrap();
        }
    })
    .await
}

#[tokio::test]
async fn a_request_lost_on_an_idle_connection_is_sent_again_once() {
    let (sink, caller) = (closing_on_second("", OK).await, Caller::new());
    assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
    assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
    assert_eq!((sink.accepts(), caller.courier.retries()), (2, 1));
}

#[tokio::test]
async fn a_request_lost_twice_is_broken() {
    let (sink, caller) = (closing_on_second("", "").await, Caller::new());
    assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
    assert_eq!(caller.post(&sink.url()).await, Err(SendError::Broken));
    assert_eq!((sink.accepts(), caller.courier.retries()), (2, 1));
}

#[tokio::test]
async fn a_request_that_was_partly_answered_is_not_sent_again() {
    for said in ["HTTP/1.1 2", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let (sink, caller) = (closing_on_second(said, OK).await, Caller::new());
        assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
        assert_eq!(caller.post(&sink.url()).await, Err(SendError::Broken));
        assert_eq!((sink.accepts(), caller.courier.retries()), (1, 0));
    }
}

#[tokio::test]
async fn connections_closed_while_they_wait_do_no_harm() {
    let (sink, caller) = (Sink::answering_once(OK).await, Caller::new());
    for number in 1..=20 {
        assert_eq!(caller.post(&sink.url()).await.unwrap().status, 200);
        assert_eq!(sink.accepts(), number);
    }
}

#[tokio::test]
async fn what_is_said_unasked_ends_a_connection() {
    let twice = [OK, OK].concat();
    let (sink, caller) = (Sink::answering(twice).await, Caller::new());
    for number in 1..=3 {
        assert_eq!(&caller.post(&sink.url()).await.unwrap().body[..], b"ok");
        assert_eq!(sink.accepts(), number, "the second answer is nobody's");
    }
}

/// An answer that comes while nobody asks must not become that of the next request.
#[tokio::test]
async fn what_is_said_while_a_connection_waits_ends_it() {
    let (speak, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, tells) = (speak.clone(), said.clone());
    let sink = Sink::playing(move |mut socket, number| {
        let (told, tells) = (told.clone(), tells.clone());
        async move {
            read_request(&mut socket).await.unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
            socket.write_all(answer.as_bytes()).await.unwrap();
            told.notified().await;
            socket.write_all(answer.as_bytes()).await.unwrap();
            tells.notify_one();
            wait_for_end(&mut socket).await;
        }
    })
    .await;
    let (other, caller) = (Sink::answering(OK).await, Caller::new());
    assert_eq!(&caller.post(&sink.url()).await.unwrap().body[..], b"1");
    speak.notify_one();
    within(said.notified()).await;
    // While this one goes to and fro the runtime hears of all sockets.
    caller.post(&other.url()).await.unwrap();
    assert_eq!(&caller.post(&sink.url()).await.unwrap().body[..], b"2");
    assert_eq!((sink.accepts(), caller.courier.retries()), (2, 0));
}

#[tokio::test]
async fn a_connection_waits_for_fifteen_seconds() {
    let (sink, caller) = (Sink::answering(OK).await, Caller::new());
    caller.post(&sink.url()).await.unwrap();
    caller.clock_ms.fetch_add(14_999, Ordering::SeqCst);
    caller.post(&sink.url()).await.unwrap();
    assert_eq!(sink.accepts(), 1);
    caller.clock_ms.fetch_add(15_000, Ordering::SeqCst);
    caller.post(&sink.url()).await.unwrap();
    assert_eq!((sink.accepts(), caller.courier.idle_connections()), (2, 1));
}

#[tokio::test]
async fn connections_that_waited_too_long_are_closed_whoever_is_called() {
    let (one, two, caller) = (Sink::answering(OK).await, Sink::answering(OK).await, Caller::new());
    caller.post(&one.url()).await.unwrap();
    caller.clock_ms.fetch_add(15_000, Ordering::SeqCst);
    caller.post(&two.url()).await.unwrap();
    assert_eq!(caller.courier.idle_connections(), 1);
    caller.clock_ms.fetch_add(15_000, Ordering::SeqCst);
    caller.courier.close_expired();
    assert_eq!(caller.courier.idle_connections(), 0);
}

#[tokio::test]
async fn no_more_connections_wait_than_the_limit() {
    const TOGETHER: usize = 1_100;
    let barrier = Arc::new(Barrier::new(TOGETHER));
    let sink = Sink::playing(move |mut socket, _| {
        let barrier = barrier.clone();
        async move {
            while read_request(&mut socket).await.is_some() {
                // Nobody is answered before all have come: each has a connection of its own.
                barrier.wait().await;
                socket.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let caller = Caller::new();
    let postings: Vec<_> = (0..TOGETHER).map(|_| tokio::spawn(caller.begin(&sink.url()))).collect();
    for posting in postings {
        assert_eq!(within(posting).await.unwrap().unwrap().status, 200);
    }
    assert_eq!((sink.accepts(), caller.courier.idle_connections()), (TOGETHER, 1_024));
}
