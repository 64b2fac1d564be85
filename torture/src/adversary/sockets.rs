//! Attacks with sockets: those that say nothing, drip, never read.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Target;

/// More than the server may open.
const SOCKETS: usize = 400;
const PIPELINES: usize = 120;
/// As many as one tenant may have and still be let in to append.
const READERS: usize = 40;
pub(super) const LARGE_BYTES: usize = 10 << 20;

pub(super) fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Whether the server still holds the other end.
pub(super) fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0];
    match stream.peek(&mut byte) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Opens sockets again as they are closed, until the attack is over. Returns how many there were.
fn keep_open(target: &Target, count: usize, mut begin: impl FnMut(&mut TcpStream)) -> usize {
    let (mut sockets, mut opened): (Vec<TcpStream>, usize) = (Vec::new(), 0);
    while !target.is_over() {
        sockets.retain(is_open);
        // A few at a time: who waits to be accepted is not what this is about.
        for _ in 0..(count - sockets.len().min(count)).min(32) {
            let Some(mut stream) = connect(target.server) else { break };
            begin(&mut stream);
            sockets.push(stream);
            opened += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    opened
}

/// Strangers who connect and say nothing.
pub(super) fn idle(target: &Target) -> anyhow::Result<String> {
    let opened = keep_open(target, SOCKETS, |_| {});
    Ok(format!("{opened} silent sockets"))
}

/// Strangers, and the loud tenant, who announce ten megabytes and send a byte now and then.
pub(super) fn dripping(target: &Target) -> anyhow::Result<String> {
    let mut number = 0;
    let mut sockets: Vec<TcpStream> = Vec::new();
    let heads = [
        "POST /callback/a:%2Fb HTTP/1.1\r\nauthorization: Bearer no-such-token\r\n".to_owned(),
        format!("POST /loud HTTP/1.1\r\nauthorization: {}\r\n", target.authorization),
        format!("POST /ingest HTTP/1.1\r\nauthorization: {}\r\n", target.authorization),
    ];
    while !target.is_over() {
        sockets.retain(is_open);
        for _ in 0..(SOCKETS - sockets.len().min(SOCKETS)).min(32) {
            let Some(mut stream) = connect(target.server) else { break };
            let head = heads.get(number % heads.len()).map_or("", String::as_str);
            let head = format!(
                "{head}host: {}\r\ncontent-type: application/json\r\n\
                 content-length: {LARGE_BYTES}\r\n\r\n[",
                target.server
            );
            number += 1;
            // Whoever is refused comes again.
            let _ = stream.write_all(head.as_bytes());
            sockets.push(stream);
        }
        for stream in &mut sockets {
            let _ = stream.write_all(b" ");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(format!("{number} dripping bodies"))
}

/// Live readers that never read, beside appends of ten megabytes.
pub(super) fn slow_readers(target: &Target) -> anyhow::Result<String> {
    let created = target.send("PUT", "/loud/live", b"")?;
    anyhow::ensure!(created.status == 201, "the stream of the attack: {}", created.status);
    let request = format!(
        "GET /loud/live?offset=-1&live=sse HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\r\n",
        target.server, target.authorization
    );
    let large = format!("[\"{}\"]", "x".repeat(LARGE_BYTES - 64));
    let mut readers: Vec<TcpStream> = Vec::new();
    let (mut opened, mut appended) = (0, 0);
    while !target.is_over() {
        readers.retain(is_open);
        while readers.len() < READERS {
            let Some(mut stream) = connect(target.server) else { break };
            let _ = stream.write_all(request.as_bytes());
            readers.push(stream);
            opened += 1;
        }
        if let Ok(answer) = target.send("POST", "/loud/live", large.as_bytes()) {
            appended += usize::from(answer.status == 204);
        }
    }
    Ok(format!("{opened} readers that do not read, {appended} appends of 10 MB"))
}

/// Clients that send one request after another and never read an answer.
pub(super) fn pipelining(target: &Target) -> anyhow::Result<String> {
    let body = format!("[\"{}\"]", "y".repeat(1 << 20));
    let created = target.send("PUT", "/loud/large", body.as_bytes())?;
    anyhow::ensure!(created.status == 201, "the stream of the attack: {}", created.status);
    let request = format!(
        "GET /loud/large HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\r\n",
        target.server, target.authorization
    );
    let opened = keep_open(target, PIPELINES, |stream| {
        for _ in 0..50 {
            if stream.write_all(request.as_bytes()).is_err() {
                break;
            }
        }
    });
    Ok(format!("{opened} pipelines that nobody reads"))
}
