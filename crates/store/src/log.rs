//! The log door: whatever keeps batches in one order, and durably.
//!
//! | log | where | for |
//! |---|---|---|
//! | [`SegmentLog`] | segment files in the data directory | one machine |
//! | [`SharedLog`] | memory, with several writers and readers | tests and the simulator |
//!
//! A log is written through [`Log`] and read through [`Feed`]. What a batch means is no business of
//! theirs: to them it is bytes with a name.

mod error;
mod feed;
mod segment_log;
mod shared_log;

use std::fmt;

use bytes::Bytes;

pub use error::CommitError;
pub use feed::{Feed, FeedBatch, FeedError, Wake};
pub use segment_log::{
    Config, DurabilityEvidence, OpenError, RecoveryReport, Salt, SegmentLog, SegmentRecovery,
    SparePool, Syncer, TornRecord,
};
pub use shared_log::{SharedLog, SharedLogFeed, SharedLogWriter};

/// The name of a batch, chosen by its writer and unique in the log: a commit that was not answered
/// is tried again under the same name, and is then known to be the same.
///
/// A writer draws its number at random when it begins, and counts its batches from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId {
    pub writer: u64,
    pub number: u64,
}

/// As it is written into messages and logs: never changed, because logs may keep it.
impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.writer, self.number)
    }
}

/// The writing end of a log. It has one owner, the committer, who calls it from one thread and
/// commits one batch after the other; every call may block for as long as a disk or a network does.
///
/// Several writers may be open on one log at different times, and by mistake at the same time. The
/// log sees to it that only the newest of them can commit: it is the fence, not whoever believes to
/// be the only one.
pub trait Log: Send {
    /// Makes a batch durable and returns its sequence, which is higher than that of every batch
    /// before it; not by one, necessarily.
    ///
    /// `Ok` means that the batch survives whatever the log promises to survive, and that every
    /// [`Feed`] will return it. Nobody may see anything of a batch before. The only exception is a
    /// log that has a [`Syncer`].
    ///
    /// [`CommitError`] says for each error whether the batch is in the log. After
    /// [`CommitError::Unavailable`] nobody knows: the same batch must be committed again, under the
    /// same id and before any other, until the answer is another. If it was in the log all the
    /// time, the answer is the sequence that it has, even for a writer that was deposed since.
    fn commit(&mut self, batch: BatchId, payload: &Bytes) -> Result<u64, CommitError>;

    /// Everything up to and including this sequence is in a checkpoint, from which whoever opens
    /// the log later begins: the log may forget it. It need not, and need not do so now.
    ///
    /// An error means what it means for a commit; the log has not forgotten more than it may.
    fn release(&mut self, through: u64) -> Result<(), CommitError>;

    /// Nothing was committed for a while. A log may mark its end, so that damage to the last batch
    /// is later told from a write that a crash interrupted. What comes next need not wait longer
    /// for having called it, so it is for moments in which nothing is waiting.
    fn idle(&mut self) -> Result<(), CommitError>;

    /// The newest batch in the log as far as this writer knows: the last one it committed, or the
    /// last one there was when it was opened. Whoever leads anew reads up to here before it decides.
    fn last_sequence(&self) -> u64;

    /// The largest payload of one batch. A larger one is refused with [`CommitError::TooLarge`],
    /// which is the failure of whoever made it and of nobody else.
    fn batch_bytes_max(&self) -> usize;

    /// What the log takes where it is kept, for whoever watches that.
    fn bytes(&self) -> u64;

    /// For a log whose commits are not durable at once, which is allowed only where the operator
    /// asked for it (`--durability os`): makes them durable later. Whoever writes a checkpoint
    /// calls it before, for a table must never know more than the log.
    fn syncer(&self) -> Option<Syncer> {
        None
    }
}
