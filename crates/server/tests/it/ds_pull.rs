//! Work that workers claim under `__ds`: announced in a stream, leased, reported on, given back.

use serde_json::{Value, json};

use crate::harness::*;

async fn on_clock() -> (HandClock, TestServer) {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    (clock, server)
}

async fn claim(server: &TestServer, worker: &str) -> Answer {
    server.ds_post("p/claim", None, &json!({ "worker": worker })).await
}

async fn ack(server: &TestServer, wake: &Value, acks: &[(&str, &str)], done: bool) -> Answer {
    server.ds_post("p/ack", Some(ds::token(wake)), &ds::report(wake, acks, done)).await
}

async fn release(server: &TestServer, wake: &Value) -> Answer {
    let body = json!({ "wake_id": wake["wake_id"], "generation": wake["generation"] });
    server.ds_post("p/release", Some(ds::token(wake)), &body).await
}

/// The events of a wake stream.
async fn announced(server: &TestServer, stream: &str) -> Vec<Value> {
    let events = server.get(&format!("/v1/stream/{stream}")).await.expect(200).json();
    events.as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_work_is_announced_claimed_reported_on_and_done() {
    let (_clock, server) = on_clock().await;
    server.create("/v1/stream/wake/pool", "application/json").await;
    server.ds_pull("p", "events/*", "wake/pool").await;
    assert_eq!(claim(&server, "w1").await.expect(409).code(), "NO_PENDING_WORK");
    let tail = server.ds_stream("events/a").await;
    let event = json!({
        "type": "wake", "subscription_id": "p", "stream": "events/a", "generation": 1,
        "ts": START_MS,
    });
    assert_eq!(announced(&server, "wake/pool").await, [event]);

    let wake = claim(&server, "w1").await.expect(200).json();
    let stream = json!({
        "path": "events/a", "link_type": "glob", "acked_offset": "-1", "tail_offset": tail,
        "has_pending": true,
    });
    let expected = json!({
        "wake_id": wake["wake_id"], "generation": 1, "token": wake["token"],
        "streams": [stream], "lease_ttl_ms": 1000,
    });
    assert_eq!(wake, expected);
    for worker in ["w2", "w1"] {
        let busy = claim(&server, worker).await.expect(409).json()["error"].clone();
        assert_eq!(busy["code"], "ALREADY_CLAIMED");
        assert_eq!(busy["current_holder"], "w1");
        assert_eq!(busy["generation"], 1);
    }
    let answer = ack(&server, &wake, &[("events/a", &tail)], true).await.expect(200);
    assert_eq!(answer.json(), json!({ "ok": true, "next_wake": false }));
    assert_eq!(ack(&server, &wake, &[], true).await.expect(409).code(), "FENCED");
    assert_eq!(claim(&server, "w2").await.expect(409).code(), "NO_PENDING_WORK");
    assert_eq!(announced(&server, "wake/pool").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_work_that_is_given_back_is_announced_again() {
    let (_clock, server) = on_clock().await;
    server.create("/v1/stream/wake/pool", "application/json").await;
    server.ds_pull("p", "events/*", "wake/pool").await;
    server.ds_stream("events/a").await;
    let wake = claim(&server, "w1").await.expect(200).json();
    for (token, status, code) in [(None, 401, "TOKEN_INVALID"), (Some("x"), 401, "TOKEN_INVALID")] {
        let answer = server.ds_post("p/release", token, &ds::report(&wake, &[], false)).await;
        assert_eq!(answer.expect(status).code(), code);
    }
    let mut other = wake.clone();
    other["generation"] = json!(2);
    assert_eq!(release(&server, &other).await.expect(409).code(), "FENCED");
    release(&server, &wake).await.expect(204);
    assert_eq!(release(&server, &wake).await.expect(409).code(), "FENCED");
    let generations: Vec<Value> = announced(&server, "wake/pool")
        .await
        .iter()
        .map(|event| event["generation"].clone())
        .collect();
    assert_eq!(generations, [1, 2]);
    assert_eq!(announced(&server, "wake/pool").await[1]["stream"], "events/a");
    let wake = claim(&server, "w2").await.expect(200).json();
    assert_eq!(wake["generation"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_signs_of_life_keep_a_lease_and_silence_ends_it() {
    let (clock, server) = on_clock().await;
    server.create("/v1/stream/wake/pool", "application/json").await;
    server.ds_pull("p", "events/*", "wake/pool").await;
    let tail = server.ds_stream("events/a").await;
    // Work that nobody claims waits for as long as it takes.
    clock.advance(600_000);
    let wake = claim(&server, "w1").await.expect(200).json();
    assert_eq!(wake["generation"], 1);
    for _ in 0..3 {
        clock.advance(900);
        let answer = ack(&server, &wake, &[], false).await.expect(200);
        assert_eq!(answer.json(), json!({ "ok": true, "next_wake": false }));
    }
    clock.advance(999);
    assert_eq!(claim(&server, "w2").await.expect(409).code(), "ALREADY_CLAIMED");
    clock.advance(1);
    let next = eventually("the lease to end", async || {
        let answer = claim(&server, "w2").await;
        (answer.status() == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(next["generation"], 2);
    assert_eq!(
        ack(&server, &wake, &[("events/a", &tail)], true).await.expect(409).code(),
        "FENCED"
    );
    assert_eq!(announced(&server, "wake/pool").await.len(), 2);
    ack(&server, &next, &[("events/a", &tail)], true).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_wake_events_never_wake_anybody() {
    let (_clock, server) = on_clock().await;
    let mut endpoint = Endpoint::open().await;
    server.create("/v1/stream/wake/pool", "application/json").await;
    // Its own pattern matches the stream of its wakes, and so do those of others.
    server.ds_pull("p", "**", "wake/pool").await;
    server.ds_pull("q", "wake/*", "wake/none").await;
    server.ds_webhook("s", "wake/**", &endpoint.url).await;
    let seed = json!({ "webhook": endpoint.url });
    let seed_target = "/v1/stream/wake/*?subscription=seed";
    server.ask("PUT", seed_target, &[], seed.to_string().as_bytes()).await.expect(201);
    let tail = server.ds_stream("events/a").await;
    assert_eq!(announced(&server, "wake/pool").await.len(), 1);
    let wake = claim(&server, "w1").await.expect(200).json();
    assert_eq!(wake["streams"].as_array().unwrap().len(), 1, "{wake}");
    let answer = ack(&server, &wake, &[("events/a", &tail)], true).await.expect(200);
    assert_eq!(answer.json()["next_wake"], false);
    let answer = server.ds_post("q/claim", None, &json!({ "worker": "w" })).await.expect(409);
    assert_eq!(answer.code(), "NO_PENDING_WORK");
    stays("quiet", async || endpoint.is_quiet()).await;
    assert_eq!(announced(&server, "wake/pool").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_work_is_claimed_without_a_stream_that_announces_it() {
    let (_clock, server) = on_clock().await;
    server.ds_pull("p", "events/*", "wake/none").await;
    server.ds_stream("events/a").await;
    server.head("/v1/stream/wake/none").await.expect(404);
    claim(&server, "w1").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_claim_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let server = Setup::on(&clock).start_in(directory.path()).await;
    server.create("/v1/stream/wake/pool", "application/json").await;
    server.ds_pull("p", "events/*", "wake/pool").await;
    let tail = server.ds_stream("events/a").await;
    let wake = claim(&server, "w1").await.expect(200).json();
    server.stop().await;

    let server = Setup::on(&clock).start_in(directory.path()).await;
    let busy = claim(&server, "w2").await.expect(409).json()["error"].clone();
    assert_eq!(busy["current_holder"], "w1");
    ack(&server, &wake, &[("events/a", &tail)], true).await.expect(200);
    server.ds_append("events/a").await;
    server.stop().await;

    let server = Setup::on(&clock).start_in(directory.path()).await;
    let wake = claim(&server, "w2").await.expect(200).json();
    assert_eq!(wake["generation"], 2);
    assert_eq!(wake["streams"][0]["acked_offset"], tail);
    assert_eq!(announced(&server, "wake/pool").await.len(), 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_stream_that_many_follow_by_name_takes_appends_when_nothing_is_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    server.ds_stream("x").await;
    for number in 0..80 {
        let wake_stream = format!("wake/none-{number}");
        let body = json!({
            "type": "pull-wake", "streams": ["x"], "wake_stream": wake_stream, "lease_ttl_ms": 1000,
        });
        server.ds_put(&format!("p{number}"), &body).await.expect(201);
    }
    server.stop().await;

    // Each of them was asked for by itself, twice: the limit of questions was the stream's end.
    let server = Setup::default().start_in(directory.path()).await;
    server.ds_append("x").await;
    for number in [0, 79] {
        let body = json!({ "worker": "w" });
        eventually("work to be there", async || {
            let answer = server.ds_post(&format!("p{number}/claim"), None, &body).await;
            (answer.status() == 200).then_some(())
        })
        .await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_list_has_a_thousand_entries_and_not_one_more() {
    let (_clock, server) = on_clock().await;
    server.create("/v1/stream/wake/pool", "application/json").await;
    server.ds_pull("p", "events/*", "wake/pool").await;
    let tail = server.ds_stream("events/a").await;
    let wake = claim(&server, "w1").await.expect(200).json();
    let acks = vec![("events/a", tail.as_str()); 1_001];
    let refused = ack(&server, &wake, &acks, false).await.expect(400);
    assert_eq!(refused.code(), "INVALID_REQUEST");
    assert!(refused.text().contains("1000"), "{refused}");
    assert_eq!(server.ds_links("p").await[0].2, "-1");
    ack(&server, &wake, &acks[1..], false).await.expect(200);
    assert_eq!(server.ds_links("p").await[0].2, tail);
    let streams = json!({ "streams": vec!["events/b"; 1_001] });
    let refused = server.ds_post("p/streams", None, &streams).await.expect(400);
    assert_eq!(refused.code(), "INVALID_REQUEST");
}
