//! What a webhook says, when it is sent, and who can know that it is from us.

use reveille_core::signature;
use serde_json::json;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_has_every_field_and_a_signature_over_its_very_bytes() {
    let mut wakes = Wakes::start().await;
    let secret = wakes.subscribe("my-sub", "/agents/*").await;
    wakes.create("/agents/task-123", "[1,2]").await;
    let call = wakes.woken().await;
    assert_eq!(call.line, "POST /webhook HTTP/1.1");
    assert_eq!(call.get("content-type"), "application/json");
    let (wake_id, token) = (call.wake_id(), call.token());
    let hex = wake_id.strip_prefix("w_").unwrap();
    assert!(hex.len() == 24 && hex.bytes().all(|it| b"0123456789abcdef".contains(&it)), "{hex}");
    let expected = json!({
        "consumer_id": "my-sub:%2Fagents%2Ftask-123",
        "epoch": 1,
        "wake_id": wake_id,
        "primary_stream": "/agents/task-123",
        "streams": [{ "path": "/agents/task-123", "offset": "-1" }],
        "triggered_by": ["/agents/task-123"],
        "callback": "http://localhost/callback/my-sub:%2Fagents%2Ftask-123",
        "token": token,
    });
    assert_eq!(call.json(), expected);
    let header = call.get("webhook-signature");
    let seconds = START_MS / 1_000;
    assert_eq!(header, signature::hmac_header(&secret, seconds, &call.body));
    assert!(header.starts_with(&format!("t={seconds},sha256=")), "{header}");
    signature::verify_hmac(&secret, header, &call.body, seconds + 299, 300).unwrap();
    let other = secret.strip_prefix("whsec_").unwrap();
    signature::verify_hmac(other, header, &call.body, seconds, 300).unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_the_keyed_hash_that_others_compute() {
    // RFC 2104 by hand, so that nothing of ours vouches for ours.
    let mut wakes = Wakes::start().await;
    let secret = wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[]").await;
    let call = wakes.woken().await;
    let (time, sent) = call.get("webhook-signature").split_once(",sha256=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    let message = [time.as_bytes(), b".", &call.body].concat();
    let script = "import hmac,hashlib,sys;d=sys.stdin.buffer.read();\
                  print(hmac.new(sys.argv[1].encode(),d,hashlib.sha256).hexdigest())";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script, &secret]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    // A machine without python verifies with ours alone, in the test above.
    let Ok(mut child) = command.spawn() else { return };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &message).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_says_the_same_and_is_signed_anew() {
    let mut wakes = Wakes::start().await;
    let secret = wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let first = wakes.woken().await;
    let (wake, header, body) =
        (first.wake(), first.get("webhook-signature").to_owned(), first.json());
    first.answer(503, "");
    let (attempt, until) = wakes.paused("s", "/a/1").await;
    assert_eq!(attempt, 1);
    wakes.advance_to(until + 5_000);
    let second = wakes.woken().await;
    assert_eq!(second.wake(), wake);
    for field in ["consumer_id", "primary_stream", "streams", "triggered_by", "callback"] {
        assert_eq!(second.json()[field], body[field], "{field}");
    }
    let again = second.get("webhook-signature");
    assert_ne!(again, header);
    signature::verify_hmac(&secret, again, &second.body, wakes.now() / 1_000, 0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_array_wakes_at_creation_and_no_body_does_not() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    assert_eq!(wakes.create("/a/empty", "[]").await, ZERO);
    let call = wakes.woken().await;
    assert_eq!(call.primary(), "/a/empty");
    assert_eq!(call.json()["streams"], json!([{ "path": "/a/empty", "offset": "-1" }]));
    assert_eq!(call.json()["triggered_by"], json!(["/a/empty"]));
    call.done();
    wakes.create("/a/silent", "").await;
    wakes.quiet("a stream without a body tells nobody").await;
    // Not even when it is created again, or closed without a word.
    wakes.server.ask("PUT", "/a/silent", &[JSON], b"[1]").await.expect(200);
    wakes.quiet("nothing was appended").await;
    wakes.append("/a/silent", "[1]").await;
    let call = wakes.woken().await;
    assert_eq!((call.primary(), call.epoch()), ("/a/silent".into(), 1));
    assert_eq!(call.json()["streams"][0]["offset"], "-1");
    call.done();
    wakes.idle("s", "/a/silent").await;
    let close = [JSON, ("stream-closed", "true")];
    wakes.server.ask("POST", "/a/silent", &close, b"").await.expect(204);
    wakes.quiet("a stream that closes has not grown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_streams_wake_on_new_events_alone_from_where_they_ended() {
    let mut wakes = Wakes::start().await;
    let tail = wakes.create("/a/old", "[1,2,3]").await;
    let empty = wakes.create("/a/empty", "").await;
    assert_eq!(empty, ZERO);
    wakes.subscribe("s", "/a/*").await;
    wakes.quiet("existing streams were handled before").await;
    wakes.append("/a/old", "[4]").await;
    let call = wakes.woken().await;
    assert_eq!(call.json()["streams"], json!([{ "path": "/a/old", "offset": tail }]));
    assert_eq!(call.epoch(), 1);
    wakes.append("/a/empty", "[1]").await;
    let call = wakes.woken().await;
    assert_eq!(call.json()["streams"], json!([{ "path": "/a/empty", "offset": ZERO }]));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_while_it_is_told_or_works_make_no_more_wakes() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    wakes.append("/a/1", "[2]").await;
    wakes.quiet("it is being told").await;
    let claim = json!({ "epoch": 1, "wake_id": call.wake_id() });
    wakes.call(&call, claim).await.expect(200);
    let tail = wakes.append("/a/1", "[3]").await;
    wakes.quiet("it works").await;
    wakes.finish(&call, &tail).await.expect(200);
    wakes.quiet("everything is acknowledged").await;
    wakes.append("/a/1", "[4]").await;
    let next = wakes.woken().await;
    assert_eq!(next.epoch(), 2);
    assert_ne!(next.wake_id(), call.wake_id());
    assert_eq!(next.json()["streams"][0]["offset"], tail);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_consumers_are_encoded_as_browsers_do_and_found_again() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("a~b.c", "/p/**").await;
    let long = format!("/p/{}", "%2F".repeat(600));
    let cases = [
        ("/p/a%20b", "%2Fp%2Fa%2520b"),
        ("/p/a+b", "%2Fp%2Fa%2Bb"),
        ("/p/a:b@c", "%2Fp%2Fa%3Ab%40c"),
        ("/p/!'()~", "%2Fp%2F!'()~"),
        ("/p/x//y/", "%2Fp%2Fx%2F%2Fy%2F"),
        ("/p/a;b=c&d$e,f", "%2Fp%2Fa%3Bb%3Dc%26d%24e%2Cf"),
        (long.as_str(), ""),
    ];
    for (path, encoded) in cases {
        let tail = wakes.create(path, "[1]").await;
        let call = wakes.woken().await;
        assert_eq!(call.primary(), path);
        if !encoded.is_empty() {
            assert_eq!(call.consumer(), format!("a~b.c:{encoded}"));
        }
        let callback = call.json()["callback"].as_str().unwrap().to_owned();
        assert_eq!(callback, format!("http://localhost/callback/{}", call.consumer()));
        let answer = wakes.finish(&call, &tail).await.expect(200);
        assert_eq!(answer.json()["streams"], json!([{ "path": path, "offset": tail }]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_subscription_has_a_consumer_of_its_own() {
    let mut wakes = Wakes::start().await;
    let mut secrets = std::collections::BTreeMap::new();
    for name in ["one", "two"] {
        secrets.insert(name.to_owned(), wakes.subscribe(name, "/a/*").await);
    }
    let tail = wakes.create("/a/1", "[1]").await;
    let (first, second) = (wakes.woken().await, wakes.woken().await);
    assert_ne!(first.wake_id(), second.wake_id());
    for call in [&first, &second] {
        let name = call.consumer().split_once(':').unwrap().0.to_owned();
        let header = call.get("webhook-signature");
        let now = wakes.now() / 1_000;
        signature::verify_hmac(&secrets[&name], header, &call.body, now, 0).unwrap();
    }
    wakes.finish(&first, &tail).await.expect(200);
    // The other's token is worth nothing here, and the other's wake goes on.
    let body = json!({ "epoch": 1, "wake_id": second.wake_id() });
    let answer = wakes.call_as(&second.consumer(), &first.token(), body.clone()).await.expect(401);
    assert_eq!(answer.code(), "TOKEN_INVALID");
    wakes.call(&second, body).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_and_binary_streams_wake_too() {
    let mut wakes = Wakes::start().await;
    wakes.create("/src", "[1,2]").await;
    wakes.subscribe("s", "/a/*").await;
    let fork = [JSON, ("stream-forked-from", "/src")];
    wakes.server.ask("PUT", "/a/fork", &fork, b"").await.expect(201);
    let call = wakes.woken().await;
    assert_eq!((call.primary().as_str(), call.epoch()), ("/a/fork", 1));
    wakes.server.ask("PUT", "/a/bytes", &[], b"x").await.expect(201);
    assert_eq!(wakes.woken().await.primary(), "/a/bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_is_called_as_it_was_given() {
    let mut wakes = Wakes::start().await;
    let url = format!("http://localhost:{}/Hook/%2F?x=1&y=a%20b", wakes.sink.port());
    wakes.put_subscription("s", "/a/*", &json!({ "webhook": url })).await.expect(201);
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    assert_eq!(call.line, "POST /Hook/%2F?x=1&y=a%20b HTTP/1.1");
    assert_eq!(call.get("host"), format!("localhost:{}", wakes.sink.port()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_was_there_already_wakes_nobody() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "").await;
    let tag = [JSON, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    wakes.server.ask("POST", "/a/1", &tag, b"[1]").await.expect(200);
    wakes.woken().await.done();
    wakes.idle("s", "/a/1").await;
    wakes.server.ask("POST", "/a/1", &tag, b"[1]").await.expect(204);
    wakes.server.ask("POST", "/a/1", &[("content-type", "text/plain")], b"x").await.expect(409);
    wakes.quiet("nothing was appended").await;
}
