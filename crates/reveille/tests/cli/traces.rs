//! `--otlp-endpoint`: a collector gets spans as OTLP in JSON.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::process::Server;

const PATIENCE: Duration = Duration::from_secs(30);

/// A collector that says yes to everything, or no; and its requests: line and body.
fn collector(status: &'static str) -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            let mut reader = BufReader::new(&socket);
            let (mut lines, mut length) = (Vec::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim_end().is_empty() {
                    break;
                }
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim_end().parse().unwrap();
                }
                lines.push(line.trim_end().to_owned());
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}");
            (&socket).write_all(answer.as_bytes()).unwrap();
            assert!(lines.contains(&"content-type: application/json".to_owned()), "{lines:?}");
            let _ = tell.send((lines.remove(0), serde_json::from_slice(&body).unwrap()));
        }
    });
    (url, told)
}

fn spans(request: &Value) -> Vec<Value> {
    let resource = &request["resourceSpans"][0];
    let named = &resource["resource"]["attributes"][0];
    assert_eq!(named["key"], "service.name");
    assert_eq!(named["value"]["stringValue"], "reveille");
    resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

#[test]
fn a_collector_gets_spans() {
    let (url, requests) = collector("200 OK");
    let mut server = Server::with(&["--otlp-endpoint", &url]);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let head = format!("PUT /a HTTP/1.1\r\ncontent-type: text/plain\r\ntraceparent: {parent}");
    let answer = server.request(&head, "hello");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let (line, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(line, "POST /v1/traces HTTP/1.1");
    let found = spans(&body);
    assert_eq!(found.len(), 1, "{body}");
    let span = &found[0];
    assert_eq!(span["name"], "append");
    assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(span["spanId"].as_str().unwrap().len(), 16);
    let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    let (start, end) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
    assert!(start <= end && start > 1_700_000_000_000_000_000, "{span}");
    let stream = &span["attributes"][0];
    assert_eq!(stream["key"], "reveille.stream");
    assert_eq!(stream["value"]["stringValue"], "/a");

    // What is left when the server stops is sent before it ends.
    server.run(&["append", "/a", "x"]).ok();
    server.terminate();
    let (_, body) = requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(spans(&body)[0]["name"], "append");
}

#[test]
fn a_collector_that_fails_is_nobodys_problem() {
    let (url, requests) = collector("500 X");
    let mut server = Server::with(&["--otlp-endpoint", &url]);
    server.run(&["append", "/a", "x"]).ok();
    requests.recv_timeout(PATIENCE).unwrap();
    server.process.err.until("cannot be delivered to --otlp-endpoint");
    server.run(&["append", "/a", "x"]).ok();
    requests.recv_timeout(PATIENCE).unwrap();
    server.terminate();
    while let Some(line) = server.process.err.next() {
        assert!(!line.contains("cannot be delivered"), "said again within a minute: {line}");
    }
}
