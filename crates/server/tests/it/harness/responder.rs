//! A responder: an endpoint that answers what it is told to, and shows what it was sent.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::guarded;

/// Requests that wait to be looked at.
const SEEN_MAX: usize = 1_000;

/// Somebody who is called.
pub(crate) struct Responder {
    pub(crate) url: String,
    answer: Arc<Mutex<(u16, String)>>,
    seen: mpsc::Receiver<Posted>,
}

/// What it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Posted {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Responder {
    /// One that answers everything like this, until it is told otherwise.
    pub(crate) async fn start(status: u16, body: &str) -> Responder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new((status, body.to_owned())));
        let (tell, seen) = mpsc::channel(SEEN_MAX);
        let answers = answer.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(converse(socket, answers.clone(), tell.clone()));
            }
        });
        Responder { url, answer, seen }
    }

    pub(crate) fn answers(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = (status, body.to_owned());
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Posted {
        guarded("a request to the responder", self.seen.recv()).await.unwrap()
    }
}

async fn converse(
    mut socket: TcpStream,
    answer: Arc<Mutex<(u16, String)>>,
    tell: mpsc::Sender<Posted>,
) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let posted = read(&mut socket, &mut buffer).await?;
        let (status, body) = answer.lock().unwrap().clone();
        let _ = tell.send(posted).await;
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        socket.write_all(head.as_bytes()).await.ok()?;
    }
}

async fn read(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Posted> {
    let mut wanted = None;
    loop {
        let end = buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        if let Some(end) = end {
            let text = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
            assert!(lines.next().unwrap().starts_with("POST "));
            let pair = |line: &str| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_ascii_lowercase(), value.trim().to_owned())
            };
            let headers: Vec<(String, String)> = lines.map(pair).collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
            wanted = Some((end, length, headers));
        }
        if let Some((end, length, headers)) = wanted.take()
            && buffer.len() >= end + length
        {
            let body = buffer[end..end + length].to_vec();
            buffer.drain(..end + length);
            return Some(Posted { headers, body });
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
