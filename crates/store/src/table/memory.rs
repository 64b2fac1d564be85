//! A table in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Change, Pair, Table, TableError};

/// The simulator's table; clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryTable {
    pairs: Arc<Mutex<BTreeMap<Bytes, Bytes>>>,
}

impl MemoryTable {
    /// Every pair, for comparison.
    pub fn pairs(&self) -> Vec<Pair> {
        self.lock().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Bytes, Bytes>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        Ok(self.lock().get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        if from >= to {
            return Box::new(std::iter::empty());
        }
        let all = self.lock();
        let range = all.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        let pairs: Vec<Pair> = range.map(|(key, value)| (key.clone(), value.clone())).collect();
        Box::new(pairs.into_iter().map(Ok))
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        Box::new(self.range(from, to).map(|pair| pair.map(|(key, _)| key)))
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        if from > last {
            return Ok(None);
        }
        let all = self.lock();
        let mut range = all.range::<[u8], _>((Bound::Included(from), Bound::Included(last)));
        Ok(range.next_back().map(|(key, value)| (key.clone(), value.clone())))
    }

    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        // Before the lock: whoever says what changes may look up what is there.
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut all = self.lock();
        for (key, value) in changes {
            match value {
                Some(value) => all.insert(key, value),
                None => all.remove(&key),
            };
        }
        Ok(())
    }
}
