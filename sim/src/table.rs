//! The simulated table: after a crash it holds its last checkpoint and any prefix of what followed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reveille_store::table::{MemoryTable, Pair, Table, TableError};

type Changes = Vec<(Bytes, Option<Bytes>)>;

/// A table in memory; clones are the same table.
#[derive(Clone, Default)]
pub(crate) struct SimTable {
    inner: MemoryTable,
    since: Arc<Mutex<Since>>,
}

#[derive(Default)]
struct Since {
    /// What was applied after the checkpoint, one atomic write after the other.
    applied: Vec<Changes>,
    full: bool,
}

impl SimTable {
    /// Loses power: of what was applied since the checkpoint the first `choose(count)` survive.
    pub(crate) fn crash(&self, choose: impl FnOnce(usize) -> usize) {
        let mut since = self.lock();
        let kept = choose(since.applied.len());
        since.applied.truncate(kept);
        self.inner.crash();
        for changes in &since.applied {
            let applied = self.inner.apply(changes.clone());
            applied.expect("memory takes everything");
        }
    }

    /// Whether there is no room for further changes.
    pub(crate) fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    fn lock(&self) -> MutexGuard<'_, Since> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table for SimTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        self.inner.get(key)
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        self.inner.range(from, to)
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        self.inner.keys(from, to)
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        self.inner.floor(from, last)
    }

    fn apply(&self, changes: Changes) -> Result<(), TableError> {
        let mut since = self.lock();
        if since.full {
            return Err(TableError::NoSpace);
        }
        since.applied.push(changes.clone());
        self.inner.apply(changes)
    }

    fn checkpoint(&self) -> Result<(), TableError> {
        let mut since = self.lock();
        if since.full {
            return Err(TableError::NoSpace);
        }
        since.applied.clear();
        self.inner.checkpoint()
    }
}
