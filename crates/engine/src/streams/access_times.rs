//! Reads that keep a stream with a sliding lifetime alive, remembered until they are written down.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use reveille_core::Millis;
use reveille_core::stream::{Expiry, Head, StreamId};

use crate::app::Part;
use crate::wall::WallOffset;

/// When streams were last read. Becoming the writer counts as a read of every stream: what only
/// the writer before remembered is not held against it.
pub struct AccessTimes {
    started: AtomicU64,
    wall: WallOffset,
    last: Mutex<HashMap<StreamId, Millis>>,
}

impl Part for AccessTimes {}

impl AccessTimes {
    /// Nothing read yet; the server starts now.
    pub fn new(started: Millis) -> AccessTimes {
        AccessTimes::following(started, WallOffset::default())
    }

    /// The same, beside a wall clock that may be elsewhere.
    pub fn following(started: Millis, wall: WallOffset) -> AccessTimes {
        AccessTimes { started: AtomicU64::new(started.0), wall, last: Mutex::new(HashMap::new()) }
    }

    /// The partition becomes the writer.
    pub(crate) fn restart(&self, now: Millis) {
        self.started.store(now.0, Ordering::Relaxed);
    }

    /// When the stream was last read, as far as it is remembered.
    pub fn last(&self, id: StreamId) -> Millis {
        self.lock().get(&id).copied().unwrap_or(Millis(self.started.load(Ordering::Relaxed)))
    }

    /// When the stream ends if nobody touches it any more.
    pub fn expires_at(&self, head: &Head) -> Millis {
        match head.expiry {
            Expiry::Never => Millis::NEVER,
            Expiry::At(at, _) => self.wall.time_at(at),
            Expiry::Ttl(_) => head.expires_at(self.last(head.id)),
        }
    }

    /// Remembers a read. True if it should be written down: once per tenth of the lifetime.
    pub fn touch(&self, head: &Head, now: Millis) -> bool {
        let Expiry::Ttl(seconds) = head.expiry else {
            return false;
        };
        self.lock().insert(head.id, now);
        now.since(head.touched_at) >= seconds.saturating_mul(1_000) / 10
    }

    /// Forgets what was written down, or is of no more use.
    pub fn forget(&self, id: StreamId, until: Millis) {
        let mut last = self.lock();
        if last.get(&id).is_some_and(|at| *at <= until) {
            last.remove(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamId, Millis>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
