//! What can be wrong with what is asked about documents.

use reveille_core::document::index::{IndexDefinition, IndexError};
use reveille_core::document::path::DocumentPath;
use reveille_core::document::transaction::Failure;
use reveille_kernel::error::Error;

/// Why nothing was done, or nothing is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentRejection {
    #[error("there is no document `{0}`")]
    NotFound(DocumentPath),
    /// Nothing of a transaction is done.
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the rules of the tenant do not allow this")]
    RuleDenied {
        /// Which write of a transaction; `None` for what was to be read.
        op_index: Option<usize>,
    },
    #[error("the same write is still being done; ask again shortly")]
    InProgress,
    #[error("this idempotency key was used for another body; use a new one")]
    OtherBody,
    /// Others wrote what the rules had looked at, and again at the second try. Nothing is
    /// remembered of it: the same write may well succeed.
    #[error("others wrote the same documents meanwhile; try again")]
    Conflict,
    /// Others wrote what the hooks for changes had looked at, and another look is cheaper than a
    /// decision without one: whoever asked never sees this.
    #[error("others wrote the same documents meanwhile; look again")]
    Stale,
    #[error("the write could not be decided in time, and nothing of it was done; try again")]
    TimedOut,
    #[error("the collection has too many documents to look through; this query needs an index")]
    MissingIndex(IndexDefinition),
    /// No index would help, or one that there is does not help enough.
    #[error(
        "after {documents_read} documents the query has come to no page; narrow it down with a \
         filter that an index can find, or sort it as an index is sorted"
    )]
    QueryTooCostly { documents_read: u64 },
    #[error("these documents are larger than {bytes_max} bytes together; ask for fewer of them")]
    TooManyBytes { bytes_max: usize },
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("so many indexes are still being removed that none can be declared; try again shortly")]
    TooManyIndexes,
}

/// What a request about documents came to instead of an answer.
pub type DocumentError = Error<DocumentRejection>;
