//! The pool: connections that wait for the next request to the same origin, and how many may be in
//! use.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::Connection;
use crate::courier::SendError;
use crate::destination::Origin;
use crate::resolve::Now;

#[cfg(test)]
mod tests;

/// How many connections wait per origin, and altogether.
const IDLE_PER_ORIGIN_MAX: usize = 1_024;
const IDLE_MAX: usize = 4_096;

/// How many requests are under way per origin, and altogether; the next ones wait. Together with
/// the connections that wait this bounds the number of sockets.
const BUSY_PER_ORIGIN_MAX: usize = 8_192;
const BUSY_MAX: usize = 16_384;

/// How long a connection waits. Servers commonly close after 60 s, load balancers and functions
/// earlier.
const IDLE_MS: u64 = 15_000;

/// How often the whole pool is looked through for connections that waited too long.
const SWEEP_MS: u64 = 1_000;

const _: () = assert!(IDLE_PER_ORIGIN_MAX <= IDLE_MAX && BUSY_PER_ORIGIN_MAX <= BUSY_MAX);
const _: () = assert!(SWEEP_MS < IDLE_MS);

/// Connections by origin.
pub(crate) struct Pool {
    idle: Mutex<IdleConnections>,
    busy: Arc<Semaphore>,
    /// Connections in use and those that wait, together.
    connections_max: AtomicUsize,
    now: Now,
}

#[derive(Default)]
struct IdleConnections {
    /// An origin is here while a connection of it waits or a request to it is under way.
    origins: HashMap<Origin, OriginConnections>,
    /// The number of connections in all of them.
    count: usize,
    last_sweep_ms: u64,
}

struct OriginConnections {
    /// The one that was used last is at the back and is taken first, so that the connections of a
    /// burst are left to expire.
    idle: VecDeque<IdleConnection>,
    busy: Arc<Semaphore>,
}

struct IdleConnection {
    connection: Connection,
    since_ms: u64,
}

/// Leave to have one request under way.
pub(crate) struct RequestPermit {
    _origin: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(now: Now) -> Pool {
        let (busy, connections_max) = (Arc::new(Semaphore::new(BUSY_MAX)), AtomicUsize::new(0));
        connections_max.store(BUSY_MAX + IDLE_MAX, Ordering::Relaxed);
        Pool { idle: Mutex::default(), busy, connections_max, now }
    }

    /// From now on at most so many connections are open; to be called before the first request.
    pub(crate) fn set_connections_max(&self, max: usize) {
        let max = max.clamp(1, BUSY_MAX);
        self.busy.forget_permits(self.busy.available_permits().saturating_sub(max));
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// Waits until another request may be under way. First for its origin: requests that queue for
    /// a slow endpoint must not use up what there is for all.
    pub(crate) async fn acquire(&self, origin: &Origin) -> Result<RequestPermit, SendError> {
        let busy = self.lock().of_origin(origin).busy.clone();
        let origin = busy.acquire_owned().await.map_err(|_| SendError::NoConnection)?;
        let total = self.busy.clone().acquire_owned().await;
        let total = total.map_err(|_| SendError::NoConnection)?;
        self.make_room();
        Ok(RequestPermit { _origin: origin, _total: total })
    }

    /// Whoever has a permit may open a connection: for each that is in use beyond what is left, one
    /// that waits is closed.
    fn make_room(&self) {
        let max = self.connections_max.load(Ordering::Relaxed);
        let permits = max.min(BUSY_MAX);
        let in_use = permits.saturating_sub(self.busy.available_permits());
        let mut closed = Vec::new();
        let mut pool = self.lock();
        while pool.count > 0 && pool.count + in_use > max {
            closed.extend(pool.pop_any());
        }
        drop(pool);
    }

    /// A connection that waits for this origin and is open, as far as is known.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Connection> {
        let now_ms = (self.now)();
        loop {
            let mut closed = Vec::new();
            let mut pool = self.lock();
            pool.sweep_if_due(now_ms, &mut closed);
            let idle = pool.pop(origin);
            // Sockets are closed after the lock is let go.
            drop(pool);
            let IdleConnection { mut connection, since_ms } = idle?;
            if !is_expired(since_ms, now_ms) && connection.is_open() {
                connection.mark_reused();
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request, or closes it if there are enough.
    pub(crate) fn put(&self, origin: &Origin, mut connection: Connection) {
        if !connection.is_open() {
            return;
        }
        let now_ms = (self.now)();
        let mut closed = Vec::new();
        let mut pool = self.lock();
        pool.sweep_if_due(now_ms, &mut closed);
        if pool.count < IDLE_MAX {
            let connections = pool.of_origin(origin);
            if connections.idle.len() < IDLE_PER_ORIGIN_MAX {
                connections.idle.push_back(IdleConnection { connection, since_ms: now_ms });
                pool.count += 1;
            }
        }
        drop(pool);
    }

    /// Closes what waited too long.
    pub(crate) fn sweep(&self) {
        let mut closed = Vec::new();
        let mut pool = self.lock();
        pool.sweep((self.now)(), &mut closed);
        drop(pool);
    }

    /// Closes all that wait, and says whether there were any.
    pub(crate) fn close_idle(&self) -> bool {
        let mut closed = Vec::new();
        let mut pool = self.lock();
        pool.sweep(u64::MAX, &mut closed);
        pool.last_sweep_ms = (self.now)();
        drop(pool);
        !closed.is_empty()
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdleConnections {
    fn of_origin(&mut self, origin: &Origin) -> &mut OriginConnections {
        if !self.origins.contains_key(origin) {
            let busy = Arc::new(Semaphore::new(BUSY_PER_ORIGIN_MAX));
            self.origins.insert(origin.clone(), OriginConnections { idle: VecDeque::new(), busy });
        }
        self.origins.get_mut(origin).expect("it was just inserted")
    }

    fn pop(&mut self, origin: &Origin) -> Option<IdleConnection> {
        let idle = self.origins.get_mut(origin)?.idle.pop_back()?;
        self.count -= 1;
        Some(idle)
    }

    /// The one of some origin that has waited longest.
    fn pop_any(&mut self) -> Option<IdleConnection> {
        let idle = self.origins.values_mut().find_map(|origin| origin.idle.pop_front())?;
        self.count -= 1;
        Some(idle)
    }

    fn sweep_if_due(&mut self, now_ms: u64, closed: &mut Vec<IdleConnection>) {
        if now_ms >= self.last_sweep_ms.saturating_add(SWEEP_MS) {
            self.sweep(now_ms, closed);
        }
    }

    fn sweep(&mut self, now_ms: u64, closed: &mut Vec<IdleConnection>) {
        self.last_sweep_ms = now_ms;
        self.origins.retain(|_, connections| {
            while connections.idle.front().is_some_and(|idle| is_expired(idle.since_ms, now_ms)) {
                closed.extend(connections.idle.pop_front());
            }
            // Everybody who has or waits for a permit holds the semaphore too.
            !connections.idle.is_empty() || Arc::strong_count(&connections.busy) > 1
        });
        self.count -= closed.len();
    }
}

fn is_expired(since_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(since_ms) >= IDLE_MS
}
