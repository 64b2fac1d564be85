//! Taking events in: the forms of a body, all or nothing, batches that are sent again, and limits.

use serde_json::{Value, json};

use crate::harness::*;

/// What the tenant's stream of events has.
async fn kept(server: &TestServer) -> Vec<Value> {
    let answer = server.get("/_events/default?offset=-1").await;
    if answer.status() == 404 {
        return Vec::new();
    }
    answer.expect(200).json().as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_an_array_and_an_event_alone_are_taken_in() {
    let events = Deliveries::start().await;
    let event = |n: u64| json!({ "type": "a", "n": n });
    let bodies = [
        (json!({ "events": [event(1), event(2)] }), 2),
        (json!([event(3), event(4), event(5)]), 3),
        (event(6), 1),
        (json!({ "events": [] }), 0),
        (json!([]), 0),
        (json!({ "events": [event(7)], "batchId": null }), 1),
    ];
    for (target, (body, received)) in ["/ingest", "/e"].iter().cycle().zip(&bodies) {
        let answer = events.post(target, body).await.expect(200);
        assert!(answer.get("deprecation").is_none());
        let answer = answer.json();
        let ids = answer["eventIds"].as_array().unwrap();
        assert_eq!(ids.len(), *received);
        assert_eq!(
            answer,
            json!({ "ok": true, "received": received, "namespace": null, "eventIds": ids })
        );
    }
    let kept = kept(&events.server).await;
    let numbers: Vec<u64> = kept.iter().map(|it| it["payload"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_and_nothing_of_it_is_taken_in() {
    let mut events = Deliveries::start().await;
    events.subscribe("**").await;
    let long = "a".repeat(257);
    let huge = "x".repeat(256 * 1024);
    let with = |kind: Value| json!({ "events": [{ "type": "good" }, { "type": kind }] });
    let mut wrong = vec![
        (json!(1), 400, "INVALID_BATCH"),
        (json!("x"), 400, "INVALID_BATCH"),
        (json!(null), 400, "INVALID_BATCH"),
        (json!({}), 400, "INVALID_BATCH"),
        (json!({ "events": 1 }), 400, "INVALID_BATCH"),
        (json!({ "events": {} }), 400, "INVALID_BATCH"),
        (json!({ "events": null }), 400, "INVALID_BATCH"),
        (json!({ "events": [], "batchId": 1 }), 400, "INVALID_BATCH"),
        (json!({ "events": [], "batchId": "" }), 400, "INVALID_BATCH"),
        (json!({ "events": [], "batchId": "a\nb" }), 400, "INVALID_BATCH"),
        (json!({ "events": [], "batchId": long }), 400, "INVALID_BATCH"),
        (json!([{ "type": "good" }, 1]), 400, "INVALID_EVENT"),
        (json!([{ "type": "good" }, {}]), 400, "INVALID_EVENT"),
        (json!([{ "type": "good" }, null]), 400, "INVALID_EVENT"),
        (json!([{ "type": "good" }, { "type": "a", "ts": 1 }]), 400, "INVALID_EVENT"),
        (json!([{ "type": "good" }, { "type": "a", "ts": "monday" }]), 400, "INVALID_EVENT"),
        (json!([{ "type": "good" }, { "type": "a", "x": huge }]), 413, "EVENT_TOO_LARGE"),
    ];
    let kinds = [
        json!(""),
        json!(".a"),
        json!("a."),
        json!("a..b"),
        json!("a b"),
        json!("a*b"),
        json!("a/b"),
        json!(long),
        json!(1),
        json!(null),
        json!(["a"]),
        json!({}),
        json!(true),
    ];
    wrong.extend(kinds.into_iter().map(|kind| (with(kind), 400, "INVALID_EVENT")));
    for (body, status, code) in &wrong {
        let answer = events.post("/ingest", body).await.expect(*status).json();
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(code)), "{answer}");
        assert!(!answer["error"].as_str().unwrap().is_empty());
        if ["INVALID_EVENT", "EVENT_TOO_LARGE"].contains(code) {
            assert_eq!(answer["details"]["indices"], json!([1]), "{answer}");
        }
    }
    for body in ["", "{", "[1,]", "nope", "{\"type\":\"a\"} x", "\u{0}"] {
        let answer = events.server.ask("POST", "/ingest", &[JSON], body.as_bytes()).await;
        assert_eq!(answer.expect(400).json()["code"], "INVALID_JSON", "{body:?}");
    }
    let repeated = br#"{"type":"a","type":"b"}"#;
    let answer = events.server.ask("POST", "/ingest", &[JSON], repeated).await.expect(400);
    assert_eq!(answer.json()["code"], "INVALID_EVENT");
    assert_eq!(kept(&events.server).await, Vec::<Value>::new());
    events.quiet("nothing was taken in").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_ten_bad_events_are_named() {
    let events = Deliveries::start().await;
    let batch: Vec<Value> =
        (0..30).map(|n| json!({ "type": if n % 2 == 0 { "a" } else { "" } })).collect();
    let answer = events.post("/ingest", &json!(batch)).await.expect(400).json();
    let indices: Vec<u64> = (0..10).map(|n| n * 2 + 1).collect();
    assert_eq!(answer["details"]["indices"], json!(indices));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_at_most_a_thousand_events() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let batch = |count: u64| {
        let all: Vec<Value> = (0..count).map(|n| json!({ "type": "a", "n": n })).collect();
        json!({ "events": all })
    };
    let answer = events.post("/ingest", &batch(1_001)).await.expect(400).json();
    assert_eq!(answer["code"], "INVALID_BATCH");
    assert_eq!(kept(&events.server).await.len(), 0);
    let answer = events.post("/ingest", &batch(1_000)).await.expect(200).json();
    assert_eq!(answer["received"], 1_000);
    let mut seen = Vec::new();
    for _ in 0..1_000 {
        let call = events.called().await;
        seen.push(call.json()["payload"]["n"].as_u64().unwrap());
        call.ok();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..1_000).collect::<Vec<_>>());
    let all = async || (events.status(&id).await["stats"]["totalDelivered"] == 1_000).then_some(());
    eventually("all to be delivered", all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_in_the_words_of_this_face() {
    let events = Deliveries::with(|setup| setup.max_body_bytes = 10_000).await;
    let body = json!({ "type": "a", "x": "x".repeat(10_000) });
    for target in ["/ingest", "/e", "/subscriptions/subscribe", "/subscriptions/unsubscribe"] {
        let answer = events.post(target, &body).await.expect(413);
        assert_eq!(answer.need("connection"), "close");
        let answer = answer.json();
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("PAYLOAD_TOO_LARGE")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_in_the_words_of_this_face_and_looking_goes_on() {
    let events = Deliveries::with(|setup| setup.min_free_bytes = u64::MAX / 2).await;
    let new = json!({ "workerId": "w", "pattern": "a", "rpcMethod": "m" });
    for (target, body) in [("/ingest", json!({ "type": "a" })), ("/subscriptions/subscribe", new)] {
        let answer = events.post(target, &body).await.expect(507);
        assert_eq!(answer.need("retry-after"), "1");
        let answer = answer.json();
        assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("DISK_FULL")));
        assert!(answer["error"].as_str().unwrap().contains("disk"), "{answer}");
    }
    let list = events.server.get("/subscriptions/list").await.expect(200).json();
    assert_eq!(list["subscriptions"], json!([]));
    assert_eq!(kept(&events.server).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_sent_again_is_taken_in_once() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let batch = json!({ "events": [{ "type": "a" }, { "type": "a" }], "batchId": "b-1" });
    // A batch that is refused leaves no mark: its correction is not taken for a repetition.
    let wrong = json!({ "events": [{ "type": "a" }, { "type": "" }], "batchId": "b-1" });
    events.post("/ingest", &wrong).await.expect(400);
    let first = events.post("/ingest", &batch).await.expect(200).json();
    assert_eq!((&first["received"], first.get("deduplicated")), (&json!(2), None));
    let again = json!({ "ok": true, "received": 2, "deduplicated": true, "namespace": null });
    assert_eq!(events.post("/e", &batch).await.expect(200).json(), again);
    for _ in 0..2 {
        events.called().await.ok();
    }
    let both = async || (events.status(&id).await["stats"]["totalDelivered"] == 2).then_some(());
    eventually("both to be delivered", both).await;
    let mut events = events.crash().await;
    assert_eq!(events.post("/ingest", &batch).await.expect(200).json(), again);
    events.quiet("it was taken in before").await;
    assert_eq!(kept(&events.server).await.iter().filter(|it| it["type"] == "a").count(), 2);
    // An empty batch has a name, too.
    let empty = json!({ "events": [], "batchId": "b-2" });
    events.post("/ingest", &empty).await.expect(200);
    assert_eq!(events.post("/ingest", &empty).await.expect(200).json()["deduplicated"], true);
    // A day later nobody remembers.
    events.clock.advance(24 * 3_600_000 + 60_000);
    let forgotten = async || {
        let answer = events.post("/ingest", &batch).await.expect(200).json();
        answer.get("deduplicated").is_none().then_some(())
    };
    eventually("the name to be forgotten", forgotten).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_of_the_client_s_own_does_not_deduplicate_but_finds_the_newest() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    for n in 1..=2 {
        assert_eq!(events.ingest(json!({ "type": "a", "id": "same", "n": n })).await, "same");
        let call = events.called().await;
        assert_eq!((&call.json()["id"], &call.json()["payload"]["n"]), (&json!("same"), &json!(n)));
        call.ok();
    }
    let all = async || (events.status(&id).await["stats"]["totalDelivered"] == 2).then_some(());
    eventually("both to be delivered", all).await;
}
