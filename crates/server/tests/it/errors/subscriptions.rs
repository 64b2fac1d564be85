//! What is refused about subscriptions and their consumers, in both dialects.

use reveille_core::subscription::Timings;
use reveille_engine::doors::Clock as _;
use reveille_engine::quota::Quotas;
use serde_json::{Value, json};

use crate::harness::*;

const URL: &str = "http://127.0.0.1:9/hook";

pub(super) async fn refusals(seen: &mut Vec<Answer>) {
    let clock = HandClock::new();
    // Tokens end before leases do.
    let timings = Timings { token_ttl_ms: 10_000, ..Timings::default() };
    let server = Setup { timings, ..Setup::on(&clock) }.start().await;
    of_making(&server, seen).await;
    of_too_many(seen).await;
    of_callbacks(&clock, &server, seen).await;
    of_leases(&clock, &server, seen).await;
    of_operators(seen).await;
}

fn keep(seen: &mut Vec<Answer>, answer: Answer, status: u16, code: &str) {
    assert_eq!((answer.status(), answer.code().as_str()), (status, code), "{answer}");
    seen.push(answer);
}

async fn of_making(server: &TestServer, seen: &mut Vec<Answer>) {
    let webhook = |url: &str| json!({ "webhook": url }).to_string();
    let safe = webhook(URL);
    server.ask("PUT", "/seed/*?subscription=s", &[], safe.as_bytes()).await.expect(201);
    let refused: &[(&str, &str, &str, u16, &str)] = &[
        ("PUT", "/other/*?subscription=s", &safe, 409, "SUBSCRIPTION_ALREADY_EXISTS"),
        ("PUT", "/a*?subscription=t", &safe, 400, "INVALID_PATTERN"),
        ("PUT", "/a?subscription=t", "{}", 400, "INVALID_REQUEST"),
        ("PUT", "/a?subscription=t", &webhook("http://10.0.0.1/"), 400, "WEBHOOK_URL_REJECTED"),
        ("GET", "/**?subscription=none", "", 404, "SUBSCRIPTION_NOT_FOUND"),
    ];
    for (method, target, body, status, code) in refused {
        let answer = server.ask(method, target, &[], body.as_bytes()).await;
        keep(seen, answer, *status, code);
    }
    server.delete("/seed/*?subscription=s").await.expect(204);
    let names: Vec<String> = (0..1_001).map(|number| number.to_string()).collect();
    let asked = json!({ "type": "webhook", "streams": names, "webhook": { "url": URL } });
    keep(seen, server.ds_put("t", &asked).await, 400, "INVALID_REQUEST");
    keep(seen, server.ds_put("a:b", &asked).await, 400, "INVALID_REQUEST");
    keep(seen, server.get("/v1/stream/__ds/other").await, 404, "RESERVED_PATH");
}

async fn of_too_many(seen: &mut Vec<Answer>) {
    let quotas = Quotas { subscriptions: 0, hooks: 0, ..Quotas::default() };
    let server = Setup { quotas, ..Setup::default() }.start().await;
    let asked = json!({ "webhook": URL }).to_string();
    let answer = server.ask("PUT", "/a/*?subscription=s", &[], asked.as_bytes()).await;
    keep(seen, answer, 403, "QUOTA_EXCEEDED");
}

/// Calls back for a consumer of the dialect in which every stream has one.
async fn call_back(server: &TestServer, wake: &Value, token: &str, body: Value) -> Answer {
    let url = wake["callback"].as_str().unwrap();
    let target = url.strip_prefix("http://localhost").unwrap();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    server.ask("POST", target, &headers, body.to_string().as_bytes()).await
}

async fn of_callbacks(clock: &HandClock, server: &TestServer, seen: &mut Vec<Answer>) {
    let mut endpoint = Endpoint::open().await;
    let asked = json!({ "webhook": endpoint.url }).to_string();
    server.ask("PUT", "/seed/*?subscription=s", &[], asked.as_bytes()).await.expect(201);
    let text = [("content-type", "text/plain")];
    server.ask("PUT", "/seed/a", &text, b"x").await.expect(201);
    let call = endpoint.call().await;
    let wake = call.json();
    call.answer(200, "{}");
    let token = wake["token"].as_str().unwrap();
    let acks = |offset: &str| json!([{ "path": "/seed/a", "offset": offset }]);
    let append = json!([{ "path": "/absent", "messages": ["x"] }]);
    let beyond = "0000000000000000_0000000000000009";
    let tail = "0000000000000000_0000000000000001";
    for (body, status, code) in [
        (json!({}), 400, "INVALID_REQUEST"),
        (json!({ "epoch": 7 }), 409, "STALE_EPOCH"),
        (json!({ "epoch": 1, "wake_id": "w_other" }), 409, "ALREADY_CLAIMED"),
        (json!({ "epoch": 1, "acks": acks(beyond) }), 409, "INVALID_OFFSET"),
        (json!({ "epoch": 1, "acks": acks(tail), "append": append }), 409, "APPEND_REJECTED"),
    ] {
        keep(seen, call_back(server, &wake, token, body).await, status, code);
    }
    let answer = call_back(server, &wake, "other", json!({ "epoch": 1 })).await;
    keep(seen, answer, 401, "TOKEN_INVALID");
    clock.advance(10_001);
    let answer = call_back(server, &wake, token, json!({ "epoch": 1 })).await;
    keep(seen, answer, 401, "TOKEN_EXPIRED");

    server.ask("PUT", "/seed/b", &text, b"x").await.expect(201);
    let wake = loop {
        let wake = endpoint.call().await.json();
        if wake["primary_stream"] == "/seed/b" {
            break wake;
        }
    };
    let leave = json!({ "epoch": 1, "unsubscribe": ["/seed/b"] });
    let answer = call_back(server, &wake, wake["token"].as_str().unwrap(), leave).await;
    keep(seen, answer, 410, "CONSUMER_GONE");
    server.delete("/seed/*?subscription=s").await.expect(204);
}

/// What an operator is told who cannot do something to a consumer.
async fn of_operators(seen: &mut Vec<Answer>) {
    let mut endpoint = Responder::start(200, "{}").await;
    let clock = HandClock::new();
    let timings = Timings { give_up_after_ms: 1, ..Timings::default() };
    let server = Setup { timings, ..Setup::on(&clock) }.start().await;
    let asked = json!({ "webhook": endpoint.url }).to_string();
    server.ask("PUT", "/seed/*?subscription=s", &[], asked.as_bytes()).await.expect(201);
    server.create("/seed/a", "text/plain").await;
    let consumer = "/admin/v1/consumers/s:%2Fseed%2Fa";
    let order = async |verb: &str, body: Value| {
        let target = format!("{consumer}/{verb}");
        server.ask("POST", &target, &[], body.to_string().as_bytes()).await
    };
    keep(seen, order("wake", json!({})).await, 409, "NOTHING_PENDING");
    keep(seen, order("revive", json!({})).await, 409, "NOT_GIVEN_UP");
    let elsewhere = json!({ "stream": "/seed/b", "offset": "now" });
    keep(seen, order("seek", elsewhere).await, 404, "STREAM_NOT_FOLLOWED");
    let beyond = json!({ "offset": "0000000000000000_0000000000000009" });
    keep(seen, order("seek", beyond).await, 400, "INVALID_OFFSET");
    server.append("/seed/a", "text/plain", b"x").await.expect(204);
    endpoint.next().await;
    let in_state = async |state: &str| {
        eventually(state, async || {
            let found = server.get(consumer).await.expect(200).json();
            (found["state"] == state).then_some(found)
        })
        .await
    };
    in_state("live").await;
    let pause = async |paused: bool| {
        let body = json!({ "paused": paused }).to_string();
        server.ask("PATCH", "/seed/*?subscription=s", &[], body.as_bytes()).await.expect(200);
    };
    pause(true).await;
    keep(seen, order("wake", json!({})).await, 409, "SUBSCRIPTION_PAUSED");
    pause(false).await;
    keep(seen, order("wake", json!({})).await, 409, "CONSUMER_LIVE");
    endpoint.answers(500, "");
    clock.advance(45_000);
    endpoint.next().await;
    let retrying = in_state("retrying").await;
    clock.advance(retrying["next_attempt_at"].as_u64().unwrap() - clock.now().0);
    endpoint.next().await;
    in_state("given_up").await;
    keep(seen, order("wake", json!({ "force": true })).await, 409, "CONSUMER_GIVEN_UP");
}

async fn of_leases(clock: &HandClock, server: &TestServer, seen: &mut Vec<Answer>) {
    server.ds_pull("p", "events/*", "wake").await;
    let claim =
        async |worker: &str| server.ds_post("p/claim", None, &json!({ "worker": worker })).await;
    keep(seen, claim("w1").await, 409, "NO_PENDING_WORK");
    server.ds_stream("events/a").await;
    let wake = claim("w1").await.expect(200).json();
    keep(seen, claim("w2").await, 409, "ALREADY_CLAIMED");
    let token = Some(ds::token(&wake));
    let report = ds::report(&wake, &[("events/a", "-1")], true);
    keep(seen, server.ds_post("p/ack", token, &report).await, 409, "INVALID_OFFSET");
    keep(seen, server.ds_post("p/ack", None, &report).await, 401, "TOKEN_INVALID");
    let mut other = wake.clone();
    other["generation"] = json!(9);
    let report = ds::report(&other, &[], true);
    keep(seen, server.ds_post("p/ack", token, &report).await, 409, "FENCED");
    clock.advance(10_001);
    keep(seen, server.ds_post("p/ack", token, &report).await, 401, "TOKEN_EXPIRED");
    keep(seen, server.ds_post("q/ack", token, &report).await, 404, "SUBSCRIPTION_NOT_FOUND");
}
