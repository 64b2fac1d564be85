//! What is sent in the wrong form: each thing is refused by its name, and nothing is done.

use serde_json::{Value, json};

use crate::harness::*;

/// 3.2; C-21.
#[tokio::test(flavor = "multi_thread")]
async fn paths_that_are_none_say_why() {
    let server = Setup::default().start().await;
    let long = format!("rooms/{}", "x".repeat(65));
    let far = vec!["a"; 600].join("/");
    for (path, said) in [
        ("", "the path is empty"),
        ("rooms/", "no slash at its beginning or end"),
        ("rooms//r1", "no slash at its beginning or end"),
        ("/rooms/r1", "no slash at its beginning or end"),
        ("rooms/r%201", "but not `%`"),
        ("rooms/*", "but not `*`"),
        ("rooms/a~b", "but not `~`"),
        ("rooms/..", "a path is never relative"),
        ("./r1", "a path is never relative"),
        ("sys/checkpoints", "the name is reserved"),
        ("databases/x", "the name is reserved"),
        (&long, "at most 64 bytes long"),
        (&far, "at most 1024 bytes long"),
    ] {
        for method in ["GET", "PUT", "PATCH", "DELETE", "POST"] {
            let refused = server.doc(method, path, &json!({ "doc": {} })).await.expect(400);
            assert_eq!(refused.code(), "BAD_REQUEST", "{method} {path}");
            assert!(refused.text().contains(said), "{method} {path}: {refused}");
        }
    }
    let collection = server.get_doc("rooms").await.expect(400);
    assert!(collection.text().contains("`POST /api/v1/query` finds its documents"), "{collection}");
    for (method, path, allowed) in [
        ("PUT", "rooms", "GET, POST, OPTIONS"),
        ("POST", "rooms/r1", "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
        ("GET", "query", "POST, OPTIONS"),
        ("PUT", "query", "POST, OPTIONS"),
    ] {
        let refused = server.doc(method, path, &json!({})).await.expect(405);
        assert_eq!((refused.need("allow"), refused.code()), (allowed, "METHOD_NOT_ALLOWED".into()));
    }
    for target in ["rooms/r1?pretty", "rooms/r1?version=3", "query?limit=3"] {
        let refused = server.doc("POST", target, &json!({})).await.expect(400);
        assert!(refused.text().contains("unknown parameter"), "{refused}");
    }
    server.doc("GET", "trigger/get", &json!({})).await.expect(401);
    server.doc("GET", "trigger/other", &json!({})).await.expect(404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_none_say_why() {
    let server = Setup::default().start().await;
    let deep = format!("{{\"doc\":{{\"a\":{}1{}}}}}", "[".repeat(10_000), "]".repeat(10_000));
    let rather_deep = format!("{{\"doc\":{{\"a\":{}1{}}}}}", "[".repeat(32), "]".repeat(32));
    let many = json!({ "doc": { "a": vec![0; 10_000] } }).to_string();
    let more = json!({ "doc": { "a": vec![0; 20_000] } }).to_string();
    let table: &[(&str, &str)] = &[
        ("", "the body is empty"),
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{\"doc\":{\"a\":1e999}}", "not valid JSON"),
        ("{}", "`doc` is missing"),
        ("{\"name\":\"kitchen\"}", "the fields of the document go inside of it"),
        ("{\"doc\":[]}", "`doc` must be the document"),
        ("{\"doc\":null}", "`doc` must be the document"),
        ("{\"doc\":{\"a\":1},\"ifmatch\":[]}", "did you mean `ifMatch`?"),
        ("{\"doc\":{\"a\":1},\"ifMatch\":{}}", "must be an array of filters"),
        ("{\"doc\":{\"a\":1},\"ifMatch\":[{}]}", "`ifMatch[0]` has no `field`"),
        ("{\"doc\":{\"\":1}}", ""),
        ("{\"doc\":{\"a..b\":1}}", ""),
        (&deep, "recursion limit"),
        (&rather_deep, "at most 32"),
        (&many, "at most 10000 values"),
        (&more, "more than"),
    ];
    for (body, said) in table {
        for method in ["PUT", "PATCH"] {
            let refused = server.ask(method, "/api/v1/rooms/r1", &[JSON], body.as_bytes()).await;
            let refused = refused.expect(400);
            assert_eq!(refused.code(), "BAD_REQUEST");
            assert!(
                refused.text().contains(said),
                "{method} {}: {refused}",
                &body[..body.len().min(90)]
            );
            assert_eq!(refused.json().as_object().unwrap().len(), 2, "{refused}");
        }
    }
    for (body, said) in [
        (json!({ "id": "" }), "is not empty"),
        (json!({ "id": "a/b" }), "but not `/`"),
        (json!({ "id": 1.5 }), "a string, or a whole number"),
        (json!({ "id": null }), "a string, or a whole number"),
        (json!({ "id": "x".repeat(65) }), "at most 64 bytes long"),
        (json!({ "a.b": 1 }), "has a dot in it"),
        (json!([1]), "must be a JSON object"),
    ] {
        let refused = server.doc("POST", "rooms", &body).await.expect(400);
        assert!(refused.text().contains(said), "{refused}");
    }
    for body in [json!({ "ifMatch": 1 }), json!({ "doc": {} }), json!([])] {
        server.doc("DELETE", "rooms/r1", &body).await.expect(400);
    }
    let page = server.query(&json!({ "collection": "rooms", "showDeleted": true })).await;
    assert_eq!(page.expect(200).json(), json!({ "documents": [] }));
    server.stop().await;
}

/// QRY-3 and 4.
#[tokio::test(flavor = "multi_thread")]
async fn queries_that_cannot_be_answered_say_why() {
    let server = Setup::default().start().await;
    let check = async |query: Value, said: &str| {
        let refused = server.query(&query).await.expect(400);
        assert_eq!(refused.code(), "BAD_REQUEST", "{query}");
        assert!(refused.text().contains(said), "{query}: {refused}");
    };
    check(json!([]), "must be a JSON object").await;
    check(json!({}), "`collection` is missing").await;
    check(json!({ "collection": 1 }), "`collection` must be a string").await;
    check(json!({ "collection": "rooms/r1" }), "is a document").await;
    check(json!({ "collection": "rooms/*/messages" }), "but not `*`").await;
    check(json!({ "collection": "/rooms" }), "no slash").await;
    check(json!({ "collection": "sys" }), "reserved").await;
    check(json!({ "collection": "rooms", "filter": [] }), "did you mean `filters`?").await;
    let with = |name: &str, value: Value| {
        let mut query = json!({ "collection": "rooms" });
        query[name] = value;
        query
    };
    check(with("filters", json!({})), "`filters` must be an array").await;
    check(with("filters", json!([1])), "`filters[0]` must be an object").await;
    let filter = |field: Value, op: Value, value: Value| {
        with("filters", json!([{ "field": field, "op": op, "value": value }]))
    };
    check(filter(json!(""), json!("=="), json!(1)), "is not empty").await;
    check(filter(json!("a"), json!("like"), json!(1)), "there is no operator `like`").await;
    check(filter(json!("a"), json!(1), json!(1)), "`filters[0].op` must be a string").await;
    check(filter(json!(1), json!("=="), json!(1)), "`filters[0].field` must be a string").await;
    check(filter(json!("a"), json!("in"), json!(1)), "takes an array of values").await;
    check(filter(json!("a"), json!("in"), json!(vec![1; 101])), "at most 100 values").await;
    check(filter(json!("a"), json!("=="), json!("x".repeat(20_000))), "at most 16384 bytes").await;
    check(filter(json!("version.x"), json!("=="), json!(1)), "has nothing inside").await;
    check(filter(json!("_path"), json!("=="), json!(1)), "there is no field `_path`").await;
    let many = vec![json!({ "field": "a", "op": "==", "value": 1 }); 33];
    check(with("filters", json!(many)), "at most 32 filters").await;
    check(with("orderBy", json!("name")), "`orderBy` must be an array").await;
    check(with("orderBy", json!(["name"])), "`orderBy[0]` must be an object").await;
    check(with("orderBy", json!([{}])), "`orderBy[0]` has no `field`").await;
    check(with("orderBy", json!([{ "field": "a", "direction": "up" }])), "`asc` or `desc`").await;
    check(with("orderBy", json!([{ "field": "a", "dir": "up" }])), "unknown field `dir`").await;
    let by: Vec<Value> = (0..9).map(|n| json!({ "field": format!("f{n}") })).collect();
    check(with("orderBy", json!(by)), "at most 8 fields").await;
    check(with("orderBy", json!([{ "field": "a" }, { "field": "a" }])), "is there twice").await;
    check(with("limit", json!(-1)), "`limit` must be a whole number").await;
    check(with("limit", json!("10")), "`limit` must be a whole number").await;
    check(with("limit", json!(1.5)), "`limit` must be a whole number").await;
    check(with("limit", json!(1_001)), "`limit` is at most 1000").await;
    check(with("limit", json!(u64::MAX)), "`limit` is at most 1000").await;
    check(with("showDeleted", json!(1)), "`showDeleted` must be true or false").await;
    check(with("explain", json!("yes")), "`explain` must be true or false").await;
    check(with("startAfter", json!(1)), "`startAfter` must be a string").await;
    for text in ["", "x", "AAAA", &"x".repeat(10_000)] {
        check(with("startAfter", json!(text)), "`startAfter` is no cursor").await;
    }
    // A cursor is for the query that it came from.
    for n in 0..3 {
        server.put_doc(&format!("rooms/{n}"), json!({ "n": n })).await;
    }
    let page = server.query(&with("limit", json!(1))).await.expect(200).json();
    let cursor = page["nextCursor"].clone();
    let mut other = with("startAfter", cursor);
    server.query(&other).await.expect(200);
    other["orderBy"] = json!([{ "field": "n" }]);
    check(other, "is the cursor of another query").await;
    server.stop().await;
}
