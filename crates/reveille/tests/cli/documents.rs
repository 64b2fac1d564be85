//! `doc` against a real server, and against one that goes away in the middle.

use serde_json::{Value, json};

use crate::process::{Running, Server, run, run_with};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_document_is_put_got_patched_found_and_deleted() {
    let server = Server::start();
    let put = server.run(&["doc", "put", "rooms/r1", r#"{"n":1.10}"#, "--output", "json"]).ok();
    assert!(put.ends_with("}\n") && put.contains("\"version\":1"), "{put}");
    let made = server.command(&["doc", "put", "rooms", "--output", "json"]);
    let made = lines(&run_with(made, br#"{"name":"hall","n":5}"#).ok()).remove(0);
    let id = made["id"].as_str().unwrap();
    let patch = ["doc", "patch", "rooms/r1", r#"{"at.city":"Paris"}"#, "--if-version", "1"];
    let patched = server.run(&patch).ok();
    assert!(patched.starts_with("id "), "{patched}");
    let refused = server.run(&patch).error(1);
    assert!(refused.contains("412") && refused.contains("has version 2"), "{refused}");
    let got = server.run(&["doc", "get", "rooms/r1", "--output", "json"]).ok();
    assert_eq!(lines(&got)[0]["at"], json!({ "city": "Paris" }));

    let found =
        server.run(&["doc", "query", "rooms", "--where", "n >= 2", "--output", "json"]).ok();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found[0]["id"], id);
    assert_eq!(found.as_array().unwrap().len(), 1);
    let table = server.run(&["doc", "query", "rooms", "--order", "n:desc", "--limit", "1"]).ok();
    assert!(table.starts_with("ID ") && table.contains(id), "{table}");
    assert_eq!(table.lines().count(), 2);

    server.run(&["doc", "delete", "rooms/r1", "--if-version", "1"]).error(1);
    assert_eq!(server.run(&["doc", "delete", "rooms/r1"]).ok(), "deleted rooms/r1\n");
    let gone = server.run(&["doc", "get", "rooms/r1"]).error(1);
    assert!(gone.contains("there is no document rooms/r1"), "{gone}");
}

#[test]
fn a_collection_is_exported_and_imported_and_nothing_is_done_twice() {
    let server = Server::start();
    let input: String =
        (0..250).map(|n| format!("{{\"id\":\"d{n:03}\",\"n\":{n},\"x\":1.10}}\n")).collect();
    let import = |args: &[&str], input: &str| {
        let ended =
            run_with(server.command(&[&["doc", "import"], args].concat()), input.as_bytes());
        (ended.err.clone(), ended.ok())
    };
    let (err, out) = import(&["rooms"], &input);
    assert_eq!((err.as_str(), out.as_str()), ("", "imported 250 documents\n"));
    let exported = server.run(&["doc", "export", "rooms"]).ok();
    let documents = lines(&exported);
    assert_eq!(documents.len(), 250);
    assert_eq!((&documents[7]["id"], &documents[7]["version"]), (&json!("d007"), &json!(1)));
    // Once more: the server knows every batch.
    let (err, out) = import(&["rooms", "--output", "json"], &input);
    assert_eq!(lines(&out)[0], json!({ "documents": 250, "repeated": 250 }));
    assert!(err.contains("--run NAME"), "{err}");
    assert_eq!(server.run(&["doc", "export", "rooms"]).ok(), exported);
    // Under a name of its own it is done again.
    import(&["rooms", "--run", "second"], &input);
    let again = lines(&server.run(&["doc", "export", "rooms"]).ok());
    assert_eq!(again[0]["version"], 2);
    // What was exported is what can be imported, elsewhere too.
    import(&["halls/h1/rooms"], &exported);
    let moved = lines(&server.run(&["doc", "export", "halls/h1/rooms", "--where", "n < 3"]).ok());
    assert_eq!(moved.len(), 3);
    assert_eq!(moved[2]["n"], 2);
}

#[test]
fn an_import_says_which_document_it_stopped_at() {
    let server = Server::start();
    let import = |input: &str| {
        run_with(server.command(&["doc", "import", "rooms"]), input.as_bytes()).error(1)
    };
    let sentence = import("{\"id\":\"a\"}\n{\"id\":\"b\",\"x.y\":1}\n");
    assert!(sentence.contains("document 2 of the input"), "{sentence}");
    assert!(sentence.contains("imported 0 documents"), "{sentence}");
    let sentence = import("{\"id\":\"a\"}\n[1]\n");
    assert!(sentence.contains("imported 1 document,"), "{sentence}");
    assert!(sentence.contains("document 2 of the input"), "{sentence}");
    server.run(&["doc", "get", "rooms/a"]).ok();
}

#[test]
fn wrong_usage_of_documents_is_told_apart() {
    for args in [
        &["doc", "get", "rooms"][..],
        &["doc", "get", "rooms/a b"],
        &["doc", "put", "rooms/r1", "[1]"],
        &["doc", "put", "rooms/r1", "{"],
        &["doc", "put", "rooms", "{}", "--if-version", "1"],
        &["doc", "query", "rooms/r1"],
        &["doc", "query", "rooms", "--where", "n"],
        &["doc", "query", "rooms", "--where", "n ~ 1"],
        &["doc", "query", "rooms", "--order", "n:up"],
        &["doc", "import", "rooms/r1"],
    ] {
        let sentence = run(args).error(2);
        assert!(!sentence.is_empty(), "{args:?}");
    }
}

#[test]
fn a_collection_is_watched_over_a_restart() {
    let mut server = Server::start();
    server.run(&["doc", "put", "rooms/a", r#"{"n":1}"#]).ok();
    let watch = ["doc", "watch", "rooms", "--where", "n < 9", "--output", "json"];
    let watch = Running::start(server.command(&watch));
    let next = || serde_json::from_str::<Value>(&watch.out.next().unwrap()).unwrap();
    let document = next();
    assert_eq!((&document["event"], &document["id"]), (&json!("document"), &json!("1/a")));
    assert_eq!(next(), json!({ "event": "ready", "id": "1", "data": { "seq": 1 } }));
    server.run(&["doc", "patch", "rooms/a", r#"{"n":2}"#]).ok();
    assert_eq!(next()["data"]["document"]["n"], 2);
    server.kill();
    watch.err.until("it goes on as soon as it answers");
    server.restart();
    server.run(&["doc", "put", "rooms/b", r#"{"n":1}"#]).ok();
    server.run(&["doc", "put", "rooms/a", r#"{"n":9}"#]).ok();
    let kinds = [next(), next(), next()].map(|event| event["event"].clone());
    // It may come back before, between or after the two.
    assert!(kinds.contains(&json!("ready")) && kinds.contains(&json!("change")), "{kinds:?}");
    assert!(kinds.contains(&json!("removed")), "{kinds:?}");
    let after = ["doc", "watch", "rooms", "--after", "3"];
    let later = Running::start(server.command(&after));
    let line = later.out.next().unwrap();
    assert!(line.starts_with("update    a  version 3"), "{line}");
    assert_eq!(later.out.next().unwrap(), "ready     as of change 4");
    server.run(&["doc", "watch", "rooms/a"]).error(2);
    let wrong = server.run(&["doc", "watch", "rooms", "--after", "x"]).error(2);
    assert!(wrong.contains("the id of an event"), "{wrong}");
}
