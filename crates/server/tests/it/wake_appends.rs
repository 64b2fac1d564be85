//! Appending in the same step as acknowledging: both or neither, and once.

use serde_json::{Value, json};

use crate::harness::*;

async fn told() -> (Wakes, Call, String) {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    wakes.create("/out", "").await;
    let call = wakes.woken().await;
    (wakes, call, tail)
}

fn with(call: &Call, offset: &str, append: Value, done: bool) -> Value {
    json!({ "epoch": call.epoch(), "wake_id": call.wake_id(), "done": done, "append": append,
            "acks": [{ "path": call.primary(), "offset": offset }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_is_there_once_however_often_the_callback_is_repeated() {
    let (mut wakes, call, tail) = told().await;
    wakes.server.create("/text", "text/plain").await;
    let append = json!([{ "path": "/out", "messages": [1, { "x": [2] }, null] },
                        { "path": "/text", "messages": ["a", "b"] },
                        { "path": "/out", "messages": [[3]] }]);
    let body = with(&call, &tail, append, true);
    let answer = wakes.call(&call, body.clone()).await.expect(200).json();
    assert_eq!(answer["appended"], true);
    assert_eq!(answer["streams"], json!([{ "path": "/a/1", "offset": tail }]));
    for _ in 0..2 {
        let answer = wakes.call(&call, body.clone()).await.expect(200).json();
        assert_eq!(answer["appended"], false);
    }
    let out = wakes.server.get("/out").await.expect(200);
    assert_eq!(out.json(), json!([1, { "x": [2] }, null, [3]]));
    assert_eq!(wakes.server.get("/text").await.text(), "ab");
    wakes.quiet("nobody is for these streams").await;
    let plain = wakes.call(&call, json!({ "epoch": 1 })).await.expect(200).json();
    assert_eq!(plain.get("appended"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_append_that_is_refused_refuses_all_of_the_callback() {
    let (wakes, call, tail) = told().await;
    wakes.create("/closed", "").await;
    wakes.server.ask("POST", "/closed", &[JSON, ("stream-closed", "true")], b"").await.expect(204);
    wakes.create("/src", "[1]").await;
    let fork = [JSON, ("stream-forked-from", "/src")];
    wakes.server.ask("PUT", "/fork", &fork, b"").await.expect(201);
    wakes.server.delete("/src").await.expect(204);
    for bad in ["/missing", "/closed", "/src"] {
        let append = json!([{ "path": "/out", "messages": [1] }, { "path": "/a/1", "messages": [1] },
                            { "path": bad, "messages": [1] }]);
        let mut body = with(&call, &tail, append, true);
        body["subscribe"] = json!(["/b"]);
        let answer = wakes.call(&call, body).await.expect(409);
        assert_eq!(answer.code(), "APPEND_REJECTED", "{bad}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(bad), "{answer}");
        assert!(answer.json()["token"].is_string());
    }
    assert_eq!(wakes.server.get("/out").await.text(), "[]");
    assert_eq!(wakes.server.get("/a/1").await.text(), "[1]");
    let kept = wakes.record("s", "/a/1").unwrap().consumer;
    assert_eq!((kept.links.len(), kept.links[0].acked, kept.epoch), (1, None, 1));
    wakes.clock.advance(10_000);
    wakes.paused("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_fenced_or_acknowledges_wrongly_appends_nothing() {
    let (wakes, call, tail) = told().await;
    let append = json!([{ "path": "/out", "messages": [1] }]);
    let good = with(&call, &tail, append, false);
    let cases = [
        ("epoch", json!(2), "STALE_EPOCH"),
        ("epoch", json!(0), "STALE_EPOCH"),
        ("wake_id", json!("w_000000000000000000000000"), "ALREADY_CLAIMED"),
        ("acks", json!([{ "path": "/a/1", "offset": "9_9" }]), "INVALID_OFFSET"),
        (
            "acks",
            json!([{ "path": "/a/1", "offset": tail }, { "path": "/a/1", "offset": "x" }]),
            "INVALID_OFFSET",
        ),
    ];
    for (field, value, code) in cases {
        let mut body = good.clone();
        body[field] = value;
        assert_eq!(wakes.call(&call, body).await.expect(409).code(), code);
    }
    wakes.call_as(&call.consumer(), "bad", good.clone()).await.expect(401);
    // What it appends is no offset that it could acknowledge in the same breath.
    let own = json!([{ "path": "/a/1", "messages": [2] }]);
    let beyond = format!("0000000000000000_{:016}", 4);
    let body = with(&call, &beyond, own, false);
    assert_eq!(wakes.call(&call, body).await.expect(409).code(), "INVALID_OFFSET");
    assert_eq!(wakes.server.get("/out").await.text(), "[]");
    assert_eq!(wakes.server.get("/a/1").await.text(), "[1]");
    // Acks that bring nothing new are a repetition: nothing is appended, and it says so.
    for offset in ["-1"] {
        let append = json!([{ "path": "/out", "messages": [1] }]);
        let answer = wakes.call(&call, with(&call, offset, append, false)).await.expect(200);
        assert_eq!(answer.json()["appended"], false);
    }
    assert_eq!(wakes.server.get("/out").await.text(), "[]");
    wakes.call(&call, good).await.expect(200);
    assert_eq!(wakes.server.get("/out").await.text(), "[1]");
}

#[tokio::test(flavor = "multi_thread")]
async fn appending_to_its_own_stream_wakes_it_again_when_it_is_done() {
    let (mut wakes, call, tail) = told().await;
    let own = json!([{ "path": "/a/1", "messages": [2, 3] }]);
    wakes.call(&call, with(&call, &tail, own.clone(), false)).await.expect(200);
    wakes.quiet("it works, and reads on by itself").await;
    wakes.call(&call, json!({ "epoch": 1, "done": true })).await.expect(200);
    let next = wakes.woken().await;
    assert_eq!((next.epoch(), &next.json()["streams"][0]["offset"]), (2, &json!(tail)));
    // Done in the same breath.
    let now = wakes.server.head("/a/1").await.next_offset().to_owned();
    let answer = wakes.call(&next, with(&next, &now, own, true)).await.expect(200);
    assert_eq!(answer.json()["appended"], true);
    let third = wakes.woken().await;
    assert_eq!((third.epoch(), &third.json()["streams"][0]["offset"]), (3, &json!(now)));
    assert_eq!(wakes.server.get("/a/1").await.text(), "[1,2,3,2,3]");
    wakes.quiet("one wake each").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_consumer_appends_wakes_the_others() {
    let (mut wakes, call, tail) = told().await;
    wakes.create("/a/2", "").await;
    wakes.subscribe("other", "/a/1").await;
    let append = json!([{ "path": "/a/2", "messages": [1] }, { "path": "/a/1", "messages": [2] }]);
    wakes.call(&call, with(&call, &tail, append, false)).await.expect(200);
    let mut woken = [wakes.woken().await, wakes.woken().await];
    woken.sort_by_key(Call::consumer);
    assert_eq!(woken.each_ref().map(Call::consumer), ["other:%2Fa%2F1", "s:%2Fa%2F2"]);
    assert_eq!(woken[0].json()["streams"][0]["offset"], tail, "the tail when it began");
    wakes.quiet("and not itself").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_appends_to_streams_that_nobody_touched_for_long_are_made() {
    let (mut wakes, call, tail) = told().await;
    let mut connection = wakes.server.connect().await;
    for number in 0..200 {
        connection.ask("PUT", &format!("/cold/{number}"), &[JSON], b"").await.expect(201);
    }
    // After a restart everything has to be fetched.
    wakes = wakes.restart().await;
    let _again = wakes.woken().await;
    let append: Vec<Value> =
        (0..200).map(|n| json!({ "path": format!("/cold/{n}"), "messages": [n] })).collect();
    let answer = wakes.call(&call, with(&call, &tail, json!(append), true)).await.expect(200);
    assert_eq!(answer.json()["appended"], true);
    assert_eq!(wakes.server.get("/cold/199").await.text(), "[199]");
}

/// A callback with this text as its `append`.
async fn append_raw(wakes: &Wakes, call: &Call, offset: &str, append: &str) -> Answer {
    let body = format!(
        r#"{{"append": {append}, "epoch": {}, "acks": [{{"path":"/a/1","offset":"{offset}"}}]}}"#,
        call.epoch()
    );
    wakes.call_raw(&call.consumer(), &call.token(), body.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_kept_byte_for_byte_as_those_of_a_plain_append() {
    let (wakes, call, tail) = told().await;
    wakes.create("/plain", "").await;
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let messages = format!(
        r#"[12345678901234567890123, 1.10 ,{{"b":1, "a":2,"b":3}}, 1e2, 1e400, "\ud800", "\u00e9", {deep}]"#
    );
    let append = format!(r#"[ {{ "messages" : {messages} , "path":"/out"}} ]"#);
    let answer = append_raw(&wakes, &call, &tail, &append).await.expect(200);
    assert_eq!(answer.json()["appended"], true);
    wakes.append("/plain", &messages).await;
    let kept = wakes.server.get("/out").await.expect(200).text();
    assert_eq!(kept, wakes.server.get("/plain").await.expect(200).text());
    let start =
        r#"[12345678901234567890123,1.10,{"b":1, "a":2,"b":3},1e2,1e400,"\ud800","\u00e9",[[["#;
    assert!(kept.starts_with(start), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plain_append_refuses_is_refused_here_too() {
    let (wakes, call, tail) = told().await;
    wakes.server.create("/text", "text/plain").await;
    for messages in
        ["[1,]", "[01]", "[nul]", "[\"\\ud8\"]", "[", "[]", "[ ]", "{}", "\"x\"", "null"]
    {
        wakes.server.append("/out", "application/json", b"[1,]").await.expect(400);
        let append = format!(r#"[{{"path":"/out","messages":{messages}}}]"#);
        let answer = append_raw(&wakes, &call, &tail, &append).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{messages}");
    }
    // Nothing is no message: a plain append of no bytes is refused as well.
    wakes.server.append("/text", "text/plain", b"").await.expect(400);
    for messages in [r#"[""]"#, r#"["",""]"#, r#"["\ud800"]"#] {
        let append = format!(r#"[{{"path":"/text","messages":{messages}}}]"#);
        let answer = append_raw(&wakes, &call, &tail, &append).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{messages}");
    }
    assert_eq!(wakes.server.get("/out").await.text(), "[]");
    let append = r#"[{"path":"/text","messages":["","a\u00e9\n"]}]"#;
    append_raw(&wakes, &call, &tail, append).await.expect(200);
    assert_eq!(wakes.server.get("/text").await.text(), "a\u{e9}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_handlers_of_one_wake_the_one_that_was_overtaken_appends_nothing() {
    let (wakes, call, first) = told().await;
    let second =
        wakes.server.append("/a/1", "application/json", b"2").await.next_offset().to_owned();
    let report = |from: &str, to: &str, messages: Value| {
        let append = json!([{ "path": "/out", "messages": messages }]);
        let mut body = with(&call, to, append, false);
        body["acks"][0]["from"] = json!(from);
        body
    };
    wakes.call(&call, report("-1", &first, json!([1]))).await.expect(200);
    // It read the same again, and more.
    let late = report("-1", &second, json!([1, 2]));
    assert_eq!(wakes.call(&call, late).await.expect(409).code(), "ALREADY_CLAIMED");
    // The answer was lost: a repetition is heard, and appends nothing.
    let again = wakes.call(&call, report("-1", &first, json!([1]))).await.expect(200);
    assert_eq!(again.json()["appended"], false);
    wakes.call(&call, report(&first, &second, json!([2]))).await.expect(200);
    assert_eq!(wakes.server.get("/out").await.text(), "[1,2]");
    let wrong = wakes.call(&call, report("yesterday", &second, json!([3]))).await.expect(400);
    assert_eq!(wrong.code(), "INVALID_REQUEST");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_nested_too_deep_are_refused_with_the_callback() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    wakes.create("/out", "").await;
    let call = wakes.woken().await;
    let body = |depth: usize| {
        let messages = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(
            r#"{{"epoch":1,"acks":[{{"path":"/a/1","offset":"{tail}"}}],"append":[{{"path":"/out","messages":{messages}}}]}}"#
        )
    };
    for depth in [513, 1_000_000] {
        let deep = body(depth);
        let answer = wakes.call_raw(&call.consumer(), &call.token(), deep.as_bytes()).await;
        assert_eq!(answer.expect(400).code(), "INVALID_REQUEST");
    }
    assert_eq!(wakes.server.get("/out").await.expect(200).text(), "[]");
    let answer = wakes.call_raw(&call.consumer(), &call.token(), body(512).as_bytes()).await;
    assert_eq!(answer.expect(200).json()["appended"], true);
}
