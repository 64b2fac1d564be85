//! A table in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Change, Pair, Table, TableError, TableReader};

type Pairs = BTreeMap<Bytes, Bytes>;

/// The simulator's table; clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryTable {
    /// Copied before it is changed if there are snapshots of it.
    pairs: Arc<Mutex<Arc<Pairs>>>,
}

/// Never changes: the table goes on with a copy.
struct MemorySnapshot {
    pairs: Arc<Pairs>,
}

impl MemoryTable {
    /// Every pair, for comparison.
    pub fn pairs(&self) -> Vec<Pair> {
        self.lock().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Pairs>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableReader for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        Ok(self.lock().get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        Box::new(range(&self.lock(), from, to).into_iter().map(Ok))
    }

    fn range_back(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        Box::new(range(&self.lock(), from, to).into_iter().rev().map(Ok))
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        Box::new(self.range(from, to).map(|pair| pair.map(|(key, _)| key)))
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        Ok(floor(&self.lock(), from, last))
    }
}

impl TableReader for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        Ok(self.pairs.get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        Box::new(range(&self.pairs, from, to).into_iter().map(Ok))
    }

    fn range_back(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        Box::new(range(&self.pairs, from, to).into_iter().rev().map(Ok))
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        Box::new(self.range(from, to).map(|pair| pair.map(|(key, _)| key)))
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        Ok(floor(&self.pairs, from, last))
    }
}

impl Table for MemoryTable {
    fn snapshot(&self) -> Result<Arc<dyn TableReader>, TableError> {
        Ok(Arc::new(MemorySnapshot { pairs: self.lock().clone() }))
    }

    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        // Before the lock: whoever says what changes may look up what is there.
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut pairs = self.lock();
        let pairs = Arc::make_mut(&mut pairs);
        for (key, value) in changes {
            match value {
                Some(value) => pairs.insert(key, value),
                None => pairs.remove(&key),
            };
        }
        Ok(())
    }
}

fn range(pairs: &Pairs, from: &[u8], to: &[u8]) -> Vec<Pair> {
    if from >= to {
        return Vec::new();
    }
    let range = pairs.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
    range.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn floor(pairs: &Pairs, from: &[u8], last: &[u8]) -> Option<Pair> {
    if from > last {
        return None;
    }
    let mut range = pairs.range::<[u8], _>((Bound::Included(from), Bound::Included(last)));
    range.next_back().map(|(key, value)| (key.clone(), value.clone()))
}
