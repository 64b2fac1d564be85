//! The workers that are delivered to: they fail, hang and hang up, until they are told to be kind.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::super::random::Random;

/// By method and event: the deliveries that it came with.
pub(super) type Seen = BTreeMap<(String, String), BTreeSet<String>>;

pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    kind: AtomicBool,
    posts: AtomicU64,
    seen: Mutex<Seen>,
    /// What came and was not what was sent.
    wrong: Mutex<Option<String>>,
    random: Mutex<Random>,
}

/// A request, as far as it matters.
struct Post {
    path: String,
    delivery: String,
    body: Vec<u8>,
}

impl Endpoint {
    pub(super) fn open(random: Random) -> anyhow::Result<Endpoint> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            kind: AtomicBool::new(false),
            posts: AtomicU64::new(0),
            seen: Mutex::default(),
            wrong: Mutex::new(None),
            random: Mutex::new(random),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = accepting.clone();
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while let Ok(true) = shared.answer(&mut stream) {}
                });
            }
        });
        Ok(Endpoint { address, shared })
    }

    /// From now on everything is accepted.
    pub(super) fn be_kind(&self) {
        self.shared.kind.store(true, Ordering::SeqCst);
    }

    pub(super) fn posts(&self) -> u64 {
        self.shared.posts.load(Ordering::Relaxed)
    }

    /// Everything that was accepted; the deliveries that each pair of method and event came with.
    pub(super) fn seen(&self) -> Seen {
        let wrong = self.shared.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert!(wrong.is_none(), "{wrong:?}");
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    /// Answers one request; `false` when the connection is of no use any more.
    fn answer(&self, stream: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let post = read(stream)?;
        self.posts.fetch_add(1, Ordering::Relaxed);
        let choice = match self.kind.load(Ordering::SeqCst) {
            true => 0,
            false => self.random.lock().unwrap_or_else(PoisonError::into_inner).between(0, 10),
        };
        match choice {
            0..=5 => {
                self.note(&post);
                reply(stream, "200 OK")
            }
            6 | 7 => reply(stream, "503 Service Unavailable"),
            // Takes its time, and then does what it was asked for.
            8 => {
                std::thread::sleep(Duration::from_millis(100));
                self.note(&post);
                reply(stream, "204 No Content")
            }
            _ => Ok(false),
        }
    }

    fn note(&self, post: &Post) {
        let envelope: Value = serde_json::from_slice(&post.body).unwrap_or_default();
        let id = envelope.get("id").and_then(Value::as_str);
        let inner = envelope.pointer("/payload/id").and_then(Value::as_str);
        let same = envelope.get("type") == envelope.pointer("/payload/type");
        match (id, post.path.rsplit('/').next()) {
            (Some(id), Some(method)) if inner == Some(id) && same && !post.delivery.is_empty() => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let key = (method.to_owned(), id.to_owned());
                seen.entry(key).or_default().insert(post.delivery.clone());
            }
            _ => {
                let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
                *wrong = Some(format!("{}: {envelope}", post.path));
            }
        }
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Post> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let path = line.split(' ').nth(1).ok_or(io::ErrorKind::UnexpectedEof)?.to_owned();
    let (mut length, mut delivery) = (0, String::new());
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "x-events-delivery-id" => delivery = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length {
        Ok(Post { path, delivery, body })
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn reply(stream: &mut BufReader<TcpStream>, status: &str) -> io::Result<bool> {
    let length = if status.starts_with("204") { "" } else { "content-length: 0\r\n" };
    stream.get_mut().write_all(format!("HTTP/1.1 {status}\r\n{length}\r\n").as_bytes())?;
    Ok(true)
}
