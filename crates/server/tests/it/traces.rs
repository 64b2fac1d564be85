//! Traces: from an append to the wake that it causes, to the callback, over retries and restarts.

use reveille_core::trace::Trace;
use reveille_engine::spans::{Span, Spans};
use serde_json::json;
use tokio::sync::mpsc;

use crate::harness::responder::Posted;
use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TAIL: &str = "0000000000000000_0000000000000001";

async fn subscribe(server: &TestServer, endpoint: &Responder, more: serde_json::Value) {
    let mut body = json!({ "webhook": endpoint.url });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let body = body.to_string();
    server.ask("PUT", "/a?subscription=s", &[], body.as_bytes()).await.expect(201);
    server.create("/a", "text/plain").await;
}

async fn append(server: &TestServer, traceparent: Option<&str>) {
    let mut headers = vec![TEXT];
    headers.extend(traceparent.map(|text| ("traceparent", text)));
    server.ask("POST", "/a", &headers, b"x").await.expect(204);
}

async fn call(server: &TestServer, wake: &Posted, traceparent: Option<&str>) {
    let wake = wake.json();
    let token = format!("Bearer {}", wake["token"].as_str().unwrap());
    let mut headers = vec![("authorization", token.as_str())];
    headers.extend(traceparent.map(|text| ("traceparent", text)));
    let acks = json!([{ "path": "/a", "offset": TAIL }]);
    let body = json!({ "epoch": wake["epoch"], "acks": acks, "done": true }).to_string();
    server.ask("POST", "/callback/s:%2Fa", &headers, body.as_bytes()).await.expect(200);
}

fn collect(server: &TestServer) -> mpsc::Receiver<Span> {
    let (spans, collected) = Spans::new();
    server.engine.collect_spans(spans);
    collected
}

async fn next(collected: &mut mpsc::Receiver<Span>, name: &str) -> Span {
    let span = guarded("a span", collected.recv()).await.unwrap();
    assert_eq!(span.name, name);
    span
}

fn trace_of(posted: &Posted) -> Trace {
    Trace::parse(posted.get("traceparent").unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_passed_on_although_nobody_collects_spans() {
    let directory = tempfile::tempdir().unwrap();
    let mut endpoint = Responder::start(500, "").await;
    let clock = HandClock::new();
    let setup = Setup::on(&clock);
    let server = setup.start_in(directory.path()).await;
    subscribe(&server, &endpoint, json!({})).await;
    append(&server, Some(PARENT)).await;
    assert_eq!(endpoint.next().await.get("traceparent"), Some(PARENT));
    eventually("the failure to be noted", async || {
        let found = server.get("/admin/v1/consumers/s:%2Fa").await.expect(200).json();
        (found["state"] == "retrying").then_some(())
    })
    .await;
    server.stop().await;
    let server = setup.start_in(directory.path()).await;
    clock.advance(60_000);
    let retry = endpoint.next().await;
    assert_eq!(retry.json()["epoch"], 1);
    assert_eq!(retry.get("traceparent"), Some(PARENT));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_trace_nothing_is_said_of_one() {
    let mut endpoint = Responder::start(200, "{\"done\": true}").await;
    let server = Setup::default().start().await;
    subscribe(&server, &endpoint, json!({})).await;
    append(&server, Some(PARENT)).await;
    assert_eq!(endpoint.next().await.get("traceparent"), Some(PARENT));
    eventually("the consumer to rest", async || {
        let found = server.get("/admin/v1/consumers/s:%2Fa").await.expect(200).json();
        (found["state"] == "idle").then_some(())
    })
    .await;
    // The trace of the last wake is not that of the next one.
    append(&server, None).await;
    assert_eq!(endpoint.next().await.get("traceparent"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_tell_the_whole_way_of_an_event() {
    let mut endpoint = Responder::start(200, "{}").await;
    let server = Setup::default().start().await;
    let mut collected = collect(&server);
    subscribe(&server, &endpoint, json!({})).await;
    let parent = Trace::parse(PARENT).unwrap();
    append(&server, Some(PARENT)).await;
    let posted = endpoint.next().await;
    let (first, second) = (collected.recv().await.unwrap(), collected.recv().await.unwrap());
    let (append, wake) = if first.name == "append" { (first, second) } else { (second, first) };
    assert_eq!((append.name, wake.name), ("append", "wake"));
    assert_eq!(append.parent, Some(parent.span_id));
    assert_eq!(wake.parent, Some(append.trace.span_id));
    assert_eq!(wake.trace.trace_id, parent.trace_id);
    assert_eq!(trace_of(&posted), wake.trace);
    assert!(append.start <= append.end && append.start <= wake.end);
    assert!(wake.attributes.contains(&("reveille.stream", "/a".to_owned())), "{wake:?}");
    assert_eq!((&append.error, &wake.error), (&None, &None));

    call(&server, &posted, None).await;
    let callback = next(&mut collected, "callback").await;
    assert_eq!(callback.trace.trace_id, parent.trace_id);
    assert_eq!(callback.parent, Some(append.trace.span_id));
    let own = "00-11111111111111111111111111111111-2222222222222222-01";
    call(&server, &posted, Some(own)).await;
    let callback = next(&mut collected, "callback").await;
    assert_eq!(callback.trace.trace_id, [0x11; 16]);
    assert_eq!(callback.parent, Some([0x22; 8]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_without_a_trace_begins_one_and_failures_say_what_went_wrong() {
    let mut endpoint = Responder::start(503, "").await;
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let mut collected = collect(&server);
    subscribe(&server, &endpoint, json!({ "max_delay": "10s" })).await;
    append(&server, None).await;
    let cause = next(&mut collected, "append").await;
    assert_eq!(cause.parent, None);
    // Events that are told along do not change whose wake it is.
    append(&server, Some(PARENT)).await;
    next(&mut collected, "append").await;
    clock.advance(10_000);
    endpoint.next().await;
    let wake = next(&mut collected, "wake").await;
    assert_eq!(wake.trace.trace_id, cause.trace.trace_id);
    assert_eq!(wake.parent, Some(cause.trace.span_id));
    assert_eq!(wake.error.as_deref(), Some("answered 503"));
    assert_eq!(server.metric("reveille_spans_dropped_total").await, 0);
}

async fn ingest(events: &Deliveries, traceparent: Option<&str>) -> String {
    let mut headers = vec![JSON];
    headers.extend(traceparent.map(|text| ("traceparent", text)));
    let answer = events.server.ask("POST", "/ingest", &headers, br#"{"type":"a.b"}"#).await;
    answer.expect(200).json()["eventIds"][0].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_and_its_retries_carry_the_trace_of_their_event() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    ingest(&events, Some(PARENT)).await;
    let call = events.called().await;
    assert_eq!(call.get("traceparent"), PARENT);
    call.answer(500, "");
    events.until_status(&id, "failed").await;
    let mut events = events.crash().await;
    events.clock.advance(10_000);
    let retry = events.called().await;
    assert_eq!((retry.get("x-events-attempt"), retry.get("traceparent")), ("2", PARENT));
    retry.ok();
    ingest(&events, None).await;
    let call = events.called().await;
    assert!(call.headers.iter().all(|(name, _)| name != "traceparent"), "{:?}", call.headers);
    call.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_tell_the_attempts_of_a_delivery() {
    let mut events = Deliveries::start().await;
    let mut collected = collect(&events.server);
    let id = events.subscribe("a.*").await;
    ingest(&events, Some(PARENT)).await;
    let cause = next(&mut collected, "ingest").await;
    assert_eq!(cause.parent, Some(Trace::parse(PARENT).unwrap().span_id));
    assert!(cause.attributes.contains(&("reveille.stream", "/_events/default".to_owned())));
    let mut seen = Vec::new();
    for (number, status, error) in [("1", 503, Some("answered 503")), ("2", 200, None)] {
        let call = events.called().await;
        let said = Trace::parse(call.get("traceparent")).unwrap();
        call.answer(status, "");
        let span = next(&mut collected, "delivery").await;
        assert_eq!((span.trace, span.parent), (said, Some(cause.trace.span_id)));
        assert_eq!(span.trace.trace_id, cause.trace.trace_id);
        assert_eq!(span.error.as_deref(), error);
        let status = status.to_string();
        for (name, text) in [
            ("reveille.hook", id.as_str()),
            ("reveille.attempt", number),
            ("http.response.status_code", &status),
        ] {
            assert!(span.attributes.contains(&(name, text.to_owned())), "{span:?}");
        }
        let kind = span.attributes.iter().find(|(name, _)| *name == "error.type");
        assert_eq!(kind.map(|(_, kind)| kind.as_str()), error.map(|_| "http"));
        seen.push(span.trace.span_id);
        if error.is_some() {
            events.to_next_attempt(&id, 1).await;
        }
    }
    assert_ne!(seen[0], seen[1], "each attempt is a span of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_trace_begins_one() {
    let mut events = Deliveries::start().await;
    let mut collected = collect(&events.server);
    events.subscribe("a.*").await;
    ingest(&events, None).await;
    let cause = next(&mut collected, "ingest").await;
    assert_eq!(cause.parent, None);
    let call = events.called().await;
    let said = Trace::parse(call.get("traceparent")).unwrap();
    assert_eq!(said.trace_id, cause.trace.trace_id);
    call.ok();
    next(&mut collected, "delivery").await;
}
