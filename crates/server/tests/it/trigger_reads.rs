//! GET and QRY: documents that are read with a token.

use serde_json::{Value, json};

use crate::harness::triggers::codes_of;
use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn get_2_and_3_documents_come_in_order_and_missing_ones_have_a_place() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    server.put_doc("rooms/r1", json!({ "n": 1 })).await;
    server.put_doc("rooms/r2", json!({ "n": 2, "at": { "x": [1, null] } })).await;
    server.put_doc("rooms/gone", json!({})).await;
    server.delete("/api/v1/rooms/gone").await.expect(204);
    let paths = ["/rooms/r2", "rooms/none/", "rooms/r1", "rooms/gone", "/rooms/r2/"];
    let found = server.call(&token, "get", &json!({ "paths": paths })).await.expect(200);
    let r1 = server.get_doc("rooms/r1").await.expect(200).json();
    let r2 = server.get_doc("rooms/r2").await.expect(200).json();
    let expected = json!({ "documents": [
        r2,
        { "path": "rooms/none/", "missing": true },
        r1,
        { "path": "rooms/gone", "missing": true },
        r2,
    ] });
    assert_eq!(found.json(), expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn get_1_and_4_what_is_wrong_with_paths_is_said() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/"]).await;
    let check = async |body: Value, said: &str| {
        let refused = server.call(&token, "get", &body).await.expect(400).json();
        assert_eq!(codes_of(&refused).0, "INVALID_ARGUMENT", "{body}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(said), "{body}: {refused}");
    };
    check(json!({}), "`paths` is missing").await;
    check(json!({ "paths": null }), "`paths` must be an array").await;
    check(json!({ "paths": [] }), "`paths` is empty").await;
    check(json!({ "paths": "rooms/r1" }), "`paths` must be an array").await;
    check(json!({ "paths": { "0": "rooms/r1" } }), "`paths` must be an array").await;
    check(json!({ "paths": [1] }), "`paths[0]` must be a string").await;
    check(json!({ "paths": ["rooms/r1", null] }), "`paths[1]` must be a string").await;
    check(json!({ "path": "rooms/r1" }), "did you mean `paths`?").await;
    check(json!({ "paths": ["rooms"] }), "`rooms`: `rooms` is a collection").await;
    check(json!({ "paths": ["rooms/*"] }), "but not `*`").await;
    check(json!({ "paths": ["//rooms/r1"] }), "no slash").await;
    check(json!({ "paths": ["rooms/../x/y"] }), "never relative").await;
    check(json!({ "paths": [""] }), "the path is empty").await;
    check(json!({ "paths": ["a".repeat(2_000)] }), "at most 1024").await;
    check(json!({ "paths": ["rooms/\u{0}"] }), "but not").await;
    check(json!([]), "must be a JSON object").await;
    let target = "/api/v1/trigger/get";
    for body in ["", "{", "{\"paths\":[\"rooms/r1\"]", "\u{1}"] {
        let refused = server.ask_as(&token, "POST", target, &[JSON], body.as_bytes()).await;
        assert_eq!(codes_of(&refused.expect(400).json()).0, "INVALID_ARGUMENT", "{body}");
    }
    let deep = format!("{{\"paths\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    server.ask_as(&token, "POST", target, &[JSON], deep.as_bytes()).await.expect(400);
    let wide = json!({ "paths": vec!["rooms/r1"; 70_000] });
    let refused = server.call(&token, "get", &wide).await.expect(429).json();
    assert_eq!(codes_of(&refused).0, "RESOURCE_EXHAUSTED");
    let query = format!("{target}?pretty");
    server.ask_as(&token, "POST", &query, &[JSON], b"{}").await.expect(400);
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let refused = server.ask_as(&token, method, target, &[], b"").await.expect(405);
        assert_eq!(refused.need("allow"), "POST, OPTIONS");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn get_answers_are_no_larger_than_a_page() {
    let server = Setup::large().start().await;
    let token = server.token_for(&["/rooms"]).await;
    for id in ["a", "b", "c"] {
        server.put_doc(&format!("rooms/{id}"), json!({ "t": "x".repeat(500_000) })).await;
    }
    let two = json!({ "paths": ["rooms/a", "rooms/b"] });
    server.call(&token, "get", &two).await.expect(200);
    let three = json!({ "paths": ["rooms/a", "rooms/b", "rooms/c"] });
    let refused = server.call(&token, "get", &three).await.expect(429).json();
    assert_eq!(codes_of(&refused).0, "RESOURCE_EXHAUSTED");
    assert!(refused["error"]["message"].as_str().unwrap().contains("ask for fewer"), "{refused}");
    // A single one is always found, however large it is.
    server.put_doc("rooms/large", json!({ "t": "x".repeat(1_048_000) })).await;
    server.call(&token, "get", &json!({ "paths": ["rooms/large"] })).await.expect(200);
    server.stop().await;
}

/// RUL-1, scenario 21: a rule that denies one of many documents denies the whole call.
#[tokio::test(flavor = "multi_thread")]
async fn rul_1_rules_are_asked_and_one_denial_is_the_whole_calls() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    server.put_doc("rooms/open", json!({ "open": true })).await;
    server.put_doc("rooms/closed", json!({ "open": false })).await;
    let rules = json!({ "match": { "rooms/{room}": { "allow": {
        "read": "request.auth.userId == 'trigger:trg' && 'trigger' in request.auth.roles \
                 && 'trigger.read' in request.auth.claims.scopes && resource.data.open",
        "create": "request.resource.data.by == request.auth.claims.sub",
    } } } });
    server.tenant("PUT", "default/rules", &rules).await.expect(200);
    let get = async |token: &str, paths: &[&str]| {
        server.call(token, "get", &json!({ "paths": paths })).await
    };
    get(&token, &["rooms/open"]).await.expect(200);
    let denied = ("PERMISSION_DENIED".to_owned(), vec!["RULE_DENY".to_owned()]);
    for paths in [&["rooms/open", "rooms/closed"][..], &["rooms/closed"], &["rooms/none"]] {
        let refused = get(&token, paths).await.expect(403).json();
        assert_eq!(codes_of(&refused), denied, "{paths:?}");
        assert_eq!(refused.get("documents"), None);
    }
    let all = json!({ "query": { "collection": "rooms" } });
    let refused = server.call(&token, "query", &all).await.expect(403).json();
    assert_eq!(codes_of(&refused), denied);
    let open = json!([{ "field": "open", "op": "==", "value": true }]);
    let open = json!({ "query": { "collection": "rooms", "filters": open } });
    assert_eq!(ids_of(&server.call(&token, "query", &open).await.expect(200).json()), ["open"]);
    let create = |id: &str, by: &str| json!([{ "type": "create", "path": format!("rooms/{id}"), "data": { "by": by } }]);
    server.call_write(&token, "ok", &create("mine", "trg")).await.expect(200);
    let refused = server.call_write(&token, "no", &create("other", "me")).await.expect(403).json();
    assert_eq!(codes_of(&refused), denied);
    assert_eq!(refused["error"]["details"][0]["opIndex"], 0);
    // A denial is remembered like any other end, without its details.
    let again = server.call_write(&token, "no", &create("other", "me")).await.expect(403);
    assert_eq!(again.need("idempotent-replayed"), "true");
    assert_eq!(codes_of(&again.json()), ("PERMISSION_DENIED".into(), vec![]));
    // Only who gave the token out can pass over the rules; that is written down.
    let bypass = server
        .trigger_token(&json!({
            "triggerId": "trg", "scopes": ["trigger.read", "trigger.write"],
            "allowPaths": ["/rooms"], "bypassRules": true,
        }))
        .await;
    get(&bypass, &["rooms/closed"]).await.expect(200);
    server.call_write(&bypass, "bypass", &create("forced", "me")).await.expect(200);
    let rows = server.get("/admin/v1/audit").await.expect(200).json();
    let mut rows = rows["audit"].as_array().unwrap().clone();
    rows.retain(|row| row["actor"] == "trigger:trg" && row["action"] != "documents.denied");
    let actions: Vec<&str> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["documents.written", "documents.read", "documents.written"]);
    assert_eq!(rows[0]["diff"]["bypassRules"], true, "{}", rows[0]);
    assert_eq!(rows[1]["diff"]["paths"], json!(["rooms/closed"]));
    assert_eq!(rows[2]["diff"].get("bypassRules"), None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qry_1_and_2_a_query_answers_as_everybodys_does() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/rooms"]).await;
    for n in 0..25 {
        server.put_doc(&format!("rooms/r{n:02}"), json!({ "n": n, "tie": n / 10 })).await;
    }
    let query = json!({
        "collection": "rooms",
        "filters": [{ "field": "n", "op": ">=", "value": 3 }],
        "orderBy": [{ "field": "tie", "direction": "desc" }],
        "limit": 4,
    });
    // Scenario 20: paging through ties, in an object of its own and without.
    let (expected, pages) = server.query_all(&query).await;
    assert_eq!((expected.len(), pages), (22, 6));
    for wrapped in [false, true] {
        let (mut ids, mut query) = (Vec::new(), query.clone());
        loop {
            let body = if wrapped { json!({ "query": query }) } else { query.clone() };
            let page = server.call(&token, "query", &body).await.expect(200).json();
            assert_eq!(page, server.query(&query).await.expect(200).json());
            ids.extend(ids_of(&page));
            let Some(next) = page.get("nextCursor") else { break };
            query["startAfter"] = next.clone();
        }
        assert_eq!(ids, expected);
    }
    // QRY-4: a hundred unless something else is said.
    for n in 25..120 {
        server.put_doc(&format!("rooms/r{n:03}"), json!({ "n": n })).await;
    }
    let page = server.call(&token, "query", &json!({ "collection": "/rooms/" })).await;
    assert_eq!(ids_of(&page.expect(200).json()).len(), 100);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qry_3_and_5_what_is_wrong_with_a_query_is_said() {
    let mut setup = Setup::default();
    setup.documents.scan_limit = 3;
    let server = setup.start().await;
    let token = server.token_for(&["/"]).await;
    let check = async |query: Value, said: &str| {
        for body in [query.clone(), json!({ "query": query })] {
            let refused = server.call(&token, "query", &body).await.expect(400).json();
            assert_eq!(codes_of(&refused).0, "INVALID_ARGUMENT", "{body}");
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.contains(said), "{body}: {refused}");
        }
    };
    check(json!({}), "`collection` is missing").await;
    check(json!({ "collection": 1 }), "`collection` must be a string").await;
    check(json!({ "collection": "rooms/r1" }), "is a document").await;
    check(json!({ "collection": "rooms/*/messages" }), "but not `*`").await;
    check(json!({ "collection": "**" }), "but not `*`").await;
    check(json!({ "collection": "//rooms" }), "no slash").await;
    check(json!({ "collection": "rooms", "tenant": "x" }), "unknown field `tenant`").await;
    let with = |name: &str, value: Value| {
        let mut query = json!({ "collection": "rooms" });
        query[name] = value;
        query
    };
    check(with("filters", json!(1)), "`filters` must be an array").await;
    check(with("filters", json!([{ "field": "a", "op": "~", "value": 1 }])), "no operator").await;
    check(with("orderBy", json!([{}])), "`orderBy[0]` has no `field`").await;
    check(with("limit", json!(-1)), "`limit` must be a whole number").await;
    check(with("limit", json!("1")), "`limit` must be a whole number").await;
    check(with("startAfter", json!("x")), "is no cursor").await;
    check(with("startAfter", json!(1)), "`startAfter` must be a string").await;
    check(with("showDeleted", json!("x")), "must be true or false").await;
    check(with("explain", json!(1)), "must be true or false").await;
    for (body, said) in [
        (json!({ "query": 1 }), "`query` must be an object"),
        (json!({ "query": null }), "`query` must be an object"),
        (json!({ "query": { "collection": "a" }, "collection": "b" }), "unknown field"),
        (json!([]), "must be a JSON object"),
    ] {
        let refused = server.call(&token, "query", &body).await.expect(400).json();
        assert!(refused["error"]["message"].as_str().unwrap().contains(said), "{refused}");
    }
    for n in 0..5 {
        server.put_doc(&format!("rooms/{n}"), json!({ "n": n })).await;
    }
    let scan = with("filters", json!([{ "field": "n", "op": "==", "value": 4 }]));
    let refused = server.call(&token, "query", &scan).await.expect(400).json();
    assert_eq!(refused["error"]["code"], "MISSING_INDEX");
    let suggested = json!({
        "collection": "rooms", "fields": [{ "path": "data.n", "direction": "asc" }],
    });
    assert_eq!(refused["error"]["suggestedIndex"], suggested, "{refused}");
    server.stop().await;
}

/// CHK-4: what is the server's own is closed to everybody, whatever the road.
#[tokio::test(flavor = "multi_thread")]
async fn chk_4_sys_is_closed_on_every_route() {
    let server = Setup::default().start().await;
    let token = server.token_for(&["/"]).await;
    let (path, doc) = ("sys/checkpoints", json!({ "doc": { "a": 1 } }));
    for method in ["GET", "PUT", "PATCH", "DELETE", "POST"] {
        for path in [path, "sys", "sys/checkpoints/trigger_evaluator", "sys/a/b/c"] {
            let refused = server.doc(method, path, &doc).await.expect(400);
            assert!(refused.text().contains("reserved"), "{method} {path}: {refused}");
        }
    }
    let set = json!([{ "type": "set", "path": path, "data": {} }]);
    server.batch("k", &set).await.expect(400);
    server.query(&json!({ "collection": "sys" })).await.expect(400);
    server.call_write(&token, "k", &set).await.expect(400);
    server.call(&token, "get", &json!({ "paths": [path] })).await.expect(400);
    server.call(&token, "get", &json!({ "paths": [format!("/{path}/")] })).await.expect(400);
    server.call(&token, "query", &json!({ "collection": "/sys/" })).await.expect(400);
    assert_eq!(
        server.get("/_changes/default?offset=-1").await.status(),
        404,
        "nothing has changed"
    );
    server.stop().await;
}
