//! The generator against servers that misbehave: what it reports, and that it ends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use reveille_load::{Report, Work};

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    work: Work,
}

/// What a scripted server does with a request.
enum Act {
    Answer(String),
    HangUp,
}

struct Request {
    method: String,
    path: String,
    /// Counts the requests with this method, from zero.
    number: u64,
    body: Vec<u8>,
}

type Script = Arc<dyn Fn(&Request) -> Act + Send + Sync>;

/// Starts a server that lives as long as the test process, and returns its URL.
fn serve(script: impl Fn(&Request) -> Act + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let script: Script = Arc::new(script);
    let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (script, counts) = (Arc::clone(&script), Arc::clone(&counts));
            std::thread::spawn(move || connection(stream.unwrap(), &script, &counts));
        }
    });
    url
}

fn connection(stream: TcpStream, script: &Script, counts: &[AtomicU64; 3]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = receive(&mut reader, counts) {
        match script(&request) {
            Act::HangUp => return,
            Act::Answer(answer) => {
                if writer.write_all(answer.as_bytes()).is_err() || answer.contains("close\r\n") {
                    return;
                }
            }
        }
    }
}

fn receive(reader: &mut BufReader<TcpStream>, counts: &[AtomicU64; 3]) -> Option<Request> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let index = ["PUT", "POST", "GET"].iter().position(|name| *name == method)?;
    let number = counts[index].fetch_add(1, Ordering::Relaxed);
    Some(Request { method, path, number, body })
}

fn answer(status: &str, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::Answer(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

fn created() -> Act {
    answer("201 Created", "", "")
}

fn run(url: &str, arguments: &str) -> anyhow::Result<Report> {
    let mut all = vec!["load"];
    all.extend(arguments.split(' '));
    all.extend(["--url", url]);
    reveille_load::run(&Options::try_parse_from(all).unwrap().work)
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
    assert!(error.starts_with("cannot prepare the streams: status 507"), "{error}");
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
