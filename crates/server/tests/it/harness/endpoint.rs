//! A consumer's endpoint: hands every request to the test, which says how it is answered.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::guarded;

/// Calls that wait for the test to look at them.
const WAITING: usize = 64;

/// An endpoint on a port of its own.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    calls: mpsc::Receiver<Call>,
    serving: JoinHandle<()>,
}

/// A request that waits for its answer. One that is dropped is answered `200 {}`.
pub(crate) struct Call {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    answer: oneshot::Sender<(u16, String)>,
}

impl Endpoint {
    pub(crate) async fn open() -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (calls_in, calls) = mpsc::channel(WAITING);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, calls_in.clone()));
            }
        });
        Endpoint { url, calls, serving }
    }

    /// The next request.
    pub(crate) async fn call(&mut self) -> Call {
        guarded("a call of the endpoint", self.calls.recv()).await.unwrap()
    }

    /// Whether nobody calls now.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.calls.try_recv().is_err()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Call {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {name}"))
    }

    pub(crate) fn answer(self, status: u16, body: &str) {
        // The server may have hung up meanwhile.
        let _ = self.answer.send((status, body.to_owned()));
    }
}

async fn serve(mut stream: TcpStream, calls: mpsc::Sender<Call>) {
    while let Some((headers, body)) = read(&mut stream).await {
        let (answer, answered) = oneshot::channel();
        if calls.send(Call { headers, body, answer }).await.is_err() {
            return;
        }
        let (status, body) = answered.await.unwrap_or_else(|_| (200, "{}".to_owned()));
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.is_err() {
            return;
        }
    }
}

/// One request: its headers, names in lower case, and its body.
async fn read(stream: &mut TcpStream) -> Option<(Vec<(String, String)>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head_len = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_len].to_vec()).unwrap();
    let pairs = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let headers: Vec<(String, String)> =
        pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < head_len + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some((headers, bytes[head_len..].to_vec()))
}
