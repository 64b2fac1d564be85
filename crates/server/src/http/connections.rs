//! The open connections: how many there may be, and which of them makes room for another.
//!
//! ```text
//! accepted ─▶ idle, without a key ──request──▶ busy ──answered──▶ idle, with a key or without
//! ```
//!
//! When there is no place for one more, those that are idle and have shown no key are closed first,
//! then those that are idle and have, the one that has been idle for longest first. Busy ones stay:
//! whoever wants to come in waits for one of them to end. One tenant is never busy on all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use reveille_core::Tenant;
use tokio::sync::Notify;

use super::error::RequestError;

/// Connections that are closed at once when there is no place: looking for them takes a look at
/// all.
const EVICTED_AT_ONCE: usize = 32;
/// Tenants that are remembered although none of their connections is busy.
const TENANTS_KEPT: usize = 1_024;

/// All connections of a server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    max: usize,
    open: Mutex<HashMap<u64, Weak<Connection>>>,
    /// On how many connections each tenant is busy.
    busy: Mutex<HashMap<Tenant, Arc<AtomicUsize>>>,
    /// Grows whenever a connection is opened or becomes idle: says who was first.
    ticks: AtomicU64,
    /// Whether somebody waits for a place.
    is_awaited: AtomicBool,
    /// A connection has ended or become idle.
    changed: Notify,
}

/// One connection, for as long as it is open.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    number: u64,
    /// Requests that are being read, decided or answered.
    requests: AtomicUsize,
    idle_since: AtomicU64,
    /// Whether somebody on it has shown a key.
    has_key: AtomicBool,
    /// The count of the tenant who is busy on it.
    busy_tenant: Mutex<Option<Arc<AtomicUsize>>>,
    /// It is to make room for others.
    closing: Notify,
    is_closing: AtomicBool,
    /// Who is at the other end.
    peer: OnceLock<IpAddr>,
}

/// A request on a connection, until its answer has left.
pub(crate) struct BusyConnection {
    connection: Arc<Connection>,
}

impl Connections {
    /// At most so many.
    pub(crate) fn new(max: usize) -> Connections {
        let shared = Shared {
            max: max.max(1),
            open: Mutex::default(),
            busy: Mutex::default(),
            ticks: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            changed: Notify::new(),
        };
        Connections { shared: Arc::new(shared) }
    }

    /// Waits for a place. Others are closed for it if that is possible.
    pub(crate) async fn enter(&self) -> Arc<Connection> {
        self.shared.is_awaited.store(true, Ordering::SeqCst);
        while lock(&self.shared.open).len() >= self.shared.max {
            self.make_room();
            self.shared.changed.notified().await;
        }
        self.shared.is_awaited.store(false, Ordering::SeqCst);
        let number = self.shared.tick();
        let connection = Arc::new(Connection {
            shared: self.shared.clone(),
            number,
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(number),
            has_key: AtomicBool::new(false),
            busy_tenant: Mutex::default(),
            closing: Notify::new(),
            is_closing: AtomicBool::new(false),
            peer: OnceLock::new(),
        });
        lock(&self.shared.open).insert(number, Arc::downgrade(&connection));
        connection
    }

    /// Closes some of those that are idle: without a key if there are any, else one with a key.
    pub(crate) fn make_room(&self) {
        let open: Vec<Arc<Connection>> =
            lock(&self.shared.open).values().filter_map(Weak::upgrade).collect();
        let is_idle = |it: &&Arc<Connection>| {
            it.requests.load(Ordering::SeqCst) == 0 && !it.is_closing.load(Ordering::SeqCst)
        };
        let (known, mut strangers): (Vec<_>, Vec<_>) =
            open.iter().filter(is_idle).partition(|it| it.has_key.load(Ordering::SeqCst));
        let since = |it: &&Arc<Connection>| it.idle_since.load(Ordering::SeqCst);
        strangers.sort_unstable_by_key(since);
        let some = (self.shared.max / 8).clamp(1, EVICTED_AT_ONCE);
        match known.into_iter().min_by_key(since).filter(|_| strangers.is_empty()) {
            Some(oldest) => oldest.close(),
            None => strangers.into_iter().take(some).for_each(|it| it.close()),
        }
    }
}

impl Shared {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    fn tell(&self) {
        if self.is_awaited.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// On how many connections a tenant may be busy: a quarter is for all others.
    fn share(&self) -> usize {
        (self.max - self.max / 4).max(1)
    }

    fn count_of(&self, tenant: &Tenant) -> Arc<AtomicUsize> {
        let mut busy = lock(&self.busy);
        if let Some(count) = busy.get(tenant) {
            return count.clone();
        }
        if busy.len() >= TENANTS_KEPT {
            busy.retain(|_, count| Arc::strong_count(count) > 1);
        }
        busy.entry(tenant.clone()).or_default().clone()
    }
}

impl Connection {
    /// This is who is at the other end.
    pub(crate) fn is_from(&self, peer: IpAddr) {
        // It is said once.
        let _ = self.peer.set(peer);
    }

    /// A request has come.
    pub(crate) fn begin(self: &Arc<Connection>) -> BusyConnection {
        self.requests.fetch_add(1, Ordering::SeqCst);
        BusyConnection { connection: self.clone() }
    }

    /// Ends when the connection is to make room for another.
    pub(crate) async fn closed(&self) {
        self.closing.notified().await;
        // Somebody may have been faster: then another one is found.
        while self.requests.load(Ordering::SeqCst) > 0 {
            self.is_closing.store(false, Ordering::SeqCst);
            self.shared.tell();
            self.closing.notified().await;
        }
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.closing.notify_one();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.shared.open).remove(&self.number);
        self.shared.tell();
    }
}

impl BusyConnection {
    /// Who is at the other end.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.connection.peer.get().copied()
    }

    /// Whoever asks has shown a key, or needs none.
    pub(crate) fn has_key(&self) {
        // Most connections are used more than once.
        if !self.connection.has_key.load(Ordering::Relaxed) {
            self.connection.has_key.store(true, Ordering::SeqCst);
        }
    }

    /// The tenant is busy on this connection, unless it is on too many already.
    pub(crate) fn belongs_to(&self, tenant: &Tenant) -> Result<(), RequestError> {
        let connection = &self.connection;
        let mut holder = lock(&connection.busy_tenant);
        if holder.is_some() {
            return Ok(());
        }
        let count = connection.shared.count_of(tenant);
        let share = connection.shared.share();
        if count.fetch_add(1, Ordering::SeqCst) >= share {
            count.fetch_sub(1, Ordering::SeqCst);
            return Err(RequestError::TooManyConnections { share });
        }
        *holder = Some(count);
        Ok(())
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        let connection = &self.connection;
        let mut holder = lock(&connection.busy_tenant);
        if connection.requests.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        if let Some(count) = holder.take() {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        drop(holder);
        connection.idle_since.store(connection.shared.tick(), Ordering::SeqCst);
        connection.shared.tell();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
