//! What is counted of wakes, attempts, callbacks and consumers, and the whole list as a golden
//! file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use reveille_core::subscription::Timings;
use serde_json::json;

use crate::harness::*;

const TEXT: &str = "text/plain";

async fn subscribe(server: &TestServer, pattern: &str, name: &str, webhook: &str) {
    let body = json!({ "webhook": webhook }).to_string();
    let target = format!("{pattern}?subscription={name}");
    server.ask("PUT", &target, &[], body.as_bytes()).await.expect(201);
}

/// The value of the metric with all these labels.
async fn value(server: &TestServer, name: &str, labels: &[&str]) -> u64 {
    let text = server.get("/metrics").await.expect(200).text();
    metric_of(&text, name, labels)
}

async fn becomes(server: &TestServer, name: &str, labels: &[&str], wanted: u64) {
    let what = format!("{name} {labels:?} to be {wanted}");
    eventually(&what, async || (value(server, name, labels).await == wanted).then_some(())).await;
}

const ATTEMPTS: &str = "reveille_wake_attempts_total";
const CONSUMERS: &str = "reveille_consumers";

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_is_counted_from_its_beginning_to_its_end() {
    let mut endpoint = Responder::start(200, "{}").await;
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    subscribe(&server, "/a", "s", &endpoint.url).await;
    assert_eq!(server.metric("reveille_subscriptions").await, 1);
    server.create("/a", TEXT).await;
    assert_eq!(server.metric("reveille_wakes_total").await, 0);
    server.append("/a", TEXT, b"1").await.expect(204);
    assert_eq!(server.metric("reveille_wakes_total").await, 1);
    let wake = endpoint.next().await.json();
    becomes(&server, CONSUMERS, &["live"], 1).await;
    assert_eq!(value(&server, CONSUMERS, &["waking"]).await, 0);
    assert_eq!(value(&server, ATTEMPTS, &["accepted"]).await, 1);
    assert_eq!(server.metric("reveille_wake_delay_seconds_count").await, 1);
    assert_eq!(server.metric("reveille_wake_attempt_seconds_count").await, 1);

    let token = format!("Bearer {}", wake["token"].as_str().unwrap());
    let headers = [("authorization", token.as_str())];
    let tail = "0000000000000000_0000000000000001";
    let done = json!({ "epoch": 1, "acks": [{ "path": "/a", "offset": tail }], "done": true });
    let call =
        async |body: &str| server.ask("POST", "/callback/s:%2Fa", &headers, body.as_bytes()).await;
    call(&done.to_string()).await.expect(200);
    call("{}").await.expect(400);
    call("{\"epoch\": 9}").await.expect(409);
    server.ask("POST", "/callback/s:%2Fa", &[], b"{}").await.expect(401);
    for code in ["OK", "INVALID_REQUEST", "STALE_EPOCH", "TOKEN_INVALID"] {
        let label = format!("\"{code}\"");
        assert_eq!(value(&server, "reveille_callbacks_total", &[&label]).await, 1, "{code}");
    }
    assert_eq!(value(&server, CONSUMERS, &["live"]).await, 0);

    endpoint.answers(200, "{\"done\": true}");
    server.append("/a", TEXT, b"2").await.expect(204);
    endpoint.next().await;
    becomes(&server, ATTEMPTS, &["\"done\""], 1).await;
    becomes(&server, CONSUMERS, &["waking"], 0).await;
    assert_eq!(server.metric("reveille_wakes_total").await, 2);
    becomes(&server, "reveille_outbox", &["quick"], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_counted_by_their_kind() {
    let mut endpoint = Responder::start(500, "").await;
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    subscribe(&server, "/a", "a", &endpoint.url).await;
    // Nobody listens there.
    subscribe(&server, "/b", "b", "http://127.0.0.1:9/").await;
    for path in ["/a", "/b"] {
        server.create(path, TEXT).await;
        server.append(path, TEXT, b"1").await.expect(204);
    }
    endpoint.next().await;
    becomes(&server, ATTEMPTS, &["failed", "\"status\""], 1).await;
    becomes(&server, ATTEMPTS, &["failed", "\"no_connection\""], 1).await;
    assert_eq!(value(&server, CONSUMERS, &["waking"]).await, 2);
    server.delete("/a?subscription=a").await.expect(204);
    becomes(&server, CONSUMERS, &["waking"], 1).await;
    assert_eq!(server.metric("reveille_subscriptions").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_busy_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut endpoint = Responder::start(500, "").await;
    let clock = HandClock::new();
    let setup = Setup::on(&clock);
    let server = setup.start_in(directory.path()).await;
    subscribe(&server, "/a/*", "a", &endpoint.url).await;
    let body = json!({ "webhook": endpoint.url, "max_delay": "1h" }).to_string();
    server.ask("PUT", "/b/*?subscription=b", &[], body.as_bytes()).await.expect(201);
    for path in ["/a/1", "/a/2", "/b/1"] {
        server.create(path, TEXT).await;
        server.append(path, TEXT, b"1").await.expect(204);
    }
    endpoint.next().await;
    endpoint.next().await;
    becomes(&server, ATTEMPTS, &["failed", "\"status\""], 2).await;
    server.stop().await;
    let server = setup.start_in(directory.path()).await;
    assert_eq!(value(&server, CONSUMERS, &["waking"]).await, 2);
    assert_eq!(value(&server, CONSUMERS, &["collecting"]).await, 1);
    assert_eq!(value(&server, CONSUMERS, &["live"]).await, 0);
}

/// The timer of a consumer fired after its stream had ended. The consumer of the stream that took
/// its place believed that it still had that timer, and was never told a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_takes_anothers_place_has_timers_of_its_own() {
    let mut endpoint = Responder::start(200, "{}").await;
    let clock = HandClock::new();
    let timings = Timings { liveness_timeout_ms: 45_000, ..Timings::default() };
    let server = Setup { timings, ..Setup::on(&clock) }.start().await;
    subscribe(&server, "/a", "s", &endpoint.url).await;
    server.create("/a", TEXT).await;
    server.append("/a", TEXT, b"1").await.expect(204);
    endpoint.next().await;
    becomes(&server, CONSUMERS, &["live"], 1).await;
    server.delete("/a").await.expect(204);
    clock.advance(60_000);
    becomes(&server, CONSUMERS, &["live"], 0).await;
    server.create("/a", TEXT).await;
    server.append("/a", TEXT, b"2").await.expect(204);
    endpoint.next().await;
    becomes(&server, CONSUMERS, &["live"], 1).await;
    // Without a sign of life it is told again.
    clock.advance(60_000);
    let again = endpoint.next().await.json();
    assert_eq!(again["epoch"], 3);
}

/// Every metric with its help, its type, its series and the values of their labels. Of numbers in
/// labels only the value counts.
fn list(text: &str) -> String {
    let mut lines = BTreeSet::new();
    let mut series: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if line.starts_with('#') {
            assert!(lines.insert(line.to_owned()), "{line} comes twice");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        series.entry((name, String::new())).or_default();
        for pair in labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once('=').unwrap();
            let number = value.trim_matches('"').parse::<f64>();
            let value = number.map_or(value.to_owned(), |number| number.to_string());
            series.entry((name, label.to_owned())).or_default().insert(value);
        }
    }
    let mut list = String::new();
    for line in lines {
        let _ = writeln!(list, "{line}");
    }
    for ((name, label), values) in series {
        let values: Vec<String> = values.into_iter().collect();
        let line = format!("{name} {label} {}", values.join(" "));
        let _ = writeln!(list, "{}", line.trim_end());
    }
    list
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_as_documented() {
    let setup = Setup { partitions: Some(1), ..Setup::default() };
    let server = setup.start().await;
    let answer = server.get("/metrics").await.expect(200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.need("content-type"), kind);
    assert!(answer.text().ends_with("# EOF\n"), "{answer}");
    let list = list(&answer.text());
    let golden = include_str!("golden/metrics.txt");
    assert!(list == golden, "the golden file is otherwise; now it is\n{list}");
}

/// The values of a gauge of hooks, by hook.
async fn of_hooks(events: &Deliveries, name: &str) -> BTreeMap<String, f64> {
    let text = events.server.get("/metrics").await.expect(200).text();
    let begin = format!("reveille_{name}{{hook=\"");
    let values = text.lines().filter_map(|line| line.strip_prefix(&begin));
    let value = |line: &str| {
        let (hook, rest) = line.split_once('"').unwrap();
        (hook.to_owned(), rest.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    values.map(value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_is_failing_has_gauges_of_its_own() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 2 })).await;
    let fine = events.subscribe_with("b", json!({})).await;
    for kind in ["a", "b"] {
        events.ingest(json!({ "type": kind })).await;
        events.called().await.answer(if kind == "a" { 500 } else { 200 }, "");
    }
    events.until_status(&id, "failed").await;
    events.until_status(&fine, "delivered").await;
    events.clock.advance(500);
    let only = |number: f64| BTreeMap::from([(id.clone(), number)]);
    for (name, wanted) in [
        ("hook_pending", 1.0),
        ("hook_oldest_seconds", 0.5),
        ("hook_dead_letters", 0.0),
        ("hook_failing_seconds", 0.5),
    ] {
        eventually(name, async || (of_hooks(&events, name).await == only(wanted)).then_some(()))
            .await;
    }
    let mut events = events.restart().await;
    assert_eq!(of_hooks(&events, "hook_failing_seconds").await, only(0.5));
    events.to_next_attempt(&id, 1).await;
    events.called().await.answer(500, "");
    events.until_status(&id, "dead").await;
    eventually("a dead letter", async || {
        (of_hooks(&events, "hook_dead_letters").await == only(1.0)).then_some(())
    })
    .await;
    assert_eq!(of_hooks(&events, "hook_pending").await, only(0.0));
    assert!(of_hooks(&events, "hook_oldest_seconds").await.is_empty());
    // One that is accepted ends it.
    events.ingest(json!({ "type": "a" })).await;
    events.called().await.ok();
    events.until_status(&id, "delivered").await;
    eventually("it to fail no longer", async || {
        of_hooks(&events, "hook_failing_seconds").await.is_empty().then_some(())
    })
    .await;
    events.server.delete(&format!("/subscriptions/{id}")).await.expect(200);
    eventually("its gauges to go", async || {
        of_hooks(&events, "hook_dead_letters").await.is_empty().then_some(())
    })
    .await;
}

/// The values of a gauge of subscriptions, by subscription.
async fn of_subscriptions(server: &TestServer, name: &str) -> BTreeMap<String, f64> {
    let text = server.get("/metrics").await.expect(200).text();
    let begin = format!("reveille_{name}{{subscription=\"");
    let values = text.lines().filter_map(|line| line.strip_prefix(&begin));
    let value = |line: &str| {
        let (name, rest) = line.split_once('"').unwrap();
        (name.to_owned(), rest.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    values.map(value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_whose_consumers_wait_or_fail_has_gauges_of_its_own() {
    let timings = Timings { give_up_after_ms: 3_000, ..Timings::default() };
    let mut wakes = Wakes::with(timings).await;
    wakes.subscribe("failing", "/a/*").await;
    wakes.subscribe("waiting", "/b/*").await;
    wakes.subscribe("idle", "/c/*").await;
    let body = br#"{"paused":true}"#;
    let paused = wakes.server.ask("PATCH", "/b/*?subscription=waiting", &[JSON], body).await;
    paused.expect(200);
    wakes.server.ds_pull("pull", "b/*", "wake/w").await;
    for path in ["/b/1", "/b/2", "/v1/stream/b/1", "/a/1"] {
        wakes.create(path, "[1]").await;
    }
    wakes.woken().await.answer(500, "");
    eventually("the failure to be known", async || {
        let failing = of_subscriptions(&wakes.server, "subscription_failing").await;
        (failing["failing"] == 1.0).then_some(())
    })
    .await;
    wakes.clock.advance(500);
    let check = async |server: &TestServer, name: &str, wanted: &[(&str, f64)]| {
        let wanted = wanted.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(of_subscriptions(server, name).await, wanted, "{name}");
    };
    let pending = [("failing", 1.0), ("pull", 1.0), ("waiting", 2.0)];
    let age = [("failing", 0.5), ("pull", 0.5), ("waiting", 0.5)];
    check(&wakes.server, "subscription_pending", &pending).await;
    check(&wakes.server, "subscription_oldest_seconds", &age).await;
    check(&wakes.server, "subscription_failing_seconds", &[("failing", 0.5)]).await;
    // A start finds them all, and none but them.
    let mut wakes = wakes.crash().await;
    check(&wakes.server, "subscription_pending", &pending).await;
    check(&wakes.server, "subscription_oldest_seconds", &age).await;
    guarded("it to be given up", async {
        loop {
            let given_up = of_subscriptions(&wakes.server, "subscription_given_up").await;
            if given_up["failing"] == 1.0 {
                break;
            }
            match wakes.sink.come() {
                Some(call) => call.answer(500, ""),
                None => wakes.clock.advance(100),
            }
        }
    })
    .await;
    let pending = [("failing", 0.0), ("pull", 1.0), ("waiting", 2.0)];
    check(&wakes.server, "subscription_pending", &pending).await;
    check(&wakes.server, "subscription_failing", &pending.map(|(name, _)| (name, 0.0))).await;
    // Who goes on and is done is idle, and what is ended is gone.
    let body = br#"{"paused":false}"#;
    let resumed = wakes.server.ask("PATCH", "/b/*?subscription=waiting", &[JSON], body).await;
    resumed.expect(200);
    for _ in 0..2 {
        wakes.woken().await.done();
    }
    wakes.server.delete("/a/*?subscription=failing").await.expect(204);
    eventually("one to be left", async || {
        let pending = of_subscriptions(&wakes.server, "subscription_pending").await;
        (pending == BTreeMap::from([("pull".to_owned(), 1.0)])).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_hooks_those_that_are_worst_off_are_shown() {
    let events = Deliveries::with(|setup| setup.partitions = Some(1)).await;
    let mut ids = Vec::new();
    for number in 0..103 {
        let id = events.subscribe_with("a.*", json!({ "workerId": format!("w{number}") })).await;
        let body = json!({ "subscriptionId": id });
        events.post("/subscriptions/pause", &body).await.expect(200);
        ids.push(id);
    }
    let last = events.subscribe("a.b").await;
    events.post("/subscriptions/pause", &json!({ "subscriptionId": last })).await.expect(200);
    for kind in ["a.a", "a.b"] {
        events.ingest(json!({ "type": kind })).await;
    }
    let pending = eventually("all to be told", async || {
        let pending = of_hooks(&events, "hook_pending").await;
        (pending.values().sum::<f64>() == 207.0).then_some(pending)
    })
    .await;
    assert_eq!(pending.len(), 101);
    // Those with two are worse off than the one with one.
    assert_eq!(pending["other"], 7.0);
    assert!(!pending.contains_key(&last));
}
