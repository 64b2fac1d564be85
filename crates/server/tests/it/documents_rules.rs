//! Who may read and write which documents: keys, permissions and the rules of a tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const RULES: &str = "/admin/v1/tenants/acme/rules";

async fn ask(server: &TestServer, key: &str, method: &str, target: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.ask_as(key, method, target, &[JSON], body.as_bytes()).await
}

async fn key_of(server: &TestServer, roles: &[&str], permissions: &[&str], who: &str) -> String {
    let body = json!({ "tenant": "acme", "roles": roles, "permissions": permissions,
                       "entity_uri": who });
    let made = server.post_key(ADMIN, &body).await.expect(201).json();
    made["key"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_and_writing_take_the_permission_for_it() {
    let server = guarded_by_keys().start().await;
    let reader = key_of(&server, &["user"], &["read"], "user:r").await;
    let writer = key_of(&server, &["user"], &["write"], "user:w").await;
    let operator = key_of(&server, &["operator"], &[], "user:o").await;
    let doc = json!({ "doc": { "n": 1 } });
    let ops = json!({ "ops": [{ "type": "set", "path": "rooms/r2", "data": {} }],
                      "idempotencyKey": "k" });
    let find = json!({ "collection": "rooms" });
    let requests = [
        ("PUT", "/api/v1/rooms/r1", &doc, &writer, 200),
        ("PATCH", "/api/v1/rooms/r1", &doc, &writer, 200),
        ("POST", "/api/v1/rooms", &json!({}), &writer, 201),
        ("POST", "/api/v1/batch", &ops, &writer, 200),
        ("GET", "/api/v1/rooms/r1", &Value::Null, &reader, 200),
        ("POST", "/api/v1/query", &find, &reader, 200),
        ("DELETE", "/api/v1/rooms/r1", &Value::Null, &writer, 204),
    ];
    for (method, target, body, allowed, status) in requests {
        for key in [&reader, &writer, &operator] {
            let expected = if key == allowed { status } else { 403 };
            let answer = ask(&server, key, method, target, body).await;
            assert_eq!(answer.status(), expected, "{method} {target} {answer}");
            if expected == 403 {
                let code =
                    if target.ends_with("batch") { "PERMISSION_DENIED" } else { "FORBIDDEN" };
                assert_eq!(answer.code(), code);
            }
        }
        let stranger = server.ask(method, target, &[], b"").await.expect(401);
        let code = if target.ends_with("batch") { "UNAUTHENTICATED" } else { "UNAUTHORIZED" };
        assert_eq!((stranger.code().as_str(), stranger.need("www-authenticate")), (code, "Bearer"));
    }
    for path in ["rules", "indexes"] {
        let target = format!("/admin/v1/tenants/acme/{path}");
        ask(&server, &reader, "GET", &target, &Value::Null).await.expect(403);
        let other = format!("/admin/v1/tenants/beta/{path}");
        let refused = ask(&server, &operator, "GET", &other, &Value::Null).await.expect(403);
        assert!(refused.text().contains("its own tenant alone"), "{refused}");
    }
    server.stop().await;
}

/// 3.5; RUL-1; C-7. Scenario 21.
#[tokio::test(flavor = "multi_thread")]
async fn rules_say_who_may_do_what_and_deny_the_rest() {
    let server = guarded_by_keys().start().await;
    let ada = key_of(&server, &["user"], &[], "user:ada").await;
    let bob = key_of(&server, &["user"], &[], "user:bob").await;
    let admin = key_of(&server, &["admin"], &[], "user:admin").await;
    let operator = key_of(&server, &["operator"], &[], "user:op").await;
    let none = ask(&server, &operator, "GET", RULES, &Value::Null).await.expect(404);
    assert_eq!(none.code(), "RULES_NOT_FOUND");
    let rules = json!({ "match": { "rooms/{room}": { "allow": {
        "read": "request.auth.userId == resource.data.owner",
        "create, update": "request.resource.data.owner == request.auth.userId",
        "delete": "false",
    } } } });
    let put = ask(&server, &operator, "PUT", RULES, &rules).await.expect(200);
    assert_eq!(put.json(), rules);
    assert_eq!(ask(&server, &operator, "GET", RULES, &Value::Null).await.expect(200).json(), rules);

    let owned = |by: &str| json!({ "doc": { "owner": format!("user:{by}") } });
    ask(&server, &ada, "PUT", "/api/v1/rooms/a", &owned("ada")).await.expect(200);
    ask(&server, &bob, "PUT", "/api/v1/rooms/b", &owned("bob")).await.expect(200);
    let refused = ask(&server, &bob, "PUT", "/api/v1/rooms/c", &owned("ada")).await.expect(403);
    assert_eq!(refused.code(), "FORBIDDEN");
    // The document as it would become is what rules look at, not what was sent.
    let patch = json!({ "doc": { "n": 1 } });
    ask(&server, &ada, "PATCH", "/api/v1/rooms/a", &patch).await.expect(200);
    ask(&server, &bob, "PATCH", "/api/v1/rooms/a", &patch).await.expect(403);
    ask(&server, &ada, "GET", "/api/v1/rooms/a", &Value::Null).await.expect(200);
    ask(&server, &bob, "GET", "/api/v1/rooms/a", &Value::Null).await.expect(403);
    ask(&server, &ada, "DELETE", "/api/v1/rooms/a", &Value::Null).await.expect(403);
    ask(&server, &ada, "PUT", "/api/v1/halls/h", &owned("ada")).await.expect(403);
    // One document of a page that may not be seen: none is.
    let all = json!({ "collection": "rooms" });
    ask(&server, &ada, "POST", "/api/v1/query", &all).await.expect(403);
    let own = json!({ "collection": "rooms",
                      "filters": [{ "field": "owner", "op": "==", "value": "user:ada" }] });
    let page = ask(&server, &ada, "POST", "/api/v1/query", &own).await.expect(200).json();
    assert_eq!(ids_of(&page), ["a"]);
    let ops = json!({ "idempotencyKey": "k", "ops": [
        { "type": "update", "path": "rooms/a", "data": { "n": 2 } },
        { "type": "update", "path": "rooms/b", "data": { "n": 2 } },
    ] });
    let refused = ask(&server, &ada, "POST", "/api/v1/batch", &ops).await.expect(403).json();
    assert_eq!(refused["error"]["code"], "PERMISSION_DENIED");
    let detail = &refused["error"]["details"][0];
    assert_eq!((&detail["opIndex"], &detail["code"]), (&json!(1), &json!("RULE_DENY")));
    let a = ask(&server, &ada, "GET", "/api/v1/rooms/a", &Value::Null).await.json();
    assert_eq!(a["n"], 1);
    // Admins pass, and nobody else.
    ask(&server, &admin, "DELETE", "/api/v1/rooms/b", &Value::Null).await.expect(204);
    ask(&server, &admin, "PUT", "/api/v1/halls/h", &owned("ada")).await.expect(200);
    ask(&server, &operator, "DELETE", RULES, &Value::Null).await.expect(204);
    ask(&server, &bob, "GET", "/api/v1/halls/h", &Value::Null).await.expect(200);
    server.stop().await;
}

/// WRT-10: others have written what the rules had looked at. After 25 ms it comes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_meets_another_waits_and_comes_again() {
    let clock = HandClock::new();
    let server = Setup { clock: Arc::new(clock.clone()), ..guarded_by_keys() }.start().await;
    let ada = key_of(&server, &["user"], &[], "user:ada").await;
    let operator = key_of(&server, &["operator"], &[], "user:op").await;
    let rules = json!({ "match": { "rooms/{room}": { "allow": { "read, write": "true" } } } });
    ask(&server, &operator, "PUT", RULES, &rules).await.expect(200);
    ask(&server, &ada, "PUT", "/api/v1/rooms/a", &json!({ "doc": {} })).await.expect(200);
    let is_over = AtomicBool::new(false);
    // Nobody guards anything: all of it is done.
    let write = async || {
        let mut done = 0;
        while !is_over.load(Ordering::SeqCst) {
            let patch = json!({ "doc": { "n": done } });
            ask(&server, &ada, "PATCH", "/api/v1/rooms/a", &patch).await.expect(200);
            done += 1;
        }
        done
    };
    let (mut one, mut other) = (Box::pin(write()), Box::pin(write()));
    let met = async {
        clock.sleeper(25).await;
        is_over.store(true, Ordering::SeqCst);
    };
    // One waits for its second try, and the other ends.
    let first = async {
        tokio::select! {
            done = &mut one => (done, true),
            done = &mut other => (done, false),
        }
    };
    let ((), (done, is_one)) = tokio::join!(met, first);
    clock.advance(25);
    let rest = if is_one { other.as_mut().await } else { one.as_mut().await };
    drop((one, other));
    let document = ask(&server, &ada, "GET", "/api/v1/rooms/a", &Value::Null).await.json();
    assert_eq!(document["version"], 1 + done + rest);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_are_none_are_refused_by_pattern_and_action() {
    let server = Setup::default().start().await;
    let rules = |pattern: &str, action: &str, condition: &str| json!({ "match": { pattern: { "allow": { action: condition } } } });
    let nothing = String::new();
    let many = "x".repeat(300_000);
    for (body, said) in [
        (nothing, "rules are JSON"),
        ("{".to_owned(), "rules are JSON"),
        ("[]".to_owned(), "the whole is no object"),
        ("{}".to_owned(), "`match` is missing"),
        (rules("rooms", "read", "true").to_string(), "rooms"),
        (rules("rooms/{r}", "look", "true").to_string(), "`look`, which is no action"),
        (rules("rooms/{r}", "read", "1 +").to_string(), "`read` of `rooms/{r}`"),
        (rules("rooms/{r}", "write", "nobody()").to_string(), "`write` of `rooms/{r}`"),
        (json!({ "match": { "rooms/{r}": {} } }).to_string(), "has no `allow` and no `match`"),
    ] {
        let put = server.ask("PUT", "/admin/v1/tenants/default/rules", &[JSON], body.as_bytes());
        let refused = put.await.expect(400);
        assert_eq!(refused.code(), "INVALID_REQUEST", "{body}");
        assert!(refused.text().contains(said), "{refused}");
    }
    let put = server.ask("PUT", "/admin/v1/tenants/default/rules", &[JSON], many.as_bytes());
    put.await.expect(413);
    server.tenant("GET", "default/rules", &Value::Null).await.expect(404);
    server.tenant("POST", "default/rules", &json!({})).await.expect(405);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_indexes_survive_a_restart_and_are_in_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let setup = guarded_by_keys();
    let server = setup.start_in(directory.path()).await;
    let operator = key_of(&server, &["operator"], &[], "user:op").await;
    let user = key_of(&server, &["user"], &[], "user:ada").await;
    let rules = json!({ "match": { "rooms/{r}": { "allow": { "read, write": "true" } } } });
    ask(&server, &operator, "PUT", RULES, &rules).await.expect(200);
    let index =
        json!({ "collection": "rooms", "fields": [{ "path": "data.n", "direction": "asc" }] });
    let indexes = "/admin/v1/tenants/acme/indexes";
    ask(&server, &operator, "PUT", indexes, &json!({ "indexes": [index] })).await.expect(200);
    server.stop().await;
    let server = setup.start_in(directory.path()).await;
    assert_eq!(ask(&server, &operator, "GET", RULES, &Value::Null).await.expect(200).json(), rules);
    // Whoever has a key of a tenant need not know its name.
    let own = ask(&server, &operator, "GET", "/admin/v1/tenants/~/rules", &Value::Null).await;
    assert_eq!(own.expect(200).json(), rules);
    let shown = ask(&server, &operator, "GET", indexes, &Value::Null).await.expect(200).json();
    assert_eq!(shown["indexes"][0]["collection"], "rooms");
    ask(&server, &user, "PUT", "/api/v1/rooms/a", &json!({ "doc": {} })).await.expect(200);
    ask(&server, &user, "PUT", "/api/v1/halls/a", &json!({ "doc": {} })).await.expect(403);
    for action in ["rules.updated", "indexes.updated"] {
        let target = format!("/admin/v1/audit?action={action}");
        let rows = server.get_as(&operator, &target).await.expect(200).json();
        assert_eq!(rows["audit"].as_array().unwrap().len(), 1, "{action}");
        assert_eq!(rows["audit"][0]["tenant"], "acme");
    }
    server.stop().await;
}
