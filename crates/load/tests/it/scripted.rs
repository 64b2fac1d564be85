//! Servers of streams: appends, creations, reads and live readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::server::{Act, answer, run, serve};

fn created() -> Act {
    answer("201 Created", "", "")
}

const BRIEFLY: &str = "append --connections 4 --streams 3 --warmup 0.05 --seconds 0.2";

#[test]
fn a_refused_append_is_counted_by_its_status_and_warned_about() {
    let url = serve(|request| match request.number % 10 {
        _ if request.method == "PUT" => created(),
        0 => answer("503 Service Unavailable", "retry-after: 1\r\n", "busy"),
        _ => answer("204 No Content", "", ""),
    });
    let report = run(&url, BRIEFLY).unwrap();
    assert!(report.operations > 10, "{report}");
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["status 503"]);
    assert!((0.09..0.2).contains(&report.error_rate), "{report}");
    assert!(report.warning.unwrap().contains("of the requests failed"));
}

#[test]
fn appends_go_to_every_stream_and_are_json() {
    let seen: Arc<[AtomicU64; 3]> = Arc::default();
    let counts = Arc::clone(&seen);
    let url = serve(move |request| {
        if request.method == "PUT" {
            return created();
        }
        let stream: usize = request.path.rsplit('/').next().unwrap().parse().unwrap();
        counts[stream].fetch_add(1, Ordering::Relaxed);
        let message: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        assert!(message["n"].is_u64() && request.body.len() == 100);
        answer("204 No Content", "", "")
    });
    let report = run(&url, BRIEFLY).unwrap();
    assert!(report.errors.is_empty() && report.warning.is_none(), "{report}");
    assert_eq!(report.bytes, report.operations * 100);
    let seen: Vec<u64> = seen.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
    assert!(*least > 0 && most - least <= 4, "{seen:?}");
}

#[test]
fn a_server_that_closes_after_each_answer_is_connected_to_again() {
    let url = serve(|request| match request.method.as_str() {
        "PUT" => answer("201 Created", "connection: close\r\n", ""),
        _ => answer("204 No Content", "connection: close\r\n", ""),
    });
    let report = run(&url, BRIEFLY).unwrap();
    assert!(report.operations > 10 && report.errors.is_empty(), "{report}");
}

#[test]
fn a_connection_that_breaks_is_an_error_and_not_the_end() {
    let url = serve(|request| match request.number % 5 {
        _ if request.method == "PUT" => created(),
        0 => Act::HangUp,
        _ => answer("204 No Content", "", ""),
    });
    let report = run(&url, BRIEFLY).unwrap();
    assert!(report.operations > 10, "{report}");
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["connection closed"], "{report}");
}

#[test]
fn every_stream_that_was_not_created_is_an_error() {
    let url = serve(|request| if request.number < 8 { created() } else { Act::HangUp });
    let report = run(&url, "create --count 100 --connections 4 --seconds 2").unwrap();
    assert_eq!((report.operations, report.errors["connection closed"]), (8, 92), "{report}");
}

#[test]
fn streams_that_cannot_be_created_end_the_run_with_the_reason() {
    let url = serve(|_| answer("507 Insufficient Storage", "", "full"));
    let error = run(&url, BRIEFLY).unwrap_err().to_string();
    assert!(error.starts_with("cannot prepare the run: status 507"), "{error}");
}

#[test]
fn a_reader_follows_pages_to_the_tail() {
    let url = serve(|request| match request.method.as_str() {
        "PUT" => created(),
        "POST" => answer("204 No Content", "", ""),
        _ if request.path.ends_with("?offset=-1") => {
            answer("200 OK", "stream-next-offset: 7\r\n", &format!("[{}]", message()))
        }
        _ => {
            let headers = "stream-next-offset: 9\r\nstream-up-to-date: true\r\n";
            answer("200 OK", headers, &format!("[{}]", message()))
        }
    });
    let report = run(&url, "read --bytes 200 --batch 2 --seconds 0.1").unwrap();
    assert!(report.operations > 1 && report.errors.is_empty(), "{report}");
    assert_eq!(report.bytes, report.operations * 204);
}

#[test]
fn a_reader_notices_missing_messages_before_it_measures() {
    let url = serve(|request| match request.method.as_str() {
        "PUT" => created(),
        "POST" => answer("204 No Content", "", ""),
        _ => answer("200 OK", "stream-up-to-date: true\r\n", "[{}]"),
    });
    let error = run(&url, "read --bytes 200 --batch 2 --seconds 0.1").unwrap_err().to_string();
    assert_eq!(error, "the stream holds 1 messages instead of 2");
}

#[test]
fn a_live_reader_is_timed_although_its_connection_ends() {
    // Each SSE answer carries one message and ends; the reader must come back for the next.
    let sent = Arc::new(AtomicU64::new(0));
    let url = serve(move |request| match request.method.as_str() {
        "PUT" => created(),
        "POST" => {
            sent.fetch_add(1, Ordering::Release);
            answer("204 No Content", "", "")
        }
        _ => {
            let control = "event: control\ndata:{\"streamNextOffset\":\"5\"}\n\n";
            let mut events = control.to_owned();
            if request.number % 2 == 1 {
                while sent.load(Ordering::Acquire) * 2 < request.number {
                    std::thread::yield_now();
                }
                let number = request.number / 2;
                events =
                    format!("{control}event: data\ndata:[{{\"n\":{number},\"text\":\"\"}}]\n\n");
            }
            let size = events.len();
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n";
            Act::Answer(format!("{head}\r\n{size:x}\r\n{events}\r\n0\r\n\r\n"))
        }
    });
    let report = run(&url, "latency --mode sse --count 3 --pause 0").unwrap();
    assert_eq!((report.operations, report.errors.len()), (3, 0), "{report}");
    assert_eq!(report.answer_us.unwrap().count, 3);
}

fn message() -> String {
    format!("\"{}\"", "x".repeat(98))
}
