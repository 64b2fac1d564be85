//! The table on a log-structured merge tree (fjall), used lazily: no sync but at checkpoints.
//!
//! Two trees: `keys` for small values, which are looked up one by one, and `chunks` for stream
//! bytes, whose large values live in blob files so that compaction need not rewrite them.

#![allow(clippy::disallowed_methods, reason = "the tree offers no way to wait for a flush")]

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
};

use super::{Pair, Table, TableError};
use crate::keys;

/// Memory for blocks that were read, shared by both trees.
const CACHE_BYTES: u64 = 48 << 20;
/// Small memtables: they are flushed at every checkpoint anyway.
const MEMTABLE_BYTES: u64 = 12 << 20;
/// The smallest that the tree accepts.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Values from here on live in blob files.
const BLOB_BYTES: u32 = 16 << 10;
const FLUSH_POLL: Duration = Duration::from_millis(2);
const REOPEN_POLL: Duration = Duration::from_millis(20);
const REOPEN_TRIES: usize = 100;

/// The server's table.
pub struct LsmTable {
    directory: PathBuf,
    /// Absent only while it is being reopened.
    trees: RwLock<Option<Trees>>,
}

#[derive(Clone)]
struct Trees {
    database: Database,
    keys: Keyspace,
    chunks: Keyspace,
}

impl LsmTable {
    /// Opens or creates the table in a directory.
    pub fn open(directory: &Path) -> Result<LsmTable, TableError> {
        let trees = guarded(|| Trees::open(directory))?;
        Ok(LsmTable { directory: directory.to_owned(), trees: RwLock::new(Some(trees)) })
    }

    fn trees(&self) -> Result<Trees, TableError> {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        trees.clone().ok_or(TableError::Stopped)
    }
}

impl Trees {
    fn open(directory: &Path) -> Result<Trees, TableError> {
        let database = Database::builder(directory)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .manual_journal_persist(true)
            // Nobody reads the journal: what is in no sorted file comes from our own log.
            .journal_compression(CompressionType::None)
            .worker_threads(2)
            .open()?;
        let keys = database.keyspace("keys", || {
            KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES)
        })?;
        let chunks = database.keyspace("chunks", || {
            let blobs = KvSeparationOptions::default()
                .separation_threshold(BLOB_BYTES)
                .compression(CompressionType::None);
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .data_block_size_policy(BlockSizePolicy::all(16 << 10))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .with_kv_separation(Some(blobs))
        })?;
        Ok(Trees { database, keys, chunks })
    }

    fn tree(&self, key: &[u8]) -> &Keyspace {
        if keys::is_chunk(key) { &self.chunks } else { &self.keys }
    }
}

impl Table for LsmTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        let trees = self.trees()?;
        guarded(|| Ok(trees.tree(key).get(key)?.map(Bytes::from)))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(trees.tree(from).range(from..to).map(pair)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        let key = |guard: fjall::Guard| guard.key().map(Bytes::from).map_err(TableError::from);
        match self.trees() {
            Ok(trees) => Box::new(trees.tree(from).range(from..to).map(key)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        let trees = self.trees()?;
        guarded(|| trees.tree(from).range(from..=last).next_back().map(pair).transpose())
    }

    fn apply(&self, changes: Vec<(Bytes, Option<Bytes>)>) -> Result<(), TableError> {
        let trees = self.trees()?;
        let mut batch = trees.database.batch();
        for (key, value) in changes {
            let tree = trees.tree(&key);
            match value {
                Some(value) => batch.insert(tree, key, value),
                None => batch.remove(tree, key),
            }
        }
        Ok(batch.commit()?)
    }

    /// Writes the memtables out as sorted files: the tree drops damaged journal entries without a
    /// word, so a checkpoint must not depend on its journal.
    fn checkpoint(&self) -> Result<(), TableError> {
        let Trees { database, keys, chunks } = self.trees()?;
        database.persist(PersistMode::SyncAll)?;
        keys.rotate_memtable()?;
        chunks.rotate_memtable()?;
        while keys.sealed_memtable_count() + chunks.sealed_memtable_count() > 0 {
            // Fails when a flush has failed; without this a full disk would be waited on forever.
            database.persist(PersistMode::Buffer)?;
            std::thread::sleep(FLUSH_POLL);
        }
        Ok(())
    }

    /// The tree takes no writes after one has failed: it is closed and opened again. Reads that
    /// are going on keep the old one alive, and its files locked, until they are done.
    fn reopen(&self) -> Result<(), TableError> {
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        drop(trees.take());
        for _ in 0..REOPEN_TRIES {
            match Trees::open(&self.directory) {
                Ok(opened) => {
                    *trees = Some(opened);
                    return Ok(());
                }
                Err(TableError::Stopped) => std::thread::sleep(REOPEN_POLL),
                Err(error) => return Err(error),
            }
        }
        Err(TableError::Stopped)
    }
}

/// The library asserts some of what it reads from disk: its panic is our damaged file.
fn guarded<T>(work: impl FnOnce() -> Result<T, TableError>) -> Result<T, TableError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(TableError::Corrupt(text.unwrap_or("a file makes no sense").to_owned()))
    })
}

fn pair(guard: fjall::Guard) -> Result<Pair, TableError> {
    let (key, value) = guard.into_inner()?;
    Ok((key.into(), value.into()))
}

impl From<fjall::Error> for TableError {
    fn from(error: fjall::Error) -> TableError {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(inner) = cause {
            if let Some(io) = inner.downcast_ref::<std::io::Error>() {
                if crate::disk::is_full(io) {
                    return TableError::NoSpace;
                }
                if io.kind() == std::io::ErrorKind::InvalidData {
                    return TableError::Corrupt(error.to_string());
                }
            }
            if let Some(fjall::LsmError::ChecksumMismatch { .. }) = inner.downcast_ref() {
                return TableError::Corrupt(error.to_string());
            }
            cause = inner.source();
        }
        match error {
            fjall::Error::Poisoned | fjall::Error::Locked => TableError::Stopped,
            other => TableError::Failed(other.to_string()),
        }
    }
}
