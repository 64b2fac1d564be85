//! A machine that keeps a table of its own and writes to a log which it shares with another.
//!
//! The log is [`SharedLog`], and [`Contest`] is what happens on the way to it: answers and batches
//! get lost, and a writer is deposed between a commit that was not answered and its repetition.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reveille_store::checkpoint;
use reveille_store::disk::{Disk, SimDisk};
use reveille_store::log::{
    BatchId, CommitError, Feed as _, Log, RecoveryReport, SharedLog, SharedLogFeed, SharedLogWriter,
};
use reveille_store::open::replay;
use reveille_store::state::State;

use super::check::{CheckResult, violation};
use super::mode::Mode;
use super::random::Random;
use super::storage::{OpenedStorage, Storage, StorageFault};
use super::table::SimTable;

/// One of the machines; clones are the same machine.
#[derive(Clone)]
pub(crate) struct SharedStorage {
    disk: SimDisk,
    table: SimTable,
    contest: Contest,
    replay_bytes: usize,
}

/// The log of two machines, and what happens on the way to it; clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct Contest {
    log: SharedLog,
    state: Arc<Mutex<ContestState>>,
}

#[derive(Default)]
struct ContestState {
    /// What is to become of the next commit.
    next: Option<CommitFault>,
    /// A writer that was opened while another one waited for an answer.
    usurper: Option<ContestedWriter>,
    /// By writer: after which batch it was opened.
    opened: Vec<u64>,
    /// The place in `opened` of whoever has committed under a number.
    writers: BTreeMap<u64, usize>,
    /// Where the order of batches has been checked up to.
    checked: u64,
    /// A batch that is not its writer's turn.
    misplaced: Option<String>,
    /// The disks of all machines: what one of them still needs is not released.
    disks: Vec<SimDisk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// The batch is in the log, or is not, and the process hears nothing before it dies.
    Break {
        is_written: bool,
    },
    /// The batch is in the log, or is not, and its writer is deposed before it asks again.
    Depose {
        is_written: bool,
    },
    /// The same has come so far that the writer asks again.
    DeposeNow,
    NoSpace,
}

/// The writing end, until somebody else opens one.
pub(crate) struct ContestedWriter {
    inner: SharedLogWriter,
    contest: Contest,
    /// Its place among all writers.
    place: usize,
}

impl Contest {
    /// Opens a writer and deposes every older one.
    pub(crate) fn writer(&self) -> ContestedWriter {
        let inner = self.log.writer();
        let mut state = self.lock();
        state.opened.push(inner.last_sequence());
        let place = state.opened.len() - 1;
        ContestedWriter { inner, contest: self.clone(), place }
    }

    pub(crate) fn feed(&self, after: u64) -> SharedLogFeed {
        self.log.feed(after)
    }

    pub(crate) fn set_next(&self, fault: Option<CommitFault>) {
        self.lock().next = fault;
    }

    /// The next answer, or the next batch, is lost; its writer asks again.
    pub(crate) fn lose_next(&self, is_written: bool) {
        if is_written {
            self.log.lose_next_answer();
        } else {
            self.log.lose_next_batch();
        }
    }

    /// The writer that was opened during a commit, if one was.
    pub(crate) fn take_usurper(&self) -> Option<ContestedWriter> {
        self.lock().usurper.take()
    }

    pub(crate) fn has_usurper(&self) -> bool {
        self.lock().usurper.is_some()
    }

    /// Every batch is of the writer whose turn it was: none of a deposed one was accepted.
    pub(crate) fn check_order(&self) -> CheckResult {
        self.read_order();
        self.lock().misplaced.take().map_or(Ok(()), |what| Err(violation(what)))
    }

    fn read_order(&self) {
        let mut state = self.lock();
        let mut feed = self.log.feed(state.checked);
        while let Ok(Some(batch)) = feed.next_batch() {
            let place = batch.id.and_then(|id| state.writers.get(&id.writer)).copied();
            let is_in_turn = place.is_some_and(|place| {
                let next = state.opened.get(place + 1);
                state.opened[place] < batch.sequence
                    && next.is_none_or(|deposed_at| batch.sequence <= *deposed_at)
            });
            if !is_in_turn {
                let what = format!("batch {} of writer {place:?} was accepted", batch.sequence);
                state.misplaced.get_or_insert(what);
            }
            state.checked = batch.sequence;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ContestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for ContestedWriter {
    fn commit(&mut self, batch: BatchId, payload: &Bytes) -> Result<u64, CommitError> {
        let fault = {
            let mut state = self.contest.lock();
            state.writers.insert(batch.writer, self.place);
            // Faults are for whoever may write.
            let is_newest = self.place + 1 == state.opened.len();
            state.next.take_if(|_| is_newest)
        };
        let unavailable = || CommitError::Unavailable { reason: "no answer".to_owned() };
        match fault {
            None => {}
            Some(CommitFault::NoSpace) => return Err(CommitError::NoSpace),
            Some(CommitFault::Break { is_written }) => {
                if is_written {
                    self.inner.commit(batch, payload)?;
                }
                let source = io::Error::other("the process is interrupted");
                return Err(CommitError::Broken { place: "the shared log".to_owned(), source });
            }
            Some(CommitFault::Depose { is_written }) => {
                self.contest.set_next(Some(CommitFault::DeposeNow));
                if is_written {
                    self.inner.commit(batch, payload)?;
                }
                return Err(unavailable());
            }
            Some(CommitFault::DeposeNow) => {
                let usurper = self.contest.writer();
                self.contest.lock().usurper = Some(usurper);
            }
        }
        self.inner.commit(batch, payload)
    }

    /// What another machine has not in its table yet is kept.
    fn release(&mut self, through: u64) -> Result<(), CommitError> {
        self.contest.read_order();
        let state = self.contest.lock();
        let needed = state.disks.iter().map(|disk| checkpoint::read(disk).unwrap_or(0)).min();
        drop(state);
        self.inner.release(through.min(needed.unwrap_or(0)))
    }

    fn idle(&mut self) -> Result<(), CommitError> {
        self.inner.idle()
    }

    fn last_sequence(&self) -> u64 {
        self.inner.last_sequence()
    }

    fn batch_bytes_max(&self) -> usize {
        self.inner.batch_bytes_max()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

impl SharedStorage {
    /// Another machine on this log.
    pub(crate) fn new(contest: &Contest, random: &mut Random, mode: &Mode) -> SharedStorage {
        let disk = SimDisk::new(random.next());
        contest.lock().disks.push(disk.clone());
        let table = SimTable::new(random.next());
        SharedStorage { disk, table, contest: contest.clone(), replay_bytes: mode.replay_bytes }
    }

    pub(crate) fn contest(&self) -> &Contest {
        &self.contest
    }

    pub(crate) fn replay_bytes(&self) -> usize {
        self.replay_bytes
    }

    /// A new process reads what the last one wrote.
    pub(crate) fn restart_table(&self) {
        self.table.restart();
    }

    /// The state up to its checkpoint, which is returned as well.
    pub(crate) fn open_table(&self) -> Result<(Arc<State>, u64), String> {
        let checkpoint = checkpoint::read(&self.disk).map_err(|error| error.to_string())?;
        Ok((Arc::new(State::new(Arc::new(self.table.clone()), checkpoint)), checkpoint))
    }
}

impl Storage for SharedStorage {
    fn open(&mut self, _salt: u64) -> Result<OpenedStorage, String> {
        // From here on nobody else can add to what is about to be read.
        let log = self.contest.writer();
        let (state, checkpoint) = self.open_table()?;
        let mut feed = self.contest.feed(checkpoint);
        let mut recovered = RecoveryReport::default();
        while let Some(batch) = feed.next_batch().map_err(|error| error.to_string())? {
            recovered.records += 1;
            recovered.last_seq = batch.sequence;
            replay(&state, batch, self.replay_bytes).map_err(|error| error.to_string())?;
        }
        Ok(OpenedStorage { log: Box::new(log), spares: None, state, checkpoint, recovered })
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    fn inject(&mut self, fault: StorageFault) {
        match fault {
            StorageFault::InterruptAfter(operations) => self.disk.fail_after(operations),
            StorageFault::FailNextSync => {
                let is_written = self.disk.operations().is_multiple_of(2);
                self.contest.set_next(Some(CommitFault::Break { is_written }));
            }
            StorageFault::FillNextWrite => self.contest.set_next(Some(CommitFault::NoSpace)),
            StorageFault::LeaveFree(bytes) => {
                self.disk.set_free(bytes);
                self.contest.log.set_full(true);
            }
            StorageFault::FillTable(is_full) => self.table.set_full(is_full),
            StorageFault::FreeEverything => {
                self.disk.set_free(1 << 40);
                self.table.set_full(false);
                self.contest.log.set_full(false);
            }
        }
    }

    fn end_process(&mut self) {
        self.table.restart();
        // What was to happen to a commit of that process never will.
        self.contest.set_next(None);
        drop(self.contest.take_usurper());
    }

    fn cut_power(&mut self) {
        self.disk.crash();
        self.table.restart();
    }

    fn is_stopped(&self) -> bool {
        self.disk.free_bytes().is_err()
    }

    fn trace_hash(&self) -> u64 {
        let state = self.contest.lock();
        let disks = state.disks.iter().map(SimDisk::trace_hash);
        disks.fold(state.opened.len() as u64, |all, one| all.rotate_left(1) ^ one)
    }
}
