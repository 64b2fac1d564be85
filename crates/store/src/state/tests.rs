//! Who keeps what alive, and what a failed apply leaves behind.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::table::{Change, MemoryTable, Pair, TableReader};

/// A table whose writes may fail after they have taken effect in part.
#[derive(Default)]
struct TestTable {
    inner: MemoryTable,
    fails: AtomicBool,
    snapshots: Mutex<Vec<Weak<dyn TableReader>>>,
}

impl TestTable {
    /// Snapshots that somebody holds.
    fn snapshots(&self) -> usize {
        self.snapshots.lock().unwrap().iter().filter(|one| one.strong_count() > 0).count()
    }
}

impl TableReader for TestTable {
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

impl Table for TestTable {
    fn snapshot(&self) -> Result<Arc<dyn TableReader>, TableError> {
        let snapshot = self.inner.snapshot()?;
        self.snapshots.lock().unwrap().push(Arc::downgrade(&snapshot));
        Ok(snapshot)
    }

    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        if !self.fails.load(Ordering::Relaxed) {
            return self.inner.apply(changes);
        }
        self.inner.apply(&mut changes.take(2))?;
        Err(TableError::NoSpace)
    }

    fn reopen(&self) -> Result<(), TableError> {
        self.fails.store(false, Ordering::Relaxed);
        Ok(())
    }
}

fn run(keys: std::ops::Range<u8>) -> Arc<Run> {
    let one = |byte: u8| Bytes::copy_from_slice(&[2, byte]);
    let entries = keys.map(|byte| Entry { key: one(byte), value: Some(one(byte)) });
    Arc::new(Run::from_sorted(entries.collect()))
}

fn publish_and_apply(state: &State, seq: u64, run: Arc<Run>) {
    state.publish(seq, run, 9);
    state.apply(&state.freeze().unwrap()).unwrap();
}

#[test]
fn the_table_is_pinned_for_those_who_read_it_and_for_nobody_else() {
    let table = Arc::new(TestTable::default());
    let state = State::new(table.clone(), 0);
    publish_and_apply(&state, 1, run(0..3));
    let early = state.reader();
    assert_eq!(table.snapshots(), 0, "nothing is written, so that the table itself is read");
    publish_and_apply(&state, 2, run(3..6));
    let (late, same) = (state.reader(), early.clone());
    publish_and_apply(&state, 3, run(6..9));
    assert_eq!(table.snapshots(), 2);
    let found = |reader: &Reader| reader.keys(&[2], &[3], 99).unwrap().len();
    assert_eq!((found(&early), found(&late), found(&state.reader())), (3, 6, 9));
    drop(early);
    assert_eq!((found(&same), table.snapshots()), (3, 2));
    drop(same);
    drop(late);
    assert_eq!(table.snapshots(), 0);
}

#[test]
fn an_apply_that_fails_half_way_changes_nothing_for_anybody() {
    let table = TestTable { fails: true.into(), ..TestTable::default() };
    let state = State::new(Arc::new(table), 0);
    let empty = state.reader();
    state.publish(1, run(0..5), 9);
    let full = state.reader();
    let found = |reader: &Reader| reader.keys(&[2], &[3], 99).unwrap().len();
    let check = || assert_eq!((found(&empty), found(&full), found(&state.reader())), (0, 5, 5));
    for _ in 0..2 {
        let frozen = state.freeze().unwrap();
        assert!(matches!(state.apply(&frozen), Err(TableError::NoSpace)));
        check();
    }
    state.recover().unwrap();
    check();
    state.apply(&state.freeze().unwrap()).unwrap();
    check();
    assert_eq!(state.reader().get_recent(&[2, 0]), None, "it has left the overlay");
}

#[test]
fn what_leaves_the_overlay_is_freed_by_whoever_sweeps_once_nobody_reads_it() {
    let state = State::new(Arc::new(MemoryTable::default()), 0);
    let batch = run(0..9);
    let active = Arc::downgrade(&batch);
    state.publish(1, batch, 9);
    let reader = state.reader();
    state.settle();
    state.sweep();
    assert!(active.upgrade().is_some(), "somebody reads it");
    drop(reader);
    assert!(active.upgrade().is_some(), "the last reader does not free it");
    state.sweep();
    assert!(active.upgrade().is_none());

    // The only run there is becomes the frozen one as it is.
    let frozen = state.freeze().unwrap();
    let settled = Arc::downgrade(&frozen.run);
    state.apply(&frozen).unwrap();
    drop(frozen);
    assert!(settled.upgrade().is_some());
    state.sweep();
    assert!(settled.upgrade().is_none());
}

#[test]
fn a_range_ends_with_the_pair_that_fills_it() {
    let state = State::new(Arc::new(TestTable::default()), 0);
    publish_and_apply(&state, 1, run(0..4));
    state.publish(2, run(4..9), 9);
    let reader = state.reader();
    let count = |bytes| reader.range_within(&[2], &[3], 100, bytes).unwrap().len();
    // Each pair has four bytes.
    assert_eq!([1, 4, 5, 17, usize::MAX].map(count), [1, 1, 2, 5, 9]);
    assert_eq!(reader.range_within(&[2], &[3], 3, 100).unwrap().len(), 3);
}
