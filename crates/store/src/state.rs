//! The state as readers see it: the table, and over it the overlay of what the table lacks.
//!
//! ```text
//!   pending   batches still syncing            only the partition sees them (engine)
//!   ───────────────────────────────────────────────────────────────────────────────
//!   active    runs of durable batches, newest last   ┐
//!   settled   a few large runs, copied together      ├─ a View, published whole
//!   frozen    one run that is being applied          │
//!   table     everything older                       ┘
//! ```
//!
//! A view is published after every commit by one pointer swap: readers take no lock that the
//! writer holds, and see each batch entirely or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::keys::BlobId;
use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::apply;
use crate::background;
use crate::chunk::Chunk;
use crate::keys;
use crate::run::{Entry, HashedKey, Run};
use crate::table::{Pair, Table, TableError};

/// Runs beyond this length are not merged any further on the commit path.
const RUN_ENTRIES_MAX: usize = 2_048;
/// What an entry costs in memory beside its bytes.
const ENTRY_OVERHEAD: usize = 96;

/// Everything durable, for readers and for the partition.
pub struct State {
    table: Arc<dyn Table>,
    view: ArcSwap<View>,
    /// Serialises the two that publish views: the committer and the applier.
    publishing: Mutex<()>,
    /// Runs that have left the overlay, each once, until nobody reads them any more.
    retired: Mutex<Vec<Arc<Run>>>,
}

/// The overlay at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The newest batch in it.
    seq: u64,
    /// Everything up to here is in the table alone.
    dropped: u64,
    /// Oldest first. They point into the log's records, and keep all of each in memory.
    active: Vec<Arc<Run>>,
    active_bytes: usize,
    /// Oldest first, and older than all that are active.
    settled: Vec<Arc<Run>>,
    settled_bytes: usize,
    frozen: Option<Arc<Run>>,
    frozen_seq: u64,
    frozen_bytes: usize,
}

/// How much memory the overlay takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlayBytes {
    /// Batches as they came.
    pub active: usize,
    /// What was put together from them.
    pub settled: usize,
    /// On its way into the table.
    pub frozen: usize,
}

impl OverlayBytes {
    /// All of it.
    pub fn total(self) -> usize {
        self.active + self.settled + self.frozen
    }
}

/// A part of the overlay on its way into the table.
pub struct FrozenOverlay {
    run: Arc<Run>,
    /// The newest batch in it.
    pub through: u64,
}

impl State {
    /// The state over a table that holds everything up to `applied`.
    pub fn new(table: Arc<dyn Table>, applied: u64) -> State {
        let view = View { seq: applied, dropped: applied, ..View::default() };
        State {
            table,
            view: ArcSwap::from_pointee(view),
            publishing: Mutex::new(()),
            retired: Mutex::default(),
        }
    }

    /// What can be read now.
    pub fn reader(&self) -> Reader {
        Reader { view: self.view.load_full(), table: self.table.clone() }
    }

    /// Shows a durable batch to readers.
    pub fn publish(&self, seq: u64, run: Arc<Run>, bytes: usize) {
        let _guard = self.lock();
        let mut view = View::clone(&self.view.load());
        assert!(seq > view.seq, "batches are published in order");
        view.seq = seq;
        view.active_bytes += bytes + run.entries().len() * ENTRY_OVERHEAD;
        push_run(&mut view.active, run);
        self.view.store(Arc::new(view));
    }

    /// Bytes of the overlay.
    pub fn overlay_bytes(&self) -> OverlayBytes {
        let view = self.view.load();
        OverlayBytes {
            active: view.active_bytes,
            settled: view.settled_bytes,
            frozen: view.frozen_bytes,
        }
    }

    /// Puts the active runs together. A reader has fewer of them to look into, and what was
    /// replaced meanwhile takes no more memory.
    pub fn settle(&self) {
        let (runs, mut settled) = {
            let view = self.view.load();
            (view.active.clone(), view.settled.clone())
        };
        if runs.is_empty() {
            return;
        }
        // As with the active runs, those of similar size become one.
        let mut count: usize = runs.iter().map(|run| run.entries().len()).sum();
        let mut parts = runs.clone();
        while let Some(older) = settled.pop_if(|older| older.entries().len() <= count) {
            count += older.entries().len();
            parts.insert(0, older);
        }
        settled.push(Run::pack_all(&parts));
        let settled_bytes = settled.iter().map(|run| run_bytes(run)).sum();
        let _guard = self.lock();
        let mut view = View::clone(&self.view.load());
        view.leave(&runs);
        (view.settled, view.settled_bytes) = (settled, settled_bytes);
        self.view.store(Arc::new(view));
        self.retire(parts);
    }

    /// Sets everything aside to be applied; `None` if there is nothing.
    /// A part that could not be applied is returned again, before anything newer.
    ///
    /// Whoever applies is the one who settles, too: only the active runs change meanwhile.
    pub fn freeze(&self) -> Option<FrozenOverlay> {
        let (runs, through) = {
            let view = self.view.load();
            if let Some(run) = &view.frozen {
                return Some(FrozenOverlay { run: run.clone(), through: view.frozen_seq });
            }
            let runs: Vec<Arc<Run>> = view.settled.iter().chain(&view.active).cloned().collect();
            if runs.is_empty() {
                return None;
            }
            (runs, view.seq)
        };
        // Merging happens outside the lock: the committer goes on publishing meanwhile.
        let run = Run::merge_all(&runs);
        let bytes: usize = run.entries().iter().map(entry_bytes).sum();
        let _guard = self.lock();
        let mut view = View::clone(&self.view.load());
        view.leave(&runs);
        (view.settled, view.settled_bytes) = (Vec::new(), 0);
        view.frozen = Some(run.clone());
        view.frozen_seq = through;
        view.frozen_bytes = bytes;
        self.view.store(Arc::new(view));
        self.retire(runs);
        Some(FrozenOverlay { run, through })
    }

    /// Writes a frozen part into the table and takes it out of the overlay.
    pub fn apply(&self, frozen: &FrozenOverlay) -> Result<(), TableError> {
        apply::apply(self.table.as_ref(), &frozen.run)?;
        let _guard = self.lock();
        let mut view = View::clone(&self.view.load());
        view.frozen = None;
        view.frozen_bytes = 0;
        view.dropped = frozen.through;
        self.view.store(Arc::new(view));
        self.retire(vec![frozen.run.clone()]);
        Ok(())
    }

    /// Runs have left the overlay, but somebody may still read them.
    fn retire(&self, runs: Vec<Arc<Run>>) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        for run in runs {
            if !retired.iter().any(|known| Arc::ptr_eq(known, &run)) {
                retired.push(run);
            }
        }
    }

    /// Frees runs that have left the overlay and that nobody reads any more. For whoever applies:
    /// to free a large one takes a while, and the last reader of it would be the one who waits.
    pub fn sweep(&self) {
        let unread = |run: &mut Arc<Run>| Arc::strong_count(run) == 1;
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let unread: Vec<Arc<Run>> = retired.extract_if(.., unread).collect();
        drop(retired);
        for run in unread {
            drop(run);
            background::give_way();
        }
    }

    /// Begins anew with a table that has failed; what it did not take is still in the overlay.
    pub fn recover(&self) -> Result<(), TableError> {
        self.table.reopen()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a run and merges neighbours of similar size, so that their number stays logarithmic.
fn push_run(runs: &mut Vec<Arc<Run>>, run: Arc<Run>) {
    runs.push(run);
    while let [.., older, newer] = runs.as_slice() {
        let (old, new) = (older.entries().len(), newer.entries().len());
        if old > 2 * new || old + new > RUN_ENTRIES_MAX {
            break;
        }
        let merged = Arc::new(Run::merge(older, newer));
        runs.truncate(runs.len() - 2);
        runs.push(merged);
    }
}

fn entry_bytes(entry: &Entry) -> usize {
    ENTRY_OVERHEAD + entry.key.len() + entry.value.as_ref().map_or(0, Bytes::len)
}

fn run_bytes(run: &Run) -> usize {
    run.entries().iter().map(entry_bytes).sum()
}

impl View {
    /// What the overlay says of a key: nothing, its removal, or its value.
    fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let wanted = HashedKey::new(key);
        self.newest_first().map(|run| run.get(wanted)).find(Option::is_some).flatten()
    }

    fn newest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.active.iter().rev().chain(self.settled.iter().rev()).chain(&self.frozen)
    }

    fn oldest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.frozen.iter().chain(&self.settled).chain(&self.active)
    }

    /// Active runs that were put together are no longer active.
    ///
    /// Those published meanwhile may have been merged with some of them: they hold newer entries
    /// of the same keys, so keeping a merged run active beside what was made of its parts changes
    /// nothing.
    fn leave(&mut self, runs: &[Arc<Run>]) {
        self.active.retain(|run| !runs.iter().any(|old| Arc::ptr_eq(old, run)));
        self.active_bytes = self.active.iter().map(|run| run_bytes(run)).sum();
    }
}

/// A consistent look at everything durable.
#[derive(Clone)]
pub struct Reader {
    view: Arc<View>,
    table: Arc<dyn Table>,
}

impl Reader {
    /// The newest batch that this reader sees in full.
    pub fn seq(&self) -> u64 {
        self.view.seq
    }

    /// Changes up to this batch are in the table alone: what was read from the table earlier than
    /// that may be stale.
    pub fn dropped(&self) -> u64 {
        self.view.dropped
    }

    /// What memory says of a key, without touching the table.
    pub fn get_recent(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.view.get(key)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        match self.view.get(key) {
            Some(known) => Ok(known),
            None => self.table.get(key),
        }
    }

    /// At most `limit` pairs from `from` to before `to`, in order.
    pub fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, TableError> {
        self.merged(from, to, limit, self.table.range(from, to))
    }

    /// What memory says of the keys from `from` to before `to`, removals included.
    pub fn range_recent(&self, from: &[u8], to: &[u8]) -> BTreeMap<Bytes, Option<Bytes>> {
        let mut found = BTreeMap::new();
        for run in self.view.oldest_first() {
            let entries = run.range(from, to).iter();
            found.extend(entries.map(|entry| (entry.key.clone(), entry.value.clone())));
        }
        found
    }

    /// At most `limit` keys from `from` to before `to`, in order; their values are not read.
    pub fn keys(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Bytes>, TableError> {
        let table = self.table.keys(from, to).map(|key| key.map(|key| (key, Bytes::new())));
        let pairs = self.merged(from, to, limit, Box::new(table))?;
        Ok(pairs.into_iter().map(|(key, _)| key).collect())
    }

    fn merged(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        mut table: Box<dyn Iterator<Item = Result<Pair, TableError>>>,
    ) -> Result<Vec<Pair>, TableError> {
        let newest_first = self.view.newest_first();
        let mut overlay: Vec<&[Entry]> = newest_first.map(|run| run.range(from, to)).collect();
        let mut from_table = table.next().transpose()?;
        let mut found = Vec::new();
        while found.len() < limit {
            let smallest = overlay.iter().filter_map(|run| run.first()).map(|entry| &entry.key);
            let Some(key) = smallest.chain(from_table.as_ref().map(|(key, _)| key)).min().cloned()
            else {
                break;
            };
            let mut value = None;
            for run in &mut overlay {
                if let Some((entry, rest)) = run.split_first()
                    && entry.key == key
                {
                    value = value.or(Some(entry.value.clone()));
                    *run = rest;
                }
            }
            if let Some((_, stored)) = from_table.take_if(|(stored, _)| *stored == key) {
                value = value.or(Some(Some(stored)));
                from_table = table.next().transpose()?;
            }
            if let Some(Some(value)) = value {
                found.push((key, value));
            }
        }
        Ok(found)
    }

    /// The chunk of a stream that holds a position.
    pub fn chunk_at(&self, id: BlobId, position: u64) -> Result<Option<Chunk>, TableError> {
        match self.recent_chunk_at(id, position)? {
            Some(chunk) => Ok(Some(chunk)),
            None => {
                let (first, last) = (keys::chunk(id, 0), keys::chunk(id, position));
                let found = self.table.floor(&first, &last)?;
                let chunk = found.map(|(key, value)| read_chunk(&key, &value)).transpose()?;
                Ok(chunk.filter(|chunk| chunk.end() > position))
            }
        }
    }

    /// The same, from memory alone.
    pub fn recent_chunk_at(&self, id: BlobId, position: u64) -> Result<Option<Chunk>, TableError> {
        let (first, last) = (keys::chunk(id, 0), keys::chunk(id, position));
        for run in self.view.newest_first() {
            let Some(entry) = run.floor(&first, &last) else {
                continue;
            };
            let Some(value) = &entry.value else { continue };
            let chunk = read_chunk(&entry.key, value)?;
            if chunk.end() > position {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

/// Reads a stored chunk; one that cannot be read is damage.
pub(crate) fn read_chunk(key: &[u8], value: &Bytes) -> Result<Chunk, TableError> {
    let (id, start) = keys::parse_chunk(key)
        .ok_or_else(|| TableError::Corrupt("a chunk's key cannot be read".into()))?;
    Chunk::decode(start, value)
        .map_err(|error| TableError::Corrupt(format!("stream {} at {start}: {error}", id.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::MemoryTable;

    fn run(keys: std::ops::Range<u8>) -> Arc<Run> {
        let one = |byte: u8| Bytes::copy_from_slice(&[2, byte]);
        let entries = keys.map(|byte| Entry { key: one(byte), value: Some(one(byte)) });
        Arc::new(Run::from_sorted(entries.collect()))
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
}
