//! `fact`, `garden` and `token` against a real server.

use serde_json::Value;

use crate::process::{Server, run};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_fact_is_asserted_found_and_retracted() {
    let server = Server::start();
    let said =
        server.run(&["fact", "assert", "User:Alice", "works_at", "acme", "--output", "json"]);
    let said = json(&said.ok());
    assert_eq!((&said["entity"], &said["scope"]), (&"user:alice".into(), &"local".into()));
    let age =
        ["fact", "assert", "user:alice", "age", "42", "--type", "number", "--confidence", "0.8"];
    let shown = server.run(&age).ok();
    assert!(
        shown.starts_with("id ") && shown.contains("confidence") && shown.contains("0.8"),
        "{shown}"
    );
    let found = server.run(&["fact", "query", "--entity", "user:alice", "--output", "json"]).ok();
    let found = json(&found);
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!(found[0]["value"], serde_json::json!({ "type": "number", "v": 42 }));
    let retracted = server.run(&["fact", "retract", "user:alice", "age", "--output", "json"]).ok();
    assert_eq!(json(&retracted)["confidence"], 0.0);
    let live = ["fact", "query", "--entity", "user:alice", "--live"];
    let table = server.run(&live).ok();
    assert!(table.starts_with("ENTITY") && table.contains("works_at"), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(server.run(&["fact", "query", "--entity", "nobody"]).err.contains("no such facts"));
    let refused =
        server.run(&["fact", "assert", "user:a", "r", "v", "--garden", "nowhere"]).error(1);
    assert!(refused.contains("404") && refused.contains("no garden"), "{refused}");
}

#[test]
fn a_garden_has_members_who_come_and_go() {
    let server = Server::start();
    let made =
        server.run(&["garden", "create", "atlas", "--scope", "team", "--output", "json"]).ok();
    assert_eq!(json(&made)["name"], "atlas");
    assert!(server.run(&["garden", "create", "atlas"]).error(1).contains("409"));
    let add = ["garden", "add", "atlas", "user:alice", "--role", "writer"];
    assert!(server.run(&add).ok().starts_with("entity_uri  user:alice"));
    let table = server.run(&["garden", "members", "atlas"]).ok();
    assert!(table.contains("key:local") && table.contains("writer"), "{table}");
    let list = server.run(&["garden", "list"]).ok();
    assert!(list.contains("atlas") && list.contains("admin"), "{list}");
    let shown = server.run(&["garden", "show", "atlas"]).ok();
    assert!(shown.starts_with("slug ") && shown.contains("members     2"), "{shown}");
    let removed = server.run(&["garden", "remove", "atlas", "user:alice"]).ok();
    assert_eq!(removed, "user:alice does not belong to atlas any more\n");
    assert!(server.run(&["garden", "remove", "atlas", "key:local"]).error(1).contains("admin"));
    assert_eq!(server.run(&["garden", "delete", "atlas"]).ok(), "garden atlas is deleted\n");
    assert!(server.run(&["garden", "show", "atlas"]).error(1).contains("no garden"));
}

#[test]
fn a_token_is_issued_listed_and_revoked() {
    let server = Server::start();
    let issue =
        ["token", "issue", "--subject", "user:alice", "--object", "company", "--ttl", "30d"];
    let issued = json(&server.run(&[&issue[..], &["--output", "json"]].concat()).ok());
    let (id, token) = (issued["token_id"].as_str().unwrap(), issued["token"].as_str().unwrap());
    assert!(token.contains('.') && issued["object"] == "scope:company", "{issued}");
    let list = server.run(&["token", "list"]).ok();
    assert!(list.contains(id) && list.contains("active") && !list.contains(token), "{list}");
    let revoke = ["token", "revoke", id, "--reason", "left"];
    assert_eq!(server.run(&revoke).ok(), format!("token {id} is revoked\n"));
    assert!(server.run(&revoke).error(1).contains("409"));
    assert!(server.run(&["token", "list"]).ok().contains("revoked"));
    assert!(server.run(&["token", "revoke", "x"]).error(1).contains("no token"));
}

#[test]
fn wrong_usage_of_facts_is_told_apart() {
    for args in [
        &["fact", "assert", "user:a", "born", "soon", "--type", "datetime"][..],
        &["fact", "assert", "user:a", "age"],
        &["garden", "create"],
        &["token", "issue", "--subject", "a", "--object", "*", "--verb", "fly"],
    ] {
        assert!(!run(args).error(2).is_empty(), "{args:?}");
    }
}
