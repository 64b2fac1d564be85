//! Reads that are large, or go on while the stream changes under them.

use std::io::Read as _;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::harness::*;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A message of about 20 kB.
fn message(number: usize) -> String {
    format!("{{\"n\":{number},\"p\":\"{}\"}}", "abcdefghij".repeat(2_000))
}

/// A JSON stream of 20 MB in a thousand appends; returns every offset, the first one included.
async fn fill(server: &TestServer, path: &str) -> Vec<String> {
    server.create(path, "application/json").await;
    let mut connection = server.connect().await;
    let mut offsets = vec!["0000000000000000_0000000000000000".to_owned()];
    for number in 0..1_000 {
        // A table that is behind asks for patience.
        let answer = eventually("an append", async || {
            let answer = connection.ask("POST", path, &[JSON], message(number).as_bytes()).await;
            (answer.status() != 503).then_some(answer)
        })
        .await;
        offsets.push(answer.expect(204).next_offset().to_owned());
    }
    offsets
}

/// The numbers of the messages in an answer, which is valid JSON.
fn numbers(answer: &Answer) -> Vec<u64> {
    let messages: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).unwrap();
    messages.iter().map(|message| message["n"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_stream_is_read_whole_and_from_every_offset_before_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::large().start_in(directory.path()).await;
    let offsets = fill(&server, "/j").await;
    check_reads(&server, &offsets).await;
    server.stop().await;
    let server = Setup::large().start_in(directory.path()).await;
    check_reads(&server, &offsets).await;
}

async fn check_reads(server: &TestServer, offsets: &[String]) {
    let whole = server.get("/j").await.expect(200);
    let expected: Vec<String> = (0..1_000).map(message).collect();
    assert!(whole.text() == format!("[{}]", expected.join(",")), "byte by byte");
    assert_eq!(whole.need("content-length"), whole.body.len().to_string());
    assert_eq!(whole.next_offset(), offsets[1_000]);
    let mut connection = server.connect().await;
    // Every offset near the end, and some all the way.
    let from = (0..1_000).step_by(111).chain(960..=1_000);
    for at in from {
        let target = format!("/j?offset={}", offsets[at]);
        let answer = connection.ask("GET", &target, &[], b"").await.expect(200);
        let expected: Vec<u64> = (at as u64..1_000).collect();
        assert_eq!(numbers(&answer), expected, "from {at}");
        assert_eq!(answer.next_offset(), offsets[1_000]);
        assert_eq!(answer.need("stream-up-to-date"), "true");
    }
    // An offset is an end of an append and nothing else.
    let (_, first) = offsets[1].split_once('_').unwrap();
    let first: usize = first.parse().unwrap();
    for position in [1, first - 1, first + 1, 500 * first + 1] {
        connection.ask("GET", &format!("/j?offset=0_{position}"), &[], b"").await.expect(400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_during_appends_are_prefixes() {
    let server = Setup::large().start().await;
    server.create("/j", "application/json").await;
    let writer = async {
        let mut connection = server.connect().await;
        for number in 0..600 {
            connection.ask("POST", "/j", &[JSON], message(number).as_bytes()).await.expect(204);
        }
    };
    let reader = async {
        let mut connection = server.connect().await;
        let mut before = 0;
        while before < 600 {
            let answer = connection.ask("GET", "/j", &[], b"").await.expect(200);
            let seen = numbers(&answer);
            let expected: Vec<u64> = (0..seen.len() as u64).collect();
            assert_eq!(seen, expected);
            assert!(seen.len() >= before, "{before} messages, then {}", seen.len());
            before = seen.len();
        }
    };
    let follower = async {
        let mut connection = server.connect().await;
        let (mut offset, mut next) = ("-1".to_owned(), 0);
        while next < 600 {
            let answer =
                connection.ask("GET", &format!("/j?offset={offset}"), &[], b"").await.expect(200);
            for number in numbers(&answer) {
                assert_eq!(number, next, "from {offset}");
                next += 1;
            }
            offset = answer.next_offset().to_owned();
        }
    };
    tokio::join!(writer, reader, follower);
}

/// Part of a stream must never be taken for all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_stream_is_deleted_under_it_is_whole_or_cut() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::large().start_in(directory.path()).await;
    fill(&server, "/j").await;
    server.stop().await;
    let server = Setup::large().start_in(directory.path()).await;
    let mut plain = server.connect().await;
    plain.send(&request("GET", "/j", &[], b"")).await;
    let mut packed = server.connect().await;
    packed.send(&request("GET", "/j", &[("accept-encoding", "gzip")], b"")).await;
    let mut begun = Vec::new();
    for mut connection in [plain, packed] {
        let head = connection.head("GET").await.unwrap();
        let Piece::Bytes(first) = connection.piece().await else { panic!("no body") };
        begun.push((connection, head, first));
    }
    server.delete("/j").await.expect(204);
    server.get("/j").await.expect(404);
    // The bytes go too, by themselves; what comes after pushes that into the table.
    fill(&server, "/k").await;
    fill(&server, "/l").await;
    eventually("the clean-up to be applied", async || {
        (server.metric("reveille_overlay_bytes").await < 32 << 20).then_some(())
    })
    .await;
    for (mut connection, head, mut body) in begun {
        let end = loop {
            match connection.piece().await {
                Piece::Bytes(piece) => body.extend_from_slice(&piece),
                end => break end,
            }
        };
        if end == Piece::End {
            if head.get("content-encoding") == Some("gzip") {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
                body = plain;
            }
            let messages: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap();
            assert_eq!(messages.len(), 1_000);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_stream_that_comes_and_goes_see_it_or_see_nothing() {
    let server = Arc::new(Setup::default().start().await);
    let body = vec![b'x'; 40_000];
    let writer = async {
        let mut connection = server.connect().await;
        let headers = [("content-type", "text/plain")];
        for _ in 0..500 {
            connection.ask("PUT", "/s", &headers, &body).await.expect(201);
            connection.ask("DELETE", "/s", &[], b"").await.expect(204);
        }
    };
    let mut readers = JoinSet::new();
    for number in 0..12 {
        let target = ["/s", "/s?offset=-1", "/s?offset=0_0"][number % 3];
        let (server, body) = (server.clone(), body.clone());
        readers.spawn(async move {
            let mut connection = server.connect().await;
            for _ in 0..1_500 {
                let answer = connection.ask("GET", target, &[], b"").await;
                match answer.status() {
                    200 => assert!(answer.body == body, "{} bytes", answer.body.len()),
                    404 => {}
                    _ => panic!("{answer}"),
                }
            }
        });
    }
    tokio::join!(writer, readers.join_all());
}

/// The same for streams that are on disk: a read that comes too late finds no stream, not damage.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_stored_stream_that_is_deleted_see_it_or_see_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    let body = vec![b'x'; 40_000];
    let headers = [("content-type", "text/plain")];
    for number in 0..150 {
        server.ask("PUT", &format!("/s/{number}"), &headers, &body).await.expect(201);
    }
    server.stop().await;
    let server = Arc::new(Setup::default().start_in(directory.path()).await);
    let mut readers = JoinSet::new();
    for _ in 0..16 {
        let (server, body) = (server.clone(), body.clone());
        readers.spawn(async move {
            let mut connection = server.connect().await;
            let mut number = 0;
            while number < 150 {
                let target = format!("/s/{number}");
                let answer = connection.ask("GET", &target, &[], b"").await;
                match answer.status() {
                    200 => assert!(answer.body == body, "{} bytes", answer.body.len()),
                    404 => number += 1,
                    _ => panic!("{answer}"),
                }
            }
        });
    }
    let mut connection = server.connect().await;
    for number in 0..150 {
        connection.ask("DELETE", &format!("/s/{number}"), &[], b"").await.expect(204);
    }
    readers.join_all().await;
}
