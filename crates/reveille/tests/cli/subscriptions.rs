//! `sub` and `verify`: a subscription is made, called, and its webhook's signature checked.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use serde_json::Value;

use crate::process::{Server, reveille, run_with};

/// The signature header and the body of the first request; it is answered with success.
fn endpoint() -> (String, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let seen = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(&socket);
        let (mut signature, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                None if line.trim_end().is_empty() => break,
                Some(("webhook-signature", value)) => signature = value.to_owned(),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"done\": true}";
        (&socket).write_all(answer.as_bytes()).unwrap();
        (signature, body)
    });
    (url, seen)
}

#[test]
fn a_subscription_is_made_shown_and_ended() {
    let server = Server::start();
    assert_eq!(server.run(&["sub", "list"]).ok(), "");
    assert_eq!(server.run(&["sub", "list", "--output", "json"]).ok(), "[]\n");
    let create = ["sub", "create", "workers", "/agents/*", "--webhook", "http://127.0.0.1:9/hook"];
    let more = ["--description", "the workers", "--max-delay", "10m", "--sync-done", "snapshot"];
    let create = [&create[..], &more].concat();
    let made = server.run(&create);
    assert!(made.err.contains("shown this once"), "{made:?}");
    let text = made.ok();
    assert!(text.starts_with("subscription_id"), "{text}");
    assert!(text.contains("webhook_secret   whsec_"), "{text}");
    server.process.err.until("a subscription was made");

    let again = server.run(&[&create[..], &["--output", "json"]].concat());
    assert!(again.err.contains("was there already"), "{again:?}");
    let again: Value = serde_json::from_str(&again.ok()).unwrap();
    assert_eq!(again["webhook_secret"], Value::Null);
    let shown = server.run(&["sub", "show", "workers", "--output", "json"]).ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown, again);
    assert_eq!(shown["description"], "the workers");
    assert_eq!(shown["max_delay"], "600000ms");
    assert_eq!(shown["sync_done"], "snapshot");

    let other = ["sub", "create", "workers", "/b", "--webhook", "http://127.0.0.1:9/"];
    let sentence = server.run(&other).error(1);
    assert!(sentence.contains("409"), "{sentence}");
    let inside = ["sub", "create", "x", "/b", "--webhook", "http://10.0.0.1/"];
    let sentence = server.run(&inside).error(1);
    assert!(sentence.contains("cannot be called"), "{sentence}");

    let table = "\
NAME     PATTERN    WEBHOOK
workers  /agents/*  http://127.0.0.1:9/hook
";
    assert_eq!(server.run(&["sub", "list"]).ok(), table);
    assert_eq!(server.run(&["sub", "list", "/agents/*"]).ok(), table);
    assert_eq!(server.run(&["sub", "list", "/other"]).ok(), "");
    let text = server.run(&["sub", "show", "workers"]).ok();
    assert!(text.starts_with("subscription_id  workers\n"), "{text}");

    assert_eq!(server.run(&["sub", "delete", "workers"]).ok(), "subscription workers has ended\n");
    server.process.err.until("a subscription was ended");
    let again = server.run(&["sub", "delete", "workers"]).ok();
    assert_eq!(again, "there was no subscription workers\n");
    let again = server.run(&["sub", "delete", "workers", "--output", "json"]).ok();
    assert_eq!(again, "{\"deleted\":null}\n");
    let sentence = server.run(&["sub", "show", "workers"]).error(1);
    assert!(sentence.contains("no subscription \"workers\""), "{sentence}");
}

#[test]
fn a_subscription_with_leases_is_shown_and_not_said_to_have_ended() {
    let server = Server::start();
    let at = "/v1/stream/__ds/subscriptions/pool";
    let body = r#"{"type":"pull-wake","streams":["a"],"wake_stream":"w"}"#;
    let made = server.request(&format!("PUT {at} HTTP/1.1"), body);
    assert!(made.starts_with("HTTP/1.1 201"), "{made}");
    let sentence = server.run(&["sub", "delete", "pool"]).error(1);
    assert!(sentence.contains(at) && sentence.contains("DELETE"), "{sentence}");
    let shown = server.run(&["sub", "show", "pool", "--output", "json"]).ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["subscription_id"], &shown["type"]), (&"pool".into(), &"pull-wake".into()));
    // Both dialects may have one of the same name; this command is about the other one.
    server.run(&["sub", "create", "pool", "/a", "--webhook", "http://127.0.0.1:9/"]).ok();
    let shown = server.run(&["sub", "show", "pool"]).ok();
    assert!(shown.contains("http://127.0.0.1:9/"), "{shown}");
    assert_eq!(server.run(&["sub", "delete", "pool"]).ok(), "subscription pool has ended\n");
    server.run(&["sub", "delete", "pool"]).error(1);
    server.run(&["sub", "delete", "a b"]).ok();
}

#[test]
fn a_condition_for_waking_is_given_and_checked() {
    let server = Server::start();
    let create = ["sub", "create", "s", "/a", "--webhook", "http://127.0.0.1:9/"];
    let with = |more: &[&str]| server.run(&[&create[..], more].concat());
    with(&["--wake-if", "bytes > 4096"]).error(2);
    with(&["--wake-if", "size > 1", "--max-delay", "1m"]).error(2);
    with(&["--wake-if", "bytes > 4096 || streams > 3", "--max-delay", "1m"]).ok();
    let shown = server.run(&["sub", "show", "s", "--output", "json"]).ok();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["wake_if"], "bytes > 4096 || streams > 3");
}

#[test]
fn a_webhook_is_verified_with_the_secret_that_was_printed() {
    let server = Server::start();
    let (url, seen) = endpoint();
    let create = ["sub", "create", "s", "/a", "--webhook", &url, "--output", "json"];
    let made: Value = serde_json::from_str(&server.run(&create).ok()).unwrap();
    let secret = made["webhook_secret"].as_str().unwrap();
    server.run(&["append", "/a", "x"]).ok();
    let (header, body) = seen.join().unwrap();

    let verify = |secret: &str, body: &[u8], more: &[&str]| {
        let args = ["verify", "--secret", secret, "--header", &header];
        run_with(reveille(&[&args[..], more].concat()), body)
    };
    let good = verify(secret, &body, &[]).ok();
    assert!(good.starts_with("the signature is good: `sha256=`"), "{good}");
    let sentence = verify(secret, b"{}", &[]).error(1);
    assert!(sentence.contains("raw bytes"), "{sentence}");
    let sentence = verify("whsec_other", &body, &[]).error(1);
    assert!(sentence.contains("does not match"), "{sentence}");
    let mut command = reveille(&["verify", "--header", "t=1,sha256=00"]);
    command.env("REVEILLE_WEBHOOK_SECRET", secret);
    let sentence = run_with(command, &body).error(1);
    assert!(sentence.contains("64 digits"), "{sentence}");
}

/// Signed by hand with a key whose private part is all sevens.
#[test]
fn a_webhook_is_verified_with_public_keys() {
    use reveille_core::signature::Ed25519Key;
    let (key, other) = (Ed25519Key::from_seed([7; 32]), Ed25519Key::from_seed([8; 32]));
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let header = key.header(now_s.as_secs(), b"body");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jwks.json");
    let verify =
        |by: &[&str]| run_with(reveille(&[&["verify", "--header", &header], by].concat()), b"body");
    let jwks = ["--jwks", file.to_str().unwrap()];
    let sentence = verify(&jwks).error(1);
    assert!(sentence.contains("cannot read"), "{sentence}");
    let set = |keys: &[&Ed25519Key]| {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        fs::write(&file, serde_json::json!({ "keys": keys }).to_string()).unwrap();
    };
    set(&[&other, &key]);
    let good = verify(&jwks).ok();
    assert!(good.starts_with("the signature is good: `ed25519=`"), "{good}");
    set(&[&other]);
    let sentence = verify(&jwks).error(1);
    assert!(sentence.contains("another key"), "{sentence}");
    fs::write(&file, "[]").unwrap();
    let sentence = verify(&jwks).error(1);
    assert!(sentence.contains("not a JWK set"), "{sentence}");

    let x = key.jwk()["x"].as_str().unwrap().to_owned();
    verify(&["--public-key", &x]).ok();
    let sentence = verify(&["--secret", "whsec_x"]).error(1);
    assert!(sentence.contains("no `sha256=`"), "{sentence}");
    assert_eq!(verify(&["--public-key", "short"]).code, Some(2));
    assert_eq!(verify(&["--public-key", &x, "--secret", "s"]).code, Some(2));
}

#[test]
fn a_subscription_is_changed_paused_and_given_another_secret() {
    let server = Server::start();
    let (url, seen) = endpoint();
    let create = ["sub", "create", "workers", "/agents/*", "--webhook", "http://127.0.0.1:9/hook"];
    let retry = ["--retry-initial", "1s", "--give-up-after", "1d", "--output", "json"];
    let made: Value =
        serde_json::from_str(&server.run(&[&create[..], &retry].concat()).ok()).unwrap();
    assert_eq!(made["retry"]["initial"], "1000ms");
    let first = made["webhook_secret"].as_str().unwrap().to_owned();
    let json = |arguments: &[&str]| -> Value {
        let ran = server.run(&[&["sub"], arguments, &["workers", "--output", "json"]].concat());
        serde_json::from_str(&ran.ok()).unwrap()
    };
    let paused = server.run(&["sub", "pause", "workers"]);
    assert!(paused.err.contains("What matches waits"), "{paused:?}");
    assert!(paused.ok().contains("paused           true"));
    run_with(server.command(&["append", "/agents/1", "--json"]), b"[1]").ok();
    let more = ["update", "--webhook", &url, "--description", "moved", "--clear", "retry"];
    let changed = json(&more);
    assert_eq!((&changed["webhook"], &changed["description"]), (&url.into(), &"moved".into()));
    assert_eq!((changed.get("retry"), &changed["paused"]), (None, &Value::Bool(true)));
    let rotated = json(&["rotate-secret", "--overlap", "1h"]);
    let second = rotated["webhook_secret"].as_str().unwrap().to_owned();
    assert_eq!(json(&["resume"]).get("paused"), None);
    // What waited is told at the new place, signed by both secrets.
    let (signature, body) = seen.join().unwrap();
    for secret in [&first, &second] {
        let verify = ["verify", "--secret", secret, "--header", &signature];
        let good = run_with(reveille(&verify), &body).ok();
        assert!(good.contains("of 2)"), "{good}");
    }

    let nothing = server.run(&["sub", "update", "workers"]).error(2);
    assert!(nothing.contains("nothing to change"), "{nothing}");
    let both = ["sub", "update", "workers", "--max-delay", "1s", "--clear", "max-delay"];
    assert!(server.run(&both).error(2).contains("both given and cleared"));
    let wrong = ["sub", "update", "workers", "--retry-initial", "1ms"];
    assert!(server.run(&wrong).error(1).contains("10ms to 1h"));
    let missing = server.run(&["sub", "pause", "nobody"]).error(1);
    assert!(missing.contains("there is no subscription"), "{missing}");
}
