//! What an operation can come to beside its result.

use reveille_core::stream::Rejected;

/// Why an operation was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The caller is wrong.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The caller may try again.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Stored bytes are damaged, or the disk fails: reported, never served.
    #[error("{0}")]
    Damaged(String),
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
