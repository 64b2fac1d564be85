//! `key`, and a server that asks for keys: made, used, revoked, and still so after a kill.

use serde_json::Value;

use crate::process::{Ended, Server, run, run_with};

const ADMIN: &str = "an-admin-key-for-tests";

fn as_key(server: &Server, key: &str, args: &[&str]) -> Ended {
    let mut command = server.command(args);
    command.env("REVEILLE_KEY", key);
    run_with(command, b"")
}

#[test]
fn a_key_is_made_used_listed_and_revoked() {
    let mut server = Server::with(&["--auth", "keys", "--admin-key", ADMIN]);
    let sentence = server.run(&["append", "/notes", "x"]).error(1);
    assert!(sentence.contains("wants a key") && sentence.contains("REVEILLE_KEY"), "{sentence}");
    assert_eq!(as_key(&server, ADMIN, &["key", "list"]).ok(), "");
    let create = ["key", "create", "--tenant", "acme", "--role", "user"];
    let more = ["--permission", "read", "--permission", "write", "--description", "notes"];
    let made = as_key(&server, ADMIN, &[&create[..], &more, &["--output", "json"]].concat());
    assert!(made.err.contains("shown this once"), "{made:?}");
    let made: Value = serde_json::from_str(&made.ok()).unwrap();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let table = format!(
        "ID{:22}TENANT  ROLES  PERMISSIONS  DESCRIPTION\n{id}  acme    user   read,write   notes\n",
        ""
    );
    assert_eq!(as_key(&server, ADMIN, &["key", "list"]).ok(), table);

    as_key(&server, key, &["append", "/notes", "hello"]).ok();
    assert_eq!(as_key(&server, key, &["read", "/notes"]).ok(), "hello");
    as_key(&server, key, &["sub", "list"]).ok();
    let sentence = as_key(&server, key, &["key", "list"]).error(1);
    assert!(sentence.contains("403") && sentence.contains("admin"), "{sentence}");
    let sentence = as_key(&server, ADMIN, &["read", "/notes"]).error(1);
    assert!(sentence.contains("/notes"), "another tenant has no such stream: {sentence}");

    server.kill();
    server.restart();
    assert_eq!(as_key(&server, key, &["read", "/notes"]).ok(), "hello");
    let revoke = ["key", "revoke", id];
    assert_eq!(as_key(&server, ADMIN, &revoke).ok(), format!("key {id} is revoked\n"));
    as_key(&server, key, &["read", "/notes"]).error(1);
    server.kill();
    server.restart();
    as_key(&server, key, &["read", "/notes"]).error(1);
    let sentence = as_key(&server, ADMIN, &revoke).error(1);
    assert!(sentence.contains("no key"), "{sentence}");
}

#[test]
fn people_are_shown_the_key_alone() {
    let server = Server::with(&["--auth", "keys", "--admin-key", ADMIN]);
    let made = as_key(&server, ADMIN, &["key", "create", "--all-tenants", "--role", "admin"]);
    let text = made.ok();
    let key = text.lines().find_map(|line| line.strip_prefix("key  ")).unwrap();
    assert!(text.starts_with("id   key_") && key.starts_with("rv_"), "{text}");
    as_key(&server, key, &["key", "create", "--tenant", "acme", "--role", "user"]).ok();
    let reserved = ["key", "create", "--tenant", "system", "--role", "user"];
    let sentence = as_key(&server, ADMIN, &reserved).error(1);
    assert!(sentence.contains("reserved"), "{sentence}");
}

#[test]
fn only_a_server_with_keys_is_opened_to_the_network() {
    let sentence = run(&["serve", "--listen", "0.0.0.0:0"]).error(2);
    assert!(sentence.contains("--auth keys") && sentence.contains("--insecure"), "{sentence}");
    let server = Server::with(&["--listen", "0.0.0.0:0", "--auth", "keys"]);
    server.process.err.until("there is no admin key");
}
