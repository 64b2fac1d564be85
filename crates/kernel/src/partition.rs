//! A partition: the one place where its part of the state is decided.
//!
//! Whoever brings a command decides it, under the partition's lock, in a few microseconds and
//! without waiting for anything. What is decided collects in the *open* batch; the committer takes
//! it, makes it durable, and meanwhile the next one is collected on top of it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_store::batch::Batch;
use reveille_store::keys::BlobId;
use reveille_store::run::Run;
use reveille_store::state::{Reader, State};
use tokio::sync::oneshot;

use crate::command::{Command, Outcome};
use crate::domains::{self, Domains, Index};
use crate::error::{Damaged, Error, Unavailable};
use crate::keys;
use crate::limits::{BATCH_BYTES_MAX, LARGE_COMMAND_BYTES, OverlayLimits, SLICE_BYTES};
use crate::pending::{FetchedKeys, Lookup, Pending};
use crate::random::Random;
use crate::txn::{Given, ID_STRIDE, ReadError, Txn};

/// Where the outcome of a command is awaited.
pub type Reply<A, R> = oneshot::Sender<Outcome<A, R>>;

/// What a partition is told when it opens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// Which partition it is; at most 255.
    pub number: u8,
    /// Where its random numbers begin.
    pub seed: u64,
    /// How many there are in the process, which share what may be in memory; 0 counts as 1.
    pub partitions: u32,
}

/// What every batch has beside what was decided: its count of changes and the partition's time.
const BATCH_BYTES_BESIDE: usize = 64;

/// At most this part of what the log takes at once is a slice of something larger.
const SLICES_PER_BATCH: usize = 4;

fn stored_number(reader: &Reader, key: &Bytes) -> Result<Option<u64>, Damaged> {
    let damaged = || Damaged::new("a number of the partition's own is damaged");
    let value = reader.get(key)?;
    value.map(|value| keys::decode_u64(&value).ok_or_else(damaged)).transpose()
}

/// The latest time that a decision has had, as far as it is durable.
pub fn stored_time(reader: &Reader) -> Result<Millis, Damaged> {
    Ok(Millis(stored_number(reader, &keys::time())?.unwrap_or(0)))
}

/// The owner of a part of the state.
pub struct Partition<D: Domains> {
    state: Arc<State>,
    domains: Arc<D>,
    pending: Pending,
    open: OpenBatch<D>,
    /// Batches that were taken and are neither settled nor rolled back.
    in_flight: usize,
    next_id: u64,
    /// The latest time that a decision has had: no later one has an earlier.
    time: Millis,
    /// What decisions know without reading.
    pub index: D::Index,
    random: Random,
    /// How far the overlay may grow.
    pub(crate) overlay_limits: OverlayLimits,
    /// The largest batch that the log takes.
    log_batch_bytes: usize,
    /// What a decision writes before it leaves the rest to another.
    pub slice_bytes: usize,
    /// Set while the disk has no room.
    pub read_only: bool,
    /// Set when no more commands are accepted.
    pub stopping: bool,
    /// Set when somebody else writes this partition.
    pub deposed: bool,
    /// What the committer waits for; waking it for nothing is a system call.
    pub committer_waits: CommitterWait,
}

/// What the committer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitterWait {
    /// It has enough to do.
    Nothing,
    /// Anything.
    Work,
    /// There is something, but nobody waits for it: for somebody who does.
    Urgency,
}

/// A batch with what follows from it, on its way to the log.
pub struct OpenBatch<D: Domains> {
    number: u64,
    /// The changes.
    pub batch: Batch,
    /// What is to happen when it is durable.
    pub effects: Vec<D::Effect>,
    /// The earliest timer that it sets.
    pub timer_at: Option<Millis>,
    answers: Vec<Box<dyn PendingAnswer>>,
    /// Whether somebody waits for it.
    is_urgent: bool,
}

/// The answer of a command that is decided, until it may leave.
trait PendingAnswer: Send {
    /// What was decided is durable.
    fn send(self: Box<Self>);
    /// What was decided is undone.
    fn refuse(self: Box<Self>, why: Unavailable);
}

struct TypedAnswer<A, R> {
    reply: Reply<A, R>,
    outcome: Outcome<A, R>,
}

impl<A: Send, R: Send> PendingAnswer for TypedAnswer<A, R> {
    fn send(self: Box<Self>) {
        // Whoever asked may be gone; what was decided stands.
        let _ = self.reply.send(self.outcome);
    }

    fn refuse(self: Box<Self>, why: Unavailable) {
        let _ = self.reply.send(Err(why.into()));
    }
}

impl<D: Domains> OpenBatch<D> {
    fn new(number: u64) -> OpenBatch<D> {
        OpenBatch {
            number,
            batch: Batch::default(),
            effects: Vec::new(),
            timer_at: None,
            answers: Vec::new(),
            is_urgent: false,
        }
    }

    /// Whether there is nothing to commit and nobody to answer.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.answers.is_empty()
    }

    /// How many commands are answered with this batch.
    pub fn commands(&self) -> usize {
        self.answers.len()
    }

    /// The same batch once readers see it.
    pub fn published(&self, run: Option<Arc<Run>>) -> PublishedBatch {
        PublishedBatch { number: self.number, run }
    }

    /// Tells everybody what was decided.
    pub fn answer(&mut self) {
        for answer in self.answers.drain(..) {
            answer.send();
        }
    }

    /// Tells everybody that nothing was done.
    fn refuse(&mut self, why: Unavailable) {
        for answer in self.answers.drain(..) {
            answer.refuse(why);
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
pub enum Submission<A, R> {
    /// It is decided; the reply comes when it may.
    Decided,
    /// These are to be read first.
    Missing(Vec<Lookup>, Reply<A, R>),
    /// There is no room now.
    NoRoom(Reply<A, R>),
}

impl<D: Domains> Partition<D> {
    /// A partition over a store that was just opened.
    pub fn open(
        state: Arc<State>,
        domains: Arc<D>,
        settings: Settings,
    ) -> Result<Partition<D>, Damaged> {
        let reader = state.reader();
        let first_id = ID_STRIDE + u64::from(settings.number);
        let next_id = stored_number(&reader, &keys::next_id())?.unwrap_or(first_id);
        let time = stored_time(&reader)?;
        Ok(Partition {
            index: domains::load(&reader, &*domains)?,
            random: Random::new(settings.seed),
            overlay_limits: OverlayLimits::of(settings.partitions),
            log_batch_bytes: usize::MAX,
            slice_bytes: SLICE_BYTES,
            state,
            domains,
            pending: Pending::default(),
            open: OpenBatch::new(1),
            in_flight: 0,
            next_id,
            time,
            read_only: false,
            stopping: false,
            deposed: false,
            committer_waits: CommitterWait::Nothing,
        })
    }

    /// The latest time that a decision has had.
    pub fn time(&self) -> Millis {
        self.time
    }

    /// The log takes batches of so many bytes, and no larger ones.
    pub(crate) fn set_log_batch_bytes(&mut self, bytes: usize) {
        self.log_batch_bytes = bytes;
    }

    /// What one command may add to a batch that has nothing else.
    fn command_bytes_max(&self) -> usize {
        self.log_batch_bytes.saturating_sub(BATCH_BYTES_BESIDE)
    }

    /// Decides a command, if everything that it needs is known and there is room.
    pub fn submit<C: Command<D> + ?Sized>(
        &mut self,
        command: &C,
        fetched: &FetchedKeys,
        now: Millis,
        reply: Reply<C::Answer, C::Rejection>,
    ) -> Submission<C::Answer, C::Rejection> {
        if let Some(why) = self.refuses(command.needs_room()) {
            let _ = reply.send(Err(why.into()));
            return Submission::Decided;
        }
        if !self.has_room(command.total_weight()) {
            return Submission::NoRoom(reply);
        }
        let recent = self.state.reader();
        self.time = now.max(command.not_before()).max(self.time);
        let given = Given {
            now: self.time,
            next_id: self.next_id,
            pending: &self.pending,
            recent: &recent,
            fetched,
            index: &self.index,
            domains: &*self.domains,
            slice_bytes: self.slice_bytes.min(self.command_bytes_max() / SLICES_PER_BATCH),
            random: self.random.next(),
        };
        let mut txn = Txn::new(given, command.trace());
        let mut is_urgent = command.is_urgent(&[]);
        match command.decide(&mut txn) {
            Err(ReadError::NotLoaded(lookups)) => return Submission::Missing(lookups, reply),
            Err(ReadError::Damaged(what)) => {
                let _ = reply.send(Err(what.into()));
            }
            Ok(Err(rejection)) => {
                let saw_pending = txn.saw_pending;
                self.reply_when_durable(reply, Err(Error::Rejected(rejection)), saw_pending);
            }
            Ok(Ok(answer)) => {
                txn.finish();
                let bytes = txn.bytes();
                if bytes > self.command_bytes_max() {
                    // Nothing of it was done, and nobody else is the worse for it.
                    let _ = reply.send(Err(Unavailable::TooLarge.into()));
                    return Submission::Decided;
                }
                if !self.has_room(bytes) {
                    return Submission::NoRoom(reply);
                }
                let Txn { writes, appends, effects, timer_at, saw_pending, .. } = txn;
                let writes_something = !writes.is_empty() || !appends.is_empty();
                is_urgent = command.is_urgent(&effects);
                self.open.effects.extend(effects);
                self.open.timer_at = self.open.timer_at.into_iter().chain(timer_at).min();
                match self.collect(writes, appends) {
                    Ok(()) => {
                        let waits = writes_something || saw_pending;
                        self.reply_when_durable(reply, Ok(answer), waits);
                    }
                    // What was written cannot be read back: it must not become durable either.
                    Err(what) => panic!("a decision wrote what cannot be read: {what}"),
                }
            }
        }
        self.open.is_urgent |= is_urgent;
        Submission::Decided
    }

    /// Why nothing is decided now.
    fn refuses(&self, needs_room: bool) -> Option<Unavailable> {
        if self.stopping {
            return Some(Unavailable::Stopping);
        }
        if self.deposed {
            return Some(Unavailable::NotLeader);
        }
        (self.read_only && needs_room).then_some(Unavailable::DiskFull)
    }

    /// Whether there seems to be room for so much more; what is decided is counted then.
    fn has_room(&self, bytes: usize) -> bool {
        let OverlayLimits { large, max, .. } = self.overlay_limits;
        let most = if bytes > LARGE_COMMAND_BYTES { large } else { max };
        let overlay = self.state.overlay_bytes().total();
        self.fits(bytes) && overlay + self.open.batch.bytes() <= most
    }

    /// Whether the open batch takes so much more. What is larger than most batches has one alone.
    fn fits(&self, bytes: usize) -> bool {
        let most = BATCH_BYTES_MAX.min(self.command_bytes_max());
        self.open.batch.is_empty() || self.open.batch.bytes() + bytes <= most
    }

    fn collect(
        &mut self,
        writes: Vec<(Bytes, Option<Bytes>)>,
        appends: Vec<(BlobId, u64, Bytes)>,
    ) -> Result<(), Damaged> {
        for (key, value) in writes {
            self.follow(&key, value.as_ref())?;
            self.pending.set(self.open.number, key.clone(), value.clone());
            self.open.batch.set(key, value);
        }
        for (blob, start, data) in appends {
            self.open.batch.append(blob, start, data);
        }
        Ok(())
    }

    /// A batch that somebody else decided is durable.
    pub(crate) fn follow_run(&mut self, run: &Run) -> Result<(), Damaged> {
        for entry in run.entries() {
            self.follow(&entry.key, entry.value.as_ref())?;
        }
        Ok(())
    }

    /// Memory follows what was written, whoever wrote it.
    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let Some(tag) = key.first() else { return Ok(()) };
        if self.index.follows(*tag) {
            self.index.follow(key, value)?;
        }
        if *tag == keys::VALUE
            && let Some(number) = value.and_then(|value| keys::decode_u64(value))
        {
            if *key == keys::next_id() {
                self.next_id = number;
            } else if *key == keys::time() {
                self.time = self.time.max(Millis(number));
            }
        }
        Ok(())
    }

    /// An answer that rests on something not durable yet waits for it, be it a rejection.
    fn reply_when_durable<A: Send + 'static, R: Send + 'static>(
        &mut self,
        reply: Reply<A, R>,
        outcome: Outcome<A, R>,
        waits: bool,
    ) {
        if waits {
            self.open.answers.push(Box::new(TypedAnswer { reply, outcome }));
        } else {
            let _ = reply.send(outcome);
        }
    }

    /// Whether the committer is to be woken: there is what it waits for.
    pub fn wakes_committer(&mut self) -> bool {
        let wakes = match self.committer_waits {
            CommitterWait::Nothing => false,
            CommitterWait::Work => !self.open.is_empty(),
            CommitterWait::Urgency => self.is_urgent(),
        };
        if wakes {
            self.committer_waits = CommitterWait::Nothing;
        }
        wakes
    }

    /// Whether there is an open batch that somebody waits for.
    pub fn is_urgent(&self) -> bool {
        self.open.is_urgent && !self.open.is_empty()
    }

    /// Whether there is no open batch.
    pub fn has_nothing_open(&self) -> bool {
        self.open.is_empty()
    }

    /// Hands the open batch to the committer.
    pub fn take(&mut self) -> Option<OpenBatch<D>> {
        if self.open.is_empty() {
            return None;
        }
        if !self.open.batch.is_empty() {
            // Whoever goes on from here does so at no earlier time.
            self.open.batch.set(keys::time(), Some(keys::encode_u64(self.time.0)));
        }
        let next = OpenBatch::new(self.open.number + 1);
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

    /// The log did not take a batch: it, and everything decided on top of it, is undone.
    pub fn roll_back(&mut self, mut batch: OpenBatch<D>, why: Unavailable) -> Result<(), Damaged> {
        self.index = domains::load(&self.state.reader(), &*self.domains)?;
        self.in_flight -= 1;
        self.pending = Pending::default();
        match why {
            Unavailable::DiskFull => self.read_only = true,
            Unavailable::NotLeader => self.deposed = true,
            _ => {}
        }
        batch.refuse(why);
        let next = OpenBatch::new(self.open.number + 1);
        std::mem::replace(&mut self.open, next).refuse(why);
        Ok(())
    }
}
