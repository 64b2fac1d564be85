//! What an operation can come to beside its result.

use std::sync::Arc;

use reveille_core::consumer;
use reveille_core::stream::Rejected;

/// Why an operation was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The caller is wrong.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The caller is wrong about a subscription or a consumer.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The caller may try again.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Stored bytes are damaged, or the disk fails: reported, never served.
    #[error("{0}")]
    Damaged(String),
}

/// Why something cannot be done with a subscription or a consumer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The consumer does not allow it.
    #[error(transparent)]
    Consumer(#[from] consumer::Rejected),
    /// The name is taken by a subscription that was asked for differently.
    #[error(
        "a subscription with this id exists and was made with other settings; delete it first, or \
         choose another id"
    )]
    Exists,
    /// There is no such subscription.
    #[error("there is no subscription with this id")]
    NotFound,
    /// The token is none of ours, or for something else.
    #[error("the token is not valid here; use the one from the last notification or answer")]
    TokenInvalid,
    /// The token has expired; its consumer is still the same.
    #[error("the token has expired; repeat the request with the one in this answer")]
    TokenExpired {
        /// The wake that a new one may be for.
        epoch: u64,
    },
    /// Something is to be appended together with acks, and cannot be.
    #[error("{path}: {why}; nothing of this callback was applied")]
    Append { path: Arc<str>, why: Box<Rejected> },
    /// There are as many keys as there can be.
    #[error("the server keeps at most {max} keys; revoke some that nobody uses")]
    TooManyKeys { max: usize },
    /// A hook of the same worker, pattern and method is there already.
    #[error("Subscription already exists for this worker/pattern/method combination")]
    HookExists,
    /// There is no event of this id.
    #[error("there is no event with this id")]
    NoEvent,
    /// There is no such dead letter, or it was made again already.
    #[error("there is no dead encode_delivery with this id; it may have been retried already")]
    NoDeadLetter,
    /// A subscription names more streams than it may.
    #[error("a subscription names at most {max} streams")]
    TooManyStreams { max: usize },
}

/// Why it cannot be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// More work is waiting than fits into memory.
    #[error("the server has more work waiting than it can hold; try again shortly")]
    Busy,
    /// There is no room on the disk.
    #[error("the disk is nearly full: the server is read-only until there is room")]
    DiskFull,
    /// The server is going down.
    #[error("the server is shutting down")]
    Stopping,
}
