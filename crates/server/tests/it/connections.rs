//! What clients do to connections: everybody else is served as if nothing were.

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let server = Setup::default().start().await;
    let mut all = request("PUT", "/s", &[TEXT], b"");
    for number in 0..50 {
        all.extend(request("POST", "/s", &[TEXT], format!("{number},").as_bytes()));
        all.extend(request("GET", "/s", &[], b""));
    }
    all.extend(request("GET", "/absent", &[], b""));
    all.extend(request("DELETE", "/s", &[], b""));
    let mut connection = server.connect().await;
    connection.send(&all).await;
    connection.answer("PUT").await.expect(201);
    let mut expected = String::new();
    for number in 0..50 {
        expected.push_str(&format!("{number},"));
        connection.answer("POST").await.expect(204);
        assert_eq!(connection.answer("GET").await.expect(200).text(), expected);
    }
    connection.answer("GET").await.expect(404);
    connection.answer("DELETE").await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_keeps_nobody_else_waiting() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    let whole = request("POST", "/s", &[TEXT], b"late");
    let mut halves = Vec::new();
    for length in [0, 1, 4, 20, 40, whole.len() - 6] {
        let mut connection = server.connect().await;
        connection.send(&whole[..length]).await;
        halves.push((connection, length));
    }
    for _ in 0..20 {
        server.append("/s", "text/plain", b".").await.expect(204);
    }
    for (mut connection, length) in halves {
        connection.send(&whole[length..]).await;
        connection.answer("POST").await.expect(204);
    }
    let expected = format!("{}{}", ".".repeat(20), "late".repeat(6));
    assert_eq!(server.get("/s").await.text(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_0_without_a_host_is_served_and_its_connection_ends() {
    let server = Setup::default().start().await;
    let old = |method: &str, path: &str, rest: &str| {
        format!("{method} {path} HTTP/1.0\r\n{rest}").into_bytes()
    };
    let ask = async |method: &str, path: &str, rest: &str| {
        let mut connection = server.connect().await;
        connection.send(&old(method, path, rest)).await;
        let answer = connection.answer(method).await;
        assert!(connection.rest().await.is_empty(), "the connection ends");
        answer
    };
    let created = ask("PUT", "/s", "content-type: text/plain\r\ncontent-length: 2\r\n\r\nab").await;
    assert_eq!(created.expect(201).need("location"), "/s");
    let append = "content-type: text/plain\r\ncontent-length: 2\r\n\r\ncd";
    ask("POST", "/s", append).await.expect(204);
    assert_eq!(ask("GET", "/s", "\r\n").await.expect(200).text(), "abcd");
    // A body without a length has none in HTTP/1.0.
    let no_length = "content-type: text/plain\r\n\r\nef";
    assert_eq!(ask("POST", "/s", no_length).await.expect(400).code(), "EMPTY_BODY");
    // A long one is not sent in chunks, which this client does not know.
    server.append("/s", "text/plain", &[b'x'; 300_000]).await.expect(204);
    let gzip = ask("GET", "/s", "accept-encoding: gzip\r\n\r\n").await.expect(200);
    assert_eq!(gzip.get("transfer-encoding"), None);
    let plain = ask("GET", "/s", "\r\n").await.expect(200);
    assert_eq!(plain.body.len(), 300_004);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_is_hung_up_on() {
    let server = Setup::default().start().await;
    let mut http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    http2.extend_from_slice(&[0xff; 64]);
    let nonsense: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"hello\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET /s\r\n\r\n".to_vec(),
        b"GET /s HTTP/9.9\r\n\r\n".to_vec(),
        b"GET /s HTTP/1.1\r\nno colon\r\n\r\n".to_vec(),
        b"GET /s HTTP/1.1\r\n name: folded\r\n\r\n".to_vec(),
        b"GET /s HTTP/1.1\r\nna me: x\r\n\r\n".to_vec(),
        b"GET /s HTTP/1.1\r\nname: a\0b\r\n\r\n".to_vec(),
        vec![0; 1_000],
        vec![0xff; 100_000],
        http2,
    ];
    for bytes in nonsense {
        let mut connection = server.connect().await;
        let _ = connection.try_send(&bytes).await;
        connection.finish_sending().await;
        let rest = connection.rest().await;
        let rest = String::from_utf8_lossy(&rest);
        let is_http2 = bytes.starts_with(b"PRI");
        assert!(!rest.starts_with("HTTP/1.1 2"), "{bytes:?}: {rest}");
        assert!(is_http2 || rest.is_empty() || rest.starts_with("HTTP/1.1 400"), "{rest}");
    }
    server.get("/healthz").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_headers_is_refused() {
    let server = Setup::default().start().await;
    let count = |headers: usize| {
        let mut head = b"GET /healthz HTTP/1.1\r\n".to_vec();
        for number in 0..headers {
            head.extend_from_slice(format!("x-{number}: 1\r\n").as_bytes());
        }
        [head, b"\r\n".to_vec()].concat()
    };
    let size = |bytes: usize| {
        let value = "x".repeat(bytes);
        format!("GET /healthz HTTP/1.1\r\nx: {value}\r\n\r\n").into_bytes()
    };
    for (request, status) in [
        (count(100), 200),
        (count(101), 431),
        (count(5_000), 431),
        (size(60_000), 200),
        (size(70_000), 431),
        (size(1 << 20), 431),
    ] {
        let mut connection = server.connect().await;
        let _ = connection.try_send(&request).await;
        let answer = connection.answer("GET").await;
        assert_eq!(answer.status(), status, "{} bytes", request.len());
        if status != 200 {
            assert!(connection.rest().await.is_empty(), "the connection ends");
        }
    }
    // Headers that never end.
    let mut connection = server.connect().await;
    connection.send(b"GET /healthz HTTP/1.1\r\n").await;
    let line = format!("x: {}\r\n", "y".repeat(1_000));
    let mut sent = 0;
    while sent < 1 << 20 && connection.try_send(line.as_bytes()).await.is_ok() {
        sent += line.len();
    }
    connection.answer("GET").await.expect(431);
    server.get("/healthz").await.expect(200);
}

/// The body of a request that is refused unread must not be taken for the next request.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_body_is_never_taken_for_a_request() {
    let server = Setup::default().start().await;
    server.create("/victim", "text/plain").await;
    let inner = request("DELETE", "/victim", &[], b"");
    let mut body = vec![b'\n'; 200_000];
    for at in (0..body.len() - inner.len()).step_by(1_000) {
        body[at..at + inner.len()].copy_from_slice(&inner);
    }
    for (method, target, headers) in [
        ("POST", "/callback/x", &[TEXT][..]),
        ("POST", "/victim", &[TEXT, ("producer-id", "p")]),
        ("PUT", "/new", &[TEXT, ("stream-ttl", "x")]),
        ("GET", "/victim", &[]),
        ("DELETE", "/absent", &[]),
        ("PATCH", "/victim", &[]),
        ("OPTIONS", "/victim", &[]),
    ] {
        let mut connection = server.connect().await;
        let _ = connection.try_send(&request(method, target, headers, &body)).await;
        connection.answer(method).await;
        // Either the connection goes on with the next request, or it ends.
        if connection.try_send(&request("GET", "/healthz", &[], b"")).await.is_ok()
            && let Some(head) = connection.head("GET").await
        {
            assert_eq!(head.status, 200, "{method} {target}");
            assert_eq!(head.get("content-type"), Some("application/json"));
        }
        server.head("/victim").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lengths_are_never_two_requests() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    server.create("/victim", "text/plain").await;
    let inner = request("DELETE", "/victim", &[], b"");
    let size = inner.len().to_string();
    let ambiguous: [&[(&str, &str)]; 5] = [
        &[TEXT, ("content-length", "0"), ("transfer-encoding", "chunked")],
        &[TEXT, ("transfer-encoding", "chunked"), ("content-length", "0")],
        &[TEXT, ("content-length", "0"), ("content-length", &size)],
        &[TEXT, ("transfer-encoding", "gzip"), ("content-length", "0")],
        &[TEXT, ("transfer-encoding", "chunked, identity"), ("content-length", "0")],
    ];
    for headers in ambiguous {
        let mut connection = server.connect().await;
        let mut bytes = head_of("POST", "/s", headers);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(format!("{:x}\r\n", inner.len()).as_bytes());
        bytes.extend_from_slice(&inner);
        bytes.extend_from_slice(b"\r\n0\r\n\r\n");
        connection.send(&bytes).await;
        let answer = connection.answer("POST").await;
        assert!([204, 400].contains(&answer.status()), "{headers:?} {answer}");
        connection.finish_sending().await;
        connection.rest().await;
        server.head("/victim").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_never_has_a_body() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    server.append("/s", "text/plain", &[b'x'; 100_000]).await.expect(204);
    let mut connection = server.connect().await;
    for (target, status) in [
        ("/s", 200),
        ("/s?offset=-1", 200),
        ("/absent", 404),
        ("/", 400),
        ("/callback", 404),
        ("/healthz", 200),
        ("/metrics", 200),
    ] {
        // A body would be taken for the beginning of the next answer.
        let answer = connection.ask("HEAD", target, &[], b"").await;
        assert_eq!(answer.status(), status, "{target}");
    }
    assert_eq!(connection.ask("GET", "/s", &[], b"").await.expect(200).body.len(), 100_000);
}
