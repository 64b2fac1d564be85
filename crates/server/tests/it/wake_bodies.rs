//! Callbacks whose bodies are wrong, in every field and in every way: refused, and nothing done.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_with_a_body_it_is_refused_and_nothing_is_applied() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    wakes.create("/out", "").await;
    wakes.server.create("/text", "text/plain").await;
    let call = wakes.woken().await;
    let before = wakes.record("s", "/a/1").unwrap();
    let ack = format!(r#"{{"path":"/a/1","offset":"{tail}"}}"#);
    let fields: &[(&str, &[&str])] = &[
        (
            "epoch",
            &[
                "null",
                "\"1\"",
                "1.0",
                "1.5",
                "-1",
                "true",
                "[]",
                "{}",
                "1e0",
                "18446744073709551616",
                "99999999999999999999999999",
            ],
        ),
        ("wake_id", &["1", "true", "[]", "{}"]),
        (
            "acks",
            &[
                "1",
                "\"x\"",
                "true",
                "{}",
                "[1]",
                "[null]",
                "[[]]",
                "[\"/a/1\"]",
                "[{}]",
                "[{\"path\":\"/a/1\"}]",
                "[{\"offset\":\"-1\"}]",
                "[{\"path\":1,\"offset\":\"-1\"}]",
                "[{\"path\":\"/a/1\",\"offset\":1}]",
                "[{\"path\":\"/a/1\",\"offset\":null}]",
                "[{\"path\":[],\"offset\":{}}]",
            ],
        ),
        ("subscribe", &["1", "\"/b\"", "true", "{}", "[1]", "[null]", "[[]]", "[\"/b\",1]"]),
        ("unsubscribe", &["1", "\"/a/1\"", "true", "{}", "[1]", "[null]", "[\"/a/1\",{}]"]),
        ("done", &["1", "0", "\"true\"", "\"\"", "[]", "{}", "[true]"]),
        (
            "append",
            &[
                "1",
                "\"x\"",
                "true",
                "{}",
                "[1]",
                "[null]",
                "[{}]",
                "[{\"path\":\"/out\"}]",
                "[{\"path\":\"/out\",\"messages\":[]}]",
                "[{\"path\":\"/out\",\"messages\":1}]",
                "[{\"path\":\"/out\",\"messages\":null}]",
                "[{\"messages\":[1]}]",
                "[{\"path\":1,\"messages\":[1]}]",
                "[{\"path\":\"out\",\"messages\":[1]}]",
                "[{\"path\":\"/_events/x\",\"messages\":[1]}]",
                "[{\"path\":\"/text\",\"messages\":[1]}]",
                "[{\"path\":\"/text\",\"messages\":[\"a\",null]}]",
                "[{\"path\":\"/out\",\"messages\":[1]},2]",
            ],
        ),
    ];
    let mut bodies = Vec::new();
    for (name, values) in fields {
        for value in *values {
            let mut all = vec![("epoch", "1".to_owned()), ("done", "true".into())];
            all.push(("acks", format!("[{ack}]")));
            all.push(("subscribe", "[\"/c\"]".into()));
            all.push(("wake_id", format!("{:?}", call.wake_id())));
            all.retain(|(known, _)| known != name);
            all.push((name, (*value).to_owned()));
            let pairs: Vec<String> =
                all.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            bodies.push(format!("{{{}}}", pairs.join(",")));
        }
    }
    let no_acks = r#"{"epoch":1,"append":[{"path":"/out","messages":[1]}]}"#;
    let nested = format!(r#"{{"epoch":1,"acks":{}"#, "[".repeat(500_000));
    let closed = format!(r#"{{"epoch":1,"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let junk = "j".repeat(1 << 20);
    let whole = [
        "",
        " ",
        "null",
        "[]",
        "[{\"epoch\":1}]",
        "1",
        "\"epoch\"",
        "true",
        "{}",
        "{\"epoch\":1",
        "{\"epoch\":1}x",
        "{\"epoch\":1}{}",
        "{'epoch':1}",
        "{\"EPOCH\":1}",
        "\u{feff}{\"epoch\":1}",
        no_acks,
        &nested,
        &closed,
        &junk,
    ];
    bodies.extend(whole.map(str::to_owned));
    for body in &bodies {
        let answer = wakes.call_raw(&call.consumer(), &call.token(), body.as_bytes()).await;
        let start: String = body.chars().take(300).collect();
        assert_eq!((answer.status(), answer.code()), (400, "INVALID_REQUEST".into()), "{start}");
        assert_eq!((&answer.json()["ok"], answer.json().get("token")), (&json!(false), None));
    }
    let bytes: [&[u8]; 2] = [b"{\"epoch\":1,\"wake_id\":\"\xff\"}", b"\0"];
    for body in bytes {
        let answer = wakes.call_raw(&call.consumer(), &call.token(), body).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST");
    }
    let mut connection = wakes.server.connect().await;
    let bearer = format!("Bearer {}", call.token());
    let headers = [("authorization", bearer.as_str()), ("content-length", "99999999")];
    let head = head_of("POST", &format!("/callback/{}", call.consumer()), &headers);
    connection.send(&[head, b"\r\n".to_vec()].concat()).await;
    connection.answer("POST").await.expect(413);
    assert_eq!(wakes.record("s", "/a/1").unwrap(), before);
    assert_eq!(wakes.server.get("/out").await.text(), "[]");
    wakes.create("/c", "[1]").await;
    wakes.quiet("nothing of it was applied").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn null_is_as_good_as_absent() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    let body = json!({ "epoch": 1, "wake_id": null, "acks": null, "subscribe": null,
                       "unsubscribe": null, "done": null, "append": null });
    wakes.call(&call, body).await.expect(200);
    let empty = json!({ "epoch": 1, "acks": [], "subscribe": [], "unsubscribe": [], "append": [] });
    let answer = wakes.call(&call, empty).await.expect(200).json();
    assert_eq!(answer["streams"], json!([{ "path": "/a/1", "offset": "-1" }]));
    wakes.live("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_a_thousand_entries_and_not_one_more() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    let before = wakes.record("s", "/a/1").unwrap();
    let ack = json!({ "path": "/a/1", "offset": tail });
    let append = json!({ "path": "/a/1", "messages": [2] });
    let entries = [
        ("acks", ack),
        ("subscribe", json!("/b")),
        ("unsubscribe", json!("/b")),
        ("append", append),
    ];
    let with = |name: &str, entry: &Value, count: usize| {
        let mut body = json!({ "epoch": 1, "acks": [{ "path": "/a/1", "offset": "-1" }] });
        body[name] = json!(vec![entry.clone(); count]);
        body
    };
    for (name, entry) in &entries {
        let answer = wakes.call(&call, with(name, entry, 1_001)).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("`{name}`")) && message.contains("1000"), "{message}");
        assert_eq!(wakes.record("s", "/a/1").unwrap(), before, "{name}");
    }
    for (name, entry) in entries.iter().rev() {
        wakes.call(&call, with(name, entry, 1_000)).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_nobody_knows_is_refused_with_the_one_that_comes_nearest() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    wakes.create("/out", "").await;
    let call = wakes.woken().await;
    let before = wakes.record("s", "/a/1").unwrap();
    let ack = json!({ "path": "/a/1", "offset": tail });
    for (body, said) in [
        (json!({ "ack": [ack], "done": true }), "unknown field `ack`; did you mean `acks`?"),
        (json!({ "wakeId": "w", "done": true }), "unknown field `wakeId`; did you mean `wake_id`?"),
        (json!({ "Done": true }), "unknown field `Done`; did you mean `done`?"),
        (
            json!({ "acks": [{ "path": "/a/1", "ofset": tail }] }),
            "`acks`: unknown field `ofset`; did you mean `offset`?",
        ),
        (
            json!({ "acks": [ack], "append": [{ "path": "/out", "message": [1] }] }),
            "`append`: unknown field `message`; did you mean `messages`?",
        ),
    ] {
        let mut body = body;
        body["epoch"] = json!(1);
        let answer = wakes.call(&call, body.clone()).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST");
        assert_eq!(answer.json()["error"]["message"], said, "{body}");
    }
    let many: String = (0..1_000).map(|number| format!(",\"x{number}\":[[1]]")).collect();
    let body = format!("{{\"epoch\":1{many}}}");
    let answer = wakes.call_raw(&call.consumer(), &call.token(), body.as_bytes()).await;
    assert_eq!(answer.expect(400).code(), "INVALID_REQUEST");
    // Who has no good token is not told what is wrong with the rest.
    let answer = wakes.call_as(&call.consumer(), "none", json!({ "ack": 1 })).await.expect(401);
    assert_eq!(answer.code(), "TOKEN_INVALID");
    assert_eq!(wakes.record("s", "/a/1").unwrap(), before);
    assert_eq!(wakes.server.get("/out").await.text(), "[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_stream_is_not_followed_and_said_so() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    let long = format!("/{}", "x".repeat(5_000));
    let none =
        ["", "b", "/", "/a b", "/\u{e9}", "/a?b", "/a#b", &long, "/healthz", "/admin/v1/keys"];
    let body = json!({ "epoch": 1, "subscribe": none, "unsubscribe": none });
    let answer = wakes.call(&call, body).await.expect(200).json();
    let warnings: Vec<&str> =
        answer["warnings"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(warnings.len(), none.len());
    for (path, warning) in none.iter().zip(&warnings) {
        let shown: String = path.chars().take(20).collect();
        let said = format!("{} ", shown.escape_debug());
        assert!(warning.contains(shown.escape_debug().to_string().as_str()), "{warning}");
        assert!(path.len() > 60 || warning.starts_with(&said), "{warning}");
        assert!(warning.contains(" is not followed: ") && warning.len() < 300, "{warning}");
    }
    assert_eq!(answer["streams"], json!([{ "path": "/a/1", "offset": "-1" }]));
    let body = json!({ "epoch": 1, "subscribe": ["/b", "c"] });
    let answer = wakes.call(&call, body).await.expect(200).json();
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(answer["streams"].as_array().unwrap().len(), 2, "the others are followed");
    let answer = wakes.call(&call, json!({ "epoch": 1, "subscribe": ["/b"] })).await.expect(200);
    assert_eq!(answer.json().get("warnings"), None);
}
