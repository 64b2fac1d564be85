//! What a command can come to beside its answer.

use reveille_store::table::TableError;

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error<R> {
    /// The caller is wrong; its domain says how.
    #[error("{0}")]
    Rejected(R),
    /// The caller may try again.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Stored bytes are damaged, or the disk fails: reported, never served.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

impl<R> Error<R> {
    /// The same, with the rejection in the words of somebody else.
    pub fn map_rejection<T>(self, map: impl FnOnce(R) -> T) -> Error<T> {
        match self {
            Error::Rejected(rejection) => Error::Rejected(map(rejection)),
            Error::Unavailable(why) => Error::Unavailable(why),
            Error::Damaged(what) => Error::Damaged(what),
        }
    }
}

/// What a command that nobody can get wrong is rejected with: it never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Never {}

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
    /// Another process writes this partition now.
    #[error("another node leads this partition now; try again")]
    NotLeader,
    /// What follows from the request is more than the log takes at once.
    #[error("this would change more at once than the log takes; ask for less at a time")]
    TooLarge,
}

/// Stored bytes that cannot be what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub String);

impl Damaged {
    /// Whatever somebody found out about it.
    pub fn new(what: impl ToString) -> Damaged {
        Damaged(what.to_string())
    }
}

impl From<TableError> for Damaged {
    fn from(error: TableError) -> Damaged {
        tracing::error!(%error, "stored data cannot be read");
        Damaged(error.to_string())
    }
}

/// The log or the table cannot be trusted any more: the process must stop.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fatal(pub String);
