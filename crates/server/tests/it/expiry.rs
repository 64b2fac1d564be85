//! Streams that end by themselves: by reads they live on, by a mere look they do not.

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const TTL: (&str, &str) = ("stream-ttl", "100");

async fn with_clock() -> (HandClock, TestServer) {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    (clock, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_and_every_write_prolongs_a_life_and_a_look_does_not() {
    let (clock, server) = with_clock().await;
    let close = ("stream-closed", "true");
    let producer = [
        ("producer-id", "p"),
        ("producer-epoch", "0"),
        ("producer-seq", "0"),
        ("stream-closed", "true"),
    ];
    let touches: &[(&str, &str, Headers<'_>, &[u8], bool)] = &[
        ("GET", "", &[], b"", true),
        ("GET", "?offset=-1", &[], b"", true),
        ("GET", "?offset=now", &[], b"", true),
        ("GET", "?offset=0_1", &[], b"", true),
        ("GET", "?offset=-1&live=long-poll", &[], b"", true),
        ("GET", "", &[("if-none-match", "*")], b"", true),
        ("POST", "", &[TEXT], b"x", true),
        ("POST", "", &[close], b"", true),
        ("POST", "", &producer, b"", true),
        ("HEAD", "", &[], b"", false),
        ("OPTIONS", "", &[], b"", false),
        ("GET", "?offset=bad", &[], b"", false),
        ("POST", "", &[("content-type", "text/html")], b"x", false),
        ("PUT", "", &[TEXT, TTL], b"", false),
    ];
    for (number, (method, query, headers, body, prolongs)) in touches.iter().enumerate() {
        let path = format!("/s/{number}");
        server.ask("PUT", &path, &[TEXT, TTL], b"x").await.expect(201);
        clock.advance(99_999);
        let answer = server.ask(method, &format!("{path}{query}"), headers, body).await;
        assert!(answer.status() < 500, "{answer}");
        clock.advance(1);
        let expected = if *prolongs { 200 } else { 404 };
        assert_eq!(server.head(&path).await.status(), expected, "{method} {query} {headers:?}");
        clock.advance(99_998);
        assert_eq!(server.head(&path).await.status(), expected, "{method} {query} {headers:?}");
        clock.advance(1);
        server.head(&path).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_of_an_event_stream_prolongs_a_life() {
    let (clock, server) = with_clock().await;
    server.ask("PUT", "/s", &[TEXT, TTL], b"x").await.expect(201);
    clock.advance(99_000);
    let mut events = Events::open(&server, "/s?offset=-1&live=sse").await;
    events.data().await;
    clock.advance(99_000);
    server.head("/s").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_stays_where_it_is() {
    let (clock, server) = with_clock().await;
    let at = ("stream-expires-at", "2025-06-01T00:10:00Z");
    server.ask("PUT", "/s", &[TEXT, at], b"x").await.expect(201);
    clock.advance(599_999);
    server.get("/s").await.expect(200);
    server.append("/s", "text/plain", b"x").await.expect(204);
    assert_eq!(server.head("/s").await.expect(200).need("stream-expires-at"), at.1);
    clock.advance(1);
    for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("POST", b"x"), ("DELETE", b"")] {
        server.ask(method, "/s", &[TEXT], body).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_whose_stream_has_ended_is_free_for_another() {
    let (clock, server) = with_clock().await;
    let producer = [TEXT, ("producer-id", "p"), ("producer-epoch", "5"), ("producer-seq", "0")];
    server.ask("PUT", "/s", &[TEXT, TTL], b"old").await.expect(201);
    server.ask("POST", "/s", &producer, b"old").await.expect(200);
    clock.advance(100_000);
    server.ask("PUT", "/s", &[("content-type", "application/json")], b"").await.expect(201);
    assert_eq!(server.get("/s").await.expect(200).text(), "[]");
    assert_eq!(server.head("/s").await.get("stream-ttl"), None);
    // The new one knows nothing of the old one's producers.
    let json = ("content-type", "application/json");
    let producer = [json, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    server.ask("POST", "/s", &producer, b"1").await.expect(200);
    clock.advance(10_000_000);
    assert_eq!(server.get("/s").await.expect(200).text(), "[1]", "and does not end with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_of_no_length_and_moments_gone_by_end_at_once() {
    let (_clock, server) = with_clock().await;
    for header in [("stream-ttl", "0"), ("stream-expires-at", "2000-01-01T00:00:00Z")] {
        server.ask("PUT", "/s", &[TEXT, header], b"x").await.expect(201);
        server.get("/s").await.expect(404);
        server.append("/s", "text/plain", b"x").await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lives_go_on_where_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let server = Setup::on(&clock).start_in(directory.path()).await;
    server.ask("PUT", "/sliding", &[TEXT, TTL], b"x").await.expect(201);
    let at = ("stream-expires-at", "2025-06-01T00:10:00Z");
    server.ask("PUT", "/fixed", &[TEXT, at], b"x").await.expect(201);
    server.stop().await;
    clock.advance(99_000);
    let server = Setup::on(&clock).start_in(directory.path()).await;
    // Reads that were not written down are not held against a stream: a restart counts as one.
    clock.advance(99_000);
    server.head("/sliding").await.expect(200);
    clock.advance(1_000);
    server.head("/sliding").await.expect(404);
    server.head("/fixed").await.expect(200);
    clock.advance(600_000 - 199_000);
    server.head("/fixed").await.expect(404);
    server.stop().await;
}

/// Counts what the store holds beside the streams of this test.
mod remains {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;

    use reveille_store::disk::RealDisk;
    use reveille_store::log;
    use reveille_store::table::LsmTable;

    /// Everything in the store of a server that was stopped, by the first byte of its key.
    pub(super) fn count(directory: &Path) -> Vec<(char, usize)> {
        let mut counted: BTreeMap<char, usize> = BTreeMap::new();
        for partition in crate::harness::partition_dirs(directory) {
            for (first, found) in count_in(&partition) {
                *counted.entry(first).or_default() += found;
            }
        }
        counted.into_iter().collect()
    }

    fn count_in(partition: &Path) -> Vec<(char, usize)> {
        let table = Arc::new(LsmTable::open(&partition.join("table")).unwrap());
        let disk = Arc::new(RealDisk::open(partition.join("log")).unwrap());
        let config = log::Config { segment_bytes: 2 << 20, sync: true };
        let opened =
            reveille_store::open::open(disk, table, config, 1 << 20, Box::new(|| 1)).unwrap();
        let reader = opened.state.reader();
        let first_bytes = 0..=254u8;
        let counted = first_bytes.filter_map(|first| {
            let found = reader.range(&[first], &[first + 1], 10_000).unwrap().len();
            (found > 0).then_some((char::from(first), found))
        });
        counted.collect()
    }
}

/// Creates streams that end by themselves, lets them, and counts what is left of them.
async fn left_of(header: (&str, &str)) -> Vec<(char, usize)> {
    let directory = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    // There is one sleeper to wait for.
    let setup = Setup { partitions: Some(1), ..Setup::on(&clock) };
    let server = setup.start_in(directory.path()).await;
    // So that the index has been looked at before.
    clock.sleeper(60_000).await;
    clock.advance(60_000);
    clock.sleeper(60_000).await;
    let producer = [TEXT, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")];
    for number in 0..20 {
        let path = format!("/s/{number}");
        server.ask("PUT", &path, &[TEXT, header], &[b'x'; 10_000]).await.expect(201);
        server.ask("POST", &path, &producer, b"x").await;
    }
    for _ in 0..5 {
        clock.advance(100_000);
        // Nobody asks for the streams: they end by themselves.
        clock.sleeper(60_000).await;
    }
    server.stop().await;
    remains::count(directory.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ended_by_itself_leaves_nothing_behind() {
    let nothing = left_of(("stream-ttl", "100000000")).await;
    let of_sliding = left_of(TTL).await;
    let of_fixed = left_of(("stream-expires-at", "2025-06-01T00:02:40Z")).await;
    println!("{nothing:?} {of_sliding:?} {of_fixed:?}");
    let total = |left: &[(char, usize)]| left.iter().map(|(_, count)| count).sum::<usize>();
    assert!(total(&nothing) > 60, "{nothing:?}");
    assert!(total(&of_sliding) < 8, "{of_sliding:?}");
    assert!(total(&of_fixed) < 8, "{of_fixed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_over_when_it_began_leaves_nothing_behind() {
    let of_none = left_of(("stream-ttl", "0")).await;
    assert!(of_none.iter().map(|(_, count)| count).sum::<usize>() < 8, "{of_none:?}");
    let of_past = left_of(("stream-expires-at", "2000-01-01T00:00:00Z")).await;
    assert!(of_past.iter().map(|(_, count)| count).sum::<usize>() < 8, "{of_past:?}");
}
