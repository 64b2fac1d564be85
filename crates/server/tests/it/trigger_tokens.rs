//! TET and SYS: who is let in with a token, in which order that is judged, and who gives them out.

use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::triggers::codes_of;
use crate::harness::*;

const TOKENS: &str = "/admin/v1/tokens/trigger";
const SYSTEM: &str = "/admin/v1/tokens/system";
const JWKS: &str = "/api/v1/trigger/jwks.json";

fn nothing() -> Value {
    json!({ "paths": ["/rooms/none"] })
}

fn asked(scopes: &[&str], paths: &[&str]) -> Value {
    json!({ "triggerId": "trg", "scopes": scopes, "allowPaths": paths })
}

async fn post_as(server: &TestServer, key: &str, target: &str, body: &Value) -> Answer {
    server.ask_as(key, "POST", target, &[JSON], body.to_string().as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_1_a_token_is_good_for_five_minutes_and_then_401() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let body = asked(&["trigger.read"], &["/rooms"]).to_string();
    let made = server.ask("POST", TOKENS, &[JSON], body.as_bytes()).await.expect(200).json();
    assert_eq!(made["expiresAt"], START_MS + 300_000);
    let token = made["token"].as_str().unwrap();
    clock.advance(299_999);
    server.call(token, "get", &nothing()).await.expect(200);
    clock.advance(1);
    let refused = server.call(token, "get", &nothing()).await.expect(401);
    assert_eq!(refused.need("www-authenticate"), "Bearer");
    let refused = refused.json();
    assert_eq!(refused["error"]["code"], "UNAUTHENTICATED");
    assert!(refused["error"]["message"].as_str().unwrap().contains("expired"), "{refused}");
    // Whatever else is wrong: expiry comes first.
    let other = [("x-tenant-namespace", "default")];
    server.call_with(token, "write", &other, &json!([])).await.expect(401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_1_whoever_has_no_token_is_401_before_anything_is_read() {
    let server = guarded_by_keys().start().await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    for what in ["get", "query", "write"] {
        let target = format!("/api/v1/trigger/{what}");
        let none = server.ask("POST", &target, &[JSON], b"not JSON").await.expect(401).json();
        assert_eq!(codes_of(&none), ("UNAUTHENTICATED".into(), vec![]), "{what}");
        for wrong in ["Bearer", "Basic abc", "Bearer  ", "Bearer a.b.c", "Bearer rv_unknown"] {
            let headers = [JSON, ("authorization", wrong)];
            let refused = server.ask("POST", &target, &headers, b"").await.expect(401).json();
            assert_eq!(codes_of(&refused).0, "UNAUTHENTICATED", "{wrong}");
        }
        let twice = [("authorization", "Bearer a.b.c"), ("authorization", "Bearer d.e.f")];
        server.ask("POST", &target, &twice, b"").await.expect(401);
        // SYS-1: a key is known, and is not enough.
        for key in [user.as_str(), ADMIN] {
            let refused = server.ask_as(key, "POST", &target, &[JSON], b"{}").await.expect(403);
            assert_eq!(codes_of(&refused.json()).0, "PERMISSION_DENIED");
        }
        server.get(&target).await.expect(401);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_4_another_tenant_is_403_and_comes_before_the_scope() {
    let server = guarded_by_keys().start().await;
    let mut body = asked(&["trigger.read"], &["/rooms"]);
    body["tenant"] = "acme".into();
    let made = post_as(&server, ADMIN, TOKENS, &body).await.expect(200).json();
    let token = made["token"].as_str().unwrap();
    let named = |tenant: &'static str| [("x-tenant-namespace", tenant)];
    server.call_with(token, "get", &named("acme"), &nothing()).await.expect(200);
    for what in ["get", "query", "write"] {
        let refused = server.call_with(token, what, &named("beta"), &json!({})).await.expect(403);
        let refused = refused.json();
        assert_eq!(codes_of(&refused), ("PERMISSION_DENIED".into(), vec![]), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("`acme`"), "{refused}");
    }
    server.call_with(token, "get", &named("No tenant"), &nothing()).await.expect(400);
    // TET-7: the body names no tenant.
    let body = json!({ "paths": ["rooms/r1"], "tenant": "beta" });
    server.call(token, "get", &body).await.expect(400);
    // What one tenant writes the other does not see.
    let doc = json!({ "doc": { "of": "beta" } }).to_string();
    let (_, beta) = server.make_key("beta", &["user"]).await;
    server.ask_as(&beta, "PUT", "/api/v1/rooms/r1", &[JSON], doc.as_bytes()).await.expect(200);
    let found = server.call(token, "get", &json!({ "paths": ["rooms/r1"] })).await.expect(200);
    assert_eq!(found.json()["documents"][0]["missing"], true);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_4_the_scope_comes_before_the_path_and_both_before_the_rate() {
    let clock = HandClock::new();
    let mut setup = Setup::on(&clock);
    setup.documents.trigger_calls_per_s = 2;
    let server = setup.start().await;
    let reader = server.trigger_token(&asked(&["trigger.read"], &["/rooms"])).await;
    let writer = server.trigger_token(&asked(&["trigger.write"], &["/rooms"])).await;
    let denied = |code: &str| ("PERMISSION_DENIED".to_owned(), vec![code.to_owned()]);
    let ops = json!([{ "type": "delete", "path": "users/u1" }]);
    let refused = server.call_write(&reader, "k", &ops).await.expect(403).json();
    assert_eq!(codes_of(&refused), denied("INVALID_SCOPE"));
    for what in ["get", "query"] {
        // The body is not even read.
        let refused = server.call(&writer, what, &json!([])).await.expect(403).json();
        assert_eq!(codes_of(&refused), denied("INVALID_SCOPE"), "{what}");
    }
    for _ in 0..2 {
        server.call(&reader, "get", &nothing()).await.expect(200);
    }
    let elsewhere = json!({ "paths": ["/users/u1"] });
    let refused = server.call(&reader, "get", &elsewhere).await.expect(403).json();
    assert_eq!(codes_of(&refused), denied("PATH_NOT_ALLOWED"));
    let refused = server.call(&reader, "get", &nothing()).await.expect(429);
    assert_eq!(refused.need("retry-after"), "1");
    assert_eq!(codes_of(&refused.json()).0, "RESOURCE_EXHAUSTED");
    // Whatever it asks for, and with whichever token, it is the same trigger.
    let ops = json!([{ "type": "delete", "path": "rooms/r" }]);
    let refused = server.call_write(&writer, "k", &ops).await.expect(429).json();
    assert_eq!(codes_of(&refused).0, "RESOURCE_EXHAUSTED");
    // Another trigger does not wait for it.
    let mut other = asked(&["trigger.read"], &["/rooms"]);
    other["triggerId"] = "other".into();
    let other = server.trigger_token(&other).await;
    server.call(&other, "get", &nothing()).await.expect(200);
    clock.advance(500);
    server.call(&reader, "get", &nothing()).await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_5_paths_are_compared_segment_by_segment() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms/room-1", "/users/u1/posts/"]).await;
    let get = async |path: &str| server.call(&token, "get", &json!({ "paths": [path] })).await;
    let query =
        async |path: &str| server.call(&token, "query", &json!({ "collection": path })).await;
    for path in ["rooms/room-1", "/rooms/room-1", "rooms/room-1/messages/m9", "users/u1/posts/p"] {
        get(path).await.expect(200);
    }
    for path in ["rooms/room-1/messages", "/rooms/room-1/messages/", "users/u1/posts"] {
        query(path).await.expect(200);
    }
    for path in ["rooms/room-12", "users/u1", "users/u1/postscripts/p", "users/u2/posts/p"] {
        let refused = get(path).await.expect(403).json();
        assert_eq!(codes_of(&refused).1, ["PATH_NOT_ALLOWED"], "{path}");
    }
    for path in ["rooms", "users", "rooms/room-12/messages"] {
        let refused = query(path).await.expect(403).json();
        assert_eq!(codes_of(&refused).1, ["PATH_NOT_ALLOWED"], "{path}");
    }
    // One path that is not allowed, and nothing of the call is done.
    let both = json!({ "paths": ["rooms/room-1", "rooms/room-12"] });
    server.call(&token, "get", &both).await.expect(403);
    let ops = json!([
        { "type": "set", "path": "rooms/room-1", "data": {} },
        { "type": "set", "path": "rooms/room-12", "data": {} },
    ]);
    let refused = server.call_write(&token, "k", &ops).await.expect(403).json();
    assert_eq!(refused["error"]["details"][0]["opIndex"], 1, "{refused}");
    server.get_doc("rooms/room-1").await.expect(404);
    // It is not remembered: the same key is good for what is allowed.
    let ops = json!([{ "type": "set", "path": "rooms/room-1", "data": {} }]);
    server.call_write(&token, "k", &ops).await.expect(200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_6_limits_of_the_token_are_429() {
    let server = Setup::default().start().await;
    let mut body = asked(&["trigger.read", "trigger.write"], &["/rooms"]);
    body["maxOps"] = 2.into();
    body["maxPayloadKb"] = 1.into();
    let token = server.trigger_token(&body).await;
    let exhausted = |refused: Answer, said: &str| {
        let refused = refused.expect(429).json();
        assert_eq!(codes_of(&refused).0, "RESOURCE_EXHAUSTED", "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(said), "{refused}");
    };
    let paths = |count: usize| json!({ "paths": vec!["rooms/r1"; count] });
    server.call(&token, "get", &paths(2)).await.expect(200);
    exhausted(server.call(&token, "get", &paths(3)).await, "at most 2 documents");
    let ops =
        |count: usize| json!(vec![json!({"type": "set", "path": "rooms/r1", "data": {}}); count]);
    server.call_write(&token, "two", &ops(2)).await.expect(200);
    exhausted(server.call_write(&token, "three", &ops(3)).await, "at most 2 writes");
    let large = json!([{ "type": "set", "path": "rooms/r1", "data": { "t": "x".repeat(1_024) } }]);
    exhausted(
        server.call_write(&token, "large", &large).await,
        "larger than 1 KB, which this token",
    );
    // LIM-8: what the server says holds where the token says nothing, or says more.
    body["maxOps"] = 10_000.into();
    body["maxPayloadKb"] = 100_000_000.into();
    for token in [server.trigger_token(&body).await, server.token_for(&["/rooms"]).await] {
        exhausted(server.call(&token, "get", &paths(501)).await, "at most 500 documents");
        exhausted(server.call_write(&token, "many", &ops(501)).await, "at most 500 writes");
        let high = json!({ "collection": "rooms", "limit": 1_001 });
        exhausted(server.call(&token, "query", &high).await, "`limit` is at most 1000");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_triggers_are_published_and_rotated_apart_from_those_of_webhooks() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let server = Setup::on(&clock).start_in(directory.path()).await;
    let kids = async |server: &TestServer, target: &str| -> Vec<String> {
        let answer = server.get(target).await.expect(200);
        assert_eq!(answer.need("content-type"), "application/jwk-set+json");
        let keys = answer.json()["keys"].as_array().unwrap().clone();
        for key in &keys {
            assert_eq!((&key["crv"], &key["alg"]), (&json!("Ed25519"), &json!("EdDSA")));
            assert_eq!(key.get("d"), None, "the private part");
        }
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    };
    let webhooks = kids(&server, "/v1/stream/__ds/jwks.json").await;
    let old = kids(&server, JWKS).await;
    assert_eq!(old.len(), 1);
    assert_ne!(old, webhooks);
    let token = server.token_for(&["/rooms"]).await;
    let rotate = async |server: &TestServer, body: &str| {
        let target = "/admin/v1/signing-keys/rotate";
        server.ask("POST", target, &[JSON], body.as_bytes()).await
    };
    let rotated = rotate(&server, r#"{"keys":"triggers","overlap":"4m"}"#).await.expect(200).json();
    let both = kids(&server, JWKS).await;
    assert_eq!(rotated["published"], json!(both));
    assert_eq!((both.len(), &both[1]), (2, &old[0]));
    assert_eq!(kids(&server, "/v1/stream/__ds/jwks.json").await, webhooks);
    server.stop().await;
    let server = Setup::on(&clock).start_in(directory.path()).await;
    assert_eq!(kids(&server, JWKS).await, both);
    server.call(&token, "get", &nothing()).await.expect(200);
    let newer = server.token_for(&["/rooms"]).await;
    clock.advance(240_000);
    server.call(&token, "get", &nothing()).await.expect(401);
    server.call(&newer, "get", &nothing()).await.expect(200);
    rotate(&server, r#"{"keys":"triggers","overlap":0}"#).await.expect(200);
    server.call(&newer, "get", &nothing()).await.expect(401);
    for wrong in [r#"{"keys":"other"}"#, r#"{"keys":1}"#, r#"{"key":"triggers"}"#] {
        rotate(&server, wrong).await.expect(400);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sys_1_a_worker_has_every_path_of_its_tenant_and_is_written_down() {
    let server = guarded_by_keys().start().await;
    let (_, admin) = server.make_key("acme", &["admin"]).await;
    let made = post_as(&server, &admin, SYSTEM, &json!({ "tenant": "acme" })).await;
    let made = made.expect(200).json();
    let token = made["token"].as_str().unwrap();
    let ops = json!([{ "type": "set", "path": "rooms/r1", "data": { "n": 1 } }]);
    server.call_write(token, "k", &ops).await.expect(200);
    let found = server.call(token, "get", &json!({ "paths": ["rooms/r1"] })).await.expect(200);
    assert_eq!(found.json()["documents"][0]["n"], 1);
    server.call(token, "query", &json!({ "collection": "rooms" })).await.expect(200);
    let rows = server.get_as(&admin, "/admin/v1/audit").await.expect(200).json();
    let rows = rows["audit"].as_array().unwrap().clone();
    let summary: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["actor"].as_str().unwrap(), row["action"].as_str().unwrap()))
        .filter(|(_, action)| !action.starts_with("key."))
        .collect();
    let worker = "system:trigger-worker";
    assert_eq!(
        summary[..3],
        [(worker, "documents.read"), (worker, "documents.read"), (worker, "documents.written"),]
    );
    assert_eq!(summary[3].1, "token.issued");
    assert!(!json!(rows).to_string().contains(token), "a token is never written down");
    // Rules are asked of workers as well.
    let rules = json!({ "match": { "rooms/{room}": { "allow": { "read": "true" } } } }).to_string();
    let target = "/admin/v1/tenants/acme/rules";
    server.ask_as(&admin, "PUT", target, &[JSON], rules.as_bytes()).await.expect(200);
    let refused = server.call_write(token, "k2", &ops).await.expect(403).json();
    assert_eq!(codes_of(&refused), ("PERMISSION_DENIED".into(), vec!["RULE_DENY".into()]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_14_tokens_are_given_out_by_admins_alone() {
    let server = guarded_by_keys().start().await;
    let mut body = asked(&["trigger.read"], &["/rooms"]);
    body["tenant"] = "acme".into();
    let (_, admin) = server.make_key("acme", &["admin"]).await;
    let (_, beta) = server.make_key("beta", &["admin"]).await;
    for (target, body) in [(TOKENS, body), (SYSTEM, json!({ "tenant": "acme" }))] {
        for role in ["user", "operator"] {
            let (_, key) = server.make_key("acme", &[role]).await;
            post_as(&server, &key, target, &body).await.expect(403);
        }
        post_as(&server, &beta, target, &body).await.expect(403);
        server.ask("POST", target, &[JSON], b"{}").await.expect(401);
        server.get_as(&admin, target).await.expect(405);
        post_as(&server, &admin, target, &body).await.expect(200);
        post_as(&server, ADMIN, target, &body).await.expect(200);
    }
    let rows = server.get_as(&admin, "/admin/v1/audit?action=token.issued").await.expect(200);
    assert_eq!(rows.json()["audit"].as_array().unwrap().len(), 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_token_can_be_is_said_field_by_field() {
    let server = Setup::default().start().await;
    let good = asked(&["trigger.read"], &["/rooms"]);
    let check = async |target: &str, name: &str, value: Value, said: &str| {
        let mut body = if target == SYSTEM { json!({}) } else { good.clone() };
        body[name] = value;
        let refused = server.ask("POST", target, &[JSON], body.to_string().as_bytes()).await;
        let refused = refused.expect(400);
        assert_eq!(refused.code(), "INVALID_REQUEST", "{body}");
        assert!(refused.text().contains(said), "{body}: {refused}");
    };
    check(TOKENS, "triggerId", Value::Null, "`triggerId` is missing").await;
    check(TOKENS, "triggerId", json!(1), "`triggerId` must be a string").await;
    check(TOKENS, "triggerId", json!("a b"), "`triggerId`: the id of a trigger is").await;
    check(TOKENS, "triggerId", json!("x".repeat(65)), "1 to 64").await;
    check(TOKENS, "tenant", json!(1), "`tenant` must be a string").await;
    check(TOKENS, "tenant", json!("*"), "`tenant`").await;
    check(TOKENS, "scopes", Value::Null, "`scopes` is a list").await;
    check(TOKENS, "scopes", json!([]), "`scopes` is a list").await;
    check(TOKENS, "scopes", json!("trigger.read"), "`scopes` must be an array").await;
    check(TOKENS, "scopes", json!(["read"]), "`scopes` is a list").await;
    check(TOKENS, "allowPaths", Value::Null, "1 to 16 paths").await;
    check(TOKENS, "allowPaths", json!([]), "1 to 16 paths").await;
    check(TOKENS, "allowPaths", json!(vec!["/a"; 17]), "1 to 16 paths").await;
    check(TOKENS, "allowPaths", json!([1]), "`allowPaths[0]` must be a string").await;
    check(TOKENS, "allowPaths", json!(["/a", "/rooms/{1}/"]), "`allowPaths[1]`").await;
    check(TOKENS, "allowPaths", json!(["/sys/"]), "reserved").await;
    check(TOKENS, "maxOps", json!(0), "at least 1").await;
    check(TOKENS, "maxOps", json!("5"), "`maxOps` must be a whole number").await;
    check(TOKENS, "maxPayloadKb", json!(-1), "`maxPayloadKb` must be a whole number").await;
    check(TOKENS, "bypassRules", json!("yes"), "must be true or false").await;
    check(TOKENS, "ttl", json!("2h"), "`ttl` must be from").await;
    check(TOKENS, "ttl", json!(0), "`ttl` must be from").await;
    check(TOKENS, "ttl", json!("soon"), "`ttl` must be a time").await;
    check(TOKENS, "scope", json!([]), "did you mean `scopes`?").await;
    check(SYSTEM, "tenant", json!([]), "`tenant` must be a string").await;
    check(SYSTEM, "ttl", json!("2h"), "`ttl` must be from").await;
    check(SYSTEM, "scopes", json!([]), "unknown field `scopes`").await;
    let mut wide = asked(&["trigger.read"], &["/rooms", "/"]);
    server.trigger_token(&wide).await;
    wide["bypassRules"] = true.into();
    let refused = server.ask("POST", TOKENS, &[JSON], wide.to_string().as_bytes()).await;
    assert!(refused.expect(400).text().contains("narrow"));
    for body in ["", "[]", "{", "null"] {
        server.ask("POST", TOKENS, &[JSON], body.as_bytes()).await.expect(400);
    }
    let target = format!("{TOKENS}?pretty");
    server.ask("POST", &target, &[JSON], good.to_string().as_bytes()).await.expect(400);
    server.stop().await;
}
