//! However many clients and however large their bodies, memory stays within a fixed budget.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::harness::*;

const BINARY: &str = "application/octet-stream";
const MIB: usize = 1 << 20;
/// 64 MiB of bodies, 64 MiB of overlay, the batches between them, the table's caches, and what the
/// allocator keeps: more is never needed. (The 64 bodies alone would be as much as this.)
const BUDGET_MIB: u64 = 640;

/// Byte `at` of the body of this client: no two bodies are alike, and none is held by the test.
fn block(client: usize, number: usize) -> Vec<u8> {
    let seed = client * 131 + number * 7;
    (0..64 << 10).map(|at| u8::try_from((at / 251 + at + seed) % 256).unwrap()).collect()
}

/// Sends a body of 10 MiB in blocks, every other client without saying how long it will be; the
/// status of the answer.
async fn upload(server: Arc<TestServer>, client: usize) -> u16 {
    let chunked = client % 2 == 1;
    let length = (10 * MIB).to_string();
    let framing =
        if chunked { ("transfer-encoding", "chunked") } else { ("content-length", &*length) };
    let mut head = head_of("POST", &format!("/s/{client}"), &[("content-type", BINARY), framing]);
    head.extend_from_slice(b"\r\n");
    let mut connection = server.connect().await;
    let mut sending = connection.try_send(&head).await;
    for number in 0..160 {
        if sending.is_err() {
            break;
        }
        let mut part = block(client, number);
        if chunked {
            part.splice(..0, *b"10000\r\n");
            part.extend_from_slice(if number == 159 { b"\r\n0\r\n\r\n" } else { b"\r\n" });
        }
        sending = connection.try_send(&part).await;
    }
    let answer = connection.answer("POST").await;
    if answer.status() == 503 {
        assert_eq!((answer.code().as_str(), answer.need("retry-after")), ("BUSY", "1"));
    }
    answer.status()
}

/// Reads a body of 10 MiB without holding it.
async fn is_stored(server: &TestServer, client: usize) -> bool {
    let mut connection = server.connect().await;
    connection.send(&request("GET", &format!("/s/{client}"), &[], b"")).await;
    let head = connection.head("GET").await.unwrap();
    if head.get("content-length") == Some("0") {
        return false;
    }
    assert_eq!(head.get("content-length"), Some((10 * MIB).to_string().as_str()));
    let (mut pending, mut number) = (Vec::new(), 0);
    loop {
        match connection.piece().await {
            Piece::Bytes(bytes) => pending.extend_from_slice(&bytes),
            Piece::End => break,
            Piece::Cut => panic!("cut off"),
        }
        while pending.len() >= 64 << 10 {
            let rest = pending.split_off(64 << 10);
            assert!(pending == block(client, number), "block {number} of client {client}");
            pending = rest;
            number += 1;
        }
    }
    assert_eq!((number, pending.len()), (160, 0));
    true
}

async fn sixty_four_uploads() {
    let server = Arc::new(Setup::large().start().await);
    for client in 0..64 {
        server.create(&format!("/s/{client}"), BINARY).await;
    }
    let memory = Memory::measure();
    let mut uploads = JoinSet::new();
    for client in 0..64 {
        let server = server.clone();
        uploads.spawn(async move { (client, upload(server, client).await) });
    }
    let outcomes = uploads.join_all().await;
    let grown = memory.grown_mib();
    let done = outcomes.iter().filter(|(_, status)| *status == 204).count();
    println!("{done} of 64 stored, memory grew by {grown} MiB");
    assert!(done >= 4, "some get through");
    assert!(grown < BUDGET_MIB, "memory grew by {grown} MiB");
    for (client, status) in outcomes {
        assert!([204, 503].contains(&status), "{status}");
        assert_eq!(is_stored(&server, client).await, status == 204, "client {client}");
    }
}

#[test]
fn sixty_four_clients_that_send_10_mib_at_once_stay_within_the_budget() {
    alone(
        "memory::sixty_four_clients_that_send_10_mib_at_once_stay_within_the_budget",
        sixty_four_uploads(),
    );
}

/// Uploads that are announced and never sent take nothing.
#[test]
fn announced_bodies_take_no_memory() {
    alone("memory::announced_bodies_take_no_memory", async {
        let server = Setup::large().start().await;
        server.create("/s/0", BINARY).await;
        let memory = Memory::measure();
        let mut connections = Vec::new();
        for length in [11_000_000, 10 * MIB].repeat(100) {
            let length = length.to_string();
            let headers = [("content-type", BINARY), ("content-length", &length)];
            let mut connection = server.connect().await;
            let head = [head_of("POST", "/s/0", &headers), b"\r\n".to_vec()].concat();
            connection.send(&head).await;
            connections.push(connection);
        }
        server.get("/healthz").await.expect(200);
        let grown = memory.grown_mib();
        assert!(grown < 50, "memory grew by {grown} MiB");
    });
}

/// A disk that others keep busy takes long over what these tests write: whoever is told to come
/// again does so.
async fn once_there_is_room(ask: impl AsyncFn() -> u16) -> u16 {
    for _ in 0..60 {
        match ask().await {
            503 => {}
            status => return status,
        }
    }
    panic!("there is never room");
}

async fn create(server: &TestServer, path: &str) {
    let headers = [("content-type", BINARY)];
    let ask = async || server.ask("PUT", path, &headers, b"").await.status();
    assert_eq!(once_there_is_room(ask).await, 201);
}

/// Streams of 10 MiB in one append each, which are on disk and nowhere else.
async fn with_large_appends(count: usize, directory: &std::path::Path) -> TestServer {
    let server = Arc::new(Setup::large().start_in(directory).await);
    for client in 0..count {
        create(&server, &format!("/s/{client}")).await;
        let ask = async || upload(server.clone(), client).await;
        assert_eq!(once_there_is_room(ask).await, 204);
    }
    Arc::into_inner(server).unwrap().stop().await;
    Setup::large().start_in(directory).await
}

#[test]
fn readers_that_do_not_read_stay_within_the_budget() {
    alone("memory::readers_that_do_not_read_stay_within_the_budget", async {
        let directory = tempfile::tempdir().unwrap();
        let server = with_large_appends(12, directory.path()).await;
        let memory = Memory::measure();
        let mut stalled = Vec::new();
        for number in 0..120 {
            let mut connection = server.connect().await;
            connection.send(&request("GET", &format!("/s/{}", number % 12), &[], b"")).await;
            assert_eq!(connection.head("GET").await.unwrap().status, 200);
            stalled.push(connection);
        }
        let grown = memory.grown_mib();
        println!("memory grew by {grown} MiB");
        assert!(grown < BUDGET_MIB, "memory grew by {grown} MiB");
        assert!(is_stored(&server, 0).await);
    });
}

#[test]
fn forks_of_large_appends_stay_within_the_budget() {
    alone("memory::forks_of_large_appends_stay_within_the_budget", async {
        let directory = tempfile::tempdir().unwrap();
        let server = Arc::new(with_large_appends(12, directory.path()).await);
        let memory = Memory::measure();
        let mut forks = JoinSet::new();
        for number in 0..120 {
            let server = server.clone();
            forks.spawn(async move {
                let source = format!("/s/{}", number % 12);
                let headers = [
                    ("stream-forked-from", &*source),
                    ("stream-fork-offset", "0000000000000000_0000000000000000"),
                    ("stream-fork-sub-offset", "10485760"),
                ];
                server.ask("PUT", &format!("/fork/{number}"), &headers, b"").await.status()
            });
        }
        let outcomes = forks.join_all().await;
        let grown = memory.grown_mib();
        println!("memory grew by {grown} MiB");
        assert!(outcomes.iter().all(|status| [201, 503].contains(status)), "{outcomes:?}");
        assert!(grown < BUDGET_MIB, "memory grew by {grown} MiB");
    });
}

#[test]
fn live_readers_that_do_not_read_stay_within_the_budget() {
    alone("memory::live_readers_that_do_not_read_stay_within_the_budget", async {
        let server = Setup::large().start().await;
        let mut stalled = Vec::new();
        for stream in 0..8 {
            let path = format!("/s/{stream}");
            create(&server, &path).await;
            let mut connection = server.connect().await;
            connection.send(&request("GET", &format!("{path}?offset=-1&live=sse"), &[], b"")).await;
            assert_eq!(connection.head("GET").await.unwrap().status, 200);
            stalled.push(connection);
        }
        let memory = Memory::measure();
        let body = vec![7; 4 * MIB];
        for _ in 0..18 {
            for stream in 0..8 {
                let path = format!("/s/{stream}");
                let ask = async || server.append(&path, BINARY, &body).await.status();
                assert_eq!(once_there_is_room(ask).await, 204);
            }
        }
        let grown = memory.grown_mib();
        println!("memory grew by {grown} MiB");
        assert!(grown < BUDGET_MIB, "memory grew by {grown} MiB");
    });
}

/// What was appended is there once, and not once more for each of its readers.
#[test]
fn two_hundred_live_readers_that_do_not_read_share_what_was_appended() {
    let name = "memory::two_hundred_live_readers_that_do_not_read_share_what_was_appended";
    alone(name, async {
        let server = Setup::large().start().await;
        server.create("/s", BINARY).await;
        let mut stalled = Vec::new();
        for _ in 0..200 {
            let mut connection = server.connect().await;
            connection.send(&request("GET", "/s?offset=-1&live=sse", &[], b"")).await;
            assert_eq!(connection.head("GET").await.unwrap().status, 200);
            stalled.push(connection);
        }
        let memory = Memory::measure();
        server.append("/s", BINARY, &vec![7; 10 * MIB]).await.expect(204);
        // As much as the sockets take, and what the budget lets them hold besides.
        eventually("the readers to stand still", async || {
            (server.engine.reply_bytes() > 0).then_some(())
        })
        .await;
        stays("within the budget", async || memory.grown_mib() < 160).await;
        println!("memory grew by {} MiB", memory.grown_mib());
    });
}
