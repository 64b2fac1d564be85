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
use crate::connection::{BUFFER_SMALL, Client, Failure};
use crate::report::Report;
use crate::tally::Tally;
use crate::target::Streams;
use crate::usage::Meter;

/// A server that has not answered for this long after the end will not.
const GRACE: Duration = Duration::from_secs(30);
/// Preparing what a run needs may not take longer.
const PREPARATION_MAX: Duration = Duration::from_secs(300);

/// The requests of a pool.
pub(crate) struct RequestPlan {
    /// How many to send; without a limit until [`ConnectionPool::stop`].
    pub(crate) limit: Option<u64>,
    /// The status that means success.
    pub(crate) expect: u16,
    /// Bytes of messages in each.
    pub(crate) bytes: u64,
    /// Writes request `number` into the vector, in place of what was there.
    pub(crate) write: Write,
    /// What each request waits for before it is sent.
    pub(crate) ahead_limit: Option<AheadLimit>,
}

/// Keeps requests from running ahead of what comes of them.
pub(crate) struct AheadLimit {
    /// Whoever sees what came of a request gives the permits back.
    pub(crate) permits: Rc<Semaphore>,
    pub(crate) per_request: u32,
}

type Write = Box<dyn Fn(u64, &mut Vec<u8>)>;

/// A connection of a pool: it opens when it is needed, and again after it broke.
pub(crate) trait Exchange {
    /// Sends a request and waits for its status.
    fn exchange(&mut self, request: &[u8]) -> impl Future<Output = Result<u16, Failure>>;
}

impl Exchange for Client {
    async fn exchange(&mut self, request: &[u8]) -> Result<u16, Failure> {
        Client::exchange(self, request).await
    }
}

/// What a pool without end did in a while.
pub(crate) struct Measured {
    measured: Tally,
    /// Before and after it.
    elsewhere: Tally,
    meters: (Meter, Meter),
}

impl Measured {
    pub(crate) fn report(&self, work: &'static str, settings: String) -> Report {
        Report::new(work, settings, &self.measured, &self.elsewhere, self.meters)
    }
}

pub(crate) struct ConnectionPool {
    shared: Rc<PoolState>,
    connections: JoinSet<()>,
}

struct PoolState {
    requests: RequestPlan,
    /// The number of the next request, over all connections.
    next: Cell<u64>,
    is_stopped: Cell<bool>,
    tally: RefCell<Tally>,
}

impl ConnectionPool {
    pub(crate) fn start(
        address: SocketAddr,
        connections: usize,
        requests: RequestPlan,
    ) -> ConnectionPool {
        let clients = (0..connections).map(|_| Client::new(address, BUFFER_SMALL)).collect();
        ConnectionPool::start_with(clients, requests)
    }

    /// The same over connections of another kind.
    pub(crate) fn start_with<E: Exchange + 'static>(
        clients: Vec<E>,
        requests: RequestPlan,
    ) -> ConnectionPool {
        let shared = Rc::new(PoolState {
            requests,
            next: Cell::new(0),
            is_stopped: Cell::new(false),
            tally: RefCell::default(),
        });
        let mut tasks = JoinSet::new();
        for client in clients {
            tasks.spawn_local(run_connection(Rc::clone(&shared), client));
        }
        ConnectionPool { shared, connections: tasks }
    }

    /// What happened since this was last called.
    pub(crate) fn take_tally(&self) -> Tally {
        mem::take(&mut self.shared.tally.borrow_mut())
    }

    /// Waits until every request of a limited pool is answered; `false` when time ran out first,
    /// which is no failure of the server.
    pub(crate) async fn finish(&mut self, limit: Duration) -> bool {
        clock::within(limit, async { while self.connections.join_next().await.is_some() {} })
            .await
            .is_some()
    }

    /// Lets it work, measures a while of that, and stops it.
    pub(crate) async fn measure(
        self,
        warmup: Duration,
        time: Duration,
        pid: Option<u32>,
    ) -> Measured {
        clock::sleep(warmup).await;
        let mut elsewhere = self.take_tally();
        let start = Meter::read(pid);
        clock::sleep(time).await;
        let measured = self.take_tally();
        let end = Meter::read(pid);
        elsewhere.absorb(&self.stop().await);
        Measured { measured, elsewhere, meters: (start, end) }
    }

    /// Lets the requests in flight end; those that do not are counted as timed out.
    pub(crate) async fn stop(mut self) -> Tally {
        self.shared.is_stopped.set(true);
        if let Some(limit) = &self.shared.requests.ahead_limit {
            // Whoever waits for a permit does not get it any more.
            limit.permits.close();
        }
        if !self.finish(GRACE).await {
            let stuck = u64::try_from(self.connections.len()).unwrap_or(u64::MAX);
            self.connections.abort_all();
            let mut tally = self.take_tally();
            tally.errors.count("timed out".to_owned(), stuck);
            return tally;
        }
        self.take_tally()
    }
}

async fn run_connection(shared: Rc<PoolState>, mut client: impl Exchange) {
    let requests = &shared.requests;
    let mut request = Vec::new();
    while !shared.is_stopped.get() {
        if let Some(limit) = &requests.ahead_limit {
            let is_allowed = limit.acquire().await;
            if !is_allowed || shared.is_stopped.get() {
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
        let answer = client.exchange(&request).await;
        let latency = sent.elapsed();
        if let Some(limit) = &requests.ahead_limit
            && answer != Ok(requests.expect)
        {
            // Nothing will come of it.
            limit.release();
        }
        let mut tally = shared.tally.borrow_mut();
        match answer {
            Ok(status) if status == requests.expect => tally.done(latency, requests.bytes),
            Ok(status) => tally.errors.status(status),
            Err(failure) => tally.errors.failure(failure),
        }
    }
}

impl AheadLimit {
    /// `false` when nothing is to be sent any more.
    async fn acquire(&self) -> bool {
        self.permits.acquire_many(self.per_request).await.map(SemaphorePermit::forget).is_ok()
    }

    fn release(&self) {
        self.permits.add_permits(usize::try_from(self.per_request).unwrap_or(0));
    }
}

/// Sends every request once, to prepare a measurement: one that fails ends the run.
pub(crate) async fn prepare(
    address: SocketAddr,
    connections: usize,
    requests: RequestPlan,
) -> anyhow::Result<()> {
    let wanted = requests.limit;
    let mut pool = ConnectionPool::start(address, connections, requests);
    let is_finished = pool.finish(PREPARATION_MAX).await;
    let tally = pool.take_tally();
    if let Some((label, count)) = tally.errors.0.first_key_value() {
        bail!("cannot prepare the run: {label} ({count} times)");
    }
    ensure!(is_finished, "cannot prepare the run in {} s", PREPARATION_MAX.as_secs());
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
    let requests =
        RequestPlan { limit: Some(count), expect: 201, bytes: 0, write, ahead_limit: None };
    prepare(streams.address, connections, requests).await
}
