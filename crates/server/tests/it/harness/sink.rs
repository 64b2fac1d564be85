//! An endpoint that webhooks go to: it shows every request, and answers as the test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::guarded;

/// Requests that a test has not looked at yet.
const CALLS_MAX: usize = 100_000;

/// An endpoint on a port of its own.
pub(crate) struct Sink {
    address: SocketAddr,
    calls: mpsc::Receiver<Call>,
    connections: Arc<AtomicUsize>,
}

/// A request that came, and waits for its answer. One that is dropped is hung up on; one that is
/// kept hangs.
pub(crate) struct Call {
    /// The request line.
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    reply: oneshot::Sender<(Vec<u8>, bool)>,
}

impl Sink {
    pub(crate) async fn start() -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, sender.clone()));
            }
        });
        Sink { address, calls, connections }
    }

    /// A port where nobody listens.
    pub(crate) async fn nobody() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// How often anybody has connected.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/webhook", self.address)
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Call {
        guarded("a webhook", self.calls.recv()).await.expect("the sink is there")
    }

    /// The next request, if it has come already.
    pub(crate) fn come(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }
}

impl Call {
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name}: {:?}", self.headers), |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_else(|| panic!("no {name}")).to_owned()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.json()["epoch"].as_u64().unwrap()
    }

    pub(crate) fn wake_id(&self) -> String {
        self.text("wake_id")
    }

    pub(crate) fn token(&self) -> String {
        self.text("token")
    }

    pub(crate) fn consumer(&self) -> String {
        self.text("consumer_id")
    }

    pub(crate) fn primary(&self) -> String {
        self.text("primary_stream")
    }

    /// What tells one wake from another.
    pub(crate) fn wake(&self) -> (String, u64, String) {
        (self.consumer(), self.epoch(), self.wake_id())
    }

    pub(crate) fn answer(self, status: u16, body: &str) {
        self.answer_with(status, &[], body);
    }

    pub(crate) fn answer_with(self, status: u16, headers: &[(&str, &str)], body: &str) {
        let mut text = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.answer_raw(format!("{text}\r\n{body}").into_bytes());
    }

    /// Sends bytes as they are.
    pub(crate) fn answer_raw(self, bytes: Vec<u8>) {
        // The server may have given up on this request.
        let _ = self.reply.send((bytes, true));
    }

    /// Sends bytes as they are, and hangs up.
    pub(crate) fn answer_and_close(self, bytes: Vec<u8>) {
        let _ = self.reply.send((bytes, false));
    }

    pub(crate) fn ok(self) {
        self.answer(200, "{}");
    }

    pub(crate) fn done(self) {
        self.answer(200, r#"{"done":true}"#);
    }
}

/// One connection, request after request.
async fn serve(mut stream: TcpStream, calls: mpsc::Sender<Call>) {
    let mut buffer = Vec::new();
    while let Some((line, headers, body)) = read(&mut stream, &mut buffer).await {
        let (reply, replied) = oneshot::channel();
        if calls.send(Call { line, headers, body, reply }).await.is_err() {
            return;
        }
        let Ok((bytes, stays)) = replied.await else { return };
        if stream.write_all(&bytes).await.is_err() || !stays {
            return;
        }
    }
}

type Read = (String, Vec<(String, String)>, Vec<u8>);

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Read> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
        fill(stream, buffer).await?;
    };
    let head: Vec<u8> = buffer.drain(..end).collect();
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next()?.to_owned();
    let split = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<(String, String)> = lines.map(split).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < length {
        fill(stream, buffer).await?;
    }
    Some((line, headers, buffer.drain(..length).collect()))
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut more = vec![0; 16 << 10];
    match stream.read(&mut more).await {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            buffer.extend_from_slice(&more[..count]);
            Some(())
        }
    }
}
