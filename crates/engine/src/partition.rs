//! A partition: the one place where its part of the state is decided.
//!
//! Whoever brings a command decides it, under the partition's lock, in a few microseconds and
//! without waiting for anything. What is decided collects in the *open* batch; the committer takes
//! it, makes it durable, and meanwhile the next one is collected on top of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::subscription::Timings;
use reveille_schema::keys::{self, Meta};
use reveille_schema::record;
use reveille_store::batch::Batch;
use reveille_store::keys::BlobId;
use reveille_store::run::Run;
use reveille_store::state::{Reader, State};
use reveille_store::table::{Pair, TableError};
use tokio::sync::oneshot;

use crate::access_times::AccessTimes;
use crate::command::{self, Answer, Command};
use crate::effect::Effect;
use crate::failure::{Failure, Unavailable};
use crate::limits::{BATCH_BYTES_MAX, FAN_OUT, OVERLAY_BYTES_MAX};
use crate::random::Random;
use crate::registry::Registry;
pub use crate::txn::Lookup;
use crate::txn::{Given, ReadError, Txn};

/// What a command comes to.
pub type Outcome = Result<Answer, Failure>;
/// Where the outcome is awaited.
pub type Reply = oneshot::Sender<Outcome>;

/// Values that were read from the table on the caller's side.
#[derive(Debug, Default)]
pub struct FetchedKeys {
    /// They were true when this batch was the newest.
    pub seq: u64,
    values: HashMap<Bytes, Option<Bytes>, foldhash::fast::RandomState>,
    ranges: Vec<FetchedRange>,
}

#[derive(Debug)]
struct FetchedRange {
    from: Bytes,
    to: Bytes,
    limit: usize,
    pairs: Vec<Pair>,
}

impl FetchedKeys {
    /// Reads what a decision asked for.
    pub fn read(reader: &Reader, wanted: &[Lookup]) -> Result<FetchedKeys, TableError> {
        let mut fetched = FetchedKeys { seq: reader.seq(), ..FetchedKeys::default() };
        for wanted in wanted {
            match wanted {
                Lookup::Key(key) => {
                    fetched.values.insert(key.clone(), reader.get(key)?);
                }
                Lookup::Range(from, to, limit) => {
                    let pairs = reader.range(from, to, *limit)?;
                    let (from, to, limit) = (from.clone(), to.clone(), *limit);
                    fetched.ranges.push(FetchedRange { from, to, limit, pairs });
                }
            }
        }
        Ok(fetched)
    }

    pub(crate) fn get(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.values.get(key)
    }

    pub(crate) fn range(&self, from: &Bytes, to: &Bytes, limit: usize) -> Option<&[Pair]> {
        let same = |it: &&FetchedRange| it.from == *from && it.to == *to && it.limit == limit;
        self.ranges.iter().find(same).map(|it| it.pairs.as_slice())
    }
}

/// Changes that are decided but not durable yet, newest first known.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    values: HashMap<Bytes, (u64, Option<Bytes>), foldhash::fast::RandomState>,
}

impl Pending {
    pub(crate) fn get(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.values.get(key).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.values.iter().map(|(key, (_, value))| (key, value))
    }

    fn set(&mut self, batch: u64, key: Bytes, value: Option<Bytes>) {
        self.values.insert(key, (batch, value));
    }

    /// Forgets a batch that readers see now.
    fn settle(&mut self, batch: u64, run: &Run) {
        for entry in run.entries() {
            if let Entry::Occupied(known) = self.values.entry(entry.key.clone())
                && known.get().0 <= batch
            {
                known.remove();
            }
        }
    }
}

/// What a partition is told when it opens.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long things may take.
    pub timings: Timings,
    /// Where its random numbers begin.
    pub seed: u64,
    /// How many consumers are told at once; see [`FAN_OUT`].
    pub fan_out: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { timings: Timings::default(), seed: 0, fan_out: FAN_OUT }
    }
}

/// The owner of a part of the state.
pub struct Partition {
    state: Arc<State>,
    access_times: Arc<AccessTimes>,
    pending: Pending,
    open: OpenBatch,
    /// Batches that were taken and are neither settled nor given up.
    in_flight: usize,
    next_id: u64,
    /// Who is to be told of what.
    pub registry: Registry,
    timings: Timings,
    fan_out: usize,
    dice: Random,
    /// Set while the disk has no room.
    pub read_only: bool,
    /// Set when no more commands are accepted.
    pub stopping: bool,
    /// What the committer waits for; waking it for nothing is a system call.
    pub committer_waits: Waits,
}

/// What the committer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It has enough to do.
    ForNothing,
    /// Anything.
    ForWork,
    /// There is something, but nobody waits for it: for somebody who does.
    ForSomebody,
}

/// A batch with what follows from it, on its way to the log.
#[derive(Default)]
pub struct OpenBatch {
    number: u64,
    /// The changes.
    pub batch: Batch,
    /// What is to happen when it is durable.
    pub effects: Vec<Effect>,
    answers: Vec<(Reply, Outcome)>,
    /// Whether somebody waits for it.
    urgent: bool,
}

impl OpenBatch {
    /// Whether there is nothing to commit and nobody to answer.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.answers.is_empty()
    }

    /// Commands that are answered with this batch.
    pub fn commands(&self) -> usize {
        self.answers.len()
    }

    /// The same batch once readers see it.
    pub fn published(&self, run: Option<Arc<Run>>) -> PublishedBatch {
        PublishedBatch { number: self.number, run }
    }

    /// Tells everybody what was decided.
    pub fn answer(&mut self) {
        for (reply, outcome) in self.answers.drain(..) {
            // Whoever asked may be gone; what was decided stands.
            let _ = reply.send(outcome);
        }
    }

    /// Tells everybody that nothing was done.
    fn refuse(&mut self, why: Unavailable) {
        for (reply, _) in self.answers.drain(..) {
            let _ = reply.send(Err(why.into()));
        }
    }
}

/// A batch that readers see.
pub struct PublishedBatch {
    number: u64,
    /// Its changes; `None` if it had none.
    run: Option<Arc<Run>>,
}

/// What became of an attempt to decide a command.
pub enum Submission {
    /// It is decided; the reply comes when it may.
    Decided,
    /// These are to be read first.
    Missing(Vec<Lookup>, Reply),
    /// There is no room now.
    NoRoom(Reply),
}

impl Partition {
    /// A partition over a store that was just opened.
    pub fn open(
        state: Arc<State>,
        access_times: Arc<AccessTimes>,
        settings: Settings,
    ) -> Result<Partition, String> {
        let stored = state.reader().get(&keys::meta(Meta::NextStreamId));
        let stored = stored.map_err(|error| error.to_string())?;
        let next_id = match stored {
            Some(value) => record::decode_u64(&value).map_err(|error| error.to_string())?,
            None => 1,
        };
        Ok(Partition {
            registry: Registry::load(&state.reader())?,
            timings: settings.timings,
            fan_out: settings.fan_out.max(1),
            dice: Random::new(settings.seed),
            state,
            access_times,
            pending: Pending::default(),
            open: OpenBatch { number: 1, ..OpenBatch::default() },
            in_flight: 0,
            next_id,
            read_only: false,
            stopping: false,
            committer_waits: Waits::ForNothing,
        })
    }

    /// Decides a command, if everything that it needs is known and there is room.
    pub fn submit(
        &mut self,
        command: &Command,
        fetched: &FetchedKeys,
        now: Millis,
        reply: Reply,
    ) -> Submission {
        if self.stopping {
            let _ = reply.send(Err(Unavailable::Stopping.into()));
            return Submission::Decided;
        }
        if self.read_only && command::is_write(command) {
            let _ = reply.send(Err(Unavailable::DiskFull.into()));
            return Submission::Decided;
        }
        if !self.has_room(command::weight(command)) {
            return Submission::NoRoom(reply);
        }
        let recent = self.state.reader();
        let mut txn = Txn::new(Given {
            now: now.max(command::not_before(command)),
            next_id: self.next_id,
            pending: &self.pending,
            recent: &recent,
            fetched,
            access_times: &self.access_times,
            registry: &self.registry,
            timings: &self.timings,
            fan_out: self.fan_out,
            random: self.dice.next(),
        });
        let mut is_urgent = command::is_urgent(command, &[]);
        match command::decide(command, &mut txn) {
            Err(ReadError::NotLoaded(wanted)) => return Submission::Missing(wanted, reply),
            Err(ReadError::Damaged(what)) => {
                let _ = reply.send(Err(Failure::Damaged(what)));
            }
            Ok(Err(rejected)) => {
                let saw_pending = txn.saw_pending;
                self.reply_when_durable(reply, Err(rejected), saw_pending);
            }
            Ok(Ok(answer)) => {
                txn.finish();
                let Txn { writes, appends, effects, saw_pending, took_ids, changes, .. } = txn;
                let writes_something = !writes.is_empty() || !appends.is_empty();
                self.next_id += took_ids;
                is_urgent = command::is_urgent(command, &effects);
                self.collect(writes, appends, effects);
                for change in changes {
                    self.registry.apply(change);
                }
                self.reply_when_durable(reply, Ok(answer), writes_something || saw_pending);
            }
        }
        self.open.urgent |= is_urgent;
        Submission::Decided
    }

    fn has_room(&self, bytes: usize) -> bool {
        let overlay = self.state.overlay_bytes().total();
        let open = self.open.batch.bytes();
        let fits = self.open.batch.is_empty() || open + bytes <= BATCH_BYTES_MAX;
        fits && overlay + open <= OVERLAY_BYTES_MAX
    }

    fn collect(
        &mut self,
        writes: Vec<(Bytes, Option<Bytes>)>,
        appends: Vec<(BlobId, u64, Bytes)>,
        effects: Vec<Effect>,
    ) {
        for (key, value) in writes {
            self.pending.set(self.open.number, key.clone(), value.clone());
            self.open.batch.set(key, value);
        }
        for (id, start, data) in appends {
            self.open.batch.append(id, start, data);
        }
        self.open.effects.extend(effects);
    }

    /// An answer that rests on something not durable yet waits for it, be it a rejection.
    fn reply_when_durable(&mut self, reply: Reply, outcome: Outcome, waits: bool) {
        if waits {
            self.open.answers.push((reply, outcome));
        } else {
            let _ = reply.send(outcome);
        }
    }

    /// Whether the committer is to be woken: there is what it waits for.
    pub fn wakes_committer(&mut self) -> bool {
        let wakes = match self.committer_waits {
            Waits::ForNothing => false,
            Waits::ForWork => !self.open.is_empty(),
            Waits::ForSomebody => self.is_urgent(),
        };
        if wakes {
            self.committer_waits = Waits::ForNothing;
        }
        wakes
    }

    /// Whether there is an open batch that somebody waits for.
    pub fn is_urgent(&self) -> bool {
        self.open.urgent && !self.open.is_empty()
    }

    /// Whether there is no open batch.
    pub fn has_nothing_open(&self) -> bool {
        self.open.is_empty()
    }

    /// Hands the open batch to the committer.
    pub fn take(&mut self) -> Option<OpenBatch> {
        if self.open.is_empty() {
            return None;
        }
        let next = OpenBatch { number: self.open.number + 1, ..OpenBatch::default() };
        self.in_flight += 1;
        Some(std::mem::replace(&mut self.open, next))
    }

    /// Whether everything that was decided has been settled.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.in_flight == 0
    }

    /// A batch is durable and readers see it: it is no longer pending.
    pub fn settle(&mut self, published: &PublishedBatch) {
        self.in_flight -= 1;
        if let Some(run) = &published.run {
            self.pending.settle(published.number, run);
        }
    }

    /// The log had no room for a batch: it, and everything decided on top of it, is undone.
    pub fn roll_back(&mut self, mut taken: OpenBatch) -> Result<(), String> {
        self.registry = Registry::load(&self.state.reader())?;
        self.in_flight -= 1;
        self.pending = Pending::default();
        self.read_only = true;
        taken.refuse(Unavailable::DiskFull);
        let next = OpenBatch { number: self.open.number + 1, ..OpenBatch::default() };
        std::mem::replace(&mut self.open, next).refuse(Unavailable::DiskFull);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
