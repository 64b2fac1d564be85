//! The committer: makes batches durable, one after another, and lets out what waited for them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use reveille_store::log::{BatchId, CommitError, Log};

use crate::domains::Domains;
use crate::error::{Fatal, Unavailable};
use crate::partition::{CommitterWait, OpenBatch, Partition, PublishedBatch};
use crate::shared::Shared;

/// What follows from batches.
pub trait EffectHandler: Domains {
    /// A batch is durable, readers see it, and this follows from it. The committer waits meanwhile.
    fn perform(shared: &Shared<Self>, effects: Vec<Self::Effect>);
}

/// A batch of this many commands means that more are on their way.
const BUSY_COMMANDS: usize = 4;

/// While there are many commands, each batch waits this long for more of them.
const GATHERING: Duration = Duration::from_micros(100);

/// The end of the log is marked when nothing came for this long: a mark is a sync, and whoever
/// comes next would have to wait for it.
const SEAL_AFTER: Duration = Duration::from_millis(10);

/// A log that does not answer is asked again after this.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// And then after twice as long, but never longer than this.
const RETRY_AFTER_MAX: Duration = Duration::from_millis(100);

/// What nobody waits for is made durable after this at the latest; mostly it goes along with
/// something else before.
const PATIENCE: Duration = Duration::from_micros(500);

/// The one writer of a partition's log.
pub struct Committer<D: Domains> {
    log: Box<dyn Log>,
    shared: Arc<Shared<D>>,
    /// Tells its batches from those of every other writer.
    writer: u64,
    /// How many batches it has brought to the log.
    batches: u64,
    released: u64,
    /// The last batch, if the partition still takes it for pending.
    published: Option<PublishedBatch>,
}

impl<D: EffectHandler> Committer<D> {
    /// The committer of this log. No two writers of a log have the same number.
    pub fn new(log: Box<dyn Log>, shared: Arc<Shared<D>>, writer: u64) -> Committer<D> {
        if let Some(syncer) = log.syncer() {
            shared.log_sync.get_or_init(|| syncer);
        }
        shared.lock().set_log_batch_bytes(log.batch_bytes_max());
        Committer { log, shared, writer, batches: 0, released: 0, published: None }
    }

    /// Commits until the partition stops and everything decided is durable.
    pub fn run(mut self) -> Result<(), Fatal> {
        let mut busy = false;
        loop {
            // Those who were just answered are about to come back: letting them in first makes
            // fewer, larger batches, and a sync costs the same for one as for many.
            if busy {
                std::thread::park_timeout(GATHERING);
            }
            let Some(taken) = self.next()? else { break };
            busy = taken.commands() >= BUSY_COMMANDS;
            self.commit(taken)?;
            self.trim()?;
        }
        self.seal()
    }

    /// Waits for the next batch; `None` when there will be none.
    fn next(&mut self) -> Result<Option<OpenBatch<D>>, Fatal> {
        let shared = self.shared.clone();
        let mut partition = shared.lock();
        let mut sealed = false;
        let mut time_is_up = false;
        loop {
            let waits = match (partition.has_nothing_open(), partition.is_urgent()) {
                (true, _) => CommitterWait::Work,
                (false, false) if !time_is_up && !partition.stopping => CommitterWait::Urgency,
                (false, _) => return Ok(self.take_from(&mut partition)),
            };
            self.settle(&mut partition);
            if partition.stopping {
                return Ok(None);
            }
            partition.committer_waits = waits;
            let most = match waits {
                CommitterWait::Urgency => Some(PATIENCE),
                _ if sealed => None,
                _ => Some(SEAL_AFTER),
            };
            (partition, time_is_up) = wait(&shared, partition, most);
            if time_is_up && partition.is_idle() && !partition.stopping {
                // Idle: the end mark proves that everything before it was durable.
                drop(partition);
                self.seal()?;
                sealed = true;
                partition = shared.lock();
            }
        }
    }

    /// The open batch, if there is one. The one before it stops being pending.
    pub fn take(&mut self) -> Option<OpenBatch<D>> {
        let shared = self.shared.clone();
        self.take_from(&mut shared.lock())
    }

    fn take_from(&mut self, partition: &mut Partition<D>) -> Option<OpenBatch<D>> {
        self.settle(partition);
        partition.take()
    }

    fn settle(&mut self, partition: &mut Partition<D>) {
        if let Some(published) = self.published.take() {
            partition.settle(&published);
        }
    }

    /// Makes a batch durable; then readers see it, answers leave, effects run. To the partition it
    /// is pending until the next one is taken, so that both take one look at the lock: the same
    /// values are found there and here.
    pub fn commit(&mut self, mut taken: OpenBatch<D>) -> Result<(), Fatal> {
        let batch = std::mem::take(&mut taken.batch);
        let mut published = None;
        if !batch.is_empty() {
            let (payload, run) = batch.encode();
            let run = Arc::new(run);
            match self.commit_batch(&payload) {
                Ok(seq) => {
                    self.shared.state.publish(seq, run.clone(), payload.len());
                    let followed = self.shared.follow(&run);
                    followed.map_err(|error| Fatal(error.to_string()))?;
                    published = Some(run);
                }
                Err(error) => return self.refused(taken, &error),
            }
            self.shared.counters.committed(taken.commands(), payload.len());
        }
        self.published = Some(taken.published(published));
        D::perform(&self.shared, std::mem::take(&mut taken.effects));
        if let Some(at) = taken.timer_at {
            self.shared.timers.set(at);
        }
        taken.answer();
        self.shared.room.notify_waiters();
        if self.shared.state.overlay_bytes().active >= self.shared.overlay_limits.settle {
            self.shared.wake_checkpointer();
        }
        Ok(())
    }

    /// Brings a batch to the log. Whether one got there whose answer was lost is found out by
    /// bringing it again, under the same name.
    fn commit_batch(&mut self, payload: &Bytes) -> Result<u64, CommitError> {
        self.batches += 1;
        let id = BatchId { writer: self.writer, number: self.batches };
        let mut retry_after = RETRY_AFTER;
        loop {
            match self.log.commit(id, payload) {
                Err(error) if error.is_ambiguous() => {
                    tracing::warn!(%error, "the log does not answer; trying again");
                    std::thread::park_timeout(retry_after);
                    retry_after = RETRY_AFTER_MAX.min(retry_after * 2);
                }
                committed => return committed,
            }
        }
    }

    /// The log did not take a batch: nothing of it was done. Only a broken log ends the process.
    fn refused(&mut self, batch: OpenBatch<D>, error: &CommitError) -> Result<(), Fatal> {
        let why = match error {
            CommitError::NoSpace => {
                tracing::warn!("the disk is full: the server is read-only until there is room");
                Unavailable::DiskFull
            }
            CommitError::Deposed => {
                tracing::warn!("somebody else writes this partition now");
                Unavailable::NotLeader
            }
            // Batches are closed before they are too large, by what the log said when it was opened.
            CommitError::TooLarge { .. } => {
                tracing::error!(%error, "a batch was refused");
                // Those who came together with it may come again without it.
                if batch.commands() > 1 { Unavailable::Busy } else { Unavailable::TooLarge }
            }
            CommitError::Unavailable { .. } | CommitError::Broken { .. } | CommitError::Stopped => {
                return Err(Fatal(error.to_string()));
            }
        };
        let rolled_back = self.shared.lock().roll_back(batch, why);
        rolled_back.map_err(|error| Fatal(error.to_string()))?;
        self.shared.outbox.recover_later();
        self.shared.room.notify_waiters();
        Ok(())
    }

    /// Recycles the segments that the table's checkpoint has made superfluous.
    pub fn trim(&mut self) -> Result<(), Fatal> {
        self.shared.log_bytes.store(self.log.bytes(), Ordering::Relaxed);
        let checkpoint = self.shared.checkpoint.load(Ordering::Acquire);
        if checkpoint > self.released {
            let released = self.log.release(checkpoint);
            if self.is_done(released)? {
                self.released = checkpoint;
            }
        }
        Ok(())
    }

    /// Nothing comes for a while: the log may mark its end.
    pub fn seal(&mut self) -> Result<(), Fatal> {
        let marked = self.log.idle();
        self.is_done(marked).map(drop)
    }

    /// Whether the log did what can wait. Not being the writer any more is no reason to end: whoever
    /// is sees to it, and those who have been decided here are told when their batch is refused.
    fn is_done(&self, result: Result<(), CommitError>) -> Result<bool, Fatal> {
        match result {
            Ok(()) => Ok(true),
            Err(CommitError::Deposed) => {
                self.shared.lock().deposed = true;
                Ok(false)
            }
            Err(error) if error.is_ambiguous() => Ok(false),
            Err(error) => Err(Fatal(error.to_string())),
        }
    }
}

/// Waits for work, at most so long. Says whether the time was up.
fn wait<'a, D: Domains>(
    shared: &'a Shared<D>,
    partition: MutexGuard<'a, Partition<D>>,
    most: Option<Duration>,
) -> (MutexGuard<'a, Partition<D>>, bool) {
    match most {
        Some(most) => match shared.work.wait_timeout(partition, most) {
            Ok((partition, waited)) => (partition, waited.timed_out()),
            Err(_) => (shared.lock(), false),
        },
        None => match shared.work.wait(partition) {
            Ok(partition) => (partition, false),
            Err(_) => (shared.lock(), false),
        },
    }
}
