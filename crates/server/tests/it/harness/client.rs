//! An HTTP/1.1 client that does only what it is told, so that it can do it wrong.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::guarded;

/// Headers of a request or of an answer, names in lower case.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes that came and were not taken yet.
    buffer: Vec<u8>,
    framing: Framing,
}

/// How much of the current answer's body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilEnd,
}

/// The first lines of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    /// False if the connection ended before the body did.
    pub(crate) whole: bool,
}

/// The bytes of a request. A length is announced for every body and for every POST and PUT.
pub(crate) fn request(method: &str, target: &str, headers: Headers<'_>, body: &[u8]) -> Vec<u8> {
    let mut out = head_of(method, target, headers);
    if !body.is_empty() || matches!(method, "POST" | "PUT") {
        out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// The first lines of a request, without the empty line that ends them.
pub(crate) fn head_of(method: &str, target: &str, headers: Headers<'_>) -> Vec<u8> {
    let mut out = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.into_bytes()
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Connection {
        let stream = guarded("a connection", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, buffer: Vec::new(), framing: Framing::UntilEnd }
    }

    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.unwrap();
    }

    /// Sends bytes to a server that may have hung up.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        guarded("the server to read", self.stream.write_all(bytes)).await
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn finish_sending(&mut self) {
        guarded("the socket to close", self.stream.shutdown()).await.unwrap();
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: Headers<'_>,
        body: &[u8],
    ) -> Answer {
        self.send(&request(method, target, headers, body)).await;
        self.answer(method).await
    }

    /// Reads the whole answer to a request with this method.
    pub(crate) async fn answer(&mut self, method: &str) -> Answer {
        let head = self.head(method).await.expect("an answer before the connection ends");
        let mut body = Vec::new();
        loop {
            match self.piece().await {
                Piece::Bytes(bytes) => body.extend_from_slice(&bytes),
                Piece::End => return Answer { head, body, whole: true },
                Piece::Cut => return Answer { head, body, whole: false },
            }
        }
    }

    /// Reads the first lines of an answer; `None` if the connection ended instead.
    pub(crate) async fn head(&mut self, method: &str) -> Option<Head> {
        let end = loop {
            match find(&self.buffer, b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.fill().await => {}
                None if self.buffer.is_empty() => return None,
                None => panic!("half an answer: {}", String::from_utf8_lossy(&self.buffer)),
            }
        };
        let lines: Vec<u8> = self.buffer.drain(..end).collect();
        let head = parse_head(&String::from_utf8(lines).unwrap());
        let bare = method == "HEAD" || head.status / 100 == 1 || [204, 304].contains(&head.status);
        self.framing = if bare {
            Framing::Length(0)
        } else if head.get("transfer-encoding") == Some("chunked") {
            Framing::Chunked
        } else if let Some(length) = head.get("content-length") {
            Framing::Length(length.parse().unwrap())
        } else {
            Framing::UntilEnd
        };
        Some(head)
    }

    /// The next piece of the current answer's body.
    pub(crate) async fn piece(&mut self) -> Piece {
        match self.framing {
            Framing::Length(0) => Piece::End,
            Framing::Length(left) => {
                if self.buffer.is_empty() && !self.fill().await {
                    return Piece::Cut;
                }
                let count = left.min(self.buffer.len());
                self.framing = Framing::Length(left - count);
                Piece::Bytes(self.buffer.drain(..count).collect())
            }
            Framing::UntilEnd => {
                if self.buffer.is_empty() && !self.fill().await {
                    return Piece::End;
                }
                Piece::Bytes(std::mem::take(&mut self.buffer))
            }
            Framing::Chunked => self.chunk().await,
        }
    }

    async fn chunk(&mut self) -> Piece {
        let line = loop {
            match find(&self.buffer, b"\r\n") {
                Some(at) => break at,
                None if self.fill().await => {}
                None => return Piece::Cut,
            }
        };
        let size = String::from_utf8(self.buffer[..line].to_vec()).unwrap();
        let size = usize::from_str_radix(&size, 16).unwrap();
        while self.buffer.len() < line + 2 + size + 2 {
            if !self.fill().await {
                return Piece::Cut;
            }
        }
        let mut chunk: Vec<u8> = self.buffer.drain(..line + 2 + size + 2).collect();
        chunk.truncate(line + 2 + size);
        if size == 0 {
            self.framing = Framing::Length(0);
            return Piece::End;
        }
        Piece::Bytes(chunk.split_off(line + 2))
    }

    /// Waits until the server hangs up; returns what it sent before.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads more; false at the end of the connection, however it came.
    async fn fill(&mut self) -> bool {
        let mut more = vec![0; 64 << 10];
        match guarded("the server to answer", self.stream.read(&mut more)).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&more[..count]);
                true
            }
        }
    }
}

/// A part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    End,
    /// The connection ended, the body did not.
    Cut,
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// The header, which must be there.
    pub(crate) fn need(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("no {name} in {self}"))
    }

    pub(crate) fn next_offset(&self) -> &str {
        self.need("stream-next-offset")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self}"))
    }

    /// The code of an error, in the shape of the events face or of all others.
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        let code = body["error"]["code"].as_str().or(body["code"].as_str());
        code.unwrap_or_default().to_owned()
    }

    /// The status, which must be this one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status(), status, "{self}");
        assert!(self.whole, "cut off: {self}");
        self
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        let body: String = body.chars().take(300).collect();
        write!(f, "{} {:?} {body}", self.status(), self.head.headers)
    }
}

fn parse_head(text: &str) -> Head {
    let mut lines = text.trim_end().split("\r\n");
    let mut first = lines.next().unwrap().splitn(3, ' ');
    let version = first.next().unwrap().to_owned();
    let status = first.next().unwrap().parse().unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    Head { status, version, headers: lines.map(pair).collect() }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
