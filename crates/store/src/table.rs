//! The key table: the state on disk, which lags behind the log and is brought up from it.

pub mod lsm;
pub mod memory;

use std::sync::Arc;

use bytes::Bytes;

use crate::chunk::Chunk;
use crate::keys;

pub use lsm::LsmTable;
pub use memory::MemoryTable;

pub type Pair = (Bytes, Bytes);

/// A key and its new value; `None` removes it.
pub type Change = (Bytes, Option<Bytes>);

/// An ordered map of keys to values: a table as it is at the moment of each call, or a snapshot of
/// it. Anybody may read, on any thread, whatever is being written.
pub trait TableReader: Send + Sync + 'static {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError>;

    /// The pairs from `from` to before `to`, in order, as they are at the moment of the call: what
    /// is changed later is not seen by the iterator.
    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>>;

    /// The same from the last to the first.
    fn range_back(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Pair, TableError>>>;

    /// The keys from `from` to before `to`, in order; likewise.
    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>>;

    /// The last pair from `from` up to and including `last`.
    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError>;
}

/// The state on disk. Written by one thread, which brings it up from the log.
pub trait Table: TableReader {
    /// The table as it is now, whatever is written to it later.
    ///
    /// What was replaced since then takes room for as long as the snapshot lives: it belongs to
    /// readers, and goes with the last of them. [`Table::reopen`] may end it earlier; then its
    /// reads fail with [`TableError::Stopped`].
    fn snapshot(&self) -> Result<Arc<dyn TableReader>, TableError>;

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
    /// There is no descriptor, or no memory, for a file: it can go on when there is one again.
    #[error("too many files are open in this process or on this machine")]
    Exhausted,
    /// A write failed earlier, and it takes no more until it is reopened.
    #[error("the table has stopped after a failed write")]
    Stopped,
    /// Bytes on disk are not what was written.
    #[error("the table is damaged: {0}")]
    Corrupt(String),
    #[error("the table failed: {0}")]
    Failed(String),
}

/// Reads a stored chunk; one that cannot be read is damage.
pub(crate) fn read_chunk(key: &[u8], value: &Bytes) -> Result<Chunk, TableError> {
    let (id, start) = keys::parse_chunk(key)
        .ok_or_else(|| TableError::Corrupt("a chunk's key cannot be read".into()))?;
    Chunk::decode(start, value)
        .map_err(|error| TableError::Corrupt(format!("stream {} at {start}: {error}", id.0)))
}
