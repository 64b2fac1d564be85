//! Where wakes and deliveries go: one part answers at once and remembers, one hangs.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Requests to paths with this in them get no answer for as long as the attack lasts.
pub(super) const HANG: &str = "/hang";
/// Requests to paths with this in them are refused.
pub(super) const REFUSE: &str = "/refuse";

pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// What came first when: a stream that was woken for, or an event.
    seen: Mutex<HashMap<String, Instant>>,
    /// Callbacks that wakes of the loud tenant came with.
    callbacks: Mutex<Vec<(String, String, u64)>>,
    is_over: AtomicBool,
    hanging: AtomicUsize,
    ended: (Mutex<()>, Condvar),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    pub(super) fn open() -> anyhow::Result<Endpoint> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
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

    /// When something was told first.
    pub(super) fn seen_at(&self, what: &str) -> Option<Instant> {
        lock(&self.state.seen).get(what).copied()
    }

    pub(super) fn clone_handle(&self) -> Endpoint {
        Endpoint { address: self.address, state: self.state.clone() }
    }

    /// Lets go of those that hang; further ones are answered.
    pub(super) fn stop_hanging(&self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.state.ended.1.notify_all();
    }
}

impl State {
    /// Answers one request; `false` when the connection is of no use any more.
    fn answer(&self, stream: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let (path, body) = read(stream)?;
        if path.contains(HANG) && !self.is_over.load(Ordering::SeqCst) {
            self.hanging.fetch_add(1, Ordering::SeqCst);
            let mut guard = lock(&self.ended.0);
            while !self.is_over.load(Ordering::SeqCst) {
                let waited = self.ended.1.wait_timeout(guard, Duration::from_millis(200));
                guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            return Ok(false);
        }
        if path.contains(REFUSE) {
            return reply(stream, "500 Internal Server Error", "");
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        let what = text("primary_stream").or_else(|| text("id"));
        if let Some(what) = what {
            lock(&self.seen).entry(what).or_insert_with(Instant::now);
        }
        if path.contains("/claim")
            && let (Some(callback), Some(token)) = (text("callback"), text("token"))
        {
            let epoch = body.get("epoch").and_then(Value::as_u64).unwrap_or(0);
            lock(&self.callbacks).push((callback, token, epoch));
            return reply(stream, "200 OK", "{}");
        }
        reply(stream, "200 OK", "{\"done\":true}")
    }
}

impl Endpoint {
    /// The callbacks that came since the last time: address, token and epoch.
    pub(super) fn take_callbacks(&self) -> Vec<(String, String, u64)> {
        std::mem::take(&mut *lock(&self.state.callbacks))
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<(String, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let path = line.split(' ').nth(1).ok_or(io::ErrorKind::UnexpectedEof)?.to_owned();
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
        Ok((path, body))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn reply(stream: &mut BufReader<TcpStream>, status: &str, body: &str) -> io::Result<bool> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
    Ok(true)
}
