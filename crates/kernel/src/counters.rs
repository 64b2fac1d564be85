//! What a partition counts about itself. Names and formats are the server's business.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one partition since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches that were made durable.
    pub batches: AtomicU64,
    /// Commands that were answered with them.
    pub commands: AtomicU64,
    /// Bytes of their records.
    pub bytes: AtomicU64,
    /// Room on the disk, when it was last looked at.
    pub disk_free: AtomicU64,
    /// Timers that could not be fulfilled and were set aside; those from before the start too.
    pub set_aside: AtomicU64,
}

impl Counters {
    pub(crate) fn committed(&self, commands: usize, bytes: usize) {
        let add = |counter: &AtomicU64, value: usize| {
            counter.fetch_add(u64::try_from(value).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        add(&self.batches, 1);
        add(&self.commands, commands);
        add(&self.bytes, bytes);
    }
}
