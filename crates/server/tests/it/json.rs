//! JSON streams: what is not JSON never gets in, what is comes out as it went in.

use crate::harness::*;

const JSON: (&str, &str) = ("content-type", "application/json");

async fn with_stream() -> TestServer {
    let server = Setup::default().start().await;
    server.create("/j", "application/json").await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_is_refused_and_changes_nothing() {
    let server = with_stream().await;
    let deep = "[".repeat(1 << 20);
    let bad: Vec<&[u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"1 2",
        b"{}{}",
        b"{\"a\"}",
        b"{a:1}",
        b"{\"a\":1,}",
        b"'x'",
        b"\"x",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"a\nb\"",
        b"\"\0\"",
        b"tru",
        b"True",
        b"nul",
        b"NaN",
        b"Infinity",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
        b"0x10",
        b"\xef\xbb\xbf1",
        b"\"\xff\"",
        b"\"\xed\xa0\x80\"",
        b" ",
        b"\n",
        b"\0",
        b"// x\n1",
        b"[1]x",
        b"[1],",
        b"1,",
        b"<a/>",
        b"[\"a\" \"b\"]",
        deep.as_bytes(),
    ];
    let producer = [JSON, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    for body in bad {
        let shown = String::from_utf8_lossy(&body[..body.len().min(20)]).into_owned();
        let requests: [(&str, &str, Headers<'_>); 3] = [
            ("POST", "/j", &[JSON, ("stream-seq", "9")]),
            ("POST", "/j", &producer),
            ("PUT", "/new", &[JSON]),
        ];
        for (method, target, headers) in requests {
            let answer = server.ask(method, target, headers, body).await.expect(400);
            assert_eq!(answer.code(), "INVALID_JSON", "{method} {shown:?}");
        }
    }
    assert_eq!(server.get("/j").await.expect(200).text(), "[]");
    server.head("/new").await.expect(404);
    // Neither the sequence nor the producer has moved.
    server.ask("POST", "/j", &[JSON, ("stream-seq", "1")], b"1").await.expect(204);
    server.ask("POST", "/j", &producer, b"2").await.expect(200);
    assert_eq!(server.get("/j").await.text(), "[1,2]");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_array_creates_an_empty_stream_and_appends_nothing() {
    let server = with_stream().await;
    for body in ["[]", " [ ] ", "[\n]"] {
        let answer = server.append("/j", "application/json", body.as_bytes()).await.expect(400);
        assert_eq!(answer.code(), "EMPTY_ARRAY");
    }
    let answer = server.ask("PUT", "/empty", &[JSON], b"[]").await.expect(201);
    assert_eq!(answer.next_offset(), "0000000000000000_0000000000000000");
    assert_eq!(server.get("/empty").await.expect(200).text(), "[]");
}

/// Arrays in arrays, so many.
fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Readers' parsers give up on it, or fall over.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_nested_too_deep_is_refused_by_everybody_who_takes_json() {
    let server = with_stream().await;
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for depth in [513, 1_000_000] {
        for body in [nested(depth), objects(depth)] {
            for (method, target) in [("POST", "/j"), ("PUT", "/new")] {
                let answer = server.ask(method, target, &[JSON], body.as_bytes()).await;
                assert_eq!(answer.expect(400).code(), "INVALID_JSON", "{method} {depth}");
            }
            let event = format!(r#"{{"type":"a","x":{body}}}"#);
            let events = format!(r#"{{"events":[{event}]}}"#);
            for body in [&event, &events, &format!("[{event}]")] {
                let answer = server.ask("POST", "/ingest", &[JSON], body.as_bytes()).await;
                let answer = answer.expect(400);
                assert_eq!(answer.code(), "INVALID_JSON", "{depth}");
                assert!(answer.text().contains("512"), "{answer}");
            }
        }
    }
    assert_eq!(server.get("/j").await.expect(200).text(), "[]");
    server.head("/new").await.expect(404);
    // Brackets in texts nest nothing.
    let text = format!(r#"["{}\\\"{}"]"#, "[".repeat(600), "{".repeat(600));
    for body in [nested(512), objects(512), text] {
        server.ask("POST", "/j", &[JSON], body.as_bytes()).await.expect(204);
        let event = format!(r#"{{"type":"a","x":{}}}"#, nested(511));
        server.ask("POST", "/ingest", &[JSON], event.as_bytes()).await.expect(200);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_keep_their_bytes() {
    let server = with_stream().await;
    let nested = nested(512);
    let messages = [
        "{\"b\":1, \"a\" : [ 2 ]}",
        "1.0000000000000000000000000001",
        "123456789012345678901234567890",
        "1e400",
        "\"\\ud83d\\ude00 \\u0000 \u{1f600}\"",
        "{\"a\":1,\"a\":2}",
        "null",
        "\"],[\"",
        "[[]]",
    ];
    for message in messages {
        let body = if message.starts_with('[') { format!("[{message}]") } else { message.into() };
        server.append("/j", "application/json", body.as_bytes()).await.expect(204);
    }
    // The outermost array is the list of messages.
    server.append("/j", "application/json", nested.as_bytes()).await.expect(204);
    let expected = format!("[{},{}]", messages.join(","), &nested[1..nested.len() - 1]);
    assert_eq!(server.get("/j").await.expect(200).text(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_is_flattened_once_and_read_back_from_every_append() {
    let server = with_stream().await;
    let mut offsets = vec!["-1".to_owned()];
    let bodies = ["[1,2]", " [[3], {\"x\":[4]}] ", "5", "[\"6\"]"];
    for body in bodies {
        let answer = server.append("/j", "application/json", body.as_bytes()).await.expect(204);
        offsets.push(answer.next_offset().to_owned());
    }
    let expected = [
        "[1,2,[3],{\"x\":[4]},5,\"6\"]",
        "[[3],{\"x\":[4]},5,\"6\"]",
        "[5,\"6\"]",
        "[\"6\"]",
        "[]",
    ];
    for (offset, text) in offsets.iter().zip(expected) {
        let answer = server.get(&format!("/j?offset={offset}")).await.expect(200);
        assert_eq!(answer.text(), text, "{offset}");
        assert_eq!(answer.next_offset(), offsets.last().unwrap());
    }
}
