//! The key table: the state on disk, which lags behind the log and is brought up from it.

pub mod lsm;
pub mod memory;

use bytes::Bytes;

pub use lsm::LsmTable;
pub use memory::MemoryTable;

/// A key and its value.
pub type Pair = (Bytes, Bytes);

/// A key and its new value; `None` removes it.
pub type Change = (Bytes, Option<Bytes>);

/// An ordered map of keys to values. Written by one thread, read by many.
pub trait Table: Send + Sync + 'static {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError>;

    /// The pairs from `from` to before `to`, in order; a consistent view of the moment of the call.
    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>>;

    /// The keys from `from` to before `to`, in order; likewise.
    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>>;

    /// The last pair from `from` up to and including `last`.
    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError>;

    /// Makes these changes, which come sorted by key, each key once; they survive a crash from then
    /// on. After an error, and after a crash meanwhile, any part of them may have been made.
    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError>;

    /// Begins anew after a failed write.
    fn reopen(&self) -> Result<(), TableError> {
        Ok(())
    }
}

/// The table cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file system is full: it can go on when there is room again.
    #[error("the disk is full")]
    NoSpace,
    /// A write failed earlier, and it takes no more until it is reopened.
    #[error("the table has stopped after a failed write")]
    Stopped,
    /// Bytes on disk are not what was written.
    #[error("the table is damaged: {0}")]
    Corrupt(String),
    /// Anything else.
    #[error("the table failed: {0}")]
    Failed(String),
}
