//! Live queries: what is there, then what becomes of it, without a gap and nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reveille_core::{Millis, Tenant};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::*;

const ROOMS: &str = "rooms?live=sse";

/// What a query says that the collection is.
async fn truth(server: &TestServer, query: &Value) -> Value {
    let (mut all, mut query) = (serde_json::Map::new(), query.clone());
    loop {
        let page = server.query(&query).await.expect(200).json();
        for document in page["documents"].as_array().unwrap() {
            all.insert(document["id"].as_str().unwrap().to_owned(), document.clone());
        }
        let Some(next) = page["nextCursor"].as_str() else { return Value::Object(all) };
        query["startAfter"] = next.into();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_comes_first_then_ready_then_each_change() {
    let server = Setup::default().start().await;
    let b = server.put_doc("rooms/b", json!({ "n": 1 })).await;
    let a = server.put_doc("rooms/a", json!({ "n": 2, "text": "one\ntwo\r\n" })).await;
    server.put_doc("halls/a", json!({})).await;
    let mut live = Picture::open(&server, ROOMS).await;
    assert_eq!(live.head.get("cache-control"), Some("no-cache"));
    assert_eq!(live.head.get("content-length"), None);
    assert!(live.head.get("x-request-id").is_some());
    let event = |kind: &str, id: &str, data: Value| crate::harness::live::LiveEvent {
        kind: kind.into(),
        id: Some(id.into()),
        data,
    };
    assert_eq!(live.next().await, event("document", "3/a", a));
    assert_eq!(live.next().await, event("document", "3/b", b));
    assert_eq!(live.next().await, event("ready", "3", json!({ "seq": 3 })));
    let c = server.doc("POST", "rooms", &json!({ "id": "c" })).await.expect(201).json();
    let data = json!({ "seq": 4, "type": "create", "document": c });
    assert_eq!(live.next().await, event("change", "4", data));
    // What is somewhere else is not told of, below the collection neither.
    server.put_doc("halls/b", json!({})).await;
    server.put_doc("rooms/a/messages/m", json!({})).await;
    let ops = json!([
        { "type": "update", "path": "rooms/c", "data": { "n": 3 } },
        { "type": "delete", "path": "rooms/a" },
        { "type": "update", "path": "rooms/c", "data": { "n": 4 } },
    ]);
    server.batch("k", &ops).await.expect(200);
    let update = live.next().await;
    assert_eq!((update.id.as_deref(), &update.data["type"]), (Some("7"), &json!("update")));
    assert_eq!(update.data["document"]["n"], 3);
    assert_eq!(live.next().await, event("removed", "8", json!({ "id": "a" })));
    assert_eq!(live.next().await.data["document"]["n"], 4);
    let c = server.get_doc("rooms/c").await.json();
    assert_eq!(live.documents["c"], c);
    assert_eq!(live.documents.keys().collect::<Vec<_>>(), ["b", "c"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_is_not_there_yet_can_be_followed() {
    let server = Setup::default().start().await;
    let mut live = Picture::open(&server, ROOMS).await;
    assert_eq!(live.ready().await.len(), 0);
    assert_eq!(live.last_id, "0");
    server.put_doc("rooms/a", json!({})).await;
    assert_eq!(live.next().await.kind, "change");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_say_what_comes_and_goes() {
    let server = Setup::default().start().await;
    for (id, n) in [("a", 1), ("b", 5), ("c", 9)] {
        server.put_doc(&format!("rooms/{id}"), json!({ "n": n })).await;
    }
    // [{"field":"n","op":">=","value":5}]
    let filters = "%5B%7B%22field%22:%22n%22,%22op%22:%22%3E=%22,%22value%22:5%7D%5D";
    let target = format!("rooms?live=sse&filters={filters}");
    let mut live = Picture::open(&server, &target).await;
    assert_eq!(live.ready().await.keys().collect::<Vec<_>>(), ["b", "c"]);
    server.put_doc("rooms/a", json!({ "n": 2 })).await;
    server.put_doc("rooms/a", json!({ "n": 6 })).await;
    let entered = live.next().await;
    assert_eq!((entered.kind.as_str(), entered.id.as_deref()), ("change", Some("5")));
    server.put_doc("rooms/b", json!({ "n": 4 })).await;
    assert_eq!(live.next().await.data, json!({ "id": "b" }));
    // What was none of them before and is none after is nobody's business here.
    server.delete("/api/v1/rooms/b").await.expect(204);
    server.delete("/api/v1/rooms/c").await.expect(204);
    assert_eq!(live.next().await.data, json!({ "id": "c" }));
    assert_eq!(live.field("n"), [("a", &json!(6))]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_back_goes_on_where_it_stood() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    for id in 0..5 {
        server.put_doc(&format!("rooms/r{id}"), json!({ "n": 0 })).await;
    }
    let mut whole = Picture::open(&server, ROOMS).await;
    whole.ready().await;
    // This one is cut off with two of five documents.
    let mut half = Picture::open(&server, ROOMS).await;
    half.next().await;
    half.next().await;
    assert_eq!(half.last_id, "5/r1");
    guarded("the engine to stop", server.engine.shutdown()).await;
    server.drop_all().await;
    let server = Setup::default().start_in(directory.path()).await;
    server.put_doc("rooms/r0", json!({ "n": 1 })).await;
    server.delete("/api/v1/rooms/r1").await.expect(204);
    server.put_doc("rooms/r4", json!({ "n": 1 })).await;
    server.put_doc("rooms/r9", json!({ "n": 1 })).await;
    for live in [&mut whole, &mut half] {
        live.come_back(&server, ROOMS, None).await;
        live.ready().await;
        assert_eq!(live.resets, 0);
        let truth = truth(&server, &json!({ "collection": "rooms" })).await;
        assert_eq!(json!(live.documents), truth);
        assert_eq!(live.last_id, "9");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_kept_any_more_begins_anew() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    for n in 0..3 {
        server.put_doc("rooms/a", json!({ "n": n })).await;
    }
    let mut live = Picture::open(&server, ROOMS).await;
    live.ready().await;
    // From the future: another server's, or one from before a restore.
    live.last_id = "17".to_owned();
    live.come_back(&server, ROOMS, None).await;
    let reset = live.next().await;
    assert_eq!(reset.kind, "reset");
    assert!(reset.data["reason"].as_str().unwrap().contains("not kept any more"), "{reset:?}");
    live.ready().await;
    assert_eq!(live.field("n"), [("a", &json!(2))]);
    // The change after it is forgotten.
    clock.advance(10);
    server.put_doc("rooms/a", json!({ "n": 3 })).await;
    clock.advance(10);
    assert_eq!(server.engine.trim_events(Millis(START_MS + 5)).await.unwrap(), 3);
    live.last_id = "2".to_owned();
    live.documents.clear();
    live.come_back(&server, ROOMS, None).await;
    live.ready().await;
    assert_eq!((live.resets, live.field("n")), (2, vec![("a", &json!(3))]));
    // The last one that is forgotten is not needed: it is there.
    live.last_id = "3".to_owned();
    live.documents.clear();
    live.come_back(&server, ROOMS, None).await;
    assert_eq!(live.next().await.kind, "change");
    assert_eq!((live.ready().await.len(), live.resets), (1, 2));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_hears_nothing_is_told_how_far_it_has_come() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let mut live = Picture::open(&server, ROOMS).await;
    live.ready().await;
    for n in 0..3 {
        server.put_doc("halls/a", json!({ "n": n })).await;
    }
    let silence = 20_000;
    eventually("the changes to be handed out", async || {
        clock.sleeper(silence).await;
        clock.advance(silence);
        live.next().await;
        (live.last_id == "3").then_some(())
    })
    .await;
    assert_eq!(server.engine.trim_events(Millis(START_MS + 1)).await.unwrap(), 3);
    live.come_back(&server, ROOMS, None).await;
    live.ready().await;
    assert_eq!(live.resets, 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_followed_is_refused() {
    let setup = Setup::default();
    let server = setup.start().await;
    server.put_doc("rooms/a", json!({})).await;
    for (target, said) in [
        ("rooms", "?live=sse` follows them"),
        ("rooms?live=long-poll", "`live` is `sse`"),
        ("rooms?live", "`live` is `sse`"),
        ("rooms?live=sse&live=sse", "more than once"),
        ("rooms?filters=[]", "`live` is `sse`"),
        ("rooms?live=sse&filter=[]", "did you mean `filters`?"),
        ("rooms?live=sse&filters=", "`filters` is not JSON"),
        ("rooms?live=sse&filters={}", "`filters` must be an array"),
        ("rooms?live=sse&filters=[1]", "`filters[0]`"),
        (
            "rooms?live=sse&filters=[{%22field%22:%22a%22,%22op%22:%22~%22,%22value%22:1}]",
            "no operator",
        ),
        ("rooms/a?live=sse", "`live`"),
        ("sys?live=sse", "sys"),
        ("r%20ooms?live=sse", "path"),
    ] {
        let refused = server.get_doc(target).await.expect(400);
        assert_eq!(refused.code(), "BAD_REQUEST", "{target}");
        assert!(refused.text().contains(said), "{target}: {refused}");
    }
    let deep = format!("rooms?live=sse&filters={}1{}", "[".repeat(10_000), "]".repeat(10_000));
    server.get_doc(&deep).await.expect(400);
    for id in ["x", "-1", "1/", "1/a/b", "99999999999999999999"] {
        let headers = [("last-event-id", id)];
        let refused = server.ask("GET", "/api/v1/rooms?live=sse", &headers, b"").await.expect(400);
        assert!(refused.text().contains("Last-Event-ID"), "{id}: {refused}");
    }
    for method in ["PUT", "PATCH", "DELETE"] {
        let refused = server.ask(method, "/api/v1/rooms", &[JSON], b"{}").await.expect(405);
        assert!(refused.need("allow").contains("GET"), "{method}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_over_many_documents_takes_an_index() {
    let documents =
        reveille_core::document::settings::DocumentSettings { scan_limit: 5, ..Default::default() };
    let server = Setup { documents, ..Setup::default() }.start().await;
    for id in 0..8 {
        server.put_doc(&format!("rooms/r{id}"), json!({ "n": id })).await;
    }
    let filters = "%5B%7B%22field%22:%22n%22,%22op%22:%22==%22,%22value%22:3%7D%5D";
    let target = format!("rooms?live=sse&filters={filters}");
    let refused = server.get_doc(&target).await.expect(400);
    assert_eq!(refused.code(), "MISSING_INDEX");
    let index = refused.json()["suggestedIndex"].clone();
    server.tenant("PUT", "default/indexes", &json!({ "indexes": [index] })).await.expect(200);
    eventually("the index to be built", async || {
        (server.get_doc("rooms/r0").await.status() == 200
            && server
                .query(&json!({ "collection": "rooms", "filters": [
                { "field": "n", "op": "==", "value": 3 }] }))
                .await
                .status()
                == 200)
            .then_some(())
    })
    .await;
    let mut live = Picture::open(&server, &target).await;
    assert_eq!(live.ready().await.keys().collect::<Vec<_>>(), ["r3"]);
    let mut all = Picture::open(&server, ROOMS).await;
    assert_eq!(all.ready().await.len(), 8, "without a filter nothing is looked through");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_documents_and_many_changes_arrive_whole() {
    let server = Setup::large().start().await;
    let mut live = Picture::open(&server, ROOMS).await;
    live.ready().await;
    let text = "x".repeat(900_000);
    for n in 0..3 {
        server.put_doc("rooms/large", json!({ "n": n, "text": text })).await;
    }
    let many: Vec<_> = (0..500)
        .map(|n| json!({ "type": "set", "path": format!("rooms/m{n}"), "data": { "n": n } }))
        .collect();
    server.batch("k", &json!(many)).await.expect(200);
    live.until(503).await;
    assert_eq!(json!(live.documents), truth(&server, &json!({ "collection": "rooms" })).await);
    let mut later = Picture::open(&server, ROOMS).await;
    assert_eq!(later.ready().await, &live.documents);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_follow_are_told_and_nothing_is_left_behind() {
    let server = Setup::default().start().await;
    server.put_doc("rooms/a", json!({ "n": 0 })).await;
    let mut all = Vec::new();
    for number in 0..60 {
        let target = if number % 3 == 0 { "halls?live=sse" } else { ROOMS };
        let mut live = Picture::open(&server, target).await;
        live.ready().await;
        all.push((target == ROOMS, live));
    }
    assert_eq!(server.metric("reveille_live_readers").await, 60);
    for n in 1..=20 {
        server.put_doc("rooms/a", json!({ "n": n, "text": "x".repeat(6_000) })).await;
    }
    server.put_doc("halls/a", json!({})).await;
    let mut reading = JoinSet::new();
    for (is_of_rooms, mut live) in all {
        reading.spawn(async move {
            live.until(if is_of_rooms { 21 } else { 22 }).await;
            assert_eq!(live.documents.len(), 1);
            is_of_rooms.then(|| assert_eq!(live.field("n"), [("a", &json!(20))]));
        });
    }
    reading.join_all().await;
    eventually("nobody to be left", async || {
        (server.metric("reveille_live_readers").await == 0 && server.engine.reply_bytes() == 0)
            .then_some(())
    })
    .await;
    // And the next one finds everything as it is.
    let mut live = Picture::open(&server, ROOMS).await;
    live.ready().await;
    server.put_doc("rooms/b", json!({})).await;
    live.next().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_down_ends_them_in_order() {
    let mut server = Setup::default().start().await;
    let mut live = Picture::open(&server, ROOMS).await;
    live.ready().await;
    server.begin_stop();
    assert_eq!(live.try_next().await, None);
    server.served().await;
    server.drop_all().await;
}

/// A client that is cut off now and then, and comes back.
async fn follow(
    address: Arc<TestServer>,
    target: String,
    seed: u64,
    end: Arc<AtomicU64>,
) -> Picture {
    let mut live = Picture::open(&address, &target).await;
    let mut random = seed;
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if live.is_ready && live.seq() >= end.load(Ordering::Acquire) {
            return live;
        }
        if random >> 58 == 0 {
            live.come_back(&address, &target, None).await;
        }
        live.next().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_all_write_every_picture_is_right() {
    let server = Arc::new(Setup::large().start().await);
    for id in 0..300 {
        let ops = json!([{ "type": "set", "path": format!("rooms/r{id}"), "data": { "n": id } }]);
        if id % 50 == 0 {
            server.batch(&format!("k{id}"), &ops).await.expect(200);
        } else {
            server.put_doc(&format!("rooms/r{id}"), json!({ "n": id, "t": "x".repeat(400) })).await;
        }
    }
    let end = Arc::new(AtomicU64::new(u64::MAX));
    let filters = "%5B%7B%22field%22:%22n%22,%22op%22:%22%3C%22,%22value%22:150%7D%5D";
    let some = format!("rooms?live=sse&filters={filters}");
    let mut readers = JoinSet::new();
    for seed in 0..12_u64 {
        let target = if seed % 3 == 0 { some.clone() } else { ROOMS.to_owned() };
        let (server, end) = (server.clone(), end.clone());
        readers.spawn(async move {
            let is_all = target == ROOMS;
            (is_all, follow(server, target, seed * 77 + 1, end).await)
        });
    }
    let mut writers = JoinSet::new();
    for writer in 0..3_u64 {
        let server = server.clone();
        writers.spawn(async move {
            for round in 0..80_u64 {
                let number = round * 31 + writer * 17;
                let path = format!("rooms/r{}", number % 320);
                match number % 5 {
                    0 => drop(server.delete(&format!("/api/v1/{path}")).await),
                    1 => drop(
                        server
                            .put_doc(&path, json!({ "n": number, "t": "y".repeat(20_000) }))
                            .await,
                    ),
                    _ => drop(server.put_doc(&path, json!({ "n": number % 300 })).await),
                }
            }
        });
    }
    writers.join_all().await;
    // One more, of which everybody is told; whoever hears of it knows that it is the last.
    let changes = server.engine.document_seq(&Tenant::default_tenant()).unwrap();
    end.store(changes + 1, Ordering::Release);
    server.put_doc("rooms/r1", json!({ "n": 1 })).await;
    let all = truth(&server, &json!({ "collection": "rooms" })).await;
    let few = json!({ "collection": "rooms",
                      "filters": [{ "field": "n", "op": "<", "value": 150 }] });
    let few = truth(&server, &few).await;
    for (is_all, live) in readers.join_all().await {
        assert_eq!(json!(live.documents), if is_all { all.clone() } else { few.clone() });
        assert_eq!(live.resets, 0);
    }
    Arc::into_inner(server).unwrap().stop().await;
}
