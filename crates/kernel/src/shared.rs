//! What the threads and callers of one partition share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use reveille_core::Millis;
use reveille_store::log::Syncer;
use reveille_store::run::Run;
use reveille_store::state::State;
use tokio::sync::Notify;

use crate::counters::Counters;
use crate::domains::{self, Domains};
use crate::error::Damaged;
use crate::limits::OverlayLimits;
use crate::outbox::Outbox;
use crate::partition::{Partition, Settings};
use crate::set_aside;

/// One partition, for its threads and its callers.
pub struct Shared<D: Domains> {
    /// Decides.
    pub partition: Mutex<Partition<D>>,
    /// Everything durable.
    pub state: Arc<State>,
    /// How far what the table does not hold yet may grow.
    pub(crate) overlay_limits: OverlayLimits,
    /// What the domains keep in memory.
    pub domains: Arc<D>,
    /// Wakes the committer: there is something to commit.
    pub work: Condvar,
    /// Wakes callers: there is room again.
    pub room: Notify,
    /// When timers are due.
    pub timers: TimerBell,
    /// Wakes the checkpointer: the overlay has grown.
    pub checkpointer: (Mutex<bool>, Condvar),
    /// The batch up to which the log may be recycled.
    pub checkpoint: AtomicU64,
    /// Bytes of log segments in use.
    pub log_bytes: AtomicU64,
    /// Syncs the log, if commits do not.
    pub log_sync: OnceLock<Syncer>,
    /// The partition stops.
    pub stopped: Notify,
    /// Attempts that are to be made.
    pub outbox: Arc<Outbox<D::Attempt>>,
    pub counters: Counters,
}

impl<D: Domains> Shared<D> {
    /// Everything that a partition over this state needs. The domains' memory is filled from it.
    pub fn new(
        state: Arc<State>,
        domains: Arc<D>,
        settings: Settings,
    ) -> Result<Shared<D>, Damaged> {
        let outbox = domains.outbox();
        let ranges = domains.ranges();
        domains::fold(&state.reader(), ranges, |key, value| domains.follow(key, value))?;
        let partition = Partition::open(state.clone(), domains.clone(), settings)?;
        let counters = Counters::default();
        counters.set_aside.store(set_aside::count(&state.reader())?, Ordering::Relaxed);
        Ok(Shared {
            overlay_limits: partition.overlay_limits,
            partition: Mutex::new(partition),
            state,
            domains,
            work: Condvar::new(),
            room: Notify::new(),
            timers: TimerBell::default(),
            checkpointer: (Mutex::new(false), Condvar::new()),
            checkpoint: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_sync: OnceLock::new(),
            stopped: Notify::new(),
            outbox,
            counters,
        })
    }

    /// The partition's lock. A decision that panicked half-way leaves nothing to go on from but
    /// the log: the process ends.
    pub fn lock(&self) -> MutexGuard<'_, Partition<D>> {
        self.partition.lock().unwrap_or_else(|_| {
            tracing::error!("a decision panicked; stopping, to start again from the log");
            std::process::abort()
        })
    }

    /// Memory that everybody sees follows what is durable.
    pub(crate) fn follow(&self, run: &Run) -> Result<(), Damaged> {
        for entry in run.entries() {
            if entry.key.first().is_some_and(|tag| self.domains.follows(*tag)) {
                self.domains.follow(&entry.key, entry.value.as_ref())?;
            }
        }
        Ok(())
    }

    /// Tells the checkpointer that there is work.
    pub fn wake_checkpointer(&self) {
        let (flag, condvar) = &self.checkpointer;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condvar.notify_one();
    }

    /// Nothing more is accepted; everybody who waits for work looks up.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_all();
        self.timers.ring.notify_one();
        self.outbox.ready.notify_one();
        self.stopped.notify_one();
        self.wake_checkpointer();
    }
}

/// Tells whoever works timers off that one is due sooner than it thinks.
pub struct TimerBell {
    pub(crate) ring: Notify,
    /// The earliest timer that became durable since somebody last asked.
    newest: AtomicU64,
    /// When the index will be looked at again; what is due later need not ring.
    next_look: AtomicU64,
}

impl Default for TimerBell {
    fn default() -> TimerBell {
        let never = || AtomicU64::new(u64::MAX);
        TimerBell { ring: Notify::new(), newest: never(), next_look: never() }
    }
}

impl TimerBell {
    /// A timer for this time became durable.
    pub(crate) fn set(&self, at: Millis) {
        self.newest.fetch_min(at.0, Ordering::SeqCst);
        if at.0 < self.next_look.load(Ordering::SeqCst) {
            self.ring.notify_one();
        }
    }

    /// The earliest timer that became durable since the last look. It may be older than that look:
    /// the batch took its time, or it was set for a time that had passed.
    pub fn newest(&self) -> Millis {
        Millis(self.newest.swap(u64::MAX, Ordering::SeqCst))
    }

    /// Ends when one became durable that whoever sleeps does not know of.
    pub async fn rings(&self) {
        self.ring.notified().await;
    }

    pub(crate) fn looks_again_at(&self, at: Millis) {
        self.next_look.store(at.0, Ordering::SeqCst);
    }
}
