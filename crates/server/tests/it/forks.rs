//! Forks: they hold what they were forked from, and let it go when they go.

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");

async fn fork(server: &TestServer, path: &str, headers: Headers<'_>) -> Answer {
    server.ask("PUT", path, headers, b"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_source_is_held_by_its_forks_and_goes_with_the_last() {
    let server = Setup::default().start().await;
    server.create("/a", "text/plain").await;
    server.append("/a", "text/plain", b"one").await.expect(204);
    fork(&server, "/b", &[("stream-forked-from", "/a")]).await.expect(201);
    server.append("/b", "text/plain", b"two").await.expect(204);
    fork(&server, "/c", &[("stream-forked-from", "/b")]).await.expect(201);
    fork(&server, "/d", &[("stream-forked-from", "/a")]).await.expect(201);
    server.append("/c", "text/plain", b"three").await.expect(204);
    for path in ["/a", "/b"] {
        server.delete(path).await.expect(204);
        for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("POST", b"x"), ("DELETE", b"")] {
            server.ask(method, path, &[TEXT], body).await.expect(410);
        }
        assert_eq!(fork(&server, path, &[TEXT]).await.expect(409).code(), "PATH_HELD");
        let again = fork(&server, "/again", &[("stream-forked-from", path)]).await.expect(409);
        assert_eq!(again.code(), "FORK_SOURCE_GONE");
    }
    assert_eq!(server.get("/c").await.expect(200).text(), "onetwothree");
    assert_eq!(server.get("/d").await.expect(200).text(), "one");
    server.delete("/c").await.expect(204);
    eventually("/b to go with its last fork", async || {
        (server.head("/b").await.status() == 404).then_some(())
    })
    .await;
    server.head("/a").await.expect(410);
    assert_eq!(server.get("/d").await.expect(200).text(), "one");
    server.delete("/d").await.expect(204);
    eventually("/a to go with its last fork", async || {
        (server.head("/a").await.status() == 404).then_some(())
    })
    .await;
    // The paths are free again, and empty.
    for path in ["/a", "/b", "/c"] {
        server.create(path, "text/plain").await;
        assert_eq!(server.get(path).await.expect(200).text(), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_not_deleted_stays_when_its_forks_go() {
    let server = Setup::default().start().await;
    server.create("/a", "text/plain").await;
    server.append("/a", "text/plain", b"one").await.expect(204);
    for _ in 0..5 {
        fork(&server, "/b", &[("stream-forked-from", "/a")]).await.expect(201);
        server.delete("/b").await.expect(204);
    }
    eventually("the forks to be let go", async || {
        // Held by no fork, it goes at once and for good.
        server.delete("/a").await;
        (server.head("/a").await.status() == 404).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_source_is_held_too() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.ask("PUT", "/a", &[TEXT, ("stream-ttl", "10")], b"one").await.expect(201);
    let headers = [("stream-forked-from", "/a"), ("stream-ttl", "1000")];
    fork(&server, "/b", &headers).await.expect(201);
    // A fork that asks for nothing else inherits the lifetime, with its own beginning.
    clock.advance(5_000);
    fork(&server, "/c", &[("stream-forked-from", "/a")]).await.expect(201);
    assert_eq!(server.head("/c").await.expect(200).need("stream-ttl"), "10");
    clock.advance(5_000);
    server.get("/a").await.expect(410);
    server.head("/c").await.expect(200);
    assert_eq!(server.get("/b").await.expect(200).text(), "one");
    clock.advance(5_000);
    server.get("/c").await.expect(404);
    server.get("/a").await.expect(410);
    clock.advance(999_000);
    server.get("/b").await.expect(404);
    eventually("the source to go with its last fork", async || {
        clock.advance(1_000);
        (server.get("/a").await.status() == 404).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_begin_where_they_are_told_and_go_their_own_way() {
    let server = Setup::default().start().await;
    server.create("/a", "text/plain").await;
    let mut offsets = vec!["0000000000000000_0000000000000000".to_owned()];
    for body in ["one", "two", "three"] {
        let answer = server.append("/a", "text/plain", body.as_bytes()).await.expect(204);
        offsets.push(answer.next_offset().to_owned());
    }
    let expected = ["", "one", "onetwo", "onetwothree"];
    for (number, (at, text)) in offsets.iter().zip(expected).enumerate() {
        let path = format!("/f/{number}");
        let headers = [("stream-forked-from", "/a"), ("stream-fork-offset", at)];
        let answer = fork(&server, &path, &headers).await.expect(201);
        assert_eq!(answer.next_offset(), at);
        server.append(&path, "text/plain", b"!").await.expect(204);
        server.append("/a", "text/plain", b"?").await.expect(204);
        assert_eq!(server.get(&path).await.expect(200).text(), format!("{text}!"));
        // What the source got later is no offset here unless it is one by chance.
        for (known, rest) in offsets.iter().zip(expected).take(number + 1) {
            let answer = server.get(&format!("{path}?offset={known}")).await.expect(200);
            assert_eq!(answer.text(), format!("{}!", &text[rest.len()..]));
        }
        fork(&server, &path, &headers).await.expect(200);
    }
    assert_eq!(server.get("/a").await.text(), "onetwothree????");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_appends_are_taken_over_by_bytes_or_by_messages() {
    let server = Setup::default().start().await;
    server.create("/t", "text/plain").await;
    server.append("/t", "text/plain", b"hello").await.expect(204);
    server.append("/t", "text/plain", b"world").await.expect(204);
    server.create("/j", "application/json").await;
    server.append("/j", "application/json", b"[1,[2,3],\"x,y\"]").await.expect(204);
    let cases = [
        ("/t", "0_5", "0", "hello"),
        ("/t", "0_5", "3", "hellowor"),
        ("/t", "0_5", "5", "helloworld"),
        ("/t", "0_0", "1", "h"),
        ("/j", "0_0", "0", "[]"),
        ("/j", "0_0", "1", "[1]"),
        ("/j", "0_0", "2", "[1,[2,3]]"),
        ("/j", "0_0", "3", "[1,[2,3],\"x,y\"]"),
    ];
    for (number, (source, at, sub, text)) in cases.into_iter().enumerate() {
        let path = format!("/f/{number}");
        let headers = [
            ("stream-forked-from", source),
            ("stream-fork-offset", at),
            ("stream-fork-sub-offset", sub),
        ];
        fork(&server, &path, &headers).await.expect(201);
        assert_eq!(server.get(&path).await.expect(200).text(), text, "{source} {at} {sub}");
        // A fork of the fork reads through both.
        let deeper = format!("/g/{number}");
        fork(&server, &deeper, &[("stream-forked-from", &path)]).await.expect(201);
        assert_eq!(server.get(&deeper).await.expect(200).text(), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_knows_nothing_of_its_sources_producers() {
    let server = Setup::default().start().await;
    server.create("/a", "text/plain").await;
    let producer = |seq| {
        [
            TEXT,
            ("producer-id", "p"),
            ("producer-epoch", "0"),
            ("producer-seq", seq),
            ("stream-seq", seq),
        ]
    };
    server.ask("POST", "/a", &producer("0"), b"a").await.expect(200);
    fork(&server, "/b", &[("stream-forked-from", "/a")]).await.expect(201);
    server.ask("POST", "/b", &producer("0"), b"b").await.expect(200);
    server.ask("POST", "/a", &[("stream-closed", "true")], b"").await.expect(204);
    server.ask("POST", "/b", &producer("1"), b"c").await.expect(200);
    assert_eq!(server.get("/b").await.text(), "abc");
    // A fork of a closed stream is open.
    fork(&server, "/c", &[("stream-forked-from", "/a")]).await.expect(201);
    server.append("/c", "text/plain", b"d").await.expect(204);
    assert_eq!(server.get("/c").await.text(), "ad");
}
