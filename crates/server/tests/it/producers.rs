//! Idempotent producers and writers at once: stored once, in order, whole.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");

fn tagged<'a>(id: &'a str, epoch: &'a str, seq: &'a str) -> [(&'a str, &'a str); 4] {
    [TEXT, ("producer-id", id), ("producer-epoch", epoch), ("producer-seq", seq)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_repetitions_is_stored_once() {
    let server = Arc::new(Setup::default().start().await);
    server.create("/s", "text/plain").await;
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let server = server.clone();
        tasks.spawn(async move {
            let mut connection = server.connect().await;
            let mut fresh = Vec::new();
            for seq in 0..20 {
                let text = seq.to_string();
                let headers = tagged("p", "0", &text);
                let body = format!("{seq};");
                // Whoever is ahead of the others leaves a gap for them: none of ours is ahead.
                let answer = connection.ask("POST", "/s", &headers, body.as_bytes()).await;
                match answer.status() {
                    200 => fresh.push(seq),
                    204 => assert!(answer.need("producer-seq").parse::<u64>().unwrap() >= seq),
                    _ => panic!("{answer}"),
                }
            }
            fresh
        });
    }
    let mut accepted: Vec<u64> = tasks.join_all().await.concat();
    accepted.sort_unstable();
    assert_eq!(accepted, (0..20).collect::<Vec<_>>(), "each was new to the server once");
    let expected: String = (0..20).map(|seq| format!("{seq};")).collect();
    assert_eq!(server.get("/s").await.expect(200).text(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_sent_by_thirty_two_at_once_is_stored_once() {
    let server = Arc::new(Setup::default().start().await);
    server.create("/s", "text/plain").await;
    for round in 0..10 {
        let mut tasks = JoinSet::new();
        for _ in 0..32 {
            let server = server.clone();
            tasks.spawn(async move {
                let seq = round.to_string();
                server.ask("POST", "/s", &tagged("p", "7", &seq), b"x").await.status()
            });
        }
        let mut counted = HashMap::new();
        for status in tasks.join_all().await {
            *counted.entry(status).or_insert(0) += 1;
        }
        assert_eq!(counted, HashMap::from([(200, 1), (204, 31)]), "round {round}");
    }
    assert_eq!(server.get("/s").await.expect(200).text(), "x".repeat(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_restarts_fences_the_one_before() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    server.ask("POST", "/s", &tagged("p", "1", "0"), b"a").await.expect(200);
    server.ask("POST", "/s", &tagged("p", "2", "0"), b"b").await.expect(200);
    for seq in ["0", "1", "9"] {
        let answer = server.ask("POST", "/s", &tagged("p", "1", seq), b"x").await.expect(403);
        assert_eq!(
            (answer.code().as_str(), answer.need("producer-epoch")),
            ("PRODUCER_FENCED", "2")
        );
    }
    let answer = server.ask("POST", "/s", &tagged("p", "2", "5"), b"x").await.expect(409);
    assert_eq!(answer.need("producer-expected-seq"), "1");
    assert_eq!(answer.need("producer-received-seq"), "5");
    server.ask("POST", "/s", &tagged("p", "3", "1"), b"x").await.expect(400);
    // Another producer, and the largest numbers there are.
    let most = "9007199254740991";
    server.ask("POST", "/s", &tagged("q", most, "0"), b"c").await.expect(200);
    assert_eq!(server.get("/s").await.expect(200).text(), "abc");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_that_closed_may_be_repeated_and_no_other() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    let close = ("stream-closed", "true");
    let closing = [&tagged("p", "0", "0")[..], &[close]].concat();
    let first = server.ask("POST", "/s", &closing, b"last").await.expect(200);
    assert_eq!(first.need("stream-closed"), "true");
    for body in ["last", "other", ""] {
        let again = server.ask("POST", "/s", &closing, body.as_bytes()).await.expect(204);
        assert_eq!(again.need("stream-closed"), "true");
        assert_eq!(again.next_offset(), first.next_offset());
    }
    for other in [tagged("p", "0", "1"), tagged("q", "0", "0"), tagged("p", "1", "0")] {
        for close in [&[close][..], &[]] {
            let headers = [&other[..], close].concat();
            let answer = server.ask("POST", "/s", &headers, b"x").await.expect(409);
            assert_eq!(answer.need("stream-closed"), "true");
            assert_eq!(answer.next_offset(), first.next_offset());
        }
    }
    assert_eq!(server.get("/s").await.expect(200).text(), "last");
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_are_remembered_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    server.create("/s", "text/plain").await;
    server.ask("POST", "/s", &tagged("p", "1", "0"), b"a").await.expect(200);
    server.ask("POST", "/s", &[TEXT, ("stream-seq", "m")], b"b").await.expect(204);
    server.stop().await;
    let server = Setup::default().start_in(directory.path()).await;
    server.ask("POST", "/s", &tagged("p", "1", "0"), b"a").await.expect(204);
    server.ask("POST", "/s", &tagged("p", "0", "1"), b"x").await.expect(403);
    server.ask("POST", "/s", &[TEXT, ("stream-seq", "m")], b"x").await.expect(409);
    assert_eq!(server.get("/s").await.expect(200).text(), "ab");
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_at_once_are_all_stored_whole_and_at_the_offsets_they_were_told() {
    let server = Arc::new(Setup::default().start().await);
    server.create("/s", "text/plain").await;
    let mut tasks = JoinSet::new();
    for writer in 0..32 {
        let server = server.clone();
        tasks.spawn(async move {
            let mut connection = server.connect().await;
            let mut told = Vec::new();
            for number in 0..30 {
                let body = format!("<{writer}.{number}>");
                let answer =
                    connection.ask("POST", "/s", &[TEXT], body.as_bytes()).await.expect(204);
                told.push((answer.next_offset().to_owned(), body));
            }
            told
        });
    }
    let mut told: Vec<(String, String)> = tasks.join_all().await.concat();
    told.sort();
    let text = server.get("/s").await.expect(200).text();
    let mut end = 0;
    for (offset, body) in told {
        end += body.len();
        assert_eq!(offset, format!("0000000000000000_{end:016}"));
        assert_eq!(text[end - body.len()..end], body);
    }
    assert_eq!(end, text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_create_one_stream_one_does() {
    let server = Arc::new(Setup::default().start().await);
    for round in 0..10 {
        let mut tasks = JoinSet::new();
        for creator in 0..32 {
            let server = server.clone();
            tasks.spawn(async move {
                let kind = if creator % 2 == 0 { "text/plain" } else { "application/json" };
                let headers = [("content-type", kind)];
                server.ask("PUT", &format!("/{round}"), &headers, b"1").await.status()
            });
        }
        let statuses = tasks.join_all().await;
        let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
        assert_eq!((count(201), count(200), count(409)), (1, 15, 16), "{statuses:?}");
        let body = server.get(&format!("/{round}")).await.expect(200).text();
        assert!(["1", "[1]"].contains(&body.as_str()), "{body}");
    }
}
