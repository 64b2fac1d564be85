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
//! writer holds, and see each batch entirely or not at all. A view names the generation of the
//! table that it lies over, so that an apply, too, is seen entirely or not at all.

mod generation;
mod reader;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::apply;
use crate::background;
use crate::run::{Entry, HashedKey, Run};
use crate::table::{Table, TableError};
use generation::TableGeneration;
pub use reader::Reader;

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

/// The overlay at one moment, and the table under it.
#[derive(Clone)]
struct View {
    table: Arc<TableGeneration>,
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

/// The memory that the overlay takes.
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
        let view = View::new(Arc::new(TableGeneration::new(table.clone())), applied);
        State {
            table,
            view: ArcSwap::from_pointee(view),
            publishing: Mutex::new(()),
            retired: Mutex::default(),
        }
    }

    /// What can be read now.
    pub fn reader(&self) -> Reader {
        Reader { view: self.view.load_full() }
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

    /// Writes a frozen part into the table and takes it out of the overlay. Readers that were taken
    /// before find the table as it was.
    pub fn apply(&self, frozen: &FrozenOverlay) -> Result<(), TableError> {
        self.view.load().table.pin()?;
        apply::apply(self.table.as_ref(), &frozen.run)?;
        let _guard = self.lock();
        let mut view = View::clone(&self.view.load());
        view.table = Arc::new(TableGeneration::new(self.table.clone()));
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

    /// Begins anew with a table that has failed; what it did not take is still in the overlay, and
    /// hides what it took of that. Readers that were taken before may find the table stopped.
    pub fn recover(&self) -> Result<(), TableError> {
        {
            // Before and not after: whoever reads meanwhile waits for the new table, because the
            // snapshot of the old one ends with it.
            let _guard = self.lock();
            let mut view = View::clone(&self.view.load());
            view.table = Arc::new(TableGeneration::new(self.table.clone()));
            self.view.store(Arc::new(view));
        }
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
    /// Nothing but a table that holds everything up to `applied`.
    fn new(table: Arc<TableGeneration>, applied: u64) -> View {
        View {
            table,
            seq: applied,
            dropped: applied,
            active: Vec::new(),
            active_bytes: 0,
            settled: Vec::new(),
            settled_bytes: 0,
            frozen: None,
            frozen_seq: 0,
            frozen_bytes: 0,
        }
    }

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

#[cfg(test)]
mod tests;
