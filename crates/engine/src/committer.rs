//! The committer: makes batches durable, one after another, and lets out what waited for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reveille_core::stream::StreamId;
use reveille_store::log::{CommitError, SegmentLog as Log, Syncer};
use reveille_store::state::State;
use tokio::sync::Notify;

use crate::access_times::AccessTimes;
use crate::effect::{ActivityChange, Effect};
use crate::keys::Keys;
use crate::limits::SETTLE_BYTES;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::outbox::{Attempt, Outbox};
use crate::partition::{OpenBatch, Partition, PublishedBatch, Settings, Waits};
use crate::spans::Spans;

/// What the threads and callers of one partition share.
pub struct Shared {
    /// Decides.
    pub partition: Mutex<Partition>,
    /// Everything durable.
    pub state: Arc<State>,
    /// Live readers.
    pub live: Live,
    /// Reads that keep streams alive.
    pub access_times: Arc<AccessTimes>,
    /// Wakes the committer: there is something to commit.
    pub work: Condvar,
    /// Wakes callers: there is room again.
    pub room: Notify,
    /// Wakes the keeper of the due index: something is due sooner than it thinks.
    pub due: Notify,
    /// The earliest entry of the due index that became durable since its keeper last asked.
    pub due_from: AtomicU64,
    /// When the keeper of the due index means to look again; what is due later need not wake it.
    pub due_next: AtomicU64,
    /// Wakes the keeper of the table: the overlay has grown.
    pub keep: (Mutex<bool>, Condvar),
    /// The batch up to which the log may be recycled.
    pub checkpoint: AtomicU64,
    /// Bytes of log segments in use.
    pub log_bytes: AtomicU64,
    /// Syncs the log, if commits do not.
    pub log_sync: OnceLock<Syncer>,
    /// The partition stops.
    pub stopped: Notify,
    /// Attempts that are to be made.
    pub outbox: Outbox,
    /// Keys, where they are kept.
    pub keys: Keys,
    /// Counters.
    pub metrics: Metrics,
    /// Where spans are collected, if they are.
    pub spans: OnceLock<Arc<Spans>>,
}

impl Shared {
    /// Everything that a partition over this state needs.
    pub fn new(
        state: Arc<State>,
        access_times: Arc<AccessTimes>,
        settings: Settings,
    ) -> Result<Shared, String> {
        let keys = Keys::load(&state.reader())?;
        let partition = Partition::open(state.clone(), access_times.clone(), settings)?;
        Ok(Shared {
            partition: Mutex::new(partition),
            state,
            live: Live::default(),
            access_times,
            work: Condvar::new(),
            room: Notify::new(),
            due: Notify::new(),
            due_from: AtomicU64::new(u64::MAX),
            due_next: AtomicU64::new(u64::MAX),
            keep: (Mutex::new(false), Condvar::new()),
            checkpoint: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_sync: OnceLock::new(),
            stopped: Notify::new(),
            outbox: Outbox::default(),
            keys,
            metrics: Metrics::default(),
            spans: OnceLock::new(),
        })
    }

    /// The partition's lock. A decision that panicked half-way leaves nothing to go on from but
    /// the log: the process ends.
    pub fn lock(&self) -> MutexGuard<'_, Partition> {
        self.partition.lock().unwrap_or_else(|_| {
            tracing::error!("a decision panicked; stopping, to start again from the log");
            std::process::abort()
        })
    }

    /// Tells the keeper that there is work.
    pub fn wake_checkpointer(&self) {
        let (flag, condvar) = &self.keep;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condvar.notify_one();
    }
}

/// A batch of this many commands means that more are on their way.
const BUSY_COMMANDS: usize = 4;

/// While there are many commands, each batch waits this long for more of them.
const GATHERING: Duration = Duration::from_micros(100);

/// The end of the log is marked when nothing came for this long: a mark is a sync, and whoever
/// comes next would have to wait for it.
const SEAL_AFTER: Duration = Duration::from_millis(10);

/// What nobody waits for is made durable after this at the latest; mostly it goes along with
/// something else before.
const PATIENCE: Duration = Duration::from_micros(500);

/// The log cannot be trusted any more: the process must stop.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fatal(pub String);

/// The one writer of a partition's log.
pub struct Committer {
    log: Log,
    shared: Arc<Shared>,
    trimmed: u64,
    /// The last batch, if the partition still takes it for pending.
    published: Option<PublishedBatch>,
}

impl Committer {
    /// The committer of this log.
    pub fn new(log: Log, shared: Arc<Shared>) -> Committer {
        if let Some(syncer) = log.syncer() {
            shared.log_sync.get_or_init(|| syncer);
        }
        Committer { log, shared, trimmed: 0, published: None }
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
    fn next(&mut self) -> Result<Option<OpenBatch>, Fatal> {
        let shared = self.shared.clone();
        let mut partition = shared.lock();
        let mut sealed = false;
        let mut time_is_up = false;
        loop {
            let waits = match (partition.has_nothing_open(), partition.is_urgent()) {
                (true, _) => Waits::ForWork,
                (false, false) if !time_is_up && !partition.stopping => Waits::ForSomebody,
                (false, _) => return Ok(self.take_from(&mut partition)),
            };
            self.settle(&mut partition);
            if partition.stopping {
                return Ok(None);
            }
            partition.committer_waits = waits;
            let most = match waits {
                Waits::ForSomebody => Some(PATIENCE),
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
    pub fn take(&mut self) -> Option<OpenBatch> {
        let shared = self.shared.clone();
        self.take_from(&mut shared.lock())
    }

    fn take_from(&mut self, partition: &mut Partition) -> Option<OpenBatch> {
        self.settle(partition);
        partition.take()
    }

    fn settle(&mut self, partition: &mut Partition) {
        if let Some(published) = self.published.take() {
            partition.settle(&published);
        }
    }

    /// Makes a batch durable; then readers see it, answers leave, effects run. To the partition it
    /// is pending until the next one is taken, so that both take one look at the lock: the same
    /// values are found there and here.
    pub fn commit(&mut self, mut taken: OpenBatch) -> Result<(), Fatal> {
        let batch = std::mem::take(&mut taken.batch);
        let mut published = None;
        if !batch.is_empty() {
            let (payload, run) = batch.encode();
            let run = Arc::new(run);
            match self.log.commit(&[&payload]) {
                Ok(seq) => {
                    self.shared.state.publish(seq, run.clone(), payload.len());
                    published = Some(run);
                }
                Err(CommitError::NoSpace) => {
                    tracing::warn!("the disk is full: the server is read-only until there is room");
                    self.shared.lock().roll_back(taken).map_err(Fatal)?;
                    self.shared.room.notify_waiters();
                    return Ok(());
                }
                Err(error) => return Err(Fatal(error.to_string())),
            }
            self.shared.metrics.committed(taken.commands(), payload.len());
        }
        self.published = Some(taken.published(published));
        self.perform(std::mem::take(&mut taken.effects));
        taken.answer();
        self.shared.room.notify_waiters();
        if self.shared.state.overlay_bytes().active >= SETTLE_BYTES {
            self.shared.wake_checkpointer();
        }
        Ok(())
    }

    fn perform(&self, effects: Vec<Effect>) {
        let mut due = None;
        let mut ended: Vec<StreamId> = Vec::new();
        let (mut attempts, mut news) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::SetTimer(at) => due = Some(due.map_or(at.0, |due: u64| due.min(at.0))),
                Effect::SendWake(told) => attempts.push(Attempt::Wake(told)),
                Effect::CountActivity(moved) => self.count(&moved),
                Effect::Key(change) => self.shared.keys.apply(&change),
                Effect::SendDelivery(job) => attempts.push(Attempt::Delivery(job)),
                Effect::ReleaseReaders(id) => {
                    ended.push(id);
                    news.push(effect);
                }
                Effect::NotifyReaders { .. } => news.push(effect),
            }
        }
        self.shared.outbox.push_all(attempts);
        self.shared.live.publish(news);
        for id in ended {
            self.shared.access_times.forget(id, reveille_core::Millis::NEVER);
        }
        if let Some(due) = due {
            self.shared.due_from.fetch_min(due, Ordering::SeqCst);
            if due < self.shared.due_next.load(Ordering::SeqCst) {
                self.shared.due.notify_one();
            }
        }
    }

    fn count(&self, moved: &ActivityChange) {
        self.shared.metrics.telling.moved(moved);
        if let Some(subscription) = moved.given_up {
            let known = self.shared.lock().registry.get(subscription).cloned();
            let name = known.as_ref().map_or("", |it| &*it.spec.name);
            tracing::info!(
                subscription = name,
                "a consumer was removed: its endpoint failed for too long"
            );
        }
    }

    /// Recycles the segments that the table's checkpoint has made superfluous.
    pub fn trim(&mut self) -> Result<(), Fatal> {
        self.shared.log_bytes.store(self.log.bytes(), Ordering::Relaxed);
        let checkpoint = self.shared.checkpoint.load(Ordering::Acquire);
        if checkpoint > self.trimmed {
            self.log.trim(checkpoint).map_err(|error| Fatal(error.to_string()))?;
            self.trimmed = checkpoint;
        }
        Ok(())
    }

    /// Marks the end of the log as synced.
    pub fn seal(&mut self) -> Result<(), Fatal> {
        match self.log.seal() {
            // Without the mark nothing is lost; the disk is full, and that passes.
            Ok(()) | Err(CommitError::NoSpace) => Ok(()),
            Err(error) => Err(Fatal(error.to_string())),
        }
    }
}

/// Waits for work, at most so long. Says whether the time was up.
fn wait<'a>(
    shared: &'a Shared,
    partition: MutexGuard<'a, Partition>,
    most: Option<Duration>,
) -> (MutexGuard<'a, Partition>, bool) {
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
