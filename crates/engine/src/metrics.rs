//! What a partition counts. Names and formats are the server's business.

mod delivering;
mod telling;

use std::sync::atomic::{AtomicU64, Ordering};

pub use delivering::{DeliveringMetrics, DeliveringSnapshot};
pub use telling::{
    AttemptResult, BOUNDS_MS, Distribution, FAILURE_KINDS, TellingMetrics, TellingSnapshot,
};

/// Counters of one partition since its start.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Batches that were made durable.
    pub batches: AtomicU64,
    /// Commands that were answered with them.
    pub commands: AtomicU64,
    /// Bytes of their records.
    pub bytes: AtomicU64,
    /// Room on the disk, when it was last looked at.
    pub disk_free: AtomicU64,
    /// Telling consumers.
    pub telling: TellingMetrics,
    /// Delivering events.
    pub delivering: DeliveringMetrics,
}

impl Metrics {
    pub(crate) fn committed(&self, commands: usize, bytes: usize) {
        let add = |counter: &AtomicU64, value: usize| {
            counter.fetch_add(u64::try_from(value).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        add(&self.batches, 1);
        add(&self.commands, commands);
        add(&self.bytes, bytes);
    }
}

/// A partition at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Snapshot {
    /// See [`Metrics::batches`].
    pub batches: u64,
    /// See [`Metrics::commands`].
    pub commands: u64,
    /// See [`Metrics::bytes`].
    pub bytes: u64,
    /// See [`Metrics::disk_free`].
    pub disk_free: u64,
    /// Bytes of log segments in use.
    pub log_bytes: u64,
    /// Bytes that the table does not have yet.
    pub overlay_bytes: u64,
    /// Streams that somebody watches.
    pub watched: u64,
    /// Whether writes are refused because the disk is nearly full.
    pub read_only: bool,
    /// Telling consumers.
    pub telling: TellingSnapshot,
    /// Delivering events.
    pub delivering: DeliveringSnapshot,
}
