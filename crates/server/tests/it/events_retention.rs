//! Events that came long ago are forgotten, and none that somebody may still be told of.

use reveille_core::stream::Rejected;
use reveille_core::stream::create::{Create, ForkRequest};
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_engine::Error;
use reveille_engine::streams::StreamError;
use serde_json::{Value, json};

use crate::harness::*;

const STREAM: &str = "/_events/default";
const FROM_THE_START: &str = "/_events/default?offset=-1";
const DAY_MS: u64 = 86_400_000;

impl Deliveries {
    /// Forgets what came before now. Returns how many.
    async fn trim(&self) -> u64 {
        self.server.engine.trim_events(Millis(self.now())).await.unwrap()
    }

    /// The types of the events that the stream has.
    async fn kinds(&self) -> Vec<String> {
        event_kinds(&self.server.get(FROM_THE_START).await.expect(200).text())
    }

    async fn tail(&self) -> String {
        self.server.head(STREAM).await.expect(200).next_offset().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_events_go_and_the_stream_begins_with_those_that_stay() {
    let mut events = Deliveries::start().await;
    assert_eq!(events.trim().await, 0, "there is nothing");
    let gone = events.ingest(json!({ "type": "a" })).await;
    events.ingest(json!({ "type": "b", "id": "named" })).await;
    let beginning = events.tail().await;
    events.clock.advance(10);
    let cutoff = Millis(events.now());
    let kept = events.ingest(json!({ "type": "c" })).await;
    assert_eq!(events.server.engine.trim_events(cutoff).await.unwrap(), 2);
    for round in 0..3 {
        assert_eq!(events.kinds().await, ["c"], "{round}");
        let target = format!("{STREAM}?offset={beginning}");
        assert_eq!(event_kinds(&events.server.get(&target).await.expect(200).text()), ["c"]);
        for live in ["", "&live=long-poll", "&live=sse"] {
            let target = format!("{STREAM}?offset=0000000000000000_0000000000000000{live}");
            let refused = events.server.get(&target).await.expect(410);
            assert_eq!(refused.code(), "OFFSET_GONE");
            assert!(refused.text().contains("-1"), "{}", refused.text());
        }
        let polled = events.server.get(&format!("{FROM_THE_START}&live=long-poll")).await;
        assert_eq!(event_kinds(&polled.expect(200).text()), ["c"]);
        let target = format!("{FROM_THE_START}&live=sse");
        let mut following = Events::open(&events.server, &target).await;
        assert_eq!(event_kinds(&following.data().await.0), ["c"]);
        assert_eq!(events.server.engine.trim_events(cutoff).await.unwrap(), 0);
        events = if round == 0 { events.restart().await } else { events.crash().await };
    }
    // Who begins with all events begins with those that there are.
    let all = events.subscribe_with("**", json!({ "deliver": "all" })).await;
    let call = events.called().await;
    assert_eq!(call.json()["id"], kept);
    call.ok();
    events.until_status(&all, "delivered").await;
    for id in [&*gone, "named"] {
        let target = format!("/subscriptions/{all}/explain?eventId={id}");
        events.server.get(&target).await.expect(404);
        let body = json!({ "workerId": "w", "pattern": "x.*", "rpcMethod": "m",
            "deliver": { "from": id } });
        events.post("/subscriptions/subscribe", &body).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_emptied_goes_on_where_it_was() {
    let mut events = Deliveries::start().await;
    events.ingest(json!({ "type": "a" })).await;
    let tail = events.tail().await;
    events.clock.advance(10);
    assert_eq!(events.trim().await, 1);
    events = events.restart().await;
    assert_eq!(events.kinds().await, Vec::<String>::new());
    assert_eq!(events.tail().await, tail);
    events.ingest(json!({ "type": "b" })).await;
    assert_eq!(events.kinds().await, ["b"]);
    let target = format!("{STREAM}?offset={tail}");
    assert_eq!(event_kinds(&events.server.get(&target).await.expect(200).text()), ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stays_until_its_deliveries_have_ended() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("order.*", json!({ "maxRetries": 1 })).await;
    let together = json!([{ "type": "order.a" }, { "type": "order.b" }, { "type": "other" }]);
    events.ingest(json!({ "type": "before" })).await;
    events.clock.advance(10);
    events.post("/ingest", &together).await.expect(200);
    let mut calls = vec![events.called().await, events.called().await];
    calls.sort_by_key(|call| call.json()["type"].to_string());
    events.clock.advance(10);
    assert_eq!(events.trim().await, 1, "what came before them");
    let dead = calls.pop().unwrap();
    dead.answer(500, "");
    calls.pop().unwrap().ok();
    eventually("both to end", async || {
        let all = events.deliveries(&id).await;
        let all: Vec<&str> = all.iter().map(|it| it["status"].as_str().unwrap()).collect();
        (all == ["delivered", "dead"]).then_some(())
    })
    .await;
    assert_eq!(events.trim().await, 0, "one was delivered just now");
    events.clock.advance(10);
    assert_eq!(events.trim().await, 0, "a dead letter is kept, and those that came with it");
    assert_eq!(events.kinds().await, ["order.a", "order.b", "other"]);
    events.retry_dead_letter(&id).await;
    let call = events.called().await;
    assert_eq!(call.json()["type"], "order.b");
    assert_eq!(events.trim().await, 0, "it is tried again");
    call.ok();
    events.until_status(&id, "delivered").await;
    events.clock.advance(10);
    assert_eq!(events.trim().await, 3);
    assert_eq!(events.kinds().await, Vec::<String>::new());
    let shown = events.deliveries(&id).await;
    assert_eq!(shown.len(), 3, "records of deliveries have a time of their own");
    assert!(shown.iter().all(|it| it["eventId"].is_null()), "{shown:?}");
}

/// Forks the stream of events, which no request can.
async fn fork(events: &Deliveries, path: &str, at: Option<Offset>) -> Result<(), StreamError> {
    let source = StreamPath::parse(STREAM).unwrap();
    let fork = Some(ForkRequest { source, at, sub_offset: 0 });
    let create = Create { fork, ..Create::default() };
    let (tenant, path) = (Tenant::default_tenant(), StreamPath::parse(path).unwrap());
    events.server.engine.create(&tenant, &path, create, None).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stays_for_a_subscription_that_is_not_active_and_for_a_fork() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let body = json!({ "subscriptionId": id });
    events.ingest(json!({ "type": "a" })).await;
    events.called().await.answer(500, "");
    events.until_status(&id, "failed").await;
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    events.clock.advance(DAY_MS);
    assert_eq!(events.trim().await, 0);
    events.post("/subscriptions/reactivate", &body).await.expect(200);
    events.called().await.ok();
    events.until_status(&id, "delivered").await;
    events.clock.advance(DAY_MS);
    fork(&events, "/copy", None).await.unwrap();
    assert_eq!(events.trim().await, 0, "the fork reads it");
    events.server.ask("DELETE", "/copy", &[], b"").await.expect(204);
    eventually("the fork to be let go", async || (events.trim().await == 1).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_of_what_is_left_has_what_is_left() {
    let events = Deliveries::start().await;
    events.ingest(json!({ "type": "a" })).await;
    events.clock.advance(10);
    let cutoff = Millis(events.now());
    events.ingest(json!({ "type": "b" })).await;
    assert_eq!(events.server.engine.trim_events(cutoff).await.unwrap(), 1);
    fork(&events, "/copy", None).await.unwrap();
    let copied = events.server.get("/copy?offset=-1").await.expect(200);
    assert_eq!(event_kinds(&copied.text()), ["b"]);
    let zero = "0000000000000000_0000000000000000";
    events.server.get(&format!("/copy?offset={zero}")).await.expect(410);
    let refused = fork(&events, "/early", Some(Offset::ZERO)).await;
    assert!(matches!(refused, Err(Error::Rejected(Rejected::ForkOffset { .. }))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_events_go_and_the_time_for_it_comes_by_itself() {
    let events = Deliveries::start().await;
    for _ in 0..3 {
        let batch: Vec<Value> = (0..400).map(|n| json!({ "type": "a", "n": n })).collect();
        events.post("/ingest", &json!(batch)).await.expect(200);
    }
    events.clock.advance(20 * DAY_MS);
    events.ingest(json!({ "type": "b" })).await;
    assert_eq!(events.kinds().await.len(), 1_201);
    // 30 days, and an hour until the next look.
    events.clock.advance(10 * DAY_MS + 3_600_000);
    eventually("old events to be forgotten", async || {
        let kinds = events.kinds().await;
        assert_eq!(kinds.last().unwrap(), "b");
        (kinds == ["b"]).then_some(())
    })
    .await;
}
