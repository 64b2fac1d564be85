//! The endpoint that is called: an HTTP server in this process that has nothing else to do.
//!
//! ```text
//! /live…      answered with `{"done":true}` and counted
//! /hanging…   taken, counted and never answered
//! /dead…      taken, and the connection closed
//! /…          answered, and counted nowhere
//! ```

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Connection, Failure};
use crate::dialect::Dialect;
use crate::live::contains;

const DONE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                      content-length: 13\r\n\r\n{\"done\":true}";
/// Callers that the operating system holds for us until they are accepted.
const BACKLOG: u32 = 4096;

pub(crate) struct Sink {
    address: SocketAddr,
    /// Bound and not listening: whoever connects is refused, and nobody else gets the port.
    dead: TcpSocket,
    shared: Rc<SinkState>,
    /// Ends with the sink.
    _accepting: JoinSet<()>,
}

/// What arrived, readable from other threads too.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    live: AtomicU64,
    hanging: AtomicU64,
}

struct SinkState {
    counts: Arc<CallCounts>,
    /// Gets a permit back for each call that was answered and counted.
    ahead: Rc<Semaphore>,
    /// What must stand in the call that is waited for; nothing when any will do.
    marker: RefCell<Vec<u8>>,
    /// When the first such call arrived since somebody asked for one.
    first: Cell<Option<Instant>>,
    arrived: Notify,
    /// Which consumers were woken, a bit each; kept when somebody wants to know.
    consumers: RefCell<Option<ConsumerSet>>,
}

struct ConsumerSet {
    dialect: Dialect,
    bits: Vec<u64>,
    count: u64,
}

impl CallCounts {
    /// Calls that were answered.
    pub(crate) fn calls(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Calls that were taken and not answered.
    pub(crate) fn hanging(&self) -> u64 {
        self.hanging.load(Ordering::Relaxed)
    }
}

impl Sink {
    /// An endpoint on a port of its own.
    pub(crate) async fn open() -> anyhow::Result<Sink> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Sink::open_at(anywhere, Rc::new(Semaphore::new(0)), Arc::default()).await
    }

    /// An endpoint where the server was told to look for one. It gives `ahead` a permit for each
    /// call that it answers.
    pub(crate) async fn open_at(
        address: SocketAddr,
        ahead: Rc<Semaphore>,
        counts: Arc<CallCounts>,
    ) -> anyhow::Result<Sink> {
        let listener =
            listen(address).with_context(|| format!("cannot listen for calls on {address}"))?;
        let dead = TcpSocket::new_v4()?;
        dead.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let shared = Rc::new(SinkState {
            counts,
            ahead,
            marker: RefCell::default(),
            first: Cell::new(None),
            arrived: Notify::new(),
            consumers: RefCell::new(None),
        });
        let address = listener.local_addr()?;
        let mut accepting = JoinSet::new();
        accepting.spawn_local(accept(listener, Rc::clone(&shared)));
        Ok(Sink { address, dead, shared, _accepting: accepting })
    }

    /// Where a call is answered with `{"done":true}`.
    pub(crate) fn live_url(&self) -> String {
        format!("http://{}/live", self.address)
    }

    /// Where a call is taken and never answered.
    pub(crate) fn hanging_url(&self) -> String {
        format!("http://{}/hanging", self.address)
    }

    /// Where nobody listens.
    pub(crate) fn dead_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}/dead", self.dead.local_addr()?))
    }

    /// Calls that were answered so far.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.counts.calls()
    }

    /// Calls that were taken and not answered so far.
    pub(crate) fn hanging(&self) -> u64 {
        self.shared.counts.hanging()
    }

    /// From now on the next call in which this stands is the one that is waited for.
    pub(crate) fn expect_call(&self, marker: &[u8]) {
        self.shared.marker.replace(marker.to_vec());
        self.shared.first.set(None);
    }

    /// When the whole of the expected call was here.
    pub(crate) async fn wait_for_call(&self) -> Instant {
        loop {
            if let Some(at) = self.shared.first.get() {
                return at;
            }
            self.shared.arrived.notified().await;
        }
    }

    /// Waits until no call came for so long; `false` when that did not happen within the limit.
    pub(crate) async fn wait_until_quiet(&self, span: Duration, limit: Duration) -> bool {
        let quiet = async {
            loop {
                let before = self.calls();
                clock::sleep(span).await;
                if self.calls() == before {
                    return;
                }
            }
        };
        clock::within(limit, quiet).await.is_some()
    }

    /// From now on consumers are told apart by their numbers below `count`.
    pub(crate) fn track_consumers(&self, dialect: Dialect, count: u64) {
        let words = usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX);
        let consumers = ConsumerSet { dialect, bits: vec![0; words], count: 0 };
        *self.shared.consumers.borrow_mut() = Some(consumers);
    }

    /// How many different consumers were woken.
    pub(crate) fn consumers(&self) -> u64 {
        self.shared.consumers.borrow().as_ref().map_or(0, |consumers| consumers.count)
    }
}

/// A server that calls many hooks at once connects many times at once.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, shared: Rc<SinkState>) {
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    callers.spawn_local(serve(stream, Rc::clone(&shared)));
                }
            }
            Some(_) = callers.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Rc<SinkState>) {
    let Ok(mut connection) = Connection::from_stream(stream, BUFFER_SMALL) else {
        return;
    };
    // A caller that hangs up has had its answer, or does not want it any more.
    while answer(&mut connection, &shared).await.is_ok() {}
}

async fn answer(connection: &mut Connection, shared: &SinkState) -> Result<(), Failure> {
    let mut body = Vec::new();
    let path = connection.request(|bytes| body.extend_from_slice(bytes)).await?;
    let arrived = clock::now();
    match path.split('/').nth(1) {
        Some("live") => shared.count_call(arrived, &body),
        Some("hanging") => {
            shared.counts.hanging.fetch_add(1, Ordering::Relaxed);
            connection.wait_for_close().await;
            return Err(Failure::Closed);
        }
        Some("dead") => return Err(Failure::Closed),
        Some(_) | None => {}
    }
    connection.send(DONE).await
}

impl SinkState {
    fn count_call(&self, arrived: Instant, body: &[u8]) {
        self.counts.live.fetch_add(1, Ordering::Relaxed);
        self.ahead.add_permits(1);
        if let Some(consumers) = self.consumers.borrow_mut().as_mut() {
            consumers.add(consumers.dialect.consumer_in(body));
        }
        if self.first.get().is_none() && self.is_expected(body) {
            self.first.set(Some(arrived));
            self.arrived.notify_one();
        }
    }

    fn is_expected(&self, body: &[u8]) -> bool {
        let marker = self.marker.borrow();
        marker.is_empty() || contains(body, &marker)
    }
}

impl ConsumerSet {
    fn add(&mut self, number: Option<u64>) {
        let Some(number) = number else { return };
        let word = usize::try_from(number / 64).unwrap_or(usize::MAX);
        let bit = 1 << (number % 64);
        if let Some(word) = self.bits.get_mut(word)
            && *word & bit == 0
        {
            *word |= bit;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_is_counted_once() {
        let mut consumers = ConsumerSet { dialect: Dialect::Ds, bits: vec![0; 2], count: 0 };
        for number in [Some(0), Some(64), Some(0), None, Some(127), Some(128)] {
            consumers.add(number);
        }
        assert_eq!(consumers.count, 3);
    }

    #[test]
    fn the_answer_has_the_length_that_it_says() {
        assert!(DONE.ends_with(b"\r\n\r\n{\"done\":true}"));
        assert_eq!(b"{\"done\":true}".len(), 13);
    }
}
