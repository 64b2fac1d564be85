//! `dlq` and `audit`: what died is found, delivered again and discarded, and who did it is known.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::process::{Ended, Server};

fn json(ended: Ended) -> Value {
    serde_json::from_str(&ended.ok()).unwrap()
}

/// Asks until the list is so long, for a while.
fn until_many(server: &Server, args: &[&str], count: usize) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = json(server.run(&[args, &["--output", "json"]].concat()));
        if answer.as_array().map(Vec::len) == Some(count) {
            return answer;
        }
        assert!(Instant::now() < deadline, "it does not come to it: {answer:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server with a hook whose deliveries die at the first attempt, and the hook.
fn failing(endpoint: &Endpoint) -> (Server, String) {
    let binding = format!("LOCAL={}", endpoint.url);
    let server = Server::with(&["--binding", &binding, "--retry-scale", "0.001"]);
    let body = serde_json::json!({
        "workerId": "w", "workerBinding": "LOCAL", "pattern": "a.*", "rpcMethod": "on",
        "maxRetries": 1,
    });
    let answer = server.request("POST /subscriptions/subscribe HTTP/1.1", &body.to_string());
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let hook = answer["subscriptionId"].as_str().unwrap().to_owned();
    (server, hook)
}

#[test]
fn what_died_is_replayed_after_a_look_and_with_a_reason() {
    let endpoint = Endpoint::answering(500);
    let (server, hook) = failing(&endpoint);
    let none = server.run(&["dlq", "list"]);
    assert_eq!(none.ok(), "");
    for data in [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#] {
        server.run(&["ingest", "--type", "a.b", "--data", data]).ok();
    }
    let letters = until_many(&server, &["dlq", "list", "--hook", &hook], 3);
    let id = letters[0]["dlqId"].as_str().unwrap();
    let table = server.run(&["dlq", "list"]).ok();
    assert!(table.starts_with("ID ") && table.contains("EXHAUSTED"), "{table}");
    assert!(table.contains("answered 500"), "{table}");
    let shown = server.run(&["dlq", "show", id]).ok();
    assert!(shown.starts_with("dlqId ") && shown.contains("\ndeadAt "), "{shown}");
    let sentence = server.run(&["dlq", "show", "01NONE"]).error(1);
    assert!(sentence.contains("`reveille dlq list`"), "{sentence}");

    let dry = server.run(&["dlq", "replay", "--dry-run"]).ok();
    assert!(dry.starts_with("3 dead letters, "), "{dry}");
    server.run(&["hooks", "pause", &hook]).ok();
    let note = server.run(&["dlq", "replay", "--dry-run"]).err;
    assert!(note.contains(&format!("`reveille hooks resume {hook}`")), "{note}");
    server.run(&["hooks", "resume", &hook]).ok();
    let sentence = server.run(&["dlq", "replay", "--yes"]).error(2);
    assert!(sentence.contains("required arguments"), "{sentence}");
    let sentence = server.run(&["dlq", "replay", "--reason", "so"]).error(2);
    assert!(sentence.contains("3 dead letters") && sentence.contains("--yes"), "{sentence}");

    let again = ["dlq", "replay", id, "--reason", "try one", "--yes", "--wait"];
    let sentence = server.run(&again).error(1);
    assert!(sentence.contains("1 have died again"), "{sentence}");
    until_many(&server, &["dlq", "list", "--state", "replayed"], 1);
    endpoint.answers(200);
    let args = ["dlq", "replay", "--hook", &hook, "--reason", "it is mended", "--yes", "--wait"];
    let done = json(server.run(&[&args[..], &["--output", "json"]].concat()));
    assert_eq!((&done["succeeded"], &done["state"]), (&3.into(), &"done".into()), "{done:#}");
    assert_eq!(until_many(&server, &["dlq", "list"], 0), Value::Array(vec![]));
    let sentence = server.run(&args).error(1);
    assert!(sentence.contains("no such dead letters"), "{sentence}");

    let audit = json(server.run(&["audit", "list", "--output", "json"]));
    assert_eq!(audit[0]["reason"], "it is mended", "{audit:#}");
    assert_eq!(audit[0]["action"], "replay.executed", "{audit:#}");
    assert_eq!(audit[0]["subject"], done["replayId"], "{audit:#}");
    let table = server.run(&["audit", "list", "--action", "replay.executed"]).ok();
    assert!(table.starts_with("AT ") && table.contains("local"), "{table}");
    let checked = server.run(&["audit", "verify"]).ok();
    assert!(checked.starts_with("TENANT ") && checked.contains("whole"), "{checked}");
    let checked = json(server.run(&["audit", "verify", "--output", "json"]));
    assert_eq!((&checked["ok"], &checked["rows"]), (&true.into(), &5.into()), "{checked:#}");
}

#[test]
fn what_nobody_wants_is_discarded() {
    let endpoint = Endpoint::answering(500);
    let (server, hook) = failing(&endpoint);
    server.run(&["ingest", "--type", "a.b", "--data", "{}"]).ok();
    let letters = until_many(&server, &["dlq", "list"], 1);
    let id = letters[0]["dlqId"].as_str().unwrap();
    let sentence = server.run(&["dlq", "discard", id]).error(2);
    assert!(sentence.contains("required arguments"), "{sentence}");
    let said = server.run(&["dlq", "discard", id, "--reason", "a test"]).ok();
    assert_eq!(said, format!("discarded {id}\n"));
    until_many(&server, &["dlq", "list"], 0);
    until_many(&server, &["dlq", "list", "--state", "discarded"], 1);
    let sentence = server.run(&["dlq", "discard", id, "--reason", "again"]).error(1);
    assert!(sentence.contains("no dead letter"), "{sentence}");

    // Many of them, after a look.
    for _ in 0..2 {
        server.run(&["ingest", "--type", "a.b", "--data", "{}"]).ok();
    }
    until_many(&server, &["dlq", "list"], 2);
    let all = ["dlq", "discard", "--hook", &hook];
    let dry = server.run(&[&all[..], &["--dry-run"]].concat()).ok();
    assert!(dry.starts_with("2 dead letters, "), "{dry}");
    let sentence = server.run(&[&all[..], &["--reason", "so"]].concat()).error(2);
    assert!(sentence.contains("discard them?") && sentence.contains("--yes"), "{sentence}");
    let args = [&all[..], &["--reason", "tests", "--yes", "--wait", "--output", "json"]].concat();
    let done = json(server.run(&args));
    assert_eq!((&done["discarded"], &done["state"]), (&2.into(), &"done".into()), "{done:#}");
    until_many(&server, &["dlq", "list"], 0);
    let sentence = server.run(&["dlq", "list", "--trigger", "none"]).error(1);
    assert!(sentence.contains("no trigger \"none\""), "{sentence}");
}
