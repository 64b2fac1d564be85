//! Attacks over HTTP/2, where one connection carries many requests. The few frames that they need
//! are written here byte by byte: a client that behaves would not do.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use super::Target;
use super::sockets::{LARGE_BYTES, connect, is_open};

const CONNECTIONS: usize = 6;
const STREAMS: u32 = 200;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The setting of how much a stream may be sent before its reader asks for more.
const INITIAL_WINDOW_SIZE: u16 = 4;
const WINDOW_MAX: u32 = 0x7fff_ffff;
/// What a connection may be sent at the beginning.
const CONNECTION_WINDOW: u32 = 65_535;

/// Frames to be written.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    fn push(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
        self.0.extend_from_slice(length.get(1..).unwrap_or_default());
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
    }

    /// A connection whose client says that it takes whatever there is.
    fn begin() -> Frames {
        let mut frames = Frames(PREFACE.to_vec());
        let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        setting.extend_from_slice(&WINDOW_MAX.to_be_bytes());
        frames.push(SETTINGS, 0, 0, &setting);
        frames.push(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - CONNECTION_WINDOW).to_be_bytes());
        frames
    }

    fn request(&mut self, stream: u32, headers: &[(&str, &str)], has_body: bool) {
        let mut block = Vec::new();
        for (name, value) in headers {
            // A literal that is not remembered, without compression.
            block.push(0);
            push_text(&mut block, name);
            push_text(&mut block, value);
        }
        let end = if has_body { 0 } else { END_STREAM };
        self.push(HEADERS, END_HEADERS | end, stream, &block);
    }
}

/// A text as HPACK writes it (RFC 7541, 5.1 and 5.2).
fn push_text(block: &mut Vec<u8>, text: &str) {
    const PREFIX_MAX: usize = 127;
    if text.len() < PREFIX_MAX {
        block.push(u8::try_from(text.len()).unwrap_or(0));
    } else {
        block.push(0x7f);
        let mut rest = text.len() - PREFIX_MAX;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap_or(0) | 0x80);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap_or(0));
    }
    block.extend_from_slice(text.as_bytes());
}

/// The numbers that a client's requests have.
fn stream_numbers() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|number| number * 2 + 1)
}

/// Live readers, hundreds on a connection, that never read, beside appends of ten megabytes.
pub(super) fn readers(target: &Target) -> anyhow::Result<String> {
    let created = target.send("PUT", "/loud/live", b"")?;
    anyhow::ensure!(created.status == 201, "the stream of the attack: {}", created.status);
    let authority = target.server.to_string();
    let request = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/loud/live?offset=-1&live=sse"),
        (":authority", &*authority),
        ("authorization", &*target.authorization),
    ];
    let mut frames = Frames::begin();
    for number in stream_numbers() {
        frames.request(number, &request, false);
    }
    let large = format!("[\"{}\"]", "x".repeat(LARGE_BYTES - 64));
    let (mut connections, mut opened, mut appended): (Vec<TcpStream>, _, _) = (Vec::new(), 0, 0);
    while !target.is_over() {
        connections.retain(is_open);
        while connections.len() < CONNECTIONS {
            let Some(mut stream) = connect(target.server) else { break };
            let _ = stream.write_all(&frames.0);
            connections.push(stream);
            opened += 1;
        }
        if let Ok(answer) = target.send("POST", "/loud/live", large.as_bytes()) {
            appended += usize::from(answer.status == 204);
        }
    }
    Ok(format!("{opened} connections of {STREAMS} readers each, {appended} appends of 10 MB"))
}

/// Strangers, and the loud tenant, who announce ten megabytes on each of hundreds of streams and
/// send a byte now and then.
pub(super) fn bodies(target: &Target) -> anyhow::Result<String> {
    let authority = target.server.to_string();
    let length = LARGE_BYTES.to_string();
    let mut frames = Frames::begin();
    for (number, index) in stream_numbers().zip(0..) {
        let (path, authorization) = match index % 3 {
            0 => ("/callback/a:%2Fb", "Bearer no-such-token"),
            1 => ("/loud/body", &*target.authorization),
            _ => ("/ingest", &*target.authorization),
        };
        let request = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", &*authority),
            ("authorization", authorization),
            ("content-type", "application/json"),
            ("content-length", &*length),
        ];
        frames.request(number, &request, true);
    }
    let mut drip = Frames::default();
    for number in stream_numbers() {
        drip.push(DATA, 0, number, b" ");
    }
    let (mut connections, mut opened): (Vec<TcpStream>, usize) = (Vec::new(), 0);
    while !target.is_over() {
        connections.retain(is_open);
        while connections.len() < CONNECTIONS {
            let Some(mut stream) = connect(target.server) else { break };
            let _ = stream.write_all(&frames.0);
            connections.push(stream);
            opened += 1;
        }
        for stream in &mut connections {
            let _ = stream.write_all(&drip.0);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(format!("{opened} connections of {STREAMS} dripping bodies each"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_the_protocol_has_it() {
        let mut frames = Frames::default();
        frames.push(DATA, END_STREAM, 5, b"ab");
        assert_eq!(frames.0, [0, 0, 2, 0, 1, 0, 0, 0, 5, b'a', b'b']);
    }

    #[test]
    fn a_long_text_has_its_length_in_several_bytes() {
        let mut block = Vec::new();
        push_text(&mut block, &"x".repeat(1_337));
        assert_eq!(block.get(..3), Some(&[0x7f, 0x80 | 0x3a, 0x09][..]));
        assert_eq!(block.len(), 3 + 1_337);
    }
}
