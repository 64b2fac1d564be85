//! What the domains count, and a partition at one moment. Names and formats are the server's
//! business.

mod deliveries;
mod triggers;
mod wakes;

pub use deliveries::{DeliveryMetrics, DeliverySnapshot};
pub use triggers::{ATTEMPT_STATUSES, TriggerMetrics, TriggerTotals};
pub use wakes::{AttemptResult, BOUNDS_MS, Distribution, FAILURE_KINDS, WakeMetrics, WakeSnapshot};

/// How many of something there are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Population {
    pub all: u64,
    /// The most that any tenant has.
    pub largest_tenant: u64,
}

/// A partition at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Snapshot {
    /// Batches that were made durable.
    pub batches: u64,
    /// Commands that were answered with them.
    pub commands: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Room on the disk, when it was last looked at.
    pub disk_free: u64,
    /// Obligations that could not be fulfilled.
    pub set_aside: u64,
    /// Bytes of log segments in use.
    pub log_bytes: u64,
    /// Bytes that the table does not have yet.
    pub overlay_bytes: u64,
    /// Streams that somebody watches.
    pub watched: u64,
    /// Whether writes are refused because the disk is nearly full.
    pub read_only: bool,
    pub wakes: WakeSnapshot,
    pub deliveries: DeliverySnapshot,
}
