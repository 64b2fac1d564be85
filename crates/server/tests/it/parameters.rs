//! Query parameters and headers that are wrong: refused, without a trace.

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const ZERO: &str = "0000000000000000_0000000000000000";

/// A server with `/s`, which holds `one` and `two` as two appends.
async fn with_stream() -> TestServer {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    server.append("/s", "text/plain", b"one").await.expect(204);
    server.append("/s", "text/plain", b"two").await.expect(204);
    server
}

/// A request is refused with this code, and `/s` is as it was.
async fn refuses(
    server: &TestServer,
    (method, target): (&str, &str),
    headers: Headers<'_>,
    code: &str,
) {
    let before = server.head("/s").await.expect(200).next_offset().to_owned();
    let body: &[u8] = if method == "GET" { b"" } else { b"body" };
    let answer = server.ask(method, target, headers, body).await;
    let what = format!("{method} {target} {headers:?}: {answer}");
    assert_eq!((answer.status(), answer.code().as_str()), (400, code), "{what}");
    assert_eq!(server.head("/s").await.expect(200).next_offset(), before, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_offsets_are_refused_in_every_mode_of_reading() {
    let server = with_stream().await;
    let malformed = [
        "",
        "-2",
        "+1",
        "NOW",
        "now%20",
        "1",
        "_",
        "0_",
        "_0",
        "0_0_0",
        "abc",
        "0_1,0_2",
        "0_0%20",
        "%20",
        "%00",
        "0_0%0d%0a",
        "..%2f..%2f0_0",
        "0_%2B1",
        "0_-1",
        "0x0_0",
        "0_00000000000000000",
        "00000000000000000_0",
        "%EF%BC%91_0",
        "%FF_0",
        "%zz",
        "null",
    ];
    for offset in malformed {
        for mode in ["", "&live=long-poll", "&live=sse"] {
            let target = format!("/s?offset={offset}{mode}");
            refuses(&server, ("GET", &target), &[], "INVALID_OFFSET").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_that_the_stream_never_named_are_refused_in_every_mode_of_reading() {
    let server = with_stream().await;
    for offset in ["0_1", "0_2", "0_4", "0_7", "1_0", "9999999999999999_9999999999999999"] {
        for mode in ["", "&live=long-poll", "&live=sse"] {
            let target = format!("/s?offset={offset}{mode}");
            refuses(&server, ("GET", &target), &[], "INVALID_OFFSET").await;
        }
    }
    for (offset, rest) in [("-1", "onetwo"), ("0_0", "onetwo"), ("0_3", "two"), ("0_6", "")] {
        let target = format!("/s?offset={offset}");
        assert_eq!(server.get(&target).await.expect(200).text(), rest, "{offset}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stream_is_missing_whatever_else_is_wrong_with_the_read() {
    let server = Setup::default().start().await;
    for target in ["/absent?offset=x", "/absent?live=x", "/absent?offset=1&offset=2"] {
        assert_eq!(server.get(target).await.expect(404).code(), "STREAM_NOT_FOUND", "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn known_parameters_come_once_and_unknown_ones_are_ignored() {
    let server = with_stream().await;
    let repeated = [
        "offset=-1&offset=-1",
        "offset=-1&offset=",
        "offset&offset=-1",
        "offset=-1&%6Fffset=-1",
        "offset=-1&live=sse&live=sse",
        "offset=-1&live=long-poll&live=sse",
        "offset=-1&cursor=1&cursor=1&live=sse",
    ];
    for query in repeated {
        refuses(&server, ("GET", &format!("/s?{query}")), &[], "INVALID_QUERY").await;
    }
    for query in ["x=1&x=2&offset=-1", "&&offset=-1&", "=&=&offset=-1", "?", "offset=%2D1#x"] {
        let answer = server.get(&format!("/s?{query}")).await.expect(200);
        assert_eq!(answer.text(), "onetwo", "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_is_one_of_two_words_and_needs_an_offset() {
    let server = with_stream().await;
    for live in ["", "SSE", "sse%20", "longpoll", "long_poll", "LONG-POLL", "true", "sse,long-poll"]
    {
        let target = format!("/s?offset=-1&live={live}");
        refuses(&server, ("GET", &target), &[], "INVALID_QUERY").await;
    }
    for live in ["sse", "long-poll"] {
        refuses(&server, ("GET", &format!("/s?live={live}")), &[], "INVALID_QUERY").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lifetimes_create_nothing() {
    let server = with_stream().await;
    let ttls = [
        "",
        "+1",
        "-1",
        "01",
        "00",
        "1.0",
        "1.",
        "1e3",
        "abc",
        "0x10",
        "1 2",
        "1,2",
        "1s",
        "100000000001",
        "18446744073709551616",
        "99999999999999999999999",
    ];
    for ttl in ttls {
        refuses(&server, ("PUT", "/new"), &[("stream-ttl", ttl)], "INVALID_EXPIRY").await;
    }
    let moments = [
        "",
        "tomorrow",
        "1893456000",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-13-01T00:00:00Z",
        "2030-02-30T00:00:00Z",
        "2030-00-01T00:00:00Z",
        "2030-01-01T24:00:01Z",
        "2030-01-01T00:60:00Z",
        "2030-01-01T00:00:00+25:00",
        "2030-1-1T0:0:0Z",
        "2030-01-01T00:00:00.Z",
        "20300101T000000Z",
        "Tue, 01 Jan 2030 00:00:00 GMT",
        "2030-01-01T00:00:00Zjunk",
    ];
    for moment in moments {
        refuses(&server, ("PUT", "/new"), &[("stream-expires-at", moment)], "INVALID_EXPIRY").await;
    }
    let both = [("stream-ttl", "60"), ("stream-expires-at", "2030-01-01T00:00:00Z")];
    refuses(&server, ("PUT", "/new"), &both, "INVALID_EXPIRY").await;
    let twice = [("stream-ttl", "60"), ("stream-ttl", "60")];
    refuses(&server, ("PUT", "/new"), &twice, "INVALID_HEADER").await;
    server.head("/new").await.expect(404);
    for (path, ttl) in [("/long", "100000000000"), ("/short", "1")] {
        server.ask("PUT", path, &[("stream-ttl", ttl)], b"").await.expect(201);
        assert_eq!(server.head(path).await.expect(200).need("stream-ttl"), ttl);
    }
    for moment in ["2093-01-01T00:00:00Z", "2093-01-01T01:30:00.25+01:30", "9999-12-31T23:59:59Z"] {
        let path = format!("/at/{moment}");
        server.ask("PUT", &path, &[("stream-expires-at", moment)], b"").await.expect(201);
        assert_eq!(server.head(&path).await.expect(200).need("stream-expires-at"), moment);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_producer_headers_append_nothing() {
    let server = with_stream().await;
    let (id, epoch, seq) = (("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0"));
    let incomplete: [&[(&str, &str)]; 6] = [
        &[TEXT, id],
        &[TEXT, epoch],
        &[TEXT, seq],
        &[TEXT, id, epoch],
        &[TEXT, id, seq],
        &[TEXT, epoch, seq],
    ];
    for headers in incomplete {
        refuses(&server, ("POST", "/s"), headers, "INVALID_PRODUCER").await;
    }
    let long = "p".repeat(257);
    for id in ["", &long] {
        let headers = [TEXT, ("producer-id", id), epoch, seq];
        refuses(&server, ("POST", "/s"), &headers, "INVALID_PRODUCER").await;
    }
    for number in ["", "-1", "+1", "1.5", "x", "0x1", "1e3", "9007199254740992", "1 2"] {
        let bad_epoch = [TEXT, id, ("producer-epoch", number), seq];
        refuses(&server, ("POST", "/s"), &bad_epoch, "INVALID_PRODUCER").await;
        let bad_seq = [TEXT, id, epoch, ("producer-seq", number)];
        refuses(&server, ("POST", "/s"), &bad_seq, "INVALID_PRODUCER").await;
    }
    refuses(&server, ("POST", "/s"), &[TEXT, id, id, epoch, seq], "INVALID_HEADER").await;
    // Nothing of all this was taken for the producer's first append.
    let answer = server.ask("POST", "/s", &[TEXT, id, epoch, seq], b"three").await.expect(200);
    assert_eq!(answer.need("producer-seq"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_fork_headers_create_nothing_and_hold_nothing() {
    let server = with_stream().await;
    let from = ("stream-forked-from", "/s");
    let alone: [&[(&str, &str)]; 3] = [
        &[("stream-fork-offset", ZERO)],
        &[("stream-fork-sub-offset", "0")],
        &[("stream-fork-offset", ZERO), ("stream-fork-sub-offset", "1")],
    ];
    for headers in alone {
        refuses(&server, ("PUT", "/f"), headers, "INVALID_HEADER").await;
    }
    let long = format!("/{}", "x".repeat(2048));
    for source in ["", "s", "/", "http://localhost/s", "/a b", "/s?x", "/s#x", "/\u{e9}", &long] {
        let headers = [("stream-forked-from", source)];
        refuses(&server, ("PUT", "/f"), &headers, "INVALID_HEADER").await;
    }
    for offset in ["", "-1", "now", "x", "0", "0_0_0", "0_0,0_0", "0_-3"] {
        let headers = [from, ("stream-fork-offset", offset)];
        refuses(&server, ("PUT", "/f"), &headers, "INVALID_OFFSET").await;
    }
    for offset in ["0_1", "0_5", "0_7", "9999999999999999_9999999999999999"] {
        let headers = [from, ("stream-fork-offset", offset)];
        refuses(&server, ("PUT", "/f"), &headers, "INVALID_FORK_OFFSET").await;
    }
    for sub_offset in ["", "-1", "abc", "1.5", "05", "+1", "1 2", "18446744073709551616"] {
        let headers = [from, ("stream-fork-sub-offset", sub_offset)];
        refuses(&server, ("PUT", "/f"), &headers, "INVALID_HEADER").await;
    }
    for (offset, sub_offset) in
        [("0_0", "4"), ("0_3", "4"), ("0_6", "1"), ("0_0", "18446744073709551615")]
    {
        let headers =
            [from, ("stream-fork-offset", offset), ("stream-fork-sub-offset", sub_offset)];
        refuses(&server, ("PUT", "/f"), &headers, "INVALID_FORK_SUB_OFFSET").await;
    }
    server.head("/f").await.expect(404);
    // Were one of them counted, the source would be kept for it: 410.
    server.delete("/s").await.expect(204);
    server.head("/s").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_not_plain_text_are_refused() {
    let server = with_stream().await;
    let bad = "caf\u{e9}";
    for name in ["stream-ttl", "stream-expires-at", "stream-forked-from", "content-type"] {
        refuses(&server, ("PUT", "/new"), &[(name, bad)], "INVALID_HEADER").await;
    }
    for name in ["stream-seq", "producer-id", "producer-epoch", "producer-seq"] {
        refuses(&server, ("POST", "/s"), &[TEXT, (name, bad)], "INVALID_HEADER").await;
    }
    // Anything but `true` is as if it were absent.
    for value in [bad, "", "yes", "1", "false", "truely"] {
        let headers = [TEXT, ("stream-closed", value)];
        let answer = server.ask("POST", "/s", &headers, b"x").await.expect(204);
        assert_eq!(answer.get("stream-closed"), None, "{value}");
    }
    server.ask("POST", "/s", &[TEXT, ("stream-closed", "TRUE")], b"x").await.expect(204);
    assert_eq!(server.head("/s").await.need("stream-closed"), "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_seq_is_short_text_that_comes_once() {
    let server = with_stream().await;
    let long = "9".repeat(257);
    for seq in ["", &long] {
        refuses(&server, ("POST", "/s"), &[TEXT, ("stream-seq", seq)], "INVALID_HEADER").await;
    }
    let twice = [TEXT, ("stream-seq", "1"), ("stream-seq", "2")];
    refuses(&server, ("POST", "/s"), &twice, "INVALID_HEADER").await;
    let longest = "0".repeat(256);
    server.ask("POST", "/s", &[TEXT, ("stream-seq", &longest)], b"x").await.expect(204);
    server.ask("POST", "/s", &[TEXT, ("stream-seq", &longest)], b"x").await.expect(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_needs_a_body_and_its_type() {
    let server = with_stream().await;
    let no_type: [&[(&str, &str)]; 2] = [&[], &[("content-type", "")]];
    for headers in no_type {
        refuses(&server, ("POST", "/s"), headers, "CONTENT_TYPE_REQUIRED").await;
    }
    for headers in [&[TEXT][..], &[], &[TEXT, ("stream-closed", "false")]] {
        let answer = server.ask("POST", "/s", headers, b"").await.expect(400);
        assert_eq!(answer.code(), "EMPTY_BODY");
    }
    for kind in ["text", "text/", "/plain", "nonsense", "text/html", "application/json"] {
        let answer = server.append("/s", kind, b"1").await.expect(409);
        assert_eq!(answer.code(), "CONTENT_TYPE_MISMATCH", "{kind}");
    }
    assert_eq!(server.get("/s").await.text(), "onetwo");
    for kind in ["Text/PLAIN", "text/plain; charset=latin1", " text/plain ;x"] {
        server.append("/s", kind, b"!").await.expect(204);
    }
}
