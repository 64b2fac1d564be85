//! What a web page can and cannot do to a server that asks nobody for a key.
//!
//! A page in a developer's browser reaches every server on that machine. What it may see of the
//! answers, and whether a name that it controls may stand for this machine, is up to the server.

use std::sync::Arc;

use serde_json::json;

use crate::harness::keys::guarded_by_keys;
use crate::harness::*;

const WEBHOOK: &str = r#"{"webhook":"http://127.0.0.1:9/hook"}"#;
const FOREIGN: (&str, &str) = ("origin", "http://evil.example");

/// A request with the headers as they are given.
async fn ask_raw(server: &TestServer, head: &str) -> Answer {
    let mut connection = server.connect().await;
    connection.send(format!("{head}connection: close\r\n\r\n").as_bytes()).await;
    connection.answer("GET").await
}

async fn ask_host(server: &TestServer, host: &str) -> Answer {
    ask_raw(server, &format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_ours_is_not_answered_to() {
    let public_url: Option<Arc<str>> = Some("https://Events.example:8443/base".into());
    let server = Setup { public_url, ..Setup::default() }.start().await;
    let port = server.address.port();
    let listening = format!("127.0.0.1:{port}");
    for host in [
        &listening,
        "127.0.0.1",
        "127.9.9.9:80",
        "localhost",
        "LocalHost:1",
        "app.localhost:3",
        "localhost.",
        "[::1]:4437",
        "events.example",
        "EVENTS.example:8443",
    ] {
        ask_host(&server, host).await.expect(200);
    }
    for host in [
        "evil.example",
        "evil.example:4437",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "me@localhost",
        "localhost/x",
        "",
        "events.example.evil",
        "\u{e9}",
    ] {
        let answer = ask_host(&server, host).await.expect(421);
        assert_eq!(answer.code(), "MISDIRECTED_REQUEST", "{host}");
        assert!(answer.text().contains("--public-url"), "{answer}");
        assert_eq!(answer.get("access-control-allow-origin"), None, "{host}");
    }
    // Every name that a request has must be ours, and every route asks for it.
    let both = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n";
    ask_raw(&server, both).await.expect(421);
    let absolute = "GET http://evil.example/healthz HTTP/1.1\r\nhost: localhost\r\n";
    ask_raw(&server, absolute).await.expect(421);
    for target in ["/s", "/admin/v1/keys", "/metrics", "/subscriptions/list", "/callback/x"] {
        for method in ["GET", "OPTIONS", "POST"] {
            let head = format!("{method} {target} HTTP/1.1\r\nhost: evil.example\r\n");
            ask_raw(&server, &head).await.expect(421);
        }
    }
    // No browser leaves it out.
    ask_raw(&server, "GET /healthz HTTP/1.0\r\n").await.expect(200);
    server.stop().await;
    // Whoever has a key is no web page.
    let server = guarded_by_keys().start().await;
    ask_host(&server, "evil.example").await.expect(200);
    server.stop().await;
}

/// Everything but streams.
const ROUTES: &[(&str, &str, &str)] = &[
    ("GET", "/admin/v1/keys", ""),
    ("POST", "/admin/v1/keys", r#"{"tenant":"default","roles":["admin"]}"#),
    ("POST", "/admin/v1/signing-keys/rotate", ""),
    ("GET", "/admin/v1/streams", ""),
    ("GET", "/metrics", ""),
    ("POST", "/ingest", r#"{"type":"a"}"#),
    ("POST", "/e", r#"{"type":"a"}"#),
    ("GET", "/subscriptions/list", ""),
    ("POST", "/subscriptions/subscribe", r#"{"workerId":"w","pattern":"p","rpcMethod":"m"}"#),
    ("PUT", "/a/*?subscription=w", WEBHOOK),
    ("PUT", "/a/*?%73ubscription=w", WEBHOOK),
    ("GET", "/**?subscriptions", ""),
    ("DELETE", "/a/*?subscription=w", ""),
    ("PUT", "/v1/stream/__ds/subscriptions/p", "{}"),
    ("DELETE", "/v1/stream/__ds/subscriptions/p", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_uses_streams_and_nothing_else() {
    let server = Setup::default().start().await;
    let port = server.address.port();
    let other_port = format!("http://localhost:{}", port.wrapping_add(1).max(1));
    for origin in [FOREIGN.1, "null", "https://localhost.evil.example", &other_port] {
        for (method, target, body) in ROUTES {
            let answer = server.ask(method, target, &[("origin", origin)], body.as_bytes()).await;
            let answer = answer.expect(403);
            assert_eq!(answer.code(), "CROSS_ORIGIN", "{method} {target}");
            assert_eq!(answer.get("access-control-allow-origin"), None, "{method} {target}");
        }
    }
    assert_eq!(server.get("/admin/v1/keys").await.expect(200).json(), json!({ "keys": [] }));
    // Our own pages, and programs.
    for headers in [&[][..], &[("origin", "http://localhost")], &[("origin", "HTTP://LOCALHOST")]] {
        server.ask("GET", "/admin/v1/keys", headers, b"").await.expect(200);
    }
    for (method, target, status) in [
        ("PUT", "/s", 201),
        ("POST", "/s", 204),
        ("GET", "/s", 200),
        ("HEAD", "/s", 200),
        ("GET", "/s?offset=-1&live=sse", 200),
        ("GET", "/s?offset=x", 400),
        ("OPTIONS", "/s", 204),
    ] {
        let text = ("content-type", "text/plain");
        let mut connection = server.connect().await;
        let body: &[u8] = if method == "POST" { b"x" } else { b"" };
        connection.send(&request(method, target, &[FOREIGN, text], body)).await;
        let head = connection.head(method).await.unwrap();
        assert_eq!(head.status, status, "{method} {target}");
        assert_eq!(head.get("access-control-allow-origin"), Some("*"), "{method} {target}");
        assert_eq!(head.get("cross-origin-resource-policy"), Some("cross-origin"));
    }
    server.stop().await;
}

/// Also where keys are asked for: a browser shows nothing of it to other pages.
#[tokio::test(flavor = "multi_thread")]
async fn only_streams_are_shown_to_pages_of_other_origins() {
    for setup in [Setup::default(), guarded_by_keys()] {
        let server = setup.start().await;
        for (_, target, _) in ROUTES {
            for method in ["GET", "OPTIONS"] {
                let answer = server.ask(method, target, &[], b"").await;
                let what = format!("{method} {target} {answer}");
                assert_eq!(answer.get("access-control-allow-origin"), None, "{what}");
                assert_eq!(answer.get("access-control-allow-methods"), None, "{what}");
                assert_eq!(answer.need("cross-origin-resource-policy"), "same-origin", "{what}");
                assert_eq!(answer.need("x-content-type-options"), "nosniff", "{what}");
            }
        }
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_pages_have_no_power_over_the_server() {
    let server = Setup::default().start().await;
    let is_sandboxed = async |kind: &str, method: &str, query: &str| {
        let path = format!("/{}", kind.replace(['/', '+', ';', ' ', '='], "-"));
        server.ask("PUT", &path, &[("content-type", kind)], b"[\"<script>\"]").await;
        let answer = server.ask(method, &format!("{path}{query}"), &[], b"").await.expect(200);
        assert_eq!(answer.need("content-type"), kind);
        assert_eq!(answer.need("x-content-type-options"), "nosniff");
        match answer.get("content-security-policy") {
            None => false,
            Some(policy) => {
                assert_eq!(policy, "sandbox");
                true
            }
        }
    };
    for kind in [
        "text/html",
        "Text/HTML; charset=utf-8",
        "image/svg+xml",
        "text/xml",
        "application/xml",
        "application/xhtml+xml",
        "application/atom+xml",
        "multipart/x-mixed-replace",
        "x/y",
    ] {
        assert!(is_sandboxed(kind, "GET", "").await, "{kind}");
        assert!(is_sandboxed(kind, "GET", "?offset=now").await, "{kind}");
        assert!(is_sandboxed(kind, "GET", "?offset=-1&live=long-poll").await, "{kind}");
    }
    for kind in ["application/json", "text/plain", "application/octet-stream"] {
        assert!(!is_sandboxed(kind, "GET", "").await, "{kind}");
    }
    server.stop().await;
}
