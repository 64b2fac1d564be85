//! Where triggers deliver: it fails, takes its time and hangs up, and keeps everything that came,
//! accepted or not.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::random::Random;

/// A request, as it came.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrival {
    pub(super) body: Value,
    pub(super) key: String,
    pub(super) delivery: String,
    pub(super) replay: Option<String>,
    pub(super) is_signed: bool,
    pub(super) is_accepted: bool,
}

pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    state: Arc<EndpointState>,
}

struct EndpointState {
    accepts_everything: AtomicBool,
    /// The trigger of which nothing is accepted.
    refused: Mutex<Option<&'static str>>,
    arrivals: Mutex<Vec<Arrival>>,
    random: Mutex<Random>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arrival {
    pub(super) fn text(&self, name: &str) -> &str {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.body.get(name).and_then(Value::as_u64).unwrap_or(0)
    }
}

impl Endpoint {
    pub(super) fn open(random: Random) -> anyhow::Result<Endpoint> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(EndpointState {
            accepts_everything: AtomicBool::new(false),
            refused: Mutex::default(),
            arrivals: Mutex::default(),
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

    /// From now on nothing of this trigger is accepted, or everything is as of the others.
    pub(super) fn refuse(&self, trigger: Option<&'static str>) {
        *lock(&self.state.refused) = trigger;
    }

    /// From now on everything is accepted.
    pub(super) fn accept_everything(&self) {
        self.state.accepts_everything.store(true, Ordering::SeqCst);
    }

    pub(super) fn requests(&self) -> usize {
        lock(&self.state.arrivals).len()
    }

    /// Everything that came, in its order.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        lock(&self.state.arrivals).clone()
    }
}

impl EndpointState {
    /// Answers one request; `false` when the connection is of no use any more.
    fn answer(&self, stream: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let arrival = read(stream)?;
        let is_refused = lock(&self.refused).is_some_and(|it| it == arrival.text("triggerId"));
        let choice = match (self.accepts_everything.load(Ordering::SeqCst), is_refused) {
            (true, _) => 0,
            (false, true) => 7,
            (false, false) => lock(&self.random).between(0, 10),
        };
        let is_accepted = choice <= 6;
        // It is kept before it is answered: what comes next is kept after it.
        lock(&self.arrivals).push(Arrival { is_accepted, ..arrival });
        match choice {
            0..=5 => reply(stream, "200 OK"),
            // Takes its time, and then does what it was asked for.
            6 => {
                std::thread::sleep(Duration::from_millis(60));
                reply(stream, "204 No Content")
            }
            7 => reply(stream, "500 Internal Server Error"),
            8 => reply(stream, "503 Service Unavailable"),
            _ => Ok(false),
        }
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Arrival> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (mut length, mut arrival) = (0, Arrival::default());
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "x-syntrix-idempotency-key" => arrival.key = value.to_owned(),
            "x-syntrix-delivery-id" => arrival.delivery = value.to_owned(),
            "x-syntrix-replay" => arrival.replay = Some(value.to_owned()),
            "x-syntrix-signature" => arrival.is_signed = value.contains(",v1="),
            _ => {}
        }
    }
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body)?;
    if body.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    arrival.body = serde_json::from_slice(&body)?;
    Ok(arrival)
}

fn reply(stream: &mut BufReader<TcpStream>, status: &str) -> io::Result<bool> {
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    stream.get_mut().write_all(answer.as_bytes())?;
    Ok(true)
}
