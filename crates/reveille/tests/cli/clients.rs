//! `append`, `read`, `streams` and `bench` against a real server.

use std::io::{BufRead as _, BufReader};

use crate::process::{Running, Server, run, run_with};

const OFFSET_OF_5: &str = "0000000000000000_0000000000000005\n";

#[test]
fn text_comes_back_as_it_was_given() {
    let server = Server::start();
    assert_eq!(server.run(&["append", "/notes", "hello"]).ok(), OFFSET_OF_5);
    let append = |args: &[&str], input: &[u8]| run_with(server.command(args), input).ok();
    append(&["append", "/notes"], b" from\r\n");
    append(&["append", "/notes", "-"], b"standard input");
    assert_eq!(server.run(&["read", "/notes"]).ok(), "hello from\r\nstandard input");
    let rest = ["read", "/notes", "--offset", OFFSET_OF_5.trim_end()];
    assert_eq!(server.run(&rest).ok(), " from\r\nstandard input");
    assert_eq!(server.run(&["read", "/notes", "--offset", "now"]).ok(), "");
    let sentence = server.run(&["append", "/notes"]).error(1);
    assert!(sentence.contains("nothing to append"), "{sentence}");
}

#[test]
fn json_is_one_message_per_line() {
    let server = Server::start();
    server.run(&["append", "/j", "--json", "{ \"a\": [1,\n2] }"]).ok();
    server.run(&["append", "/j", "--json", "[1, 2]"]).ok();
    let lines = server.command(&["append", "/j", "--json", "--lines"]);
    run_with(lines, b"[3, 4]\n\n  \"five\"\n6").ok();
    let expected = "{\"a\":[1,2]}\n1\n2\n[3,4]\n\"five\"\n6\n";
    assert_eq!(server.run(&["read", "/j"]).ok(), expected);
    let lines = server.command(&["append", "/j", "--json", "--lines"]);
    let sentence = run_with(lines, b"7\n{8\n").error(1);
    assert!(sentence.contains("line 2 is not JSON"), "{sentence}");
}

#[test]
fn lines_are_messages_of_their_own() {
    let server = Server::start();
    let input: String = (0..200).map(|n| format!("line {n}\n")).collect();
    let lines = server.command(&["append", "/lines", "--lines"]);
    let offset = run_with(lines, input.as_bytes()).ok();
    assert_eq!(offset, format!("{:016}_{:016}\n", 0, input.len()));
    assert_eq!(server.run(&["read", "/lines"]).ok(), input);
    let nothing = server.command(&["append", "/nothing", "--lines"]);
    assert_eq!(run_with(nothing, b"").ok(), "");
}

#[test]
fn refusals_say_what_to_do() {
    let server = Server::start();
    let check = |args: &[&str], parts: &[&str]| {
        let sentence = server.run(args).error(1);
        for part in parts {
            assert!(sentence.contains(part), "{sentence}");
        }
    };
    check(&["read", "/none"], &["no stream /none", "reveille append /none"]);
    server.run(&["append", "/j", "--json", "1"]).ok();
    check(&["append", "/j", "x"], &["holds application/json", "pass --json"]);
    check(&["append", "/j", "--json", "{"], &["not valid JSON"]);
    server.run(&["append", "/b", "x", "--content-type", "image/png"]).ok();
    check(&["append", "/b", "x"], &["holds image/png", "--content-type 'image/png'"]);
    server.close("/j");
    check(&["append", "/j", "--json", "2"], &["/j is closed"]);
    check(&["append", "/_own", "x"], &["403"]);
    let beyond = "0000000000000000_0000000000009999";
    check(&["read", "/j", "--offset", beyond], &["offset"]);
    let sentence = run(&["streams", "--url", "http://127.0.0.1:1"]).error(1);
    assert!(sentence.starts_with("no server answers at http://127.0.0.1:1"), "{sentence}");
    assert!(sentence.contains("`reveille serve`"), "{sentence}");
}

#[test]
fn a_follower_sees_what_comes_until_the_end() {
    let server = Server::start();
    server.run(&["append", "/live", "before\n"]).ok();
    let mut all = Running::start(server.command(&["read", "/live", "--follow"]));
    assert_eq!(all.out.next().as_deref(), Some("before"));
    let now = ["read", "/live", "--follow", "--offset", "now"];
    let mut new = Running::start(server.command(&now));
    // A follower from now on begins when its first request is there; only it can tell.
    let mut n = 0;
    let first = loop {
        n += 1;
        server.run(&["append", "/live", &format!("{n}\n")]).ok();
        if let Some(line) = new.out.ready() {
            break line;
        }
    };
    for expected in first.parse::<u32>().unwrap() + 1..=n {
        assert_eq!(new.out.next(), Some(expected.to_string()));
    }
    for expected in 1..=n {
        assert_eq!(all.out.next(), Some(expected.to_string()));
    }
    server.close("/live");
    for follower in [&mut all, &mut new] {
        assert_eq!(follower.out.next(), None);
        assert_eq!(follower.wait().code(), Some(0));
    }
}

#[test]
fn a_follower_outlives_its_server() {
    let mut server = Server::with(&["--long-poll-timeout", "200ms"]);
    server.run(&["append", "/live", "--json", "[0]"]).ok();
    let mut follower = Running::start(server.command(&["read", "/live", "--follow"]));
    let mut n = 0;
    for round in 0..4 {
        assert_eq!(follower.out.next(), Some(n.to_string()));
        for _ in 0..3 {
            n += 1;
            server.run(&["append", "/live", "--json", &n.to_string()]).ok();
        }
        for expected in n - 2..n {
            assert_eq!(follower.out.next(), Some(expected.to_string()));
        }
        if round % 2 == 0 {
            server.kill();
        } else {
            server.terminate();
        }
        follower.err.until("reading goes on as soon as it answers");
        server.restart();
    }
    assert_eq!(follower.out.next(), Some(n.to_string()));
    server.close("/live");
    assert_eq!(follower.out.next(), None);
    assert_eq!(follower.wait().code(), Some(0));
}

#[test]
fn streams_are_listed_page_by_page() {
    let server = Server::start();
    assert_eq!(server.run(&["streams"]).ok(), "");
    assert_eq!(server.run(&["streams", "--output", "json"]).ok(), "[]\n");
    server.run(&["append", "/b", "12345"]).ok();
    server.run(&["append", "/a/1", "--json", "1"]).ok();
    server.close("/a/1");
    let expected = "\
PATH  NEXT OFFSET                        STATE   CONTENT TYPE
/a/1  0000000000000000_0000000000000002  closed  application/json
/b    0000000000000000_0000000000000005  open    text/plain
";
    assert_eq!(server.run(&["streams"]).ok(), expected);
    let json = |args: &[&str]| -> Vec<serde_json::Value> {
        let args = [&["streams", "--output", "json"], args].concat();
        serde_json::from_str(&server.run(&args).ok()).unwrap()
    };
    let some = json(&["/a"]);
    assert_eq!(some.len(), 1);
    assert_eq!(some[0]["path"], "/a/1");
    assert_eq!(some[0]["closed"], true);
    // More than one page, with names that a query must not mistake for something else.
    let bench = ["bench", "create", "--count", "1100", "--prefix", "/m&n=%20+", "--output", "json"];
    let report = server.run(&[&bench[..], &["--url", &server.url]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["operations"], 1100, "{report}");
    let many = json(&["/m&n=%20+/"]);
    assert_eq!(many.len(), 1100);
    assert!(many.is_sorted_by(|a, b| a["path"].as_str() < b["path"].as_str()));
    assert_eq!(json(&[]).len(), 1102);
}

#[test]
fn whoever_has_seen_enough_may_go() {
    let server = Server::start();
    let line = "x".repeat(1 << 20) + "\n";
    for _ in 0..4 {
        run_with(server.command(&["append", "/long"]), line.as_bytes()).ok();
    }
    let mut child = server.command(&["read", "/long"]).spawn().unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    drop(out);
    assert_eq!(first.len(), line.len());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn bench_reports_as_json() {
    let server = Server::start();
    let args = ["bench", "append", "--seconds", "0.3", "--connections", "4", "--output", "json"];
    let report = server.run(&[&args[..], &["--url", &server.url]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["operations"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["error_rate"], 0.0, "{report}");
}
