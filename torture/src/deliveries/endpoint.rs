//! The workers that are delivered to: they fail, hang and hang up, until they are told to accept.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::random::Random;

/// By path and event: the ids of the deliveries that it came with.
pub(super) type DeliveryIds = BTreeMap<(String, String), BTreeSet<String>>;

pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    state: Arc<EndpointState>,
}

struct EndpointState {
    accepts_everything: AtomicBool,
    requests: AtomicU64,
    accepted: Mutex<DeliveryIds>,
    /// What came and was not what was sent.
    unexpected: Mutex<Option<String>>,
    random: Mutex<Random>,
}

/// What is checked of a request.
struct DeliveryRequest {
    path: String,
    delivery: String,
    body: Vec<u8>,
}

impl Endpoint {
    pub(super) fn open(random: Random) -> anyhow::Result<Endpoint> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(EndpointState {
            accepts_everything: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            accepted: Mutex::default(),
            unexpected: Mutex::new(None),
            random: Mutex::new(random),
        });
        let accepting = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = accepting.clone();
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while let Ok(true) = state.answer(&mut stream) {}
                });
            }
        });
        Ok(Endpoint { address, state })
    }

    /// From now on everything is accepted.
    pub(super) fn accept_everything(&self) {
        self.state.accepts_everything.store(true, Ordering::SeqCst);
    }

    pub(super) fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Everything that was accepted; the deliveries that each pair of path and event came with.
    pub(super) fn delivery_ids(&self) -> DeliveryIds {
        let unexpected = self.state.unexpected.lock();
        let unexpected = unexpected.unwrap_or_else(PoisonError::into_inner).clone();
        assert!(unexpected.is_none(), "{unexpected:?}");
        self.state.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl EndpointState {
    /// Answers one request; `false` when the connection is of no use any more.
    fn answer(&self, stream: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let request = read(stream)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let choice = match self.accepts_everything.load(Ordering::SeqCst) {
            true => 0,
            false => self.random.lock().unwrap_or_else(PoisonError::into_inner).between(0, 10),
        };
        match choice {
            0..=5 => {
                self.record(&request);
                reply(stream, "200 OK")
            }
            6 | 7 => reply(stream, "503 Service Unavailable"),
            // Takes its time, and then does what it was asked for.
            8 => {
                std::thread::sleep(Duration::from_millis(100));
                self.record(&request);
                reply(stream, "204 No Content")
            }
            _ => Ok(false),
        }
    }

    fn record(&self, request: &DeliveryRequest) {
        let envelope: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let id = envelope.get("id").and_then(Value::as_str);
        let inner = envelope.pointer("/payload/id").and_then(Value::as_str);
        let same = envelope.get("type") == envelope.pointer("/payload/type");
        match id {
            Some(id) if inner == Some(id) && same && !request.delivery.is_empty() => {
                let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
                let key = (request.path.clone(), id.to_owned());
                accepted.entry(key).or_default().insert(request.delivery.clone());
            }
            _ => {
                let mut unexpected = self.unexpected.lock().unwrap_or_else(PoisonError::into_inner);
                *unexpected = Some(format!("{}: {envelope}", request.path));
            }
        }
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<DeliveryRequest> {
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
        Ok(DeliveryRequest { path, delivery, body })
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn reply(stream: &mut BufReader<TcpStream>, status: &str) -> io::Result<bool> {
    let length = if status.starts_with("204") { "" } else { "content-length: 0\r\n" };
    stream.get_mut().write_all(format!("HTTP/1.1 {status}\r\n{length}\r\n").as_bytes())?;
    Ok(true)
}
