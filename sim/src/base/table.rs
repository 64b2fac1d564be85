//! The simulated table: chunks and other keys are written one after the other, in either order,
//! and it may fail in between.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reveille_store::keys;
use reveille_store::table::{Change, MemoryTable, Pair, Table, TableError, TableReader};

use super::random::Random;

/// A table in memory; clones are the same table.
#[derive(Clone)]
pub(crate) struct SimTable {
    inner: MemoryTable,
    faults: Arc<Mutex<TableFaults>>,
}

struct TableFaults {
    random: Random,
    full: bool,
    /// The next write finds no room.
    full_once: bool,
    /// A write has failed: it takes no more before it is reopened.
    stopped: bool,
}

impl SimTable {
    pub(crate) fn new(seed: u64) -> SimTable {
        let random = Random::new(seed);
        let faults = TableFaults { random, full: false, full_once: false, stopped: false };
        SimTable { inner: MemoryTable::default(), faults: Arc::new(Mutex::new(faults)) }
    }

    /// A new process finds everything that the old one wrote, and so it does after a power cut.
    pub(crate) fn restart(&self) {
        self.lock().stopped = false;
    }

    /// Whether there is no room for further changes.
    pub(crate) fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    fn lock(&self) -> MutexGuard<'_, TableFaults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableFaults {
    fn check(&mut self) -> Result<(), TableError> {
        if self.stopped {
            return Err(TableError::Stopped);
        }
        self.stopped = std::mem::take(&mut self.full_once) || self.full;
        if self.stopped { Err(TableError::NoSpace) } else { Ok(()) }
    }
}

impl TableReader for SimTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        self.inner.get(key)
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        self.inner.range(from, to)
    }

    fn range_back(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        self.inner.range_back(from, to)
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        self.inner.keys(from, to)
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        self.inner.floor(from, last)
    }
}

impl Table for SimTable {
    fn snapshot(&self) -> Result<Arc<dyn TableReader>, TableError> {
        self.inner.snapshot()
    }

    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let (chunks, others): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(key, _)| keys::is_chunk(key));
        let mut faults = self.lock();
        let parts = if faults.random.one_in(2) { [chunks, others] } else { [others, chunks] };
        for part in parts {
            faults.check()?;
            self.inner.apply(&mut part.into_iter().map(Ok))?;
            // The second part finds no room, now and then; whatever happens next, a crash or room
            // again, only the first was written.
            faults.full_once = faults.random.one_in(8);
        }
        faults.full_once = false;
        Ok(())
    }

    fn reopen(&self) -> Result<(), TableError> {
        let mut faults = self.lock();
        faults.stopped = false;
        faults.full_once = faults.random.one_in(2);
        Ok(())
    }
}
