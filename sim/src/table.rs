//! The simulated table: after a crash it holds its last checkpoint and any prefix of what followed,
//! where chunks and other keys are written one after the other, in either order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reveille_store::keys;
use reveille_store::table::{Change, MemoryTable, Pair, Table, TableError};

use crate::random::Random;

/// A table in memory; clones are the same table.
#[derive(Clone)]
pub(crate) struct SimTable {
    inner: MemoryTable,
    since: Arc<Mutex<Since>>,
}

struct Since {
    random: Random,
    /// What was applied after the checkpoint, one atomic write after the other.
    applied: Vec<Vec<Change>>,
    full: bool,
    /// The next write finds no room.
    full_once: bool,
    /// A write has failed: it takes no more before it is reopened.
    stopped: bool,
}

impl SimTable {
    pub(crate) fn new(seed: u64) -> SimTable {
        let since = Since {
            random: Random::new(seed),
            applied: Vec::new(),
            full: false,
            full_once: false,
            stopped: false,
        };
        SimTable { inner: MemoryTable::default(), since: Arc::new(Mutex::new(since)) }
    }

    /// Loses power: of what was applied since the checkpoint only the beginning survives.
    pub(crate) fn crash(&self) {
        let mut since = self.lock();
        let applied = since.applied.len();
        let kept = match since.random.below(3) {
            0 => 0,
            1 => applied,
            _ => since.random.index(applied + 1),
        };
        since.applied.truncate(kept);
        since.stopped = false;
        self.inner.crash();
        for changes in &since.applied {
            write(&self.inner, changes).expect("memory takes everything");
        }
    }

    /// A new process finds everything that the old one wrote.
    pub(crate) fn restart(&self) {
        self.lock().stopped = false;
    }

    /// Whether there is no room for further changes.
    pub(crate) fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    fn lock(&self) -> MutexGuard<'_, Since> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Since {
    fn check(&mut self) -> Result<(), TableError> {
        if self.stopped {
            return Err(TableError::Stopped);
        }
        self.stopped = std::mem::take(&mut self.full_once) || self.full;
        if self.stopped { Err(TableError::NoSpace) } else { Ok(()) }
    }
}

fn write(table: &MemoryTable, changes: &[Change]) -> Result<(), TableError> {
    table.apply(&mut changes.iter().cloned().map(Ok))
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

    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let (chunks, others): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(key, _)| keys::is_chunk(key));
        let mut since = self.lock();
        let parts = if since.random.one_in(2) { [chunks, others] } else { [others, chunks] };
        for part in parts {
            since.check()?;
            write(&self.inner, &part)?;
            since.applied.push(part);
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), TableError> {
        let mut since = self.lock();
        since.check()?;
        since.applied.clear();
        self.inner.checkpoint()
    }

    fn reopen(&self) -> Result<(), TableError> {
        self.crash();
        let mut since = self.lock();
        since.full_once = since.random.one_in(2);
        Ok(())
    }
}
