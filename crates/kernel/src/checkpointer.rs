//! The checkpointer: brings the table up, checkpoints it, and watches the room on the disk.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use reveille_store::checkpoint;
use reveille_store::disk::{Disk, is_exhausted, is_full};
use reveille_store::log::SparePool;
use reveille_store::table::TableError;

use crate::domains::Domains;
use crate::error::Fatal;
use crate::limits::{CHECKPOINT_LOG_BYTES, CHECKPOINTER_INTERVAL};
use crate::shared::Shared;

/// A table that stops again and again, although there is room, has another trouble.
const RECOVERIES_MAX: u32 = 5;

/// A table that was stopped by a full disk is reopened only when it will find this much room:
/// until then the stopped one still serves reads.
const RECOVER_FREE_BYTES: u64 = 24 << 20;

/// Between two portions of work for which there is time.
const REST: Duration = Duration::from_millis(10);

/// Looks after one partition's table.
pub struct Checkpointer<D: Domains> {
    shared: Arc<Shared<D>>,
    disk: Arc<dyn Disk>,
    /// `None` if the log is none of segments.
    spares: Option<SparePool>,
    /// Below this the partition is read-only.
    min_free_bytes: u64,
    /// Everything up to here is in the table.
    applied: u64,
    /// Everything up to here is written down as being there.
    checkpointed: u64,
    /// What had been committed when the last checkpoint was made.
    bytes_before: u64,
    /// The overlay is applied after this many bytes of log.
    checkpoint_log_bytes: u64,
    /// What was replayed at the start because no checkpoint had it.
    replayed_bytes: u64,
    /// The table has failed a write: it is to be reopened once there is room.
    failed: bool,
    /// There was no descriptor for a file: the same is tried again.
    exhausted: bool,
    /// Recoveries without a checkpoint in between.
    recoveries: u32,
}

impl<D: Domains> Checkpointer<D> {
    /// The checkpointer of a store that was just opened.
    pub fn new(
        shared: Arc<Shared<D>>,
        disk: Arc<dyn Disk>,
        spares: Option<SparePool>,
        min_free_bytes: u64,
        checkpointed: u64,
    ) -> Checkpointer<D> {
        let applied = checkpointed;
        Checkpointer {
            shared,
            disk,
            spares,
            min_free_bytes,
            applied,
            checkpointed,
            bytes_before: 0,
            checkpoint_log_bytes: CHECKPOINT_LOG_BYTES,
            replayed_bytes: 0,
            failed: false,
            exhausted: false,
            recoveries: 0,
        }
    }

    /// Segments that are short are recycled one by one.
    pub fn with_segments_of(self, bytes: u64) -> Checkpointer<D> {
        Checkpointer { checkpoint_log_bytes: CHECKPOINT_LOG_BYTES.min(bytes), ..self }
    }

    /// Counts what had to be replayed at the start: a server that is killed again and again would
    /// otherwise never come to a checkpoint, and replay more each time.
    pub fn after_replay(self, bytes: u64) -> Checkpointer<D> {
        Checkpointer { replayed_bytes: bytes, ..self }
    }

    /// Works until told to stop, then applies and checkpoints what is left.
    pub fn run(mut self) -> Result<(), Fatal> {
        loop {
            let stopping = self.wait();
            self.watch_disk();
            self.prepare_spare();
            self.shared.domains.sweep();
            self.shared.state.sweep();
            self.settle();
            if stopping || self.failed || self.exhausted || self.is_time() {
                self.apply()?;
                self.checkpoint()?;
            }
            if stopping {
                return Ok(());
            }
        }
    }

    /// Puts the newest batches of the overlay together if they have become many.
    fn settle(&self) {
        if self.shared.state.overlay_bytes().active >= self.shared.overlay_limits.settle {
            self.shared.state.settle();
        }
    }

    /// Whether the overlay has grown enough: few large files make less work than many small ones.
    fn is_time(&self) -> bool {
        let log = self.committed_bytes() - self.bytes_before + self.replayed_bytes;
        let grown = self.shared.state.overlay_bytes().settled >= self.shared.overlay_limits.apply;
        grown || log >= self.checkpoint_log_bytes
    }

    fn committed_bytes(&self) -> u64 {
        self.shared.counters.bytes.load(Ordering::Relaxed)
    }

    /// Waits until there is reason to work; true if it is the last time.
    fn wait(&self) -> bool {
        let (flag, condvar) = &self.shared.checkpointer;
        let mut spec = flag.lock().unwrap_or_else(PoisonError::into_inner);
        if !*spec {
            let woken = condvar.wait_timeout(spec, CHECKPOINTER_INTERVAL);
            spec = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *spec = false;
        drop(spec);
        let partition = self.shared.lock();
        partition.stopping && partition.is_idle()
    }

    /// Waits for a moment, or until there is reason to work.
    fn rest(&self) {
        let (flag, condvar) = &self.shared.checkpointer;
        let spec = flag.lock().unwrap_or_else(PoisonError::into_inner);
        if !*spec {
            // Whichever it was, the work goes on.
            let _ = condvar.wait_timeout(spec, REST);
        }
    }

    /// Moves the overlay into the table. A full disk is waited out: the overlay keeps it.
    pub fn apply(&mut self) -> Result<(), Fatal> {
        if self.failed {
            self.recover()?;
        }
        if self.failed {
            return Ok(());
        }
        let Some(frozen) = self.shared.state.freeze() else {
            return Ok(());
        };
        if let Some(log) = self.shared.log_sync.get() {
            // The table must never know more than the log, whatever a crash leaves of both.
            log.sync().map_err(|error| Fatal(format!("the log cannot be synced: {error}")))?;
        }
        match self.shared.state.apply(&frozen) {
            Ok(()) => {
                self.applied = frozen.through;
                self.exhausted = false;
                self.shared.room.notify_waiters();
                Ok(())
            }
            Err(TableError::Exhausted) => {
                self.wait_for_descriptors();
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    /// The overlay and the log keep what could not be written: it is tried again in a moment.
    fn wait_for_descriptors(&mut self) {
        if !self.exhausted {
            tracing::warn!("too many files are open; the table waits for a descriptor");
        }
        self.exhausted = true;
    }

    /// Writes down how far the table has come, and lets the log be recycled up to there.
    pub fn checkpoint(&mut self) -> Result<(), Fatal> {
        if self.applied == self.checkpointed || self.failed {
            return Ok(());
        }
        match checkpoint::write(self.disk.as_ref(), self.applied) {
            Ok(()) => {
                self.checkpointed = self.applied;
                self.recoveries = 0;
                self.bytes_before = self.committed_bytes();
                self.replayed_bytes = 0;
                self.shared.checkpoint.store(self.applied, Ordering::Release);
                Ok(())
            }
            Err(error) if is_full(&error) => self.failed(&TableError::NoSpace),
            Err(error) if is_exhausted(&error) => {
                self.wait_for_descriptors();
                Ok(())
            }
            Err(error) => Err(Fatal(format!("the checkpoint cannot be written: {error}"))),
        }
    }

    /// Reopens a table that has failed a write, if there is room now.
    fn recover(&mut self) -> Result<(), Fatal> {
        let wanted = self.min_free_bytes.max(RECOVER_FREE_BYTES);
        let free = self.disk.free_bytes().unwrap_or(0);
        if free < wanted {
            return Ok(());
        }
        if self.disk.list().is_err_and(|error| is_exhausted(&error)) {
            self.wait_for_descriptors();
            return Ok(());
        }
        self.failed = false;
        // Only failures with plenty of room count: they have another cause.
        self.recoveries += u32::from(free > wanted.saturating_mul(8));
        match self.shared.state.recover() {
            Ok(()) => {
                tracing::info!("the table works again");
                self.watch_disk();
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    /// A full disk passes; anything else, or no end of it, does not.
    fn failed(&mut self, error: &TableError) -> Result<(), Fatal> {
        match error {
            TableError::NoSpace | TableError::Exhausted => {}
            TableError::Stopped if self.recoveries < RECOVERIES_MAX => {}
            TableError::Stopped | TableError::Corrupt(_) | TableError::Failed(_) => {
                return Err(Fatal(error.to_string()));
            }
        }
        self.failed = true;
        self.shared.lock().read_only = true;
        tracing::warn!(%error, "the table waits for room on the disk; the server is read-only");
        Ok(())
    }

    /// Read-only below the watermark, writable again above it.
    pub fn watch_disk(&self) {
        let free = match self.disk.free_bytes() {
            Ok(free) => free,
            Err(error) => {
                tracing::warn!(%error, "cannot tell how much room the disk has");
                return;
            }
        };
        self.shared.counters.disk_free.store(free, Ordering::Relaxed);
        let low = self.failed || free < self.min_free_bytes;
        let mut partition = self.shared.lock();
        if partition.read_only != low {
            partition.read_only = low;
            drop(partition);
            if low {
                tracing::warn!(free, "the disk is nearly full: the server is read-only");
            } else {
                tracing::info!(free, "the disk has room again: the server accepts writes");
            }
        }
    }

    /// Has a log segment ready before the committer needs it. That is a while from now: it is made
    /// in small portions, unless there is something else to do.
    fn prepare_spare(&self) {
        let Some(spares) = &self.spares else { return };
        if self.shared.lock().read_only {
            return;
        }
        if let Err(error) = spares.fill(|| self.rest()) {
            tracing::warn!(%error, "cannot prepare the next log segment");
        }
    }
}
