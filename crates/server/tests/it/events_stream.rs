//! The events of a tenant are a stream: read like any other, written by the server alone.

use serde_json::json;

use crate::harness::*;

const STREAM: &str = "/_events/default";

#[tokio::test(flavor = "multi_thread")]
async fn events_can_be_read_long_polled_and_followed() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.get(&format!("{STREAM}?offset=-1")).await.expect(404);
    let first = server.post("/ingest", &json!({ "type": "a", "n": 1 })).await.expect(200).json();
    let answer = server.get(&format!("{STREAM}?offset=-1")).await.expect(200);
    let envelope = json!({ "id": first["eventIds"][0], "type": "a",
        "ts": "2025-06-01T00:00:00.000Z",
        "payload": { "type": "a", "n": 1, "ts": "2025-06-01T00:00:00.000Z" } });
    assert_eq!(answer.json(), json!([envelope]));
    assert_eq!(answer.need("content-type"), "application/json");
    let tail = answer.next_offset().to_owned();
    assert_eq!(server.head(STREAM).await.expect(200).next_offset(), tail);
    let mut polling = server.connect().await;
    let target = format!("{STREAM}?offset={tail}&live=long-poll");
    polling.send(&request("GET", &target, &[], b"")).await;
    clock.sleeper(LONG_POLL_MS).await;
    let mut following = Events::open(&server, &format!("{STREAM}?offset={tail}&live=sse")).await;
    following.control().await;
    server.post("/e", &json!([{ "type": "b" }, { "type": "c" }])).await.expect(200);
    assert_eq!(event_kinds(&polling.answer("GET").await.expect(200).text()), ["b", "c"]);
    assert_eq!(event_kinds(&following.data().await.0), ["b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_the_server_writes_closes_or_deletes_it() {
    let server = Setup::default().start().await;
    for round in 0..2 {
        let close = ("stream-closed", "true");
        for (method, headers) in [
            ("PUT", vec![JSON]),
            ("POST", vec![JSON]),
            ("POST", vec![JSON, close]),
            ("DELETE", vec![]),
        ] {
            let answer = server.ask(method, STREAM, &headers, b"[1]").await.expect(403);
            assert_eq!(answer.code(), "RESERVED_STREAM", "{method} {round}");
        }
        server.post("/ingest", &json!({ "type": "a" })).await.expect(200);
    }
    let kept = server.get(&format!("{STREAM}?offset=-1")).await.expect(200);
    assert_eq!(kept.json().as_array().unwrap().len(), 2);
    assert_eq!(kept.get("stream-closed"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcards_do_not_match_it_and_a_subscription_that_names_it_is_woken() {
    let mut wakes = Wakes::start().await;
    for (name, pattern) in [("deep", "/*/default"), ("deeper", "/**/default")] {
        wakes.subscribe(name, pattern).await;
    }
    wakes.server.post("/ingest", &json!({ "type": "a" })).await.expect(200);
    wakes.quiet("wildcards do not name the stream").await;
    wakes.subscribe("own", STREAM).await;
    wakes.server.post("/ingest", &json!({ "type": "b" })).await.expect(200);
    let call = wakes.woken().await;
    assert_eq!(call.primary(), STREAM);
    assert!(call.consumer().starts_with("own:"), "{}", call.consumer());
    let tail = wakes.server.head(STREAM).await.next_offset().to_owned();
    wakes.finish(&call, &tail).await.expect(200);
}
