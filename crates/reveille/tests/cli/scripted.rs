//! The commands against servers that hang up in the worst moment.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use crate::process::{Ended, run};

pub(crate) struct Request {
    /// Method and target.
    pub(crate) line: String,
    headers: Vec<String>,
    pub(crate) body: String,
}

/// A server that gives these answers, one per connection, and hangs up after each.
pub(crate) struct Script {
    url: String,
    seen: JoinHandle<Vec<Request>>,
}

impl Script {
    pub(crate) fn new(answers: &[&str]) -> Script {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let seen = thread::spawn(move || {
            let answer = |answer: String| {
                let (socket, _) = listener.accept().unwrap();
                let request = read_request(&socket);
                (&socket).write_all(answer.as_bytes()).unwrap();
                request
            };
            answers.into_iter().map(answer).collect()
        });
        Script { url, seen }
    }

    pub(crate) fn run(self, args: &[&str]) -> (Ended, Vec<Request>) {
        let ended = run(&[args, &["--url", &self.url]].concat());
        (ended, self.seen.join().unwrap())
    }
}

fn read_request(socket: &TcpStream) -> Request {
    let mut reader = BufReader::new(socket);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    Request { line: lines.remove(0), headers: lines, body: String::from_utf8(body).unwrap() }
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ String| line.starts_with(&format!("{name}: "));
        let line = self.headers.iter().find(|line| value(line))?;
        line.split_once(": ").map(|(_, value)| value)
    }
}

const ACCEPTED: &str = "HTTP/1.1 204 No Content\r\nstream-next-offset: 0_7\r\n\r\n";

#[test]
fn an_append_without_an_answer_is_sent_again_as_the_same() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let script = Script::new(&["", "HTTP/1.1 2", busy, ACCEPTED]);
    let (ended, seen) = script.run(&["append", "/a", "text", "--key", "rv_secret"]);
    assert_eq!(ended.ok(), "0_7\n");
    assert_eq!(seen.len(), 4);
    for request in &seen {
        assert_eq!(request.line, "POST /a HTTP/1.1");
        assert_eq!(request.body, "text");
        assert_eq!(request.header("producer-epoch"), Some("0"));
        assert_eq!(request.header("producer-seq"), Some("0"));
        assert_eq!(request.header("producer-id"), seen[0].header("producer-id"));
        assert_eq!(request.header("content-type"), Some("text/plain"));
        assert_eq!(request.header("authorization"), Some("Bearer rv_secret"));
    }
    assert!(seen[0].header("producer-id").is_some());
}

#[test]
fn a_stream_is_created_when_it_is_missing() {
    let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    let created = "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n";
    let script = Script::new(&[missing, "", created, ACCEPTED]);
    let (ended, seen) = script.run(&["append", "/a", "--json", "1"]);
    assert_eq!(ended.ok(), "0_7\n");
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    let put = "PUT /a HTTP/1.1";
    assert_eq!(lines, ["POST /a HTTP/1.1", put, put, "POST /a HTTP/1.1"]);
    assert_eq!(seen[1].header("content-type"), Some("application/json"));
}

#[test]
fn a_list_of_subscriptions_is_followed_to_its_end() {
    let page =
        |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let first = page(r#"{"subscriptions":[{"subscription_id":"a"}],"next":"a~1"}"#);
    let last = page(r#"{"subscriptions":[{"subscription_id":"b"}]}"#);
    let (ended, seen) = Script::new(&[&first, &last]).run(&["sub", "list", "--output", "json"]);
    let found: serde_json::Value = serde_json::from_str(&ended.ok()).unwrap();
    assert_eq!(found, serde_json::json!([{ "subscription_id": "a" }, { "subscription_id": "b" }]));
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    let expected = ["GET /**?subscriptions HTTP/1.1", "GET /**?subscriptions&after=a~1 HTTP/1.1"];
    assert_eq!(lines, expected);
}

#[test]
fn a_key_that_is_missing_is_asked_for() {
    let body = r#"{"error":{"code":"X","message":"who are you?"}}"#;
    let length = body.len();
    let answer = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {length}\r\n\r\n{body}");
    let (ended, _) = Script::new(&[&answer]).run(&["streams"]);
    let sentence = ended.error(1);
    assert!(sentence.contains("who are you?"), "{sentence}");
    assert!(sentence.contains("--key"), "{sentence}");
}

/// An answer whose body is longer than what is sent of it.
fn cut(kind: &str, next: &str, body: &str, sent: usize) -> String {
    let (length, sent) = (body.len(), &body[..sent]);
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nstream-next-offset: {next}\r\n\
         stream-up-to-date: true\r\ncontent-length: {length}\r\n\r\n{sent}"
    )
}

#[test]
fn a_read_that_breaks_off_goes_on_where_it_was() {
    let (kind, text) = ("text/plain", "one two three four");
    let script = Script::new(&[
        &cut(kind, "0_18", text, 7),
        &cut(kind, "0_18", text, 3),
        &cut(kind, "0_23", "one two three four five", 20),
        &cut(kind, "0_23", "one two three four five", 23),
    ]);
    let (ended, seen) = script.run(&["read", "/a"]);
    assert_eq!(ended.ok(), "one two three four five");
    assert!(seen.iter().all(|request| request.line == "GET /a?offset=-1 HTTP/1.1"));
}

#[test]
fn a_follower_goes_on_behind_the_last_whole_message() {
    let kind = "application/json";
    let body = r#"[{"n":1},{"n":2},{"n":3}]"#;
    let closed = "HTTP/1.1 204 No Content\r\nstream-next-offset: 0_30\r\n\
                  stream-closed: true\r\nstream-up-to-date: true\r\n\r\n";
    let script = Script::new(&[
        &cut(kind, "0_24", body, 14),
        &cut(kind, "0_24", body, 20),
        &cut(kind, "0_24", body, body.len()),
        "",
        &cut(kind, "0_30", "[4]", 3),
        closed,
    ]);
    let (ended, seen) = script.run(&["read", "/a", "--follow"]);
    assert_eq!(ended.ok(), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n4\n");
    let targets: Vec<&str> = seen.iter().map(|r| r.line.split(' ').nth(1).unwrap()).collect();
    let (start, live) = ("/a?offset=-1", "/a?offset=0_24&live=long-poll");
    let last = "/a?offset=0_30&live=long-poll";
    assert_eq!(targets, [start, start, start, live, live, last]);
}

pub(crate) fn answer(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn events_without_an_answer_are_sent_again_as_the_same_batch() {
    let taken = answer(r#"{"ok":true,"received":1,"eventIds":["01E"]}"#);
    let script = Script::new(&["", "HTTP/1.1 2", &taken]);
    let (ended, seen) = script.run(&["ingest", r#"{"type":"a.b","n":1.10}"#, "--tenant", "acme"]);
    assert_eq!(ended.ok(), "01E\n");
    assert_eq!(seen.len(), 3);
    for request in &seen {
        assert_eq!(request.line, "POST /ingest HTTP/1.1");
        assert_eq!(request.header("x-tenant-namespace"), Some("acme"));
        assert_eq!(request.body, seen[0].body);
    }
    let body = &seen[0].body;
    assert!(body.starts_with(r#"{"events":[{"type":"a.b","n":1.10}],"batchId":"cli-"#), "{body}");
}

#[test]
fn hooks_are_listed_by_pages_however_the_server_counts_them() {
    let hook = |n: usize| format!(r#"{{"id":"{n}"}}"#);
    let page = |hooks: std::ops::Range<usize>, more: &str| {
        let hooks: Vec<String> = hooks.map(hook).collect();
        answer(&format!(r#"{{"subscriptions":[{}]{more}}}"#, hooks.join(",")))
    };
    let run = |answers: [String; 3], places: [&str; 3]| {
        let script = Script::new(&answers.each_ref().map(String::as_str));
        let (ended, seen) = script.run(&["hooks", "list", "--output", "json"]);
        let found: Vec<serde_json::Value> = serde_json::from_str(&ended.ok()).unwrap();
        let ids = found.iter().map(|hook| hook["id"].as_str().unwrap().parse().unwrap());
        let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
        let target = |it| format!("GET /subscriptions/list?limit=200{it} HTTP/1.1");
        assert_eq!(lines, places.map(target));
        ids.collect::<Vec<usize>>()
    };
    // One that says where the next page begins.
    let pages = [page(0..2, r#","next":"9-1""#), page(2..5, r#","next":"7-0""#), page(5..6, "")];
    assert_eq!(run(pages, ["", "&after=9-1", "&after=7-0"]), (0..6).collect::<Vec<_>>());
    // One that counts; a hook that is made meanwhile shifts the rest by one.
    let pages = [page(0..200, ""), page(199..399, ""), page(399..400, "")];
    assert_eq!(run(pages, ["", "&offset=200", "&offset=400"]), (0..400).collect::<Vec<_>>());
}
