//! Connections in a closed loop: each sends its next request when the last one is answered.

use std::cell::{Cell, RefCell};
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Link};
use crate::tally::Tally;
use crate::target::Streams;

/// A server that has not answered for this long after the end will not.
const GRACE: Duration = Duration::from_secs(30);
/// Preparing what a run needs may not take longer.
const PREPARATION_MAX: Duration = Duration::from_secs(300);

/// The requests of a crew.
pub(crate) struct Requests {
    /// How many to send; without a limit until [`Crew::stop`].
    pub(crate) limit: Option<u64>,
    /// The status that means success.
    pub(crate) expect: u16,
    /// Bytes of messages in each.
    pub(crate) bytes: u64,
    /// Writes request `number` into the vector, in place of what was there.
    pub(crate) write: Write,
    /// What each request waits for before it is sent.
    pub(crate) turn: Option<Turn>,
}

/// Keeps requests from running ahead of what comes of them.
pub(crate) struct Turn {
    /// Whoever sees what came of a request gives the permits back.
    pub(crate) ahead: Rc<Semaphore>,
    /// How many each request takes.
    pub(crate) each: u32,
}

type Write = Box<dyn Fn(u64, &mut Vec<u8>)>;

pub(crate) struct Crew {
    shared: Rc<Shared>,
    workers: JoinSet<()>,
}

struct Shared {
    requests: Requests,
    /// The number of the next request, over all connections.
    next: Cell<u64>,
    stopped: Cell<bool>,
    tally: RefCell<Tally>,
}

impl Crew {
    pub(crate) fn start(address: SocketAddr, connections: usize, requests: Requests) -> Crew {
        let shared = Rc::new(Shared {
            requests,
            next: Cell::new(0),
            stopped: Cell::new(false),
            tally: RefCell::default(),
        });
        let mut workers = JoinSet::new();
        for _ in 0..connections {
            workers.spawn_local(work(Rc::clone(&shared), address));
        }
        Crew { shared, workers }
    }

    /// What happened since this was last asked.
    pub(crate) fn take(&self) -> Tally {
        mem::take(&mut self.shared.tally.borrow_mut())
    }

    /// Waits until every request of a limited crew is answered; `false` when time ran out first,
    /// which is no failure of the server.
    pub(crate) async fn finish(&mut self, limit: Duration) -> bool {
        clock::within(limit, async { while self.workers.join_next().await.is_some() {} })
            .await
            .is_some()
    }

    /// Lets the requests in flight end; those that do not are counted as timed out.
    pub(crate) async fn stop(mut self) -> Tally {
        self.shared.stopped.set(true);
        if let Some(turn) = &self.shared.requests.turn {
            // Whoever waits for a turn does not get it any more.
            turn.ahead.close();
        }
        if !self.finish(GRACE).await {
            let stuck = u64::try_from(self.workers.len()).unwrap_or(u64::MAX);
            self.workers.abort_all();
            let mut tally = self.take();
            tally.errors.count("timed out".to_owned(), stuck);
            return tally;
        }
        self.take()
    }
}

async fn work(shared: Rc<Shared>, address: SocketAddr) {
    let requests = &shared.requests;
    let mut link = Link::new(address, BUFFER_SMALL);
    let mut request = Vec::new();
    while !shared.stopped.get() {
        if let Some(turn) = &requests.turn {
            let taken = turn.take().await;
            if !taken || shared.stopped.get() {
                return;
            }
        }
        let number = shared.next.get();
        if requests.limit.is_some_and(|limit| number >= limit) {
            return;
        }
        shared.next.set(number + 1);
        (requests.write)(number, &mut request);
        let sent = clock::now();
        let answer = link.exchange(&request).await;
        let latency = sent.elapsed();
        if let Some(turn) = &requests.turn
            && answer != Ok(requests.expect)
        {
            // Nothing will come of it.
            turn.give_back();
        }
        let mut tally = shared.tally.borrow_mut();
        match answer {
            Ok(status) if status == requests.expect => tally.done(latency, requests.bytes),
            Ok(status) => tally.errors.status(status),
            Err(failure) => tally.errors.failure(failure),
        }
    }
}

impl Turn {
    /// `false` when nothing is to be sent any more.
    async fn take(&self) -> bool {
        self.ahead.acquire_many(self.each).await.map(SemaphorePermit::forget).is_ok()
    }

    fn give_back(&self) {
        self.ahead.add_permits(usize::try_from(self.each).unwrap_or(0));
    }
}

/// Sends every request once, to prepare a measurement: one that fails ends the run.
pub(crate) async fn prepare(
    address: SocketAddr,
    connections: usize,
    requests: Requests,
) -> anyhow::Result<()> {
    let wanted = requests.limit;
    let mut crew = Crew::start(address, connections, requests);
    let finished = crew.finish(PREPARATION_MAX).await;
    let tally = crew.take();
    if let Some((label, count)) = tally.errors.0.first_key_value() {
        bail!("cannot prepare the run: {label} ({count} times)");
    }
    ensure!(finished, "cannot prepare the run in {} s", PREPARATION_MAX.as_secs());
    ensure!(wanted == Some(tally.done), "prepared {} of {wanted:?} requests", tally.done);
    Ok(())
}

/// Creates `count` empty streams, numbered from zero.
pub(crate) async fn create_empty(
    streams: &Streams,
    connections: usize,
    count: u64,
) -> anyhow::Result<()> {
    let target = streams.clone();
    let write = Box::new(move |number, request: &mut Vec<u8>| target.put(number, b"", request));
    let requests = Requests { limit: Some(count), expect: 201, bytes: 0, write, turn: None };
    prepare(streams.address, connections, requests).await
}
