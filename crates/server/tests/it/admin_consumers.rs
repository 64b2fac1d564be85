//! `/admin/v1/consumers`: where every consumer stands, the ones that never did anything included.

use reveille_core::subscription::Timings;
use serde_json::{Value, json};

use crate::harness::*;

const TEXT: &str = "text/plain";

async fn subscribe(server: &TestServer, pattern: &str, name: &str, more: Value) {
    let mut body = json!({ "webhook": "http://127.0.0.1:9/" });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let target = format!("{pattern}?subscription={name}");
    server.ask("PUT", &target, &[], body.to_string().as_bytes()).await.expect(201);
}

async fn consumer(server: &TestServer, id: &str) -> Value {
    server.get(&format!("/admin/v1/consumers/{id}")).await.expect(200).json()
}

/// The consumer once it is in this state.
async fn in_state(server: &TestServer, id: &str, state: &str) -> Value {
    eventually(state, async || {
        let found = consumer(server, id).await;
        (found["state"] == state).then_some(found)
    })
    .await
}

fn offset(bytes: u64) -> String {
    format!("0000000000000000_{bytes:016}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_never_did_anything_is_idle() {
    let server = Setup::default().start().await;
    server.create("/agents/old", TEXT).await;
    server.append("/agents/old", TEXT, b"12345").await.expect(204);
    subscribe(&server, "/agents/*", "s", json!({})).await;
    server.create("/agents/new", TEXT).await;
    let old = consumer(&server, "s:%2Fagents%2Fold").await;
    let expected = json!({
        "id": "s:%2Fagents%2Fold",
        "subscription": "s",
        "dialect": "webhooks",
        "primary_stream": "/agents/old",
        "state": "idle",
        "epoch": 0,
        "wake_id": null,
        "attempt": null,
        "pending": false,
        "streams": [
            { "path": "/agents/old", "acked": offset(5), "tail": offset(5), "lag_bytes": 0 },
        ],
        "more_streams": false,
        "stream_count": 1,
        "woken_at": null,
        "next_attempt_at": null,
        "lease_until": null,
        "holder": null,
        "last_error": null,
        "failures": 0,
        "failing_since": null,
        "wakes_saved": 0,
        "fruitless_dones": 0,
        "given_up_at": null,
        "kept_until": null,
    });
    assert_eq!(old, expected);
    let new = consumer(&server, "s:%2Fagents%2Fnew").await;
    assert_eq!(new["streams"][0]["acked"], "-1");
    assert_eq!((&new["state"], &new["pending"]), (&json!("idle"), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_followed_from_its_wake_to_its_end() {
    let mut endpoint = Responder::start(503, "").await;
    let clock = HandClock::new();
    let timings = Timings { give_up_after_ms: 3_600_000, ..Timings::default() };
    let server = Setup { timings, ..Setup::on(&clock) }.start().await;
    subscribe(&server, "/agents/*", "s", json!({ "webhook": endpoint.url })).await;
    server.create("/agents/a", TEXT).await;
    server.append("/agents/a", TEXT, b"12345").await.expect(204);
    endpoint.next().await;
    let id = "s:%2Fagents%2Fa";
    let failed = in_state(&server, id, "retrying").await;
    assert_eq!((&failed["epoch"], &failed["attempt"]), (&json!(1), &json!(1)));
    assert_eq!((&failed["failures"], &failed["pending"]), (&json!(1), &json!(true)));
    assert_eq!(failed["last_error"], json!({ "at": START_MS, "message": "answered 503" }));
    assert_eq!(failed["failing_since"], START_MS);
    assert_eq!(failed["woken_at"], START_MS);
    let stream = json!({ "path": "/agents/a", "acked": "-1", "tail": offset(5), "lag_bytes": 5 });
    assert_eq!(failed["streams"], json!([stream]));
    let next = failed["next_attempt_at"].as_u64().unwrap();
    assert!(next > START_MS, "{failed}");

    endpoint.answers(200, "{}");
    clock.advance(next - START_MS);
    let wake = endpoint.next().await.json();
    let live = in_state(&server, id, "live").await;
    assert_eq!(live["wake_id"], wake["wake_id"]);
    assert_eq!(live["lease_until"], next + 45_000);
    assert_eq!((&live["attempt"], &live["failing_since"]), (&Value::Null, &Value::Null));

    let token = format!("Bearer {}", wake["token"].as_str().unwrap());
    let done = json!({
        "epoch": 1,
        "acks": [{ "path": "/agents/a", "offset": offset(5) }],
        "done": true,
    });
    let target = format!("/callback/{id}");
    let headers = [("authorization", token.as_str())];
    server.ask("POST", &target, &headers, done.to_string().as_bytes()).await.expect(200);
    let idle = consumer(&server, id).await;
    assert_eq!((&idle["state"], &idle["pending"]), (&json!("idle"), &json!(false)));
    assert_eq!(idle["streams"][0]["acked"], offset(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_collected_show_when_they_will_be_told() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    subscribe(&server, "/a", "s", json!({ "max_delay": "10s" })).await;
    server.create("/a", TEXT).await;
    server.append("/a", TEXT, b"1").await.expect(204);
    server.append("/a", TEXT, b"2").await.expect(204);
    let found = consumer(&server, "s:%2Fa").await;
    assert_eq!(found["state"], "collecting");
    assert_eq!(found["next_attempt_at"], START_MS + 10_000);
    assert_eq!((&found["wakes_saved"], &found["epoch"]), (&json!(1), &json!(0)));
    assert_eq!(found["streams"][0]["lag_bytes"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_there_is_not_found() {
    let server = Setup::default().start().await;
    server.create("/other", TEXT).await;
    subscribe(&server, "/agents/*", "s", json!({})).await;
    for (id, part) in [
        ("none:%2Fagents%2Fa", "no subscription \"none\""),
        ("s:%2Fagents%2Fa", "no consumer for /agents/a"),
        ("s:%2Fother", "no consumer for /other"),
        // The name of one dialect is nobody's in the other.
        ("s", "no subscription \"s\""),
    ] {
        let answer = server.get(&format!("/admin/v1/consumers/{id}")).await.expect(404);
        assert_eq!(answer.code(), "CONSUMER_NOT_FOUND");
        let message = answer.json()["error"]["message"].to_string().replace('\\', "");
        assert!(message.contains(part), "{message}");
    }
    server.get("/admin/v1/consumers/").await.expect(404);
    server.delete("/admin/v1/consumers/s").await.expect(405);
    server.get("/admin/v1/consumers?limit=0").await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ended_has_no_consumer() {
    let server = Setup::default().start().await;
    subscribe(&server, "/a", "s", json!({})).await;
    server.create("/a", TEXT).await;
    server.append("/a", TEXT, b"1").await.expect(204);
    server.delete("/a").await.expect(204);
    server.get("/admin/v1/consumers/s:%2Fa").await.expect(404);
    server.create("/a", TEXT).await;
    assert_eq!(consumer(&server, "s:%2Fa").await["epoch"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_are_listed_page_by_page() {
    let server = Setup::default().start().await;
    for name in ["a/1", "a/2", "a/3", "b/1", "a/3/x"] {
        server.create(&format!("/{name}"), TEXT).await;
    }
    subscribe(&server, "/a/*", "one", json!({ "max_delay": "1h" })).await;
    subscribe(&server, "/**", "all", json!({ "max_delay": "1h" })).await;
    server.append("/a/2", TEXT, b"1").await.expect(204);
    let everybody = [
        "one:%2Fa%2F1",
        "one:%2Fa%2F2",
        "one:%2Fa%2F3",
        "all:%2Fa%2F1",
        "all:%2Fa%2F2",
        "all:%2Fa%2F3",
        "all:%2Fa%2F3%2Fx",
        "all:%2Fb%2F1",
    ];
    for limit in 1..=9 {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let target = format!("/admin/v1/consumers?limit={limit}{after}");
            let page = server.get(&target).await.expect(200).json();
            let items = page["consumers"].as_array().unwrap();
            assert!(items.len() <= limit);
            seen.extend(items.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(seen, everybody, "by {limit}");
    }
    let one = server.get("/admin/v1/consumers?subscription=one").await.expect(200).json();
    let states: Vec<&Value> =
        one["consumers"].as_array().unwrap().iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["idle", "collecting", "idle"]);
    let none = server.get("/admin/v1/consumers?subscription=none").await.expect(200).json();
    assert_eq!(none, json!({ "consumers": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_there_is_work_is_not_known_of_streams_that_are_not_shown() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let names: Vec<String> = (0..30).map(|number| format!("s/{number:02}")).collect();
    let asked = json!({ "type": "pull-wake", "streams": names, "wake_stream": "wake" });
    server.ds_put("p", &asked).await.expect(201);
    let listed = async || {
        let page = server.get("/admin/v1/consumers?subscription=p").await.expect(200).json();
        page["consumers"][0].clone()
    };
    assert_eq!(
        (&listed().await["pending"], &listed().await["more_streams"]),
        (&json!(false), &json!(true))
    );
    let tail = server.ds_stream("s/29").await;
    let found = listed().await;
    assert_eq!((&found["pending"], &found["more_streams"]), (&Value::Null, &json!(true)));
    assert_eq!(consumer(&server, "p").await["pending"], true, "there all of them are looked at");
    let wake = server.ds_post("p/claim", None, &json!({ "worker": "w" })).await.expect(200).json();
    let report = ds::report(&wake, &[("s/29", &tail)], true);
    server.ds_post("p/ack", Some(ds::token(&wake)), &report).await.expect(200);
    assert_eq!(listed().await["pending"], false);
    server.ds_stream("s/00").await;
    assert_eq!(listed().await["pending"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_begins_where_one_ended_and_nowhere_else() {
    let server = Setup::default().start().await;
    server.create("/a%20b", TEXT).await;
    subscribe(&server, "/*", "s", json!({})).await;
    for after in ["garbage", "-1", "+1", "1x", "x/a", "/a", "1/a%20b", "99999999999999999999"] {
        let answer = server.get(&format!("/admin/v1/consumers?after={after}")).await.expect(400);
        assert_eq!(answer.code(), "INVALID_QUERY", "{after}");
        assert!(answer.text().contains("`after`"), "{answer}");
    }
    let page = server.get("/admin/v1/consumers?limit=1").await.expect(200).json();
    let next = page["next"].as_str().unwrap().replace('%', "%25");
    let page = server.get(&format!("/admin/v1/consumers?after={next}")).await.expect(200).json();
    assert_eq!(page, json!({ "consumers": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_found_however_its_id_is_encoded() {
    let server = Setup::default().start().await;
    for path in ["/v/1", "/v/a%20b"] {
        server.create(path, TEXT).await;
    }
    subscribe(&server, "/v/*", "v-1", json!({})).await;
    let asked = json!({ "type": "pull-wake", "streams": ["s"], "wake_stream": "wake" });
    server.ds_put("p-1", &asked).await.expect(201);
    for (id, forms) in [
        ("v-1:%2Fv%2F1", ["v-1%3A%2Fv%2F1", "v-1%3a%252Fv%252F1", "v%2D1:%2Fv%2F1"]),
        (
            "v-1:%2Fv%2Fa%2520b",
            ["v-1%3A%2Fv%2Fa%2520b", "v-1%3A%252Fv%252Fa%252520b", "v%2d1:%2Fv%2Fa%2520b"],
        ),
        ("p-1", ["p%2D1", "%70-1", "p-%31"]),
    ] {
        assert_eq!(consumer(&server, id).await["id"], id);
        for form in forms {
            assert_eq!(consumer(&server, form).await["id"], id, "{form}");
        }
    }
    for form in ["v-1%3A", "v-1%3Av", "v-1%3A%2Fv", "%3A", "none%3A%2Fv%2F1", "%ff"] {
        let status = server.get(&format!("/admin/v1/consumers/{form}")).await.status();
        assert!([400, 404].contains(&status), "{form} {status}");
    }
}
