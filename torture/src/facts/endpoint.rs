//! Where subscribers are told: it fails, hangs and hangs up, and keeps everything that came, accepted
//! or not, with the round in which it came.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::random::Random;

/// Something that came to somebody.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) person: String,
    /// What was said.
    pub(super) mark: String,
    pub(super) event: String,
    pub(super) round: u64,
}

pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    state: Arc<EndpointState>,
}

struct EndpointState {
    accepts_everything: AtomicBool,
    round: AtomicU64,
    arrivals: Mutex<Vec<Arrival>>,
    random: Mutex<Random>,
}

impl Endpoint {
    pub(super) fn open(random: Random) -> anyhow::Result<Endpoint> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(EndpointState {
            accepts_everything: AtomicBool::new(false),
            round: AtomicU64::new(0),
            arrivals: Mutex::default(),
            random: Mutex::new(random),
        });
        let accepting = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = accepting.clone();
                std::thread::spawn(move || {
                    // What came by a server that is dead counts for its own round.
                    let round = state.round.load(Ordering::SeqCst);
                    let mut stream = BufReader::new(stream);
                    while let Ok(true) = state.answer(&mut stream, round) {}
                });
            }
        });
        Ok(Endpoint { address, state })
    }

    /// From now on another server runs: the one before is dead.
    pub(super) fn begin_round(&self, round: u64) {
        self.state.round.store(round, Ordering::SeqCst);
    }

    /// From now on everything is accepted.
    pub(super) fn accept_everything(&self) {
        self.state.accepts_everything.store(true, Ordering::SeqCst);
    }

    /// Everything that came.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.state.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl EndpointState {
    /// Answers one request; `false` when the connection is of no use any more.
    fn answer(&self, stream: &mut BufReader<TcpStream>, round: u64) -> io::Result<bool> {
        let (person, body) = read(stream)?;
        let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |pointer| envelope.pointer(pointer).and_then(Value::as_str);
        let mark = text("/payload/value/v").unwrap_or_default().to_owned();
        let event = text("/event_id").unwrap_or_default().to_owned();
        let arrival = Arrival { person, mark, event, round };
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        let choice = match self.accepts_everything.load(Ordering::SeqCst) {
            true => 0,
            false => self.random.lock().unwrap_or_else(PoisonError::into_inner).between(0, 20),
        };
        match choice {
            0..=15 => reply(stream, "200 OK"),
            16 | 17 => reply(stream, "503 Service Unavailable"),
            18 => {
                std::thread::sleep(Duration::from_millis(60));
                reply(stream, "200 OK")
            }
            _ => Ok(false),
        }
    }
}

/// To whom it is, and what.
fn read(stream: &mut BufReader<TcpStream>) -> io::Result<(String, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let path = line.split(' ').nth(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let person = path.trim_start_matches('/').to_owned();
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or((header, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length {
        Ok((person, body))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn reply(stream: &mut BufReader<TcpStream>, status: &str) -> io::Result<bool> {
    stream
        .get_mut()
        .write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())?;
    Ok(true)
}
