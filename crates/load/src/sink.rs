//! The endpoint that is woken: an HTTP server in this process that has nothing else to do.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Connection, Failure};
use crate::dialect::Dialect;

const DONE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                      content-length: 13\r\n\r\n{\"done\":true}";
const LIVE: &str = "/live";
const HANGING: &str = "/hanging";

pub(crate) struct Sink {
    address: SocketAddr,
    /// Bound and not listening: whoever connects is refused, and nobody else gets the port.
    dead: TcpSocket,
    shared: Rc<Shared>,
    /// Ends with the sink.
    _accepting: JoinSet<()>,
}

struct Shared {
    dialect: Dialect,
    /// Wakes that were answered with `done`.
    wakes: Cell<u64>,
    /// Wakes that will never be answered.
    hanging: Cell<u64>,
    /// When the first wake arrived since somebody asked for one.
    first: Cell<Option<Instant>>,
    arrived: Notify,
    /// Which consumers were woken, a bit each; kept when somebody wants to know.
    consumers: RefCell<Option<Consumers>>,
}

struct Consumers {
    bits: Vec<u64>,
    count: u64,
}

impl Sink {
    pub(crate) async fn open(dialect: Dialect) -> anyhow::Result<Sink> {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(local).await.context("cannot listen for wakes")?;
        let dead = TcpSocket::new_v4()?;
        dead.bind(local)?;
        let shared = Rc::new(Shared {
            dialect,
            wakes: Cell::new(0),
            hanging: Cell::new(0),
            first: Cell::new(None),
            arrived: Notify::new(),
            consumers: RefCell::new(None),
        });
        let address = listener.local_addr()?;
        let mut accepting = JoinSet::new();
        accepting.spawn_local(accept(listener, Rc::clone(&shared)));
        Ok(Sink { address, dead, shared, _accepting: accepting })
    }

    /// Where a wake is answered with `{"done":true}`.
    pub(crate) fn live_url(&self) -> String {
        format!("http://{}{LIVE}", self.address)
    }

    /// Where a wake is taken and never answered.
    pub(crate) fn hanging_url(&self) -> String {
        format!("http://{}{HANGING}", self.address)
    }

    /// Where nobody listens.
    pub(crate) fn dead_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}/dead", self.dead.local_addr()?))
    }

    /// Wakes that were answered so far.
    pub(crate) fn wakes(&self) -> u64 {
        self.shared.wakes.get()
    }

    /// Wakes that were taken and not answered so far.
    pub(crate) fn hanging(&self) -> u64 {
        self.shared.hanging.get()
    }

    /// From now on the next wake is the one that is waited for.
    pub(crate) fn expect(&self) {
        self.shared.first.set(None);
    }

    /// When the whole of the expected wake was here.
    pub(crate) async fn woken(&self) -> Instant {
        loop {
            if let Some(at) = self.shared.first.get() {
                return at;
            }
            self.shared.arrived.notified().await;
        }
    }

    /// Waits until no wake came for so long; `false` when that did not happen within the limit.
    pub(crate) async fn quiet(&self, span: Duration, limit: Duration) -> bool {
        let quiet = async {
            loop {
                let before = self.wakes();
                clock::sleep(span).await;
                if self.wakes() == before {
                    return;
                }
            }
        };
        clock::within(limit, quiet).await.is_some()
    }

    /// From now on consumers are told apart by their numbers below `count`.
    pub(crate) fn tell_apart(&self, count: u64) {
        let words = usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX);
        *self.shared.consumers.borrow_mut() = Some(Consumers { bits: vec![0; words], count: 0 });
    }

    /// How many different consumers were woken.
    pub(crate) fn consumers(&self) -> u64 {
        self.shared.consumers.borrow().as_ref().map_or(0, |consumers| consumers.count)
    }
}

async fn accept(listener: TcpListener, shared: Rc<Shared>) {
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

async fn serve(stream: TcpStream, shared: Rc<Shared>) {
    let Ok(mut connection) = Connection::on(stream, BUFFER_SMALL) else {
        return;
    };
    // A caller that hangs up has had its answer, or does not want it any more.
    while answer(&mut connection, &shared).await.is_ok() {}
}

async fn answer(connection: &mut Connection, shared: &Shared) -> Result<(), Failure> {
    let mut body = Vec::new();
    let path = connection.request(|bytes| body.extend_from_slice(bytes)).await?;
    let arrived = clock::now();
    if path == HANGING {
        shared.hanging.set(shared.hanging.get() + 1);
        connection.hung_up().await;
        return Err(Failure::Closed);
    }
    shared.wakes.set(shared.wakes.get() + 1);
    if shared.first.get().is_none() {
        shared.first.set(Some(arrived));
    }
    if let Some(consumers) = shared.consumers.borrow_mut().as_mut() {
        consumers.add(shared.dialect.consumer_in(&body));
    }
    shared.arrived.notify_one();
    connection.send(DONE).await
}

impl Consumers {
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
        let mut consumers = Consumers { bits: vec![0; 2], count: 0 };
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
