//! A table in memory that forgets, in a crash, what was applied after its last checkpoint.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Change, Pair, Table, TableError};

/// The simulator's table; clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryTable {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    live: BTreeMap<Bytes, Bytes>,
    /// What every key changed since the checkpoint had before.
    undo: BTreeMap<Bytes, Option<Bytes>>,
}

impl MemoryTable {
    /// Falls back to the last checkpoint.
    pub fn crash(&self) {
        let mut inner = self.lock();
        for (key, before) in std::mem::take(&mut inner.undo) {
            match before {
                Some(value) => inner.live.insert(key, value),
                None => inner.live.remove(&key),
            };
        }
    }

    /// Every pair, for comparison.
    pub fn pairs(&self) -> Vec<Pair> {
        self.lock().live.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        Ok(self.lock().live.get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        if from >= to {
            return Box::new(std::iter::empty());
        }
        let inner = self.lock();
        let range = inner.live.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
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
        let inner = self.lock();
        let mut range = inner.live.range::<[u8], _>((Bound::Included(from), Bound::Included(last)));
        Ok(range.next_back().map(|(key, value)| (key.clone(), value.clone())))
    }

    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        // Before the lock: whoever says what changes may look up what is there.
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut inner = self.lock();
        for (key, value) in changes {
            let before = match value {
                Some(value) => inner.live.insert(key.clone(), value),
                None => inner.live.remove(&key),
            };
            inner.undo.entry(key).or_insert(before);
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), TableError> {
        self.lock().undo.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_returns_to_the_checkpoint() {
        let key = || Bytes::from_static(b"k");
        let table = MemoryTable::default();
        let apply = |changes: Vec<Change>| table.apply(&mut changes.into_iter().map(Ok)).unwrap();
        apply(vec![(key(), Some(Bytes::from_static(b"1")))]);
        table.checkpoint().unwrap();
        apply(vec![(key(), Some(Bytes::from_static(b"2")))]);
        apply(vec![(key(), None), (Bytes::from_static(b"x"), Some(key()))]);
        table.crash();
        assert_eq!(table.pairs(), vec![(key(), Bytes::from_static(b"1"))]);
    }
}
