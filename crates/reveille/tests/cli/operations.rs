//! `consumers`, `ingest`, `hooks` and `deliveries`: what fails is found from the command line.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::process::{Ended, Server, reveille, run_with};

const ADMIN: &str = "an-admin-key-for-tests";
const OFFSET_OF_5: &str = "0000000000000000_0000000000000005";

fn json(ended: Ended) -> Value {
    serde_json::from_str(&ended.ok()).unwrap()
}

/// Asks until the answer is as it will be, for a while.
fn until(mut ask: impl FnMut() -> Value, is_so: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = ask();
        if is_so(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "it does not come to it: {answer:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_consumer_that_fails_is_found_and_shown() {
    let server = Server::start();
    assert_eq!(server.run(&["consumers"]).ok(), "");
    assert_eq!(server.run(&["consumers", "--output", "json"]).ok(), "[]\n");
    let (bad, good) = (Endpoint::answering(503), Endpoint::answering(200));
    for (name, pattern, url) in [("bad", "/bad/*", &bad.url), ("good", "/good/*", &good.url)] {
        server.run(&["sub", "create", name, pattern, "--webhook", url]).ok();
    }
    for path in ["/good/1", "/good/2", "/bad/a%20b"] {
        server.run(&["append", path, "12345"]).ok();
    }
    bad.next();
    let list = |more: &[&str]| server.run(&[&["consumers"], more].concat());
    let list_json = |more: &[&str]| json(list(&[more, &["--output", "json"]].concat()));
    let found = until(|| list_json(&["--failing"]), |found| found != &Value::Array(vec![]));
    assert_eq!(found.as_array().unwrap().len(), 1, "{found:#}");
    assert_eq!(found[0]["subscription"], "bad");
    assert_eq!(list_json(&[]).as_array().unwrap().len(), 3);
    assert_eq!(list_json(&["--subscription", "good"]).as_array().unwrap().len(), 2);
    assert_eq!(list_json(&["--subscription", "good", "--failing"]), Value::Array(vec![]));
    assert_eq!(list_json(&["--state", "gone"]), Value::Array(vec![]));
    let sentence = list(&["--state", "lost"]).error(2);
    assert!(sentence.contains("lost"), "{sentence}");

    let table = list(&["--failing"]).ok();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("CONSUMER        STATE"), "{table}");
    assert!(lines[1].starts_with("bad:/bad/a%20b"), "{table}");
    assert!(lines[1].contains("5 B") && lines[1].contains("503"), "{table}");
    assert_eq!(lines.len(), 2, "{table}");

    // The name as the table has it, and as notifications and JSON have it.
    let text = server.run(&["consumers", "show", "bad:/bad/a%20b"]).ok();
    assert!(text.starts_with("id ") && text.contains("\nlast_error_at "), "{text}");
    assert!(text.contains("\nfailing_since ") && text.contains("Z)\n"), "{text}");
    assert!(text.contains("\n\nSTREAM      LAG  ACKED"), "{text}");
    let id = found[0]["id"].as_str().unwrap();
    let shown = json(server.run(&["consumers", "show", id, "--output", "json"]));
    assert_eq!(shown["primary_stream"], "/bad/a%20b");
    let sentence = server.run(&["consumers", "show", "bad:/none"]).error(1);
    assert!(sentence.contains("no consumer") && sentence.contains("`reveille consumers`"));
}

#[test]
fn a_consumer_that_was_given_up_is_found_revived_woken_and_moved() {
    let server = Server::with(&["--consumer-gc-after", "1ms", "--retry-scale", "0.001"]);
    let bad = Endpoint::answering(503);
    server.run(&["sub", "create", "s", "/a/*", "--webhook", &bad.url]).ok();
    server.run(&["append", "/a/1", "12345"]).ok();
    let id = "s:/a/1";
    let given_up = ["consumers", "--state", "given_up", "--output", "json"];
    let is_found = |found: &Value| found.as_array().is_some_and(|found| found.len() == 1);
    let found = until(|| json(server.run(&given_up)), is_found);
    assert_eq!(found[0]["primary_stream"], "/a/1");
    let sentence = server.run(&["consumers", "wake", id]).error(1);
    assert!(sentence.contains("revive it first"), "{sentence}");
    let revived = json(server.run(&["consumers", "revive", id, "--output", "json"]));
    assert_eq!((&revived["epoch"], &revived["pending"]), (&Value::from(2), &Value::from(true)));
    // Its endpoint fails as before.
    until(|| json(server.run(&given_up)), is_found);
}

#[test]
fn a_consumer_is_moved_back_and_forth() {
    let server = Server::start();
    let good = Endpoint::answering(200);
    server.run(&["append", "/a/1", "12345"]).ok();
    server.run(&["sub", "create", "s", "/a/*", "--webhook", &good.url]).ok();
    let id = "s:/a/1";
    let sentence = server.run(&["consumers", "wake", id]).error(1);
    assert!(sentence.contains("nothing is pending"), "{sentence}");
    let seek = |offset: &str| {
        json(server.run(&["consumers", "seek", id, "--offset", offset, "--output", "json"]))
    };
    assert_eq!(seek("-1")["pending"], true);
    good.next();
    let live = ["consumers", "--state", "live", "--output", "json"];
    until(
        || json(server.run(&live)),
        |found| found.as_array().is_some_and(|found| found.len() == 1),
    );
    let sentence = server.run(&["consumers", "wake", id]).error(1);
    assert!(sentence.contains("a handler is at work"), "{sentence}");
    let woken = json(server.run(&["consumers", "wake", id, "--force", "--output", "json"]));
    assert_eq!(woken["epoch"], 2);
    good.next();
    let moved = seek("now");
    assert_eq!((&moved["state"], &moved["pending"]), (&Value::from("idle"), &Value::from(false)));
    assert_eq!(moved["streams"][0]["acked"], OFFSET_OF_5);
    let sentence = server.run(&["consumers", "seek", id, "--offset", "x"]).error(1);
    assert!(sentence.contains("`offset`"), "{sentence}");
    server.run(&["consumers", "seek", id]).error(2);
}

#[test]
fn consumers_are_listed_to_the_last_page() {
    let server = Server::start();
    let create = ["sub", "create", "s", "/m/**", "--webhook", "http://127.0.0.1:9/"];
    server.run(&create).ok();
    let bench = ["bench", "create", "--count", "450", "--prefix", "/m", "--url", &server.url];
    server.run(&bench).ok();
    let all = json(server.run(&["consumers", "--output", "json"]));
    assert_eq!(all.as_array().unwrap().len(), 450);
    let table = server.run(&["consumers", "--subscription", "s"]).ok();
    assert_eq!(table.lines().count(), 451);
    assert_eq!(table.matches("CONSUMER").count(), 1);
}

fn subscribe(server: &Server, pattern: &str) -> String {
    let body = serde_json::json!({
        "workerId": "w", "workerBinding": "LOCAL", "pattern": pattern, "rpcMethod": "on",
        "maxRetries": 2, "secret": true,
    });
    let answer = server.request("POST /subscriptions/subscribe HTTP/1.1", &body.to_string());
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn field(text: &str, name: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap();
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn an_event_is_followed_to_its_hook_and_its_attempts() {
    let endpoint = Endpoint::answering(500);
    let binding = format!("LOCAL={}", endpoint.url);
    let server = Server::with(&["--binding", &binding, "--retry-scale", "0.001"]);
    assert_eq!(server.run(&["hooks", "list"]).ok(), "");
    assert_eq!(server.run(&["hooks", "list", "--output", "json"]).ok(), "[]\n");
    let hook = field(&subscribe(&server, "a.*"), "subscriptionId");
    let quiet = field(&subscribe(&server, "b.*"), "subscriptionId");
    let ingest = ["ingest", "--type", "a.b", "--data", r#"{"n":1.10}"#];
    let event = server.run(&ingest).ok().trim_end().to_owned();
    let body = String::from_utf8(endpoint.next().body).unwrap();
    assert!(body.contains("\"n\":1.10") && body.contains(&event), "{body}");

    let list = |more: &[&str]| server.run(&[&["deliveries", "list"], more].concat());
    let list_json = |more: &[&str]| json(list(&[more, &["--output", "json"]].concat()));
    let found = until(|| list_json(&["--failing"]), |found| found[0]["state"] == "dead");
    let delivery = found[0]["id"].as_str().unwrap();
    assert_eq!(found[0]["hook"], hook.as_str());
    for more in [&["--event", &event][..], &["--hook", &hook], &["--state", "dead"]] {
        assert_eq!(list_json(more), found, "{more:?}");
    }
    for more in [&["--hook", &quiet][..], &["--state", "delivered"]] {
        assert_eq!(list_json(more), Value::Array(vec![]), "{more:?}");
    }
    let table = list(&[]).ok();
    assert!(table.starts_with("ID ") && table.contains("  a.b   dead   2 "), "{table}");
    let sentence = list(&["--hook", "NONE"]).error(1);
    assert!(sentence.contains("there is no subscription with this id"), "{sentence}");

    let text = server.run(&["deliveries", "show", delivery]).ok();
    assert!(text.starts_with(&format!("id             {delivery}\n")), "{text}");
    assert!(text.contains("\n\nATTEMPT  AT") && text.contains("  500 "), "{text}");
    let shown = json(server.run(&["deliveries", "show", delivery, "--output", "json"]));
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 2, "{shown:#}");
    let sentence = server.run(&["deliveries", "show", "01NONE"]).error(1);
    assert!(sentence.contains("`reveille deliveries list`"), "{sentence}");

    let text = server.run(&["deliveries", "explain", &event, "--hook", &hook]).ok();
    assert!(text.contains("outcome") && text.contains("\n\nSTEP "), "{text}");
    assert!(text.contains("no   given up at "), "{text}");
    let args = ["deliveries", "explain", &event, "--hook", &quiet, "--output", "json"];
    let explained = json(server.run(&args));
    assert_eq!(explained["outcome"], "not_matched", "{explained:#}");
    let sentence = server.run(&["deliveries", "explain", "no", "--hook", &hook]).error(1);
    assert!(sentence.contains("there is no event with this id"), "{sentence}");

    let table = server.run(&["hooks", "list"]).ok();
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains(&format!("{hook}  active  a.*      LOCAL/on  ")), "{table}");
    let failing = json(server.run(&["hooks", "list", "--failing", "--output", "json"]));
    assert_eq!(failing.as_array().unwrap().len(), 1, "{failing:#}");
    assert_eq!(
        (&failing[0]["id"], &failing[0]["stats"]["deadLetters"]),
        (&hook.as_str().into(), &1.into())
    );
    let table = server.run(&["hooks", "list", "--failing"]).ok();
    assert!(table.contains("DEAD LETTERS") && table.contains(&hook) && !table.contains(&quiet));
    let text = server.run(&["hooks", "show", &hook]).ok();
    assert!(text.starts_with("id ") && text.contains("\ndeadLetters "), "{text}");
    let shown = json(server.run(&["hooks", "show", &hook, "--output", "json"]));
    assert_eq!(shown["subscription"]["pattern"], "a.*");
    let sentence = server.run(&["hooks", "show", "01NONE"]).error(1);
    assert!(sentence.contains("`reveille hooks list`"), "{sentence}");
}

#[test]
fn a_failing_hook_is_found_paused_moved_and_resumed_with_nothing_lost() {
    let (broken, good) = (Endpoint::answering(500), Endpoint::answering(200));
    let broken_binding = format!("LOCAL={}", broken.url);
    let good_binding = format!("GOOD={}", good.url);
    let settings = ["--binding", &broken_binding, "--binding", &good_binding];
    let server = Server::with(&[&settings[..], &["--retry-scale", "0.001"]].concat());
    let hook = field(&subscribe(&server, "a.*"), "subscriptionId");
    let run = |args: &[&str]| server.run(&[&["hooks"], args].concat());
    server.run(&["ingest", "--type", "a.1"]).ok();
    let failing = || json(run(&["list", "--failing", "--output", "json"]));
    let found = until(failing, |found| found[0]["stats"]["deadLetters"] == 1);
    assert_eq!(found[0]["id"], hook.as_str());
    assert!(run(&["pause", &hook]).ok().starts_with(&format!("hook {hook} is paused; 0 ")));
    server.run(&["ingest", "--type", "a.2"]).ok();
    let paused = json(run(&["pause", &hook, "--output", "json"]));
    assert_eq!((&paused["paused"], &paused["waiting"]), (&true.into(), &1.into()));
    assert!(run(&["list"]).ok().contains(&format!("{hook}  paused ")));
    let text = run(&["update", &hook, "--binding", "GOOD", "--timeout", "5s"]).ok();
    assert!(text.starts_with("id ") && text.contains("GOOD") && text.contains("5000"), "{text}");
    let retry = ["--retry-initial", "100ms", "--give-up-after", "1h"];
    let changed = json(run(&[&["update", &hook, "--output", "json"], &retry[..]].concat()));
    let schedule = &changed["subscription"]["retry"];
    assert_eq!((&schedule["initial"], &schedule["giveUpAfter"]), (&100.into(), &3_600_000.into()));
    let warned = run(&["update", &hook, "--binding", "NONE"]);
    assert!(warned.err.contains("warning: this server has no binding `NONE`"), "{warned:?}");
    run(&["update", &hook, "--binding", "GOOD", "--pattern", "a.**", "--no-secret"]).ok();
    let shown = json(run(&["show", &hook, "--output", "json"]))["subscription"].clone();
    assert_eq!((&shown["pattern"], &shown["signed"]), (&"a.**".into(), &false.into()));
    assert_eq!(run(&["resume", &hook]).ok(), format!("hook {hook} goes on\n"));
    let body = String::from_utf8(good.next().body).unwrap();
    assert!(body.contains("\"a.2\""), "{body}");
    assert!(run(&["rotate-secret", &hook]).error(1).contains("no secret"));
    let made = run(&["update", &hook, "--new-secret"]);
    assert!(made.err.contains("shown this once") && made.ok().contains("whsec_"));
    let rotated = run(&["rotate-secret", &hook, "--overlap", "1h"]);
    assert!(rotated.ok().contains("previousSecretUntil  in "));
    assert!(run(&["update", &hook]).error(1).contains("nothing is to be changed"));
    for change in [&["update", "01NONE", "--worker", "x"][..], &["pause", "01NONE"]] {
        assert!(run(change).error(1).contains("`reveille hooks list`"), "{change:?}");
    }
    run(&["update", &hook, "--new-secret", "--no-secret"]).error(2);
    run(&["rotate-secret", &hook, "--overlap", "soon"]).error(2);
}

#[test]
fn a_delivery_with_two_signatures_is_verified_with_either_secret() {
    let endpoint = Endpoint::answering(200);
    let binding = format!("LOCAL={}", endpoint.url);
    let server = Server::with(&["--binding", &binding]);
    let made = subscribe(&server, "a.*");
    let (hook, old) = (field(&made, "subscriptionId"), field(&made, "secret"));
    let rotated = json(server.run(&["hooks", "rotate-secret", &hook, "--output", "json"]));
    server.run(&["ingest", "--type", "a.b"]).ok();
    let seen = endpoint.next();
    for (secret, number) in [(old.as_str(), 1), (rotated["secret"].as_str().unwrap(), 2)] {
        let mut args = vec!["verify", "--secret", secret];
        for header in seen.headers.iter().filter(|header| header.contains(": ")) {
            args.extend(["--header", header]);
        }
        let good = run_with(reveille(&args), &seen.body).ok();
        assert!(good.contains(&format!("(number {number} of 2)")), "{good}");
    }
}

#[test]
fn events_come_from_the_argument_and_from_standard_input() {
    let server = Server::start();
    let lines = |ended: Ended| ended.ok().lines().count();
    assert_eq!(lines(server.run(&["ingest", r#"{"type":"a.b"}"#])), 1);
    assert_eq!(lines(server.run(&["ingest", r#"[{"type":"a.b"},{"type":"a.c"}]"#])), 2);
    assert_eq!(lines(server.run(&["ingest", r#"{"events":[{"type":"a.b"}]}"#])), 1);
    let pipe = |args: &[&str], input: &str| {
        run_with(server.command(&[&["ingest"], args].concat()), input.as_bytes())
    };
    let many = "{\"type\":\"many.events\"}\n".repeat(2_500);
    assert_eq!(lines(pipe(&[], &many)), 2_500);
    assert_eq!(lines(pipe(&["-"], "[\n  {\"type\": \"a.b\"}\n]\n{\"type\":\"a.c\"}")), 2);
    let stored = server.run(&["read", "/_events/default"]).ok();
    assert_eq!(stored.lines().count(), 2_506);

    let once = ["--batch-id", "monday", "--output", "json"];
    let answer = json(pipe(&once, "{\"type\":\"a.b\"}\n{\"type\":\"a.c\"}"));
    assert_eq!(answer["eventIds"].as_array().unwrap().len(), 2, "{answer}");
    let again = pipe(&once, "{\"type\":\"a.b\"}\n{\"type\":\"a.c\"}");
    assert!(again.err.contains("monday was there already"), "{again:?}");
    assert_eq!(json(again)["deduplicated"], true);
    assert_eq!(server.run(&["read", "/_events/default"]).ok().lines().count(), 2_508);

    let refused = pipe(&[], "{\"type\":\"a.b\"}\n{\"kind\":\"a.b\"}").error(1);
    assert!(refused.contains("0 events are taken in") && refused.contains("`type` is missing"));
    let broken = pipe(&[], "{\"type\":\"a.b\"").error(1);
    assert!(broken.contains("not JSON"), "{broken}");
    assert!(pipe(&[], "").error(1).contains("no event"));
    assert!(pipe(&["--batch-id", "x"], &many).error(2).contains("at most 1000"));
    for wrong in [
        &["ingest", "{"][..],
        &["ingest", "--data", "{}"],
        &["ingest", "--type", "a..b"],
        &["ingest", "--type", "a.b", "--data", "[]"],
        &["ingest", "--type", "a.b", "--data", r#"{"type":"c"}"#],
        &["ingest", "--type", "a.b", "{}"],
    ] {
        server.run(wrong).error(2);
    }
}

#[test]
fn a_delivery_is_verified_with_the_headers_that_came() {
    let endpoint = Endpoint::answering(200);
    let binding = format!("LOCAL={}", endpoint.url);
    let server = Server::with(&["--binding", &binding]);
    let secret = field(&subscribe(&server, "a.*"), "secret");
    server.run(&["ingest", "--type", "a.b"]).ok();
    let seen = endpoint.next();
    let mut args = vec!["verify", "--secret", &secret];
    for header in seen.headers.iter().filter(|header| header.contains(": ")) {
        args.extend(["--header", header]);
    }
    let good = run_with(reveille(&args), &seen.body).ok();
    assert!(good.starts_with("the signature is good: `v1,` after Standard Webhooks"), "{good}");
    assert!(run_with(reveille(&args), b"{}").error(1).contains("raw bytes"));
}

#[test]
fn a_key_of_all_tenants_acts_in_the_one_that_is_named() {
    let server = Server::with(&["--auth", "keys", "--admin-key", ADMIN]);
    let as_admin = |args: &[&str]| {
        let mut command = server.command(args);
        command.env("REVEILLE_KEY", ADMIN);
        run_with(command, b"")
    };
    let acme = |args: &[&str]| as_admin(&[args, &["--tenant", "acme"]].concat());
    acme(&["append", "/notes", "hello"]).ok();
    acme(&["sub", "create", "s", "/notes", "--webhook", "https://example.com/"]).ok();
    acme(&["ingest", "--type", "a.b"]).ok();
    assert_eq!(acme(&["read", "/notes"]).ok(), "hello");
    assert!(acme(&["streams"]).ok().contains("/notes"));
    assert!(acme(&["sub", "list"]).ok().contains("example.com"));
    assert_eq!(json(acme(&["consumers", "--output", "json"])).as_array().unwrap().len(), 1);
    for empty in [&["streams"][..], &["sub", "list"], &["consumers"], &["deliveries", "list"]] {
        assert_eq!(as_admin(empty).ok(), "", "{empty:?}");
    }
    as_admin(&["read", "/notes"]).error(1);
    let made = json(as_admin(&[
        "key", "create", "--tenant", "acme", "--role", "user", "--output", "json",
    ]));
    let mut command = server.command(&["read", "/notes", "--tenant", "other"]);
    command.env("REVEILLE_KEY", made["key"].as_str().unwrap());
    let sentence = run_with(command, b"").error(1);
    assert!(sentence.contains("403") && sentence.contains("--tenant"), "{sentence}");
    as_admin(&["streams", "--tenant", "Not a tenant"]).error(2);
}
