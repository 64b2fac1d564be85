//! Many consumers: of one stream, of dead endpoints, of one subscription.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::consumer::Dialect;
use reveille_engine::wakes::{ConsumerFilter, ConsumerItem};
use reveille_store::disk::RealDisk;
use reveille_store::log;
use reveille_store::table::LsmTable;
use serde_json::json;

use crate::harness::*;

/// The first bytes of the keys of consumers and of those who follow.
const CONSUMER: u8 = 0x07;
const FOLLOWER: u8 = 0x0a;

/// How many keys begin with this byte, in the store of a server that was stopped.
fn count(directory: &std::path::Path, first: u8) -> usize {
    partition_dirs(directory).iter().map(|partition| count_in(partition, first)).sum()
}

fn count_in(partition: &std::path::Path, first: u8) -> usize {
    let table = Arc::new(LsmTable::open(&partition.join("table")).unwrap());
    let disk = Arc::new(RealDisk::open(partition.join("log")).unwrap());
    let config = log::Config { segment_bytes: 2 << 20, sync: true };
    let opened = reveille_store::open::open(disk, table, config, 1 << 20, Box::new(|| 1)).unwrap();
    opened.state.reader().range(&[first], &[first + 1], 100_000).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_who_follows_a_stream_is_told_however_many_they_are() {
    const MANY: usize = 200;
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    for number in 0..MANY {
        let tail = wakes.create(&format!("/a/{number:03}"), "[1]").await;
        let call = wakes.woken().await;
        let body = json!({ "epoch": 1, "subscribe": ["/shared", "/later"], "done": true,
                           "acks": [{ "path": call.primary(), "offset": tail }] });
        wakes.call(&call, body).await.expect(200);
        call.ok();
    }
    wakes.quiet("all of them rest").await;
    for (round, path) in ["/shared", "/shared", "/later"].iter().enumerate() {
        if round == 1 {
            wakes.append(path, "[2]").await;
        } else {
            wakes.create(path, "[1]").await;
        }
        let mut woken = std::collections::BTreeSet::new();
        for _ in 0..MANY {
            let call = wakes.woken().await;
            assert_eq!(call.epoch() as usize, round + 2);
            assert_eq!(call.json()["triggered_by"], json!([path]));
            assert!(woken.insert(call.primary()), "{} was told twice", call.primary());
            call.done();
        }
        assert_eq!(woken.len(), MANY);
        for number in 0..MANY {
            wakes.idle("s", &format!("/a/{number:03}")).await;
        }
        wakes.quiet("once is enough").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_endpoints_do_not_delay_a_live_one() {
    let mut wakes = Wakes::start().await;
    let hanging = Sink::start().await;
    let nobody = Sink::nobody().await;
    let mut connection = wakes.server.connect().await;
    for number in 0..1_000 {
        let url = if number % 2 == 0 { hanging.url() } else { format!("http://{nobody}/x") };
        let body = json!({ "webhook": url }).to_string();
        let target = format!("/a/*?subscription=dead{number}");
        connection.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(201);
    }
    wakes.subscribe("live", "/a/*").await;
    let mut tail = wakes.create("/a/1", "[1]").await;
    for epoch in 1..=3 {
        // The clock stands still: whatever waits for the dead would wait for ever.
        let call = wakes.woken().await;
        assert_eq!((call.consumer().as_str(), call.epoch()), ("live:%2Fa%2F1", epoch));
        wakes.finish(&call, &tail).await.expect(200);
        call.ok();
        tail = wakes.append("/a/1", "[1]").await;
    }
    // Nor do their retries.
    wakes.clock.advance(10_000);
    let call = wakes.woken().await;
    wakes.finish(&call, &tail).await.expect(200);
    call.ok();
    wakes.append("/a/1", "[1]").await;
    assert_eq!(wakes.woken().await.epoch(), 5);
    drop(hanging);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_everything_is_made_and_ended_at_once() {
    const STREAMS: usize = 20_000;
    const CONSUMERS: usize = 1_500;
    let clock = HandClock::new();
    let setup = Setup { sync: false, ..Setup::on(&clock) };
    let mut wakes = Wakes::of(clock, setup).await;
    let mut connection = wakes.server.connect().await;
    for number in (0..STREAMS).step_by(500) {
        let requests: Vec<u8> = (number..number + 500)
            .flat_map(|number| request("PUT", &format!("/a/{number}"), &[JSON], b"[1]"))
            .collect();
        connection.send(&requests).await;
        for _ in 0..500 {
            connection.answer("PUT").await.expect(201);
        }
    }
    let commits = wakes.server.metric("reveille_log_batches_total").await;
    wakes.subscribe("all", "/**").await;
    let made = wakes.server.metric("reveille_log_batches_total").await;
    assert!(made - commits <= 2, "one record, not {}", made - commits);
    let tenant = Tenant::default_tenant();
    let mut kept = 0;
    let mut take = |item: &ConsumerItem| {
        kept += usize::from(item.record.is_some());
        true
    };
    let filter = ConsumerFilter { named: Some("all"), ..ConsumerFilter::default() };
    wakes.server.engine.consumers(&tenant, &filter, None, 1_000, &mut take).unwrap();
    assert_eq!(kept, 0, "consumers that were never told take no room");
    let mut first = None;
    for number in 0..CONSUMERS {
        connection.ask("POST", &format!("/a/{number}"), &[JSON], b"2").await.expect(204);
        let call = wakes.woken().await;
        if first.is_none() {
            let body = json!({ "epoch": 1, "subscribe": ["/x", "/y"] });
            wakes.call(&call, body).await.expect(200);
            first = Some((call.consumer(), call.token()));
        }
        call.ok();
    }
    let before = wakes.server.metric("reveille_log_batches_total").await;
    wakes.server.delete("/**?subscription=all").await.expect(204);
    let (consumer, token) = first.unwrap();
    let answer = wakes.call_as(&consumer, &token, json!({ "epoch": 1 })).await.expect(410);
    assert_eq!(answer.code(), "CONSUMER_GONE");
    connection.ask("POST", "/a/0", &[JSON], b"3").await.expect(204);
    wakes.quiet("the subscription is gone").await;
    let ended = wakes.server.metric("reveille_log_batches_total").await;
    assert!(ended - before < 60, "in slices, not one by one: {}", ended - before);
    let gone = wakes.server.engine.subscription(&tenant, Dialect::Webhooks, "all").unwrap();
    assert_eq!(gone, None);
    let directory = wakes.stop().await;
    let left = count(directory.path(), CONSUMER);
    assert!(left <= 2, "the canary's alone, not {left}");
    assert_eq!(count(directory.path(), FOLLOWER), 0);
}

/// Subscriptions, more than one batch tells; their patterns match `/a/1`.
const PATTERNS: usize = 300;

async fn subscribe_all(wakes: &Wakes) {
    let mut connection = wakes.server.connect().await;
    for number in 0..PATTERNS {
        let body = json!({ "webhook": wakes.sink.url() }).to_string();
        let target = format!("/a/*?subscription=s{number:03}");
        connection.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_whose_pattern_matches_is_told_once_however_many_they_are() {
    let mut wakes = Wakes::start().await;
    subscribe_all(&wakes).await;
    for epoch in 1..=2 {
        if epoch == 1 {
            wakes.create("/a/1", "[1]").await;
        } else {
            wakes.append("/a/1", "[2]").await;
        }
        let mut woken = std::collections::BTreeSet::new();
        for _ in 0..PATTERNS {
            let call = wakes.woken().await;
            assert_eq!(call.epoch(), epoch);
            assert!(woken.insert(call.consumer()), "{} was told twice", call.consumer());
            call.done();
        }
        for number in 0..PATTERNS {
            wakes.idle(&format!("s{number:03}"), "/a/1").await;
        }
        wakes.quiet("once is enough").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_subscribes_while_a_crowd_is_told_hears_of_later_events_alone() {
    let mut wakes = Wakes::start().await;
    subscribe_all(&wakes).await;
    wakes.create("/a/1", "").await;
    let late = Sink::start().await;
    let mut connection = wakes.server.connect().await;
    let body = json!({ "webhook": late.url() }).to_string();
    // On one connection, without waiting for any answer.
    let mut requests = request("POST", "/a/1", &[JSON], b"[1]");
    requests.extend(request("PUT", "/a/*?subscription=late", &[JSON], body.as_bytes()));
    connection.send(&requests).await;
    let first = connection.answer("POST").await.expect(204);
    let tail = first.next_offset().to_owned();
    connection.answer("PUT").await.expect(201);
    for _ in 0..PATTERNS {
        wakes.woken().await.done();
    }
    wakes.quiet("everybody was told").await;
    let mut late = late;
    assert!(late.come().is_none(), "the event was before its time");
    assert_eq!(wakes.record("late", "/a/1"), None);
    wakes.append("/a/1", "[2]").await;
    let call = late.next().await;
    assert_eq!(call.epoch(), 1);
    assert_eq!(call.json()["streams"][0]["offset"], json!(tail));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_told_to_the_end_whatever_happens_in_between() {
    for in_order in [true, false] {
        let wakes = Wakes::start().await;
        subscribe_all(&wakes).await;
        wakes.create("/a/1", "[1]").await;
        let mut wakes = if in_order { wakes.restart().await } else { wakes.crash().await };
        let mut woken = std::collections::BTreeMap::new();
        while woken.len() < PATTERNS {
            // One that was on its way is told again, and is the same.
            let call = wakes.woken().await;
            let known = woken.entry(call.consumer()).or_insert_with(|| call.wake());
            assert_eq!(*known, call.wake());
            assert_eq!(call.epoch(), 1);
            call.done();
        }
        let directory = wakes.stop().await;
        assert_eq!(count(directory.path(), CONSUMER), PATTERNS);
    }
}
