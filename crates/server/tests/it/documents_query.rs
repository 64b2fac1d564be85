//! Finding documents: filters, orders, pages, and what takes an index.

use reveille_core::document::settings::DocumentSettings;
use serde_json::{Value, json};

use crate::harness::*;

async fn fill(server: &TestServer, collection: &str, documents: Vec<Value>) {
    for (at, chunk) in documents.chunks(100).enumerate() {
        let ops = chunk.iter().map(|document| {
            let mut data = document.clone();
            let id = data.as_object_mut().unwrap().remove("id").unwrap();
            let path = format!("{collection}/{}", id.as_str().unwrap());
            json!({ "type": "set", "path": path, "data": data })
        });
        let ops: Vec<Value> = ops.collect();
        let key = format!("{at} {}", &collection[..collection.len().min(100)]);
        server.batch(&key, &json!(ops)).await.expect(200);
    }
}

/// 3.3: filters, several on one field; C-19.
#[tokio::test(flavor = "multi_thread")]
async fn all_ten_operators_find_what_they_say() {
    let server = Setup::default().start().await;
    let documents = vec![
        json!({ "id": "a", "n": 1, "t": "x", "tags": ["red", 7], "o": { "k": 1 } }),
        json!({ "id": "b", "n": 2.5, "t": "y", "tags": ["blue"], "o": { "k": 2 } }),
        json!({ "id": "c", "n": 3, "t": null, "tags": [], "o": null }),
        json!({ "id": "d", "n": "3" }),
    ];
    fill(&server, "rooms", documents).await;
    let table = [
        ("n", "==", json!(3), "c"),
        ("n", "!=", json!(3), "abd"),
        ("n", ">", json!(1), "bc"),
        ("n", ">=", json!(2.5), "bc"),
        ("n", "<", json!(2.5), "a"),
        ("n", "<=", json!(2.5), "ab"),
        ("n", "in", json!([1.0, "3"]), "ad"),
        ("n", "not-in", json!([1, 3]), "bd"),
        ("tags", "array-contains", json!("red"), "a"),
        ("tags", "contains", json!(7), "a"),
        ("t", "==", json!(null), "c"),
        ("t", "!=", json!("x"), "bcd"),
        ("o.k", ">=", json!(2), "b"),
        ("n", ">", json!("2"), "d"),
        ("id", "==", json!("b"), "b"),
        ("id", "in", json!(["d", "a", "z"]), "ad"),
        ("id", ">", json!("b"), "cd"),
        ("version", "==", json!(1), "abcd"),
        ("collection", "==", json!("rooms"), "abcd"),
    ];
    for (field, op, value, expected) in table {
        let filters = json!([{ "field": field, "op": op, "value": value }]);
        let (ids, _) =
            server.query_all(&json!({ "collection": "rooms", "filters": filters })).await;
        assert_eq!(ids.concat(), expected, "{field} {op} {value}");
    }
    // Both ends of a range count, and all filters together.
    let range = json!([{ "field": "n", "op": ">", "value": 1 },
                       { "field": "n", "op": "<=", "value": 2.5 }]);
    let (ids, _) = server.query_all(&json!({ "collection": "rooms", "filters": range })).await;
    assert_eq!(ids, ["b"]);
    let page = server.query(&json!({ "collection": "none" })).await.expect(200).json();
    assert_eq!(page, json!({ "documents": [] }));
    server.stop().await;
}

/// 3.3: the order across types.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_goes_across_types_and_ends_with_the_id() {
    let server = Setup::default().start().await;
    let values = [
        ("h", json!({ "z": 1 })),
        ("g", json!([1])),
        ("f", json!("b")),
        ("e", json!("a")),
        ("d", json!(10)),
        ("c", json!(-2)),
        ("b", json!(false)),
        ("a", json!(null)),
    ];
    let documents = values.iter().map(|(id, value)| json!({ "id": id, "v": value })).collect();
    fill(&server, "rooms", documents).await;
    let by = |direction: &str| json!({ "collection": "rooms", "orderBy": [{ "field": "v", "direction": direction }] });
    assert_eq!(server.query_all(&by("asc")).await.0.concat(), "abcdefgh");
    assert_eq!(server.query_all(&by("desc")).await.0.concat(), "hgfedcba");
    // Nothing said is ascending; ties are broken by the id.
    fill(&server, "ties", (0..6).map(|n| json!({ "id": format!("{n}"), "v": n % 2 })).collect())
        .await;
    let query = json!({ "collection": "ties", "orderBy": [{ "field": "v" }] });
    assert_eq!(server.query_all(&query).await.0.concat(), "024135");
    let query = json!({ "collection": "ties", "orderBy": [{ "field": "v", "direction": "desc" },
                                                          { "field": "id", "direction": "desc" }] });
    assert_eq!(server.query_all(&query).await.0.concat(), "531420");
    server.stop().await;
}

/// QRY-2; 3.3: cursors. Scenario 20.
#[tokio::test(flavor = "multi_thread")]
async fn pages_go_on_through_ties_and_skip_nobody() {
    let server = Setup::default().start().await;
    let documents = (0..250).map(|n| json!({ "id": format!("d{n:03}"), "tie": n / 100 })).collect();
    fill(&server, "rooms", documents).await;
    let all: Vec<String> = (0..250).map(|n| format!("d{n:03}")).collect();
    for order in [json!([]), json!([{ "field": "tie" }])] {
        for limit in [1, 7, 100, 249, 250, 1_000] {
            let query = json!({ "collection": "rooms", "orderBy": order, "limit": limit });
            let (ids, pages) = server.query_all(&query).await;
            assert_eq!(ids, all, "limit {limit}");
            assert_eq!(pages, 250_usize.div_ceil(limit), "limit {limit}");
        }
    }
    // A hundred if it is not said, nor zero anything else.
    for limit in [json!(null), json!(0)] {
        let page = server.query(&json!({ "collection": "rooms", "limit": limit })).await;
        assert_eq!(ids_of(&page.expect(200).json()).len(), 100);
    }
    // What is written in between moves nobody from page to page.
    let mut query = json!({ "collection": "rooms", "limit": 200 });
    let page = server.query(&query).await.expect(200).json();
    server.delete("/api/v1/rooms/d000").await.expect(204);
    server.put_doc("rooms/a", json!({})).await;
    query["startAfter"] = page["nextCursor"].clone();
    let rest = server.query(&query).await.expect(200).json();
    assert_eq!(ids_of(&rest), all[200..]);
    assert_eq!(rest.get("nextCursor"), None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_ends_before_it_is_too_large() {
    let server = Setup::default().start().await;
    for n in 0..5 {
        let text = "x".repeat(400_000);
        server.put_doc(&format!("rooms/{n}"), json!({ "text": text })).await;
    }
    let (ids, pages) = server.query_all(&json!({ "collection": "rooms", "limit": 1_000 })).await;
    assert_eq!((ids.concat().as_str(), pages), ("01234", 3));
    // The names of documents count as well.
    let long = format!("rooms/r/{}", "m".repeat(1_000));
    fill(&server, &long, (0..1_200).map(|n| json!({ "id": format!("{n:04}") })).collect()).await;
    let page = server.query(&json!({ "collection": long, "limit": 1_000 })).await.expect(200);
    assert!(page.body.len() <= (1 << 20) + 1_000, "{}", page.body.len());
    let (ids, pages) = server.query_all(&json!({ "collection": long, "limit": 1_000 })).await;
    assert_eq!(ids, (0..1_200).map(|n| format!("{n:04}")).collect::<Vec<_>>());
    assert!(pages > 1);
    server.stop().await;
}

/// 3.3: `showDeleted`.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_is_found_by_those_who_ask_for_it() {
    let server = Setup::default().start().await;
    fill(&server, "rooms", (0..3).map(|n| json!({ "id": format!("{n}"), "v": n })).collect()).await;
    server.delete("/api/v1/rooms/1").await.expect(204);
    let page = server.query(&json!({ "collection": "rooms" })).await.expect(200).json();
    assert_eq!(ids_of(&page), ["0", "2"]);
    let query = json!({ "collection": "rooms", "showDeleted": true });
    let page = server.query(&query).await.expect(200).json();
    assert_eq!(ids_of(&page), ["0", "1", "2"]);
    let tombstone = &page["documents"][1];
    assert_eq!((&tombstone["deleted"], &tombstone["version"]), (&json!(true), &json!(2)));
    assert_eq!(tombstone.get("v"), None);
    server.stop().await;
}

/// QRY-5; 3.3: the index policy.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_collection_takes_an_index_which_the_refusal_suggests() {
    let documents = DocumentSettings { scan_limit: 50, ..DocumentSettings::default() };
    let server = Setup { documents, ..Setup::default() }.start().await;
    let rooms = |count: usize| {
        (0..count).map(|n| json!({ "id": format!("{n:03}"), "state": n % 7, "seats": n })).collect()
    };
    fill(&server, "houses/h1/rooms", rooms(50)).await;
    fill(&server, "houses/h2/rooms", rooms(51)).await;
    let query = |house: &str| {
        json!({ "collection": format!("houses/{house}/rooms"),
                "filters": [{ "field": "state", "op": "==", "value": 3 }],
                "orderBy": [{ "field": "seats", "direction": "desc" }], "explain": true })
    };
    let found = server.query(&query("h1")).await.expect(200).json();
    assert_eq!(ids_of(&found), ["045", "038", "031", "024", "017", "010", "003"]);
    let cost = &found["explain"];
    assert_eq!((&cost["plan"]["kind"], &cost["documentsRead"]), (&json!("scan"), &json!(50)));
    assert_eq!(cost["sortedInMemory"], true);
    let refused = server.query(&query("h2")).await.expect(400);
    assert_eq!(refused.code(), "MISSING_INDEX");
    let suggested = refused.json()["suggestedIndex"].clone();
    let expected = json!({ "collection": "houses/*/rooms", "fields": [
        { "path": "data.state", "direction": "asc" },
        { "path": "data.seats", "direction": "desc" },
    ] });
    assert_eq!(suggested, expected);
    // It is put back as it is.
    let body = json!({ "indexes": [suggested] });
    let put = server.tenant("PUT", "default/indexes", &body).await.expect(200).json();
    assert_eq!(put["indexes"][0]["collection"], "houses/*/rooms");
    let shown = eventually("the index", async || {
        let shown = server.tenant("GET", "default/indexes", &Value::Null).await.expect(200).json();
        (shown["indexes"][0]["state"] == "ready").then_some(shown)
    });
    let shown = shown.await;
    // As it is shown it can be put back as well.
    server.tenant("PUT", "default/indexes", &shown).await.expect(200);
    let found = server.query(&query("h2")).await.expect(200).json();
    assert_eq!(ids_of(&found), ["045", "038", "031", "024", "017", "010", "003"]);
    let cost = &found["explain"];
    assert_eq!(cost["plan"]["kind"], "index");
    assert_eq!(cost["plan"]["index"], expected);
    assert_eq!((&cost["documentsRead"], &cost["sortedInMemory"]), (&json!(7), &json!(false)));
    // What is written from now on is in it, in the write's own batch.
    server.put_doc("houses/h2/rooms/new", json!({ "state": 3, "seats": 1_000 })).await;
    server.delete("/api/v1/houses/h2/rooms/045").await.expect(204);
    let found = server.query(&query("h2")).await.expect(200).json();
    assert_eq!(ids_of(&found)[..2], ["new", "038"]);
    // To list is no search, however large the collection is.
    let (ids, _) = server.query_all(&json!({ "collection": "houses/h2/rooms" })).await;
    assert_eq!(ids.len(), 51);
    let none = server.tenant("PUT", "default/indexes", &json!({ "indexes": [] })).await;
    assert_eq!(none.expect(200).json(), json!({ "indexes": [] }));
    assert_eq!(server.query(&query("h2")).await.expect(400).code(), "MISSING_INDEX");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_on_nothing_and_one_that_cannot_be_are_told_apart() {
    let server = Setup::default().start().await;
    let put = async |index: Value| {
        server.tenant("PUT", "default/indexes", &json!({ "indexes": [index] })).await
    };
    let nothing = json!({ "collection": "none", "fields": [{ "path": "x" }] });
    put(nothing.clone()).await.expect(200);
    eventually("the index on nothing", async || {
        let shown = server.tenant("GET", "default/indexes", &Value::Null).await.expect(200).json();
        (shown["indexes"][0]["state"] == "ready").then_some(())
    })
    .await;
    for (index, said) in [
        (json!({ "collection": "none", "fields": [] }), "at least one field"),
        (json!({ "collection": "none", "fields": [{ "path": "id" }] }), "needs no index"),
        (json!({ "collection": "none/x", "fields": [{ "path": "a" }] }), "is a document"),
        (json!({ "collection": "query", "fields": [{ "path": "a" }] }), "reserved"),
        (json!({ "collection": "none", "fields": [{ "path": "a" }, { "path": "a" }] }), "twice"),
        (json!({ "collection": "none", "fields": [{ "field": "a" }] }), "unknown field"),
    ] {
        let refused = put(index).await.expect(400);
        assert_eq!(refused.code(), "INVALID_REQUEST");
        assert!(refused.text().contains(said), "{refused}");
    }
    let twice = json!({ "indexes": [nothing, nothing] });
    server.tenant("PUT", "default/indexes", &twice).await.expect(400);
    let many: Vec<Value> = (0..11)
        .map(|n| json!({ "collection": "none", "fields": [{ "path": format!("f{n}") }] }))
        .collect();
    let refused = server.tenant("PUT", "default/indexes", &json!({ "indexes": many })).await;
    assert!(refused.expect(400).text().contains("at most 10 indexes"));
    for wrong in [json!({}), json!({ "indexes": 1 }), json!({ "index": [] }), json!([])] {
        server.tenant("PUT", "default/indexes", &wrong).await.expect(400);
    }
    server.tenant("POST", "default/indexes", &json!({})).await.expect(405);
    server.tenant("GET", "No%20Name/indexes", &Value::Null).await.expect(400);
    server.stop().await;
}
