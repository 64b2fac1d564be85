//! Every documented refusal, reached through HTTP, and the whole table as a golden file.

mod documents;
mod keys;
mod subscriptions;
mod triggers;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use reveille_core::Millis;

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const JSON: (&str, &str) = ("content-type", "application/json");

/// An offset beyond every stream.
const BEYOND: &str = "9999999999999999_9999999999999999";

/// Refused for their words alone or for what the prepared streams are.
type Refused<'a> = (&'a str, &'a str, Headers<'a>, &'a [u8], u16, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_error_table_is_reached_and_is_as_documented() {
    let mut seen = Vec::new();
    refusals_of_requests(&mut seen).await;
    refusals_of_bodies(&mut seen).await;
    refusals_of_the_server(&mut seen).await;
    subscriptions::refusals(&mut seen).await;
    documents::refusals(&mut seen).await;
    triggers::refusals(&mut seen).await;
    keys::refusals(&mut seen).await;
    keys::refusal_of_connections(&mut seen).await;
    let mut table = String::new();
    let mut codes = BTreeSet::new();
    seen.sort_by_key(|answer| (answer.code(), answer.status(), answer.text()));
    for answer in &seen {
        let body = answer.json();
        // Documents have no name around what is wrong.
        let error = if body["error"].is_null() { &body } else { &body["error"] };
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty(), "{answer}");
        assert_eq!(answer.need("content-type"), "application/json");
        codes.insert(answer.code());
        for detail in error["details"].as_array().into_iter().flatten() {
            codes.insert(detail["code"].as_str().unwrap().to_owned());
        }
        let _ = writeln!(table, "{} {}\n    {message}", answer.status(), answer.code());
        for name in ["allow", "connection", "producer-epoch", "producer-expected-seq"] {
            if let Some(value) = answer.get(name) {
                let _ = writeln!(table, "    {name}: {value}");
            }
        }
        let more = [
            "producer-received-seq",
            "retry-after",
            "stream-closed",
            "stream-next-offset",
            "www-authenticate",
        ];
        for name in more {
            if let Some(value) = answer.get(name) {
                let _ = writeln!(table, "    {name}: {value}");
            }
        }
    }
    // A stream that is full has 10^16 bytes: nobody gets there by HTTP.
    codes.insert("STREAM_FULL".to_owned());
    // Nobody else writes the log of a server that stands alone, and what one request may change is
    // less than the log takes at once.
    codes.insert("NOT_LEADER".to_owned());
    codes.insert("CHANGE_TOO_LARGE".to_owned());
    // It takes a hundred thousand dead letters; and the others are met in `admin_dlq`.
    codes.insert("TOO_MANY_DEAD_LETTERS".to_owned());
    for code in ["HOOK_INACTIVE", "HOOK_GONE", "VERSIONS_NOT_KEPT"] {
        codes.insert(code.to_owned());
    }
    // It takes changes that come while others are still being told, many times over; and what can be
    // done with a trigger can be done in all of its states for now.
    codes.insert("TRIGGER_BUSY".to_owned());
    codes.insert("WRONG_STATE".to_owned());
    // Damage is met above; and so many indexes are not removed at once.
    codes.insert("INTERNAL_ERROR".to_owned());
    codes.insert("TOO_MANY_INDEXES".to_owned());
    assert_eq!(codes, documented(), "codes seen, codes in the table");
    let golden = include_str!("golden/errors.txt");
    assert!(table == golden, "the golden file is otherwise; now it is\n{table}");
}

/// The codes in the server's own tables: what is wrong on every face, and each face's own.
fn documented() -> BTreeSet<String> {
    let is_code = |text: &&str| {
        text.len() > 3 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let tables = [
        include_str!("../../src/http/error.rs"),
        include_str!("../../src/streams/error.rs"),
        include_str!("../../src/wakes/error.rs"),
        include_str!("../../src/ds_subscriptions/error.rs"),
        include_str!("../../src/documents/error.rs"),
        include_str!("../../src/documents/batch/error.rs"),
        include_str!("../../src/admin/error.rs"),
        include_str!("../../src/triggers/error.rs"),
    ];
    let codes = tables.iter().flat_map(|table| table.split('"')).filter(is_code);
    // No request comes to what a face has no word for.
    codes.filter(|code| *code != "INTERNAL").map(str::to_owned).collect()
}

async fn prepare(server: &TestServer) {
    server.create("/text", "text/plain").await;
    server.ask("POST", "/text", &[TEXT, ("stream-seq", "b")], b"hello").await.expect(204);
    server.create("/json", "application/json").await;
    let producer = [TEXT, ("producer-id", "p"), ("producer-epoch", "3"), ("producer-seq", "0")];
    server.ask("POST", "/text", &producer, b"hello").await.expect(200);
    server.ask("PUT", "/closed", &[TEXT, ("stream-closed", "true")], b"all").await.expect(201);
    server.create("/held", "text/plain").await;
    server.ask("PUT", "/holder", &[("stream-forked-from", "/held")], b"").await.expect(201);
    server.delete("/held").await.expect(204);
    server.create("/depth/0", "text/plain").await;
    server.ask("POST", "/ingest", &[JSON], b"{\"type\":\"a\"}").await.expect(200);
    assert_eq!(server.engine.trim_events(Millis::NEVER).await, Ok(1));
    for depth in 1..=64 {
        let source = format!("/depth/{}", depth - 1);
        let target = format!("/depth/{depth}");
        server.ask("PUT", &target, &[("stream-forked-from", &source)], b"").await.expect(201);
    }
}

async fn refusals_of_requests(seen: &mut Vec<Answer>) {
    let server = Setup::default().start().await;
    prepare(&server).await;
    let long = format!("/{}", "x".repeat(2048));
    let stale: &[u8] = br#"{"previewId":"prv_no","reason":"why"}"#;
    let deep = format!("{}{}", "[".repeat(513), "]".repeat(513));
    let from_text = ("stream-forked-from", "/text");
    let producer =
        |epoch, seq| [TEXT, ("producer-id", "p"), ("producer-epoch", epoch), ("producer-seq", seq)];
    let (fenced, gap, restarted) = (producer("2", "1"), producer("3", "7"), producer("4", "1"));
    let refused: &[Refused<'_>] = &[
        ("GET", "/absent", &[], b"", 404, "STREAM_NOT_FOUND"),
        ("GET", "/held", &[], b"", 410, "STREAM_GONE"),
        ("POST", "/closed", &[TEXT], b"x", 409, "STREAM_CLOSED"),
        ("POST", "/text", &[JSON], b"1", 409, "CONTENT_TYPE_MISMATCH"),
        ("POST", "/text", &[TEXT, ("stream-seq", "a")], b"x", 409, "SEQUENCE_CONFLICT"),
        ("POST", "/text", &fenced, b"x", 403, "PRODUCER_FENCED"),
        ("POST", "/text", &gap, b"x", 409, "PRODUCER_GAP"),
        ("POST", "/text", &restarted, b"x", 400, "PRODUCER_EPOCH_START"),
        ("POST", "/json", &[JSON], b"{", 400, "INVALID_JSON"),
        ("POST", "/json", &[JSON], b"[]", 400, "EMPTY_ARRAY"),
        ("PUT", "/text", &[JSON], b"", 409, "STREAM_EXISTS"),
        ("PUT", "/held", &[TEXT], b"", 409, "PATH_HELD"),
        ("PUT", "/f", &[("stream-forked-from", "/absent")], b"", 404, "FORK_SOURCE_NOT_FOUND"),
        ("PUT", "/f", &[("stream-forked-from", "/held")], b"", 409, "FORK_SOURCE_GONE"),
        (
            "PUT",
            "/f",
            &[from_text, ("stream-fork-offset", BEYOND)],
            b"",
            400,
            "INVALID_FORK_OFFSET",
        ),
        (
            "PUT",
            "/f",
            &[from_text, ("stream-fork-sub-offset", "9")],
            b"",
            400,
            "INVALID_FORK_SUB_OFFSET",
        ),
        ("PUT", "/f", &[("stream-forked-from", "/depth/64")], b"", 400, "FORK_TOO_DEEP"),
        ("GET", "/text?offset=0_7", &[], b"", 400, "INVALID_OFFSET"),
        ("GET", "/text?offset=x", &[], b"", 400, "INVALID_OFFSET"),
        ("GET", "/_events/default?offset=0_0", &[], b"", 410, "OFFSET_GONE"),
        ("GET", "/", &[], b"", 400, "INVALID_PATH"),
        ("GET", "/\u{e9}", &[], b"", 400, "INVALID_PATH"),
        ("GET", &long, &[], b"", 414, "INVALID_PATH"),
        ("GET", "/text?live=maybe", &[], b"", 400, "INVALID_QUERY"),
        ("POST", "/text", &[TEXT, ("stream-seq", "")], b"x", 400, "INVALID_HEADER"),
        ("POST", "/text", &[TEXT, ("producer-id", "p")], b"x", 400, "INVALID_PRODUCER"),
        ("PUT", "/new", &[("stream-ttl", "soon")], b"", 400, "INVALID_EXPIRY"),
        ("PUT", "/new", &[("stream-expires-at", "soon")], b"", 400, "INVALID_EXPIRY"),
        ("POST", "/text", &[TEXT], b"", 400, "EMPTY_BODY"),
        ("POST", "/text", &[], b"x", 400, "CONTENT_TYPE_REQUIRED"),
        ("PATCH", "/text", &[], b"", 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/_events/x", &[], b"", 403, "RESERVED_STREAM"),
        ("GET", "/callback", &[], b"", 404, "RESERVED_PATH"),
        ("PUT", "/f", &[("stream-forked-from", "/_events/x")], b"", 403, "RESERVED_STREAM"),
        ("POST", "/json", &[JSON], deep.as_bytes(), 400, "INVALID_JSON"),
        ("GET", "/metrics", &[("origin", "http://a.example")], b"", 403, "CROSS_ORIGIN"),
        ("GET", "/text", &[("host", "a.example")], b"", 421, "MISDIRECTED_REQUEST"),
        ("GET", "/admin/v1/consumers/no", &[], b"", 404, "CONSUMER_NOT_FOUND"),
        ("GET", "/admin/v1/deliveries/no", &[], b"", 404, "DELIVERY_NOT_FOUND"),
        ("POST", "/admin/v1/timers/no/retry", &[], b"", 404, "TIMER_NOT_FOUND"),
        ("GET", "/admin/v1/dlq/no", &[], b"", 404, "DEAD_LETTER_NOT_FOUND"),
        ("GET", "/admin/v1/replays/no", &[], b"", 404, "REPLAY_NOT_FOUND"),
        ("POST", "/admin/v1/dlq/replay", &[JSON], stale, 409, "PREVIEW_STALE"),
        ("GET", "/admin/v1/deliveries?event=no", &[], b"", 404, "EVENT_NOT_FOUND"),
    ];
    for (method, target, headers, body, status, code) in refused {
        let answer = server.ask(method, target, headers, body).await;
        assert_eq!((answer.status(), answer.code().as_str()), (*status, *code), "{target}");
        seen.push(answer);
    }
    // Nothing of all this left a trace.
    let tail = "0000000000000000_0000000000000010";
    assert_eq!(server.head("/text").await.next_offset(), tail);
    server.head("/f").await.expect(404);
    server.head("/new").await.expect(404);
}

async fn refusals_of_bodies(seen: &mut Vec<Answer>) {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.create("/text", "text/plain").await;
    let announce = |bytes: &str| {
        let mut head = head_of("POST", "/text", &[TEXT, ("content-length", bytes)]);
        head.extend_from_slice(b"\r\n");
        head
    };
    let mut connection = server.connect().await;
    connection.send(&announce("10485761")).await;
    let answer = connection.answer("POST").await.expect(413);
    assert_eq!(answer.code(), "BODY_TOO_LARGE");
    seen.push(answer);

    let mut connection = server.connect().await;
    connection.send(&[announce("10"), b"half".to_vec()].concat()).await;
    // The body is being read.
    clock.sleeper(20_000).await;
    let answer = clock.run_out(20_000, connection.answer("POST")).await.expect(408);
    assert_eq!(answer.code(), "BODY_TOO_SLOW");
    seen.push(answer);

    let chunked = [TEXT, ("transfer-encoding", "chunked")];
    let mut connection = server.connect().await;
    let mut broken = head_of("POST", "/text", &chunked);
    broken.extend_from_slice(b"\r\n4\r\nhalf\r\nzz\r\n");
    connection.send(&broken).await;
    let answer = connection.answer("POST").await.expect(400);
    assert_eq!(answer.code(), "BODY_INCOMPLETE");
    seen.push(answer);

    let tenant = reveille_core::Tenant::default_tenant();
    let all = server.engine.admit(&tenant, 32 << 20).await.unwrap();
    let mut connection = server.connect().await;
    connection.send(&[announce("1000000"), vec![b'x'; 1_000_000]].concat()).await;
    let answer = clock.run_out(2_000, connection.answer("POST")).await.expect(503);
    assert_eq!(answer.code(), "BUSY");
    seen.push(answer);
    drop(all);
    assert_eq!(server.head("/text").await.next_offset(), "0000000000000000_0000000000000000");
}

async fn refusals_of_the_server(seen: &mut Vec<Answer>) {
    let full = Setup { min_free_bytes: u64::MAX / 2, ..Setup::default() }.start().await;
    let answer = full.ask("PUT", "/a", &[TEXT], b"").await.expect(507);
    assert_eq!(answer.code(), "DISK_FULL");
    seen.push(answer);

    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    server.create("/a", "text/plain").await;
    server.append("/a", "text/plain", &[b'x'; 40_000]).await.expect(204);
    guarded("the engine to stop", server.engine.shutdown()).await;
    let answer = server.append("/a", "text/plain", b"x").await.expect(503);
    assert_eq!(answer.code(), "STOPPING");
    seen.push(answer);
    server.drop_all().await;

    let damaged = damage_blobs(directory.path());
    assert!(damaged > 0, "there is a file with the stream's bytes");
    let server = Setup::default().start_in(directory.path()).await;
    let answer = server.get("/a").await.expect(500);
    assert_eq!(answer.code(), "STORAGE_DAMAGED");
    seen.push(answer);
}

/// Flips a bit of a stored body; returns how many files have it. Journals are left alone: with a
/// damaged one the server does not start.
fn damage_blobs(directory: &std::path::Path) -> usize {
    let mut damaged = 0;
    let partitions = partition_dirs(directory).into_iter();
    let mut pending: Vec<_> = partitions.map(|partition| partition.join("table")).collect();
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            if path.extension().is_some_and(|it| it == "jnl") {
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            let body = bytes.windows(1_000).position(|window| window == [b'x'; 1_000]);
            if let Some(at) = body {
                bytes[at + 500] ^= 1;
                std::fs::write(&path, bytes).unwrap();
                damaged += 1;
            }
        }
    }
    damaged
}
