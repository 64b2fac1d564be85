//! Making, finding, listing and ending webhook subscriptions (reading B.2), and what they match.

use serde_json::{Value, json};

use crate::harness::*;

fn ids(list: &Answer) -> Vec<String> {
    let list = list.json()["subscriptions"].as_array().unwrap().clone();
    list.iter().map(|it| it["subscription_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_answered_with_its_secret_once_and_never_again() {
    let wakes = Wakes::start().await;
    let url = wakes.sink.url();
    let body = json!({ "webhook": url, "description": "for people" });
    let made = wakes.put_subscription("one", "/agents/*", &body).await.expect(201);
    assert_eq!(made.need("content-type"), "application/json");
    let mut shown = made.json();
    let secret = shown.as_object_mut().unwrap().remove("webhook_secret").unwrap();
    let secret = secret.as_str().unwrap();
    let hex = secret.strip_prefix("whsec_").unwrap();
    assert!(hex.len() == 64 && hex.bytes().all(|it| b"0123456789abcdef".contains(&it)), "{secret}");
    let expected = json!({ "subscription_id": "one", "pattern": "/agents/*", "webhook": url,
                           "description": "for people" });
    assert_eq!(shown, expected);
    let server = &wakes.server;
    let again = wakes.put_subscription("one", "/agents/*", &body).await.expect(200);
    let found = server.get("/**?subscription=one").await.expect(200);
    let elsewhere = server.get("/not/there?subscription=one").await.expect(200);
    for answer in [&again, &found, &elsewhere] {
        assert_eq!(answer.json(), expected);
    }
    let list = server.get("/**?subscriptions").await.expect(200);
    assert_eq!(list.json(), json!({ "subscriptions": [expected] }));
    let other = wakes.subscribe("two", "/agents/*").await;
    assert_ne!(other, secret);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_name_with_another_configuration_is_a_conflict_before_anything_else() {
    let wakes = Wakes::start().await;
    let url = wakes.sink.url();
    wakes.subscribe_with("one", "/a/*", json!({ "description": "first" })).await;
    let cases: &[(&str, Value, u16)] = &[
        ("/a/*", json!({ "webhook": url, "description": "second" }), 200),
        ("/a/*", json!({ "webhook": url }), 200),
        ("/a/%2A", json!({ "webhook": url }), 200),
        ("/a/%2a", json!({ "webhook": url, "wake_if": null }), 200),
        ("/b/*", json!({ "webhook": url }), 409),
        ("/a/**", json!({ "webhook": url }), 409),
        ("/a/*", json!({ "webhook": format!("{url}/") }), 409),
        ("/a/*", json!({ "webhook": "http://different-host.example.com/hook" }), 409),
        ("/a/*", json!({ "webhook": "https://10.0.0.1/hook" }), 409),
        ("/a/*", json!({ "webhook": "no url" }), 409),
        ("/a/*", json!({ "webhook": url, "sync_done": "snapshot" }), 409),
        ("/a/*", json!({ "webhook": url, "min_interval": "1s" }), 409),
        ("/a/*", json!({ "webhook": url, "max_delay": 5 }), 409),
    ];
    for (pattern, body, status) in cases {
        let answer = wakes.put_subscription("one", pattern, body).await;
        assert_eq!(answer.status(), *status, "{pattern} {body} {answer}");
        assert_eq!(answer.json().get("webhook_secret"), None);
        if *status == 200 {
            assert_eq!(answer.json()["description"], "first", "the stored one is shown");
            assert_eq!(answer.json()["pattern"], "/a/*");
        } else {
            assert_eq!(answer.code(), "SUBSCRIPTION_ALREADY_EXISTS");
        }
    }
    let found = wakes.server.get("/x?subscription=one").await.expect(200).json();
    assert_eq!((&found["webhook"], &found["pattern"]), (&json!(url), &json!("/a/*")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_those_with_the_very_pattern_and_everything_only_for_two_stars() {
    let wakes = Wakes::start().await;
    let patterns =
        [("a", "/pa/*"), ("b", "/pa/%2A"), ("c", "/pa/**"), ("d", "/**"), ("e", "/pa/x")];
    for (name, pattern) in patterns {
        wakes.subscribe(name, pattern).await;
    }
    let cases: &[(&str, &[&str])] = &[
        ("/pa/*", &["a", "b"]),
        ("/pa/%2A", &["a", "b"]),
        ("/pa/%2a", &["a", "b"]),
        ("/pa/**", &["c"]),
        ("/pa/x", &["e"]),
        ("/pa/y", &[]),
        ("/**", &["a", "b", "c", "d", "e"]),
        ("/%2A%2A", &["a", "b", "c", "d", "e"]),
    ];
    for (pattern, expected) in cases {
        for query in ["subscriptions", "subscriptions=", "limit=9&subscriptions"] {
            let list = wakes.server.get(&format!("{pattern}?{query}")).await.expect(200);
            assert_eq!(ids(&list), *expected, "{pattern}");
            assert!(!list.text().contains("whsec_"), "{list}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_longer_than_a_page_goes_on_after_it() {
    let wakes = Wakes::start().await;
    let mut connection = wakes.server.connect().await;
    let body = json!({ "webhook": "http://127.0.0.1:9/x" }).to_string();
    for number in 0..1_005 {
        let target = format!("/p/*?subscription=s{number:04}");
        connection.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(201);
    }
    let first = wakes.server.get("/**?subscriptions").await.expect(200);
    assert_eq!((ids(&first).len(), &first.json()["next"]), (1_000, &json!("s0999")));
    let rest = wakes.server.get("/**?subscriptions&after=s0999").await.expect(200);
    assert_eq!(ids(&rest), ["s1000", "s1001", "s1002", "s1003", "s1004"]);
    assert_eq!(rest.json().get("next"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_is_gone_and_what_is_not_there_can_be_deleted() {
    let wakes = Wakes::start().await;
    let server = &wakes.server;
    let first = wakes.subscribe("one", "/a/*").await;
    server.get("/**?subscription=two").await.expect(404);
    server.delete("/**?subscription=two").await.expect(204);
    // The path of a deletion does not matter, as that of a look does not.
    server.delete("/something/else?subscription=one").await.expect(204);
    let gone = server.get("/a/*?subscription=one").await.expect(404);
    assert_eq!(gone.code(), "SUBSCRIPTION_NOT_FOUND");
    server.delete("/a/*?subscription=one").await.expect(204);
    assert_eq!(ids(&server.get("/**?subscriptions").await), Vec::<String>::new());
    let second = wakes.subscribe("one", "/b/*").await;
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_are_refused_and_say_what_is_allowed() {
    let wakes = Wakes::start().await;
    wakes.subscribe("one", "/a/*").await;
    let cases = [
        ("POST", "/a/*?subscription=one", "GET, PUT, PATCH, DELETE, OPTIONS"),
        ("HEAD", "/a/*?subscription=one", "GET, PUT, PATCH, DELETE, OPTIONS"),
        ("PUT", "/a/*?subscriptions", "GET, OPTIONS"),
        ("POST", "/a/*?subscriptions", "GET, OPTIONS"),
        ("DELETE", "/a/*?subscriptions", "GET, OPTIONS"),
        ("GET", "/callback/one:%2Fa%2Fx", "POST, OPTIONS"),
        ("PUT", "/callback/one:%2Fa%2Fx", "POST, OPTIONS"),
        ("DELETE", "/callback/one:%2Fa%2Fx", "POST, OPTIONS"),
    ];
    for (method, target, allowed) in cases {
        let answer = wakes.server.ask(method, target, &[JSON], b"").await.expect(405);
        assert_eq!(answer.need("allow"), allowed, "{method} {target}");
    }
    // None of them made a stream.
    let answer = wakes.server.get("/a/*").await;
    assert_eq!(answer.status() / 100, 4, "{answer}");
    wakes.server.ask("OPTIONS", "/callback/one:%2Fa%2Fx", &[], b"").await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_unreserved_characters() {
    let wakes = Wakes::start().await;
    let body = json!({ "webhook": wakes.sink.url() });
    let longest = "n".repeat(128);
    for good in ["a", "A-z_0.9~", &longest] {
        wakes.put_subscription(good, "/a/*", &body).await.expect(201);
        wakes.server.get(&format!("/**?subscription={good}")).await.expect(200);
    }
    let too_long = "n".repeat(129);
    for bad in ["", "a:b", "a%2Fb", "a%20b", "a+b", "%C3%A9", "a%00", "%25", "*", &too_long] {
        let answer = wakes.put_subscription(bad, "/a/*", &body).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{bad}");
        wakes.server.get(&format!("/**?subscription={bad}")).await.expect(404);
        wakes.server.delete(&format!("/**?subscription={bad}")).await.expect(204);
    }
    let twice = "/a/*?subscription=x&subscription=y";
    wakes.server.ask("PUT", twice, &[JSON], body.to_string().as_bytes()).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_subscription_makes_none() {
    let wakes = Wakes::start().await;
    let url = wakes.sink.url();
    let mut bodies: Vec<String> = [
        "",
        "{",
        "null",
        "[]",
        "1",
        "\"x\"",
        "true",
        "{}",
        r#"{"webhook":""}"#,
        r#"{"webhook":null}"#,
        r#"{"webhook":1}"#,
        r#"{"webhook":["http://127.0.0.1:1"]}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    bodies.push(format!(r#"{{"webhook":"{url}","x":{}"#, "[".repeat(10_000)));
    bodies.push("x".repeat(60_000));
    let fields: &[(&str, &[&str])] = &[
        ("description", &["1", "true", "[]", "{}"]),
        ("sync_done", &["1", "true", "\"\"", "\"TAIL\"", "{}"]),
        (
            "min_interval",
            &[
                "-1",
                "1.5",
                "\"\"",
                "\"1\"",
                "\"1 s\"",
                "\"-1s\"",
                "true",
                "[]",
                "\"99999999999999999999s\"",
            ],
        ),
        ("max_delay", &["-1", "1.5", "\"s\"", "\"1x\"", "false", "{}"]),
        ("wake_if", &["1", "\"size > 1\""]),
    ];
    for (name, values) in fields {
        for value in *values {
            bodies.push(format!(r#"{{"webhook":"{url}","{name}":{value}}}"#));
        }
    }
    let long = "d".repeat(1_025);
    bodies.push(format!(r#"{{"webhook":"{url}","description":"{long}"}}"#));
    let target = "/a/*?subscription=one";
    for body in &bodies {
        let answer = wakes.server.ask("PUT", target, &[JSON], body.as_bytes()).await;
        let start: String = body.chars().take(200).collect();
        assert_eq!((answer.status(), answer.code()), (400, "INVALID_REQUEST".into()), "{start}");
    }
    let mut connection = wakes.server.connect().await;
    let head = head_of("PUT", target, &[JSON, ("content-length", "1000000")]);
    connection.send(&[head, b"\r\n".to_vec()].concat()).await;
    let answer = connection.answer("PUT").await.expect(413);
    assert_eq!(answer.code(), "BODY_TOO_LARGE");
    for pattern in ["/", "/a*", "/a/***", "/a/*b", "/**/a/**/b/**"] {
        let answer = wakes.put_subscription("one", pattern, &json!({ "webhook": url })).await;
        assert_eq!((answer.status(), answer.code()), (400, "INVALID_PATTERN".into()), "{pattern}");
    }
    assert_eq!(ids(&wakes.server.get("/**?subscriptions").await), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_could_reach_inside_are_refused_at_creation() {
    let wakes = Wakes::start().await;
    let bad = [
        "http://example.com/x",
        "ftp://example.com/",
        "//example.com",
        "https://",
        "example.com",
        "https://10.1.2.3/",
        "https://172.16.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/",
        "http://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://0.0.0.0/",
        "https://[::]/",
        "https://100.64.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://user:pw@example.com/",
        "https://example.com/#x",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "http://10.0.0.1/hook",
        "https://224.0.0.1/",
        "https://[64:ff9b::a00:1]/",
    ];
    for url in bad {
        let answer = wakes.put_subscription("one", "/a/*", &json!({ "webhook": url })).await;
        let got = (answer.status(), answer.code());
        assert_eq!(got, (400, "WEBHOOK_URL_REJECTED".into()), "{url}");
    }
    let good = [
        "http://127.0.0.1:1/x",
        "http://localhost:1/x",
        "http://[::1]:1/x",
        "https://example.com/x?y=z",
        "https://93.184.215.14/",
    ];
    for (number, url) in good.iter().enumerate() {
        let name = format!("good{number}");
        wakes.put_subscription(&name, "/a/*", &json!({ "webhook": url })).await.expect(201);
    }
    let rules = reveille_engine::Rules::default();
    let strict = Setup { rules, ..Setup::default() }.start().await;
    let body = json!({ "webhook": "http://127.0.0.1:1/x" }).to_string();
    strict.ask("PUT", "/a/*?subscription=x", &[JSON], body.as_bytes()).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_match_whole_segments() {
    let mut wakes = Wakes::start().await;
    let patterns = [
        ("one", "/agents/*"),
        ("deep", "/agents/**"),
        ("inbox", "/agents/*/inbox"),
        ("encoded", "/enc/%2A"),
        ("middle", "/m/**/end"),
        ("literal", "/lit/eral"),
    ];
    for (name, pattern) in patterns {
        wakes.subscribe(name, pattern).await;
    }
    let cases: &[(&str, &[&str])] = &[
        ("/agents/task-1", &["deep", "one"]),
        ("/agents/foo/bar", &["deep"]),
        ("/agents/foo/bar/baz", &["deep"]),
        ("/agents/worker-1/inbox", &["deep", "inbox"]),
        ("/agents/worker-1/outbox", &["deep"]),
        ("/agents", &["deep"]),
        ("/agent", &[]),
        ("/agentsx/a", &[]),
        ("/other/path", &[]),
        ("/enc/x", &["encoded"]),
        ("/enc/a%2Fb", &["encoded"]),
        ("/enc/x/y", &[]),
        ("/m/end", &["middle"]),
        ("/m/a/b/end", &["middle"]),
        ("/m/end/a", &[]),
        ("/lit/eral", &["literal"]),
        ("/lit/era", &[]),
    ];
    for (path, expected) in cases {
        wakes.create(path, "[1]").await;
        let mut woken = Vec::new();
        for _ in *expected {
            let call = wakes.woken().await;
            assert_eq!(call.primary(), *path);
            woken.push(call.consumer().split_once(':').unwrap().0.to_owned());
            call.done();
        }
        woken.sort();
        assert_eq!(woken, *expected, "{path}");
    }
    wakes.quiet("no more than these match").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_urls_lose_are_refused_in_both_dialects() {
    let server = Setup::default().start().await;
    let seed = json!({ "webhook": "http://127.0.0.1:9/" }).to_string();
    let leases = json!({ "type": "pull-wake", "streams": ["a"], "wake_stream": "w" });
    for name in [".", "..", "%2e", "%2E%2e"] {
        let target = format!("/a?subscription={name}");
        let answer = server.ask("PUT", &target, &[JSON], seed.as_bytes()).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST", "{name}");
        assert_eq!(server.ds_put(name, &leases).await.expect(400).code(), "INVALID_REQUEST");
    }
    for name in ["...", ".a", "a..b", "-"] {
        let target = format!("/a?subscription={name}");
        server.ask("PUT", &target, &[JSON], seed.as_bytes()).await.expect(201);
        server.ds_put(name, &leases).await.expect(201);
    }
}

/// Makes a subscription in either dialect with these lines instead of a `Host`.
async fn put_at(server: &TestServer, target: &str, version: &str, lines: &str) -> Answer {
    let body = match target.contains("__ds") {
        true => {
            json!({ "type": "webhook", "pattern": "a", "webhook": { "url": "http://127.0.0.1:9/" } })
        }
        false => json!({ "webhook": "http://127.0.0.1:9/" }),
    };
    let body = body.to_string();
    let head = format!(
        "PUT {target} {version}\r\n{lines}authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n\
         {body}",
        keys::ADMIN,
        body.len()
    );
    let mut connection = server.connect().await;
    connection.send(head.as_bytes()).await;
    connection.answer("PUT").await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_no_good_host_gets_no_dead_callback_url() {
    // Without keys hosts that are not the server's are turned away before.
    let server = keys::guarded_by_keys().start().await;
    let public_url = Some("https://streams.example".into());
    let public = Setup { public_url, ..keys::guarded_by_keys() }.start().await;
    let bad = [
        ("HTTP/1.1", ""),
        ("HTTP/1.0", ""),
        ("HTTP/1.1", "host:\r\n"),
        ("HTTP/1.1", "host: a/b?c#\r\n"),
        ("HTTP/1.1", "host: a b\r\n"),
        ("HTTP/1.1", "host: http://a\r\n"),
        ("HTTP/1.1", "host: me@a\r\n"),
        ("HTTP/1.1", "host: :80\r\n"),
        ("HTTP/1.1", "host: a:http\r\n"),
        ("HTTP/1.1", "host: a:65536\r\n"),
        ("HTTP/1.1", "host: a\r\nhost: b\r\n"),
        ("HTTP/1.1", "host: \u{e9}\r\n"),
    ];
    for (number, (version, lines)) in bad.into_iter().enumerate() {
        for target in [format!("/a?subscription=s{number}"), ds::at(&format!("s{number}"))] {
            let answer = put_at(&server, &target, version, lines).await;
            assert_eq!(
                (answer.status(), answer.code()),
                (400, "INVALID_REQUEST".into()),
                "{lines}"
            );
            let text = answer.text();
            assert!(text.contains("--public-url") && text.contains("Host"), "{text}");
            server.get_as(keys::ADMIN, &target).await.expect(404);
            // There it is not needed.
            put_at(&public, &target, version, lines).await.expect(201);
        }
    }
    for (number, host) in ["a", "a:80", "a:", "127.0.0.1:4437", "[::1]:4437"].iter().enumerate() {
        for target in [format!("/a?subscription=g{number}"), ds::at(&format!("g{number}"))] {
            put_at(&server, &target, "HTTP/1.1", &format!("host: {host}\r\n")).await.expect(201);
            put_at(&server, &target, "HTTP/1.0", &format!("host: {host}\r\n")).await.expect(200);
        }
    }
    // Everything else is as it was.
    let mut connection = server.connect().await;
    let plain = format!(
        "PUT /plain HTTP/1.1\r\nauthorization: Bearer {}\r\ncontent-length: 0\r\n\r\n",
        keys::ADMIN
    );
    connection.send(plain.as_bytes()).await;
    connection.answer("PUT").await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_knows_is_refused_with_the_nearest_known_name() {
    let mut wakes = Wakes::start().await;
    let url = wakes.sink.url();
    let cases = [
        (json!({ "webook": url }), "unknown field `webook`; did you mean `webhook`?"),
        (json!({ "webhook": url, "syncDone": "tail" }), "did you mean `sync_done`?"),
        (json!({ "webhook": url, "colour": 1 }), "unknown field `colour`; known are `webhook`"),
    ];
    for (body, said) in cases {
        let answer = wakes.put_subscription("one", "/a/*", &body).await.expect(400);
        assert_eq!(answer.code(), "INVALID_REQUEST");
        assert!(answer.text().contains(said), "{answer}");
    }
    let body = json!({ "webhook": url }).to_string();
    let put = |target: &'static str| wakes.server.ask("PUT", target, &[JSON], body.as_bytes());
    let put = put("/a/*?subscription=one&descripton=x").await.expect(400);
    assert!(put.text().contains("unknown parameter `descripton`"), "{put}");
    let list = wakes.server.get("/**?subscriptions&createdBy=x").await.expect(400);
    assert!(list.text().contains("did you mean `created_by`?"), "{list}");
    for target in
        ["/a?subscription=one&x", "/a?subscriptions&x=1", "/a?subscription=1&subscriptions"]
    {
        wakes.server.get(target).await.expect(400);
    }
    wakes.server.delete("/a?subscription=one&force=1").await.expect(400);
    // Where the protocol of streams ignores names, they are ignored.
    wakes.create("/a/1?colour=red", "[1]").await;
    let read = wakes.server.get("/a/1?offset=-1&colour=red").await.expect(200);
    assert_eq!(read.text(), "[1]");
    wakes.quiet("nobody has subscribed").await;
}
