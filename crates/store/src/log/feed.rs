//! The feed: the batches of a log in their order, for recovery and for followers.

use std::sync::Arc;

use bytes::Bytes;

use super::BatchId;

/// Called when a feed may have another batch, on any thread. It must not block and must not call
/// back into the feed.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// One batch of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedBatch {
    pub sequence: u64,
    /// Absent if the log does not keep names.
    pub id: Option<BatchId>,
    pub payload: Bytes,
}

/// The reading end of a log: every batch after some sequence, in order, each once. It has one
/// owner. Any number of feeds may be open on one log, beside its writer.
///
/// A feed returns durable batches only: what it has returned will be returned by every other feed
/// that begins early enough, too, whatever crashes.
pub trait Feed: Send {
    /// The next batch; `None` if there is none at the moment. Does not wait for one to be written,
    /// though it may for the disk that has it.
    ///
    /// `None` does not say that the end of the log is reached, which for a log on a network nobody
    /// knows: whoever must have everything compares with [`Log::last_sequence`] of a writer.
    ///
    /// After an error the feed has lost nothing: it goes on where it was if it can.
    ///
    /// [`Log::last_sequence`]: super::Log::last_sequence
    fn next_batch(&mut self) -> Result<Option<FeedBatch>, FeedError>;

    /// From now on calls `wake` after each batch that becomes readable, and when the feed fails.
    /// It may be called without cause, and once for several batches; a batch that was readable
    /// before is not announced. So: first this, then [`Feed::next_batch`] until `None`, then wait.
    ///
    /// A feed over something that does not grow while it is read never calls it.
    fn wake_by(&mut self, wake: Wake);
}

/// Why a feed has no answer.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The log has forgotten what comes next: whoever reads begins anew, with a checkpoint that
    /// holds everything up to `oldest - 1` or more.
    #[error(
        "the log begins with batch {oldest}, and batch {wanted} is needed next: begin with a newer \
         checkpoint"
    )]
    Released { wanted: u64, oldest: u64 },
    /// It passes.
    #[error("the log cannot be reached: {reason}")]
    Unavailable { reason: String },
    /// The log is damaged: only an operator can help.
    #[error("{problem}")]
    Broken { problem: String },
}
