//! Methods and paths that name nothing that can be done.

use crate::harness::*;

const ALL: &str = "GET, POST, PUT, DELETE, HEAD, OPTIONS";

#[tokio::test(flavor = "multi_thread")]
async fn unknown_methods_are_refused_and_told_the_known_ones() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    for method in ["PATCH", "TRACE", "COPY", "get", "Post", "PROPFIND", "X-Y_Z", "QUERY"] {
        for target in ["/s", "/absent", "/_events/x"] {
            let answer = server.ask(method, target, &[], b"").await.expect(405);
            assert_eq!(answer.code(), "METHOD_NOT_ALLOWED", "{method} {target}");
            assert_eq!(answer.need("allow"), ALL);
        }
    }
    server.head("/s").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_connected_to_anybody() {
    let server = Setup::default().start().await;
    for target in ["other.example:80", "/s", "http://other.example/"] {
        let answer = server.ask("CONNECT", target, &[], b"").await;
        assert!([400, 405, 421].contains(&answer.status()), "{target}: {answer}");
    }
}

/// RFC 9110 §10.2.1: `Allow` names the methods of this target, not of some other.
#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_only_read_do_not_claim_to_be_written() {
    let server = Setup::default().start().await;
    for target in ["/health", "/healthz", "/readyz", "/metrics", "/admin/v1/streams"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let answer = server.ask(method, target, &[], b"").await.expect(405);
            let allow = answer.need("allow").to_owned();
            assert!(allow.contains("GET") && allow.contains("HEAD"), "{target} {allow}");
            assert!(!allow.contains(method), "{method} {target} is refused; allowed: {allow}");
        }
        server.get(target).await.expect(200);
        let head = server.head(target).await.expect(200);
        assert!(head.body.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_names_hold_no_streams() {
    let server = Setup::default().start().await;
    let reserved = [
        "/admin",
        "/admin/x",
        "/admin/v1/streams/x",
        "/api/v1/trigger/x",
        "/callback",
        "/console/",
        "/openapi.json",
        "/v1/stream/__ds",
        "/v1/stream/__ds/x",
    ];
    for path in reserved {
        for method in ["PUT", "POST", "GET", "DELETE"] {
            let answer = server.ask(method, path, &[], b"").await.expect(404);
            assert_eq!(answer.code(), "RESERVED_PATH", "{method} {path}");
        }
    }
    for path in ["/v1/cards/x", "/v1/facts/a/b", "/v1/federation/x", "/v1/subscriptions/a/b"] {
        for method in ["PUT", "POST", "GET", "DELETE"] {
            let answer = server.ask(method, path, &[], b"").await.expect(404);
            assert_eq!(answer.code(), "RESERVED_PATH", "{method} {path}");
        }
    }
    // The events face refuses in its own words.
    for path in ["/e/x", "/ingest/x", "/subscriptions", "/subscriptions/x"] {
        for method in ["PUT", "POST", "GET", "DELETE"] {
            let answer = server.ask(method, path, &[], b"").await.expect(404).json();
            assert_eq!(answer["ok"], false, "{method} {path}");
        }
    }
    for method in ["PUT", "POST", "DELETE"] {
        let answer = server.ask(method, "/_events/x", &[], b"").await.expect(403);
        assert_eq!(answer.code(), "RESERVED_STREAM");
    }
    server.get("/_events/x").await.expect(404);
    for path in ["/callbacks", "/events", "/v1/stream/__dsx", "/v1/stream", "/a/_b", "/administer"]
    {
        server.create(path, "text/plain").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_bounded_and_kept_as_they_are() {
    let server = Setup::default().start().await;
    let longest = format!("/{}", "x".repeat(2047));
    server.create(&longest, "text/plain").await;
    for length in [2048, 10_000, 60_000] {
        let answer = server.get(&format!("/{}", "x".repeat(length))).await.expect(414);
        assert_eq!(answer.code(), "INVALID_PATH");
    }
    for path in ["/", "//", "/\u{e9}", "/a\u{1f600}"] {
        let answer = server.ask("PUT", path, &[], b"").await;
        if path == "//" {
            answer.expect(201);
        } else {
            assert_eq!(answer.expect(400).code(), "INVALID_PATH", "{path}");
        }
    }
    // Each is a stream of its own: nothing is decoded, folded or resolved.
    let distinct = [
        "/a",
        "/A",
        "/a/",
        "/%61",
        "/a%2Fb",
        "/a%2fb",
        "/a/b",
        "/a//b",
        "/a/../b",
        "/a/./b",
        "/a;b",
        "/a%00",
        "/%FF",
        "/a%",
        "/*",
        "/a:b@c",
        "/~a",
        "/a!$&'()+,=",
    ];
    for path in distinct {
        server.create(path, "text/plain").await;
        server.append(path, "text/plain", path.as_bytes()).await.expect(204);
    }
    for path in distinct {
        assert_eq!(server.get(path).await.expect(200).text(), path);
        let location = server.ask("PUT", path, &[("content-type", "text/plain")], b"").await;
        assert_eq!(location.need("location"), format!("http://localhost{path}"));
    }
    let answer = server.ask("PUT", "http://localhost:99/abs", &[], b"").await.expect(201);
    assert!(answer.need("location").ends_with("/abs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_no_url_has_are_refused_and_harm_nobody() {
    let server = Setup::default().start().await;
    for odd in
        [&b"/a b"[..], b"/a\tb", b"/a\0b", b"/a\x7fb", b"/a\\b", b"/\xff\xfe", b"a", b"*", b""]
    {
        let mut connection = server.connect().await;
        let mut request = b"GET ".to_vec();
        request.extend_from_slice(odd);
        request.extend_from_slice(b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        connection.send(&request).await;
        let answer = String::from_utf8_lossy(&connection.rest().await).into_owned();
        // What has no slash may be taken for the name of a server: this is not it.
        let refused = ["400", "404", "421"]
            .iter()
            .any(|status| answer.starts_with(&format!("HTTP/1.1 {status}")));
        assert!(refused, "{:?}: {answer:?}", String::from_utf8_lossy(odd));
    }
    server.get("/healthz").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listing_refuses_what_it_cannot_mean() {
    let server = Setup::default().start().await;
    for path in ["/a/1", "/a/2", "/b/1"] {
        server.create(path, "text/plain").await;
    }
    for query in ["limit=0", "limit=1001", "limit=x", "limit=", "limit=-1", "limit=1&limit=2"] {
        let answer = server.get(&format!("/admin/v1/streams?{query}")).await.expect(400);
        assert_eq!(answer.code(), "INVALID_QUERY", "{query}");
    }
    let list = async |query: &str| {
        let page = server.get(&format!("/admin/v1/streams?{query}")).await.expect(200).json();
        let paths = page["streams"].as_array().unwrap().iter();
        let paths: Vec<_> = paths.map(|item| item["path"].as_str().unwrap().to_owned()).collect();
        (paths.join(" "), page["next"].as_str().map(str::to_owned))
    };
    assert_eq!(list("").await, ("/a/1 /a/2 /b/1".into(), None));
    assert_eq!(list("prefix=/a/").await, ("/a/1 /a/2".into(), None));
    assert_eq!(list("limit=1").await, ("/a/1".into(), Some("/a/1".into())));
    assert_eq!(list("limit=1&after=/a/1").await.0, "/a/2");
    assert_eq!(list("after=/zzz").await.0, "");
    assert_eq!(list("prefix=/b&after=/a").await.0, "/b/1");
}
