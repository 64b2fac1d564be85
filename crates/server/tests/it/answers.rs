//! What every answer carries, tags, and compression.

use std::io::Read as _;

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const CLOSE: (&str, &str) = ("stream-closed", "true");

/// Browsers may read it, and never guess its type.
#[track_caller]
fn is_for_browsers(head: &Head, what: &str) {
    assert_eq!(head.get("x-content-type-options"), Some("nosniff"), "{what}");
    assert_eq!(head.get("cross-origin-resource-policy"), Some("cross-origin"), "{what}");
    assert_eq!(head.get("access-control-allow-origin"), Some("*"), "{what}");
    let exposed = head.get("access-control-expose-headers").unwrap_or_default();
    let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
    for name in [
        "stream-next-offset",
        "stream-cursor",
        "stream-up-to-date",
        "stream-closed",
        "stream-ttl",
        "stream-expires-at",
        "stream-sse-data-encoding",
        "producer-epoch",
        "producer-seq",
        "producer-expected-seq",
        "producer-received-seq",
        "etag",
        "content-type",
        "content-encoding",
        "vary",
        "location",
        "retry-after",
    ] {
        assert!(exposed.contains(&name), "{what} does not expose {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_answer_about_a_stream_is_for_browsers() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.create("/s", "text/plain").await;
    let tag = server.get("/s").await.need("etag").to_owned();
    let requests: &[(&str, &str, Headers<'_>, &[u8], u16)] = &[
        ("PUT", "/new", &[TEXT], b"", 201),
        ("PUT", "/s", &[TEXT], b"", 200),
        ("GET", "/s", &[], b"", 200),
        ("GET", "/s?offset=now", &[], b"", 200),
        ("GET", "/s", &[("if-none-match", &tag)], b"", 304),
        ("HEAD", "/s", &[], b"", 200),
        ("POST", "/s", &[TEXT], b"x", 204),
        ("GET", "/s?offset=-1&live=long-poll", &[], b"", 200),
        ("POST", "/s", &[TEXT, ("stream-seq", "")], b"x", 400),
        ("GET", "/s?offset=x", &[], b"", 400),
        ("GET", "/absent", &[], b"", 404),
        ("HEAD", "/absent", &[], b"", 404),
        ("PATCH", "/s", &[], b"", 405),
        ("PUT", "/_x", &[], b"", 403),
        ("PUT", "/s", &[], b"", 409),
        ("POST", "/s", &[TEXT, CLOSE], b"", 204),
        ("GET", "/s?offset=now&live=long-poll", &[], b"", 204),
        ("DELETE", "/s", &[], b"", 204),
        ("OPTIONS", "/s", &[], b"", 204),
    ];
    for (method, target, headers, body, status) in requests {
        let answer = server.ask(method, target, headers, body).await.expect(*status);
        is_for_browsers(&answer.head, &format!("{method} {target}"));
    }
    let events = Events::open(&server, "/new?offset=-1&live=sse").await;
    is_for_browsers(&events.head, "an event stream");
    let mut connection = server.connect().await;
    let head = head_of("POST", "/new", &[TEXT, ("content-length", "11000000")]);
    connection.send(&[head, b"\r\n".to_vec()].concat()).await;
    is_for_browsers(&connection.answer("POST").await.expect(413).head, "413");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_asks_first_is_allowed_everything_that_the_protocol_has() {
    let server = Setup::default().start().await;
    for target in ["/s", "/absent/x", "/_x", "*"] {
        let headers = [
            ("origin", "http://other.example"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "producer-id"),
        ];
        let answer = server.ask("OPTIONS", target, &headers, b"").await.expect(204);
        for method in ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"] {
            assert!(answer.need("access-control-allow-methods").contains(method), "{method}");
        }
        let allowed = answer.need("access-control-allow-headers");
        for name in [
            "content-type",
            "authorization",
            "if-none-match",
            "stream-seq",
            "stream-ttl",
            "stream-expires-at",
            "stream-closed",
            "producer-id",
            "producer-epoch",
            "producer-seq",
            "stream-forked-from",
            "stream-fork-offset",
            "stream-fork-sub-offset",
        ] {
            assert!(allowed.split(", ").any(|known| known == name), "{name} in {allowed}");
        }
        assert!(answer.body.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_stands_for_the_range_the_end_and_the_incarnation() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    let mut seen = Vec::new();
    let mut fresh = async |target: &str| {
        let answer = server.get(target).await.expect(200);
        let tag = answer.need("etag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        assert!(!seen.contains(&tag), "{tag} again for {target}");
        seen.push(tag.clone());
        let list = format!("\"other\", {tag}");
        let weak = format!("W/{tag}");
        for condition in [&tag, &list, &weak, "*"] {
            let headers = [("if-none-match", condition)];
            let same = server.ask("GET", target, &headers, b"").await.expect(304);
            assert_eq!(same.need("etag"), tag);
            assert!(same.body.is_empty());
            assert_eq!(same.get("stream-next-offset"), answer.get("stream-next-offset"));
            assert_eq!(same.get("stream-closed"), answer.get("stream-closed"));
        }
        for condition in ["\"other\"", "", "x", &tag[1..]] {
            let headers = [("if-none-match", condition)];
            let other = server.ask("GET", target, &headers, b"").await.expect(200);
            assert_eq!(other.body, answer.body);
        }
    };
    fresh("/s").await;
    server.append("/s", "text/plain", b"one").await.expect(204);
    fresh("/s").await;
    fresh("/s?offset=0_3").await;
    server.append("/s", "text/plain", b"two").await.expect(204);
    fresh("/s").await;
    fresh("/s?offset=0_3").await;
    fresh("/s?offset=0_6").await;
    server.ask("POST", "/s", &[CLOSE], b"").await.expect(204);
    // Closing changes nothing but the end, and the tag with it.
    fresh("/s").await;
    fresh("/s?offset=0_3").await;
    fresh("/s?offset=0_6").await;
    server.delete("/s").await.expect(204);
    server.ask("PUT", "/s", &[TEXT, CLOSE], b"onetwo").await.expect(201);
    fresh("/s").await;
    let now = server.get("/s?offset=now").await.expect(200);
    assert_eq!((now.get("etag"), now.need("cache-control")), (None, "no-store"));
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_the_same_bodies() {
    let server = Setup::default().start().await;
    let gzip = [("accept-encoding", "br;q=0.9, gzip")];
    for (kind, unit) in [("text/plain", "line of text\n"), ("application/json", "{\"a\":[1,2]}")] {
        for appends in [1, 80, 5_000, 9_000] {
            let path = format!("/{}/{appends}", kind.replace('/', "-"));
            server.create(&path, kind).await;
            // The last one goes beyond what is put together in memory.
            let body = match kind {
                "application/json" => format!("[{}]", vec![unit; appends].join(",")),
                _ => unit.repeat(appends),
            };
            server.append(&path, kind, body.as_bytes()).await.expect(204);
            let plain = server.get(&path).await.expect(200);
            assert_eq!(plain.text(), body);
            assert_eq!(plain.get("content-encoding"), None);
            assert_eq!(plain.need("vary"), "accept-encoding");
            let packed = server.ask("GET", &path, &gzip, b"").await.expect(200);
            assert_eq!(packed.need("vary"), "accept-encoding");
            assert_eq!(packed.need("content-type"), kind);
            assert_eq!(packed.next_offset(), plain.next_offset());
            if body.len() < 1_024 {
                assert_eq!(packed.get("content-encoding"), None);
                continue;
            }
            assert_eq!(packed.need("content-encoding"), "gzip");
            assert!(packed.body.len() < body.len() / 10);
            assert!(gunzip(&packed.body) == plain.body, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_worth_or_not_fit_is_not_compressed() {
    let server = Setup::default().start().await;
    server.create("/t", "text/plain").await;
    server.append("/t", "text/plain", &[b'x'; 5_000]).await.expect(204);
    for accept in ["", "identity", "br, zstd", "gzip;q=0", "gzip; q=0.0", "x-gzip-not", "*;q=0"] {
        let answer = server.ask("GET", "/t", &[("accept-encoding", accept)], b"").await;
        assert_eq!(answer.expect(200).get("content-encoding"), None, "{accept}");
    }
    for accept in ["gzip", "GZIP", "gzip;q=0.1", "deflate, gzip, br", "*"] {
        let answer = server.ask("GET", "/t", &[("accept-encoding", accept)], b"").await;
        assert_eq!(answer.expect(200).need("content-encoding"), "gzip", "{accept}");
    }
    for kind in ["application/octet-stream", "image/png", "application/x-protobuf"] {
        let path = format!("/{kind}");
        server.create(&path, kind).await;
        server.append(&path, kind, &[0; 200_000]).await.expect(204);
        let answer =
            server.ask("GET", &path, &[("accept-encoding", "gzip")], b"").await.expect(200);
        assert_eq!(answer.get("content-encoding"), None, "{kind}");
        assert_eq!(answer.body.len(), 200_000);
    }
    let mut connection = server.connect().await;
    let target = "/t?offset=-1&live=sse";
    connection.send(&request("GET", target, &[("accept-encoding", "gzip")], b"")).await;
    assert_eq!(connection.head("GET").await.unwrap().get("content-encoding"), None);
}

/// RFC 9110 §15.4.5: a 304 carries the `Vary` that the 200 would have.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nothing_changed_varies_like_the_one_before() {
    let server = Setup::default().start().await;
    server.create("/t", "text/plain").await;
    server.append("/t", "text/plain", &[b'x'; 5_000]).await.expect(204);
    let tag = server.get("/t").await.expect(200).need("etag").to_owned();
    let same = server.ask("GET", "/t", &[("if-none-match", &tag)], b"").await.expect(304);
    assert_eq!(same.get("vary"), Some("accept-encoding"));
}
