//! The table on a log-structured merge tree (fjall), of which only the sorted files are used.
//!
//! Two trees: `keys` for small values, which are looked up one by one, and `chunks` for stream
//! bytes, whose large values live in blob files so that compaction need not rewrite them.

#![allow(clippy::disallowed_methods, reason = "the tree offers no way to wait for a compaction")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    Readable as _, Snapshot,
};

use super::{Change, Pair, Table, TableError, TableReader};
use crate::background::{self, YieldCounter};
use crate::keys;

/// Memory for blocks that were read, shared by both trees.
const CACHE_BYTES: u64 = 48 << 20;
/// Values from here on live in blob files.
const BLOB_BYTES: u32 = 16 << 10;
/// Files of a tree that have not been merged yet, at most.
const FILES_MAX: usize = 24;
/// Changes that are written before others have their turn.
const TURN_CHANGES: u32 = 16;
const COMPACTION_POLL: Duration = Duration::from_millis(2);
/// Looks without anybody at work, after which a compaction is made here: the request for one may
/// have been lost, and nothing else would ever make it.
const IDLE_POLLS_MAX: u32 = 250;
/// Files that stay open when nobody says how many may: what the library takes for granted.
const OPEN_FILES: usize = 900;
/// The library takes no fewer.
const OPEN_FILES_MIN: usize = 10;
/// A read that found no descriptor is tried again so often.
const READ_TRIES: u32 = 50;
const REOPEN_POLL: Duration = Duration::from_millis(20);
const REOPEN_TRIES: usize = 100;

/// The server's table.
pub struct LsmTable {
    directory: PathBuf,
    limits: TreeLimits,
    /// Absent only while it is being reopened.
    trees: RwLock<Option<Arc<Trees>>>,
}

/// The table as it was. It does not keep the trees open, so that whoever reads slowly is not in the
/// way when they must be reopened.
struct LsmSnapshot {
    trees: Weak<Trees>,
    snapshot: Snapshot,
}

/// What a table may hold at once.
#[derive(Debug, Clone, Copy)]
struct TreeLimits {
    cache_bytes: u64,
    open_files: usize,
}

struct Trees {
    database: Database,
    keys: Keyspace,
    chunks: Keyspace,
}

impl LsmTable {
    /// Opens or creates the table in a directory.
    pub fn open(directory: &Path) -> Result<LsmTable, TableError> {
        LsmTable::open_among(directory, 1, OPEN_FILES)
    }

    /// The same for one of several tables of a process, which share what may be cached and how
    /// many files stay open.
    pub fn open_among(
        directory: &Path,
        tables: u32,
        open_files: usize,
    ) -> Result<LsmTable, TableError> {
        let tables = tables.max(1);
        let limits = TreeLimits {
            cache_bytes: CACHE_BYTES / u64::from(tables),
            open_files: (open_files / usize::try_from(tables).unwrap_or(1)).max(OPEN_FILES_MIN),
        };
        let opening = || {
            // The threads of the tree are begun here, and are like this one.
            background::step_back();
            guarded(|| Trees::open(directory, limits))
        };
        let opened = std::thread::scope(|scope| scope.spawn(opening).join());
        let trees = opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let trees = RwLock::new(Some(Arc::new(trees)));
        Ok(LsmTable { directory: directory.to_owned(), limits, trees })
    }

    fn trees(&self) -> Result<Arc<Trees>, TableError> {
        let trees = self.trees.read().unwrap_or_else(PoisonError::into_inner);
        trees.clone().ok_or(TableError::Stopped)
    }
}

impl Trees {
    fn open(directory: &Path, limits: TreeLimits) -> Result<Trees, TableError> {
        let builder = Database::builder(directory)
            .cache_size(limits.cache_bytes)
            .max_cached_files(Some(limits.open_files));
        // With more than one, the first does nothing but hand on what is for another, in a loop
        // that takes a whole processor until that one is done.
        Trees::of(builder.worker_threads(1).open()?)
    }

    fn of(database: Database) -> Result<Trees, TableError> {
        let keys = database.keyspace("keys", KeyspaceCreateOptions::default)?;
        let chunks = database.keyspace("chunks", || {
            let blobs = KvSeparationOptions::default()
                .separation_threshold(BLOB_BYTES)
                .compression(CompressionType::None);
            KeyspaceCreateOptions::default()
                .data_block_size_policy(BlockSizePolicy::all(16 << 10))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .with_kv_separation(Some(blobs))
        })?;
        Ok(Trees { database, keys, chunks })
    }

    /// Waits while there are so many files that every look at the table would be slow. If nobody
    /// makes them fewer it does so itself.
    fn wait_for_compaction(&self) -> Result<(), TableError> {
        let mut idle_polls = 0;
        loop {
            // Fails when a compaction has failed: nothing else says so, and none is made any more.
            self.database.persist(PersistMode::Buffer)?;
            if self.keys.l0_table_count().max(self.chunks.l0_table_count()) < FILES_MAX {
                return Ok(());
            }
            let is_idle = self.database.active_compactions() == 0;
            idle_polls = if is_idle { idle_polls + 1 } else { 0 };
            if idle_polls > IDLE_POLLS_MAX {
                idle_polls = 0;
                for tree in [&self.keys, &self.chunks] {
                    if tree.l0_table_count() >= FILES_MAX {
                        tree.major_compact()?;
                    }
                }
            }
            std::thread::sleep(COMPACTION_POLL);
        }
    }

    fn tree(&self, key: &[u8]) -> &Keyspace {
        if keys::is_chunk(key) { &self.chunks } else { &self.keys }
    }
}

impl TableReader for LsmTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        let trees = self.trees()?;
        patiently(|| guarded(|| Ok(trees.tree(key).get(key)?.map(Bytes::from))))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(trees.tree(from).range(from..to).map(pair)),
            Err(error) => failed(error),
        }
    }

    fn range_back(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(trees.tree(from).range(from..to).rev().map(pair)),
            Err(error) => failed(error),
        }
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(trees.tree(from).range(from..to).map(key)),
            Err(error) => failed(error),
        }
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        let trees = self.trees()?;
        let range = || trees.tree(from).range(from..=last);
        patiently(|| guarded(|| range().next_back().map(pair).transpose()))
    }
}

impl LsmSnapshot {
    fn trees(&self) -> Result<Arc<Trees>, TableError> {
        self.trees.upgrade().ok_or(TableError::Stopped)
    }
}

impl TableReader for LsmSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        let trees = self.trees()?;
        patiently(|| guarded(|| Ok(self.snapshot.get(trees.tree(key), key)?.map(Bytes::from))))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(self.snapshot.range(trees.tree(from), from..to).map(pair)),
            Err(error) => failed(error),
        }
    }

    fn range_back(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Pair, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(self.snapshot.range(trees.tree(from), from..to).rev().map(pair)),
            Err(error) => failed(error),
        }
    }

    fn keys(&self, from: &[u8], to: &[u8]) -> Box<dyn Iterator<Item = Result<Bytes, TableError>>> {
        match self.trees() {
            Ok(trees) => Box::new(self.snapshot.range(trees.tree(from), from..to).map(key)),
            Err(error) => failed(error),
        }
    }

    fn floor(&self, from: &[u8], last: &[u8]) -> Result<Option<Pair>, TableError> {
        let trees = self.trees()?;
        let range = || self.snapshot.range(trees.tree(from), from..=last);
        patiently(|| guarded(|| range().next_back().map(pair).transpose()))
    }
}

impl Table for LsmTable {
    fn snapshot(&self) -> Result<Arc<dyn TableReader>, TableError> {
        let trees = self.trees()?;
        let snapshot = trees.database.snapshot();
        Ok(Arc::new(LsmSnapshot { trees: Arc::downgrade(&trees), snapshot }))
    }

    /// Writes the changes as one more sorted file of each tree, synced: there is no journal and no
    /// memtable, because the log and the overlay are that.
    fn apply(
        &self,
        changes: &mut dyn Iterator<Item = Result<Change, TableError>>,
    ) -> Result<(), TableError> {
        let trees = self.trees()?;
        trees.wait_for_compaction()?;
        let (mut keys, mut chunks) = (None, None);
        let mut turns = YieldCounter::of(TURN_CHANGES);
        for change in changes {
            turns.count();
            let (key, value) = change?;
            let (file, tree) = match keys::is_chunk(&key) {
                true => (&mut chunks, &trees.chunks),
                false => (&mut keys, &trees.keys),
            };
            let file = match file {
                Some(file) => file,
                None => file.insert(tree.start_ingestion()?),
            };
            match value {
                Some(value) => file.write(key, value)?,
                None => file.write_tombstone(key)?,
            }
        }
        for file in [chunks, keys].into_iter().flatten() {
            file.finish()?;
        }
        Ok(())
    }

    /// The tree takes no writes after one has failed: it is closed and opened again. Reads that
    /// are going on keep the old one alive, and its files locked, until they are done; snapshots
    /// do not.
    fn reopen(&self) -> Result<(), TableError> {
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        drop(trees.take());
        for _ in 0..REOPEN_TRIES {
            match Trees::open(&self.directory, self.limits) {
                Ok(opened) => {
                    *trees = Some(Arc::new(opened));
                    return Ok(());
                }
                Err(TableError::Stopped | TableError::Exhausted) => {
                    std::thread::sleep(REOPEN_POLL);
                }
                Err(error) => return Err(error),
            }
        }
        Err(TableError::Stopped)
    }
}

/// Has a look again for which there was no descriptor: others let go of theirs.
fn patiently<T>(read: impl Fn() -> Result<T, TableError>) -> Result<T, TableError> {
    for _ in 1..READ_TRIES {
        match read() {
            Err(TableError::Exhausted) => std::thread::sleep(COMPACTION_POLL),
            found => return found,
        }
    }
    read()
}

/// The library asserts some of what it reads from disk: its panic is our damaged file.
fn guarded<T>(work: impl FnOnce() -> Result<T, TableError>) -> Result<T, TableError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(TableError::Corrupt(text.unwrap_or("a file makes no sense").to_owned()))
    })
}

fn failed<T: 'static>(error: TableError) -> Box<dyn Iterator<Item = Result<T, TableError>>> {
    Box::new(std::iter::once(Err(error)))
}

fn key(guard: fjall::Guard) -> Result<Bytes, TableError> {
    Ok(guard.key()?.into())
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
                if crate::disk::is_exhausted(io) {
                    return TableError::Exhausted;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::keys::BlobId;
    use proptest::prelude::*;

    use super::*;

    /// Keys of both trees.
    fn key(number: u8) -> Bytes {
        match number.is_multiple_of(2) {
            true => Bytes::copy_from_slice(&[2, number]),
            false => keys::chunk(BlobId(1), u64::from(number)),
        }
    }

    /// A request for a compaction may be lost: then whoever waits for one makes it.
    #[test]
    fn whoever_waits_for_fewer_files_sees_to_it() {
        let directory = tempfile::tempdir().unwrap();
        // Nobody compacts beside us.
        let database = Database::builder(directory.path()).worker_threads_unchecked(0);
        let trees = Trees::of(database.open().unwrap()).unwrap();
        let limits = TreeLimits { cache_bytes: 1 << 20, open_files: 10 };
        let table = LsmTable {
            directory: directory.path().to_owned(),
            limits,
            trees: RwLock::new(Some(Arc::new(trees))),
        };
        for round in 0..40u8 {
            let pairs = (0..8).map(|n| (key(n), Some(Bytes::copy_from_slice(&[round]))));
            change(&table, pairs.collect());
            let trees = table.trees().unwrap();
            let files = trees.keys.l0_table_count().max(trees.chunks.l0_table_count());
            assert!(files <= FILES_MAX, "{files} files");
        }
        let values: Vec<Bytes> = pairs(&table).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, vec![Bytes::from_static(&[39]); 8]);
    }

    fn change(table: &LsmTable, changes: BTreeMap<Bytes, Option<Bytes>>) {
        table.apply(&mut changes.into_iter().map(Ok)).unwrap();
    }

    fn pairs(table: &dyn TableReader) -> Vec<Pair> {
        let (first, last) = keys::chunks(BlobId(1));
        let others = table.range(&[2], &[3]).chain(table.range(&first, &last));
        others.collect::<Result<_, _>>().unwrap()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Apply(BTreeMap<u8, Option<usize>>),
        /// The changes end in an error, and the table begins anew.
        Fail(BTreeMap<u8, Option<usize>>),
        Reopen,
        /// Somebody looks at it, now and later.
        Snapshot,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Some values are long enough for blob files.
        let value = prop::option::of(prop_oneof![0usize..40, 16_000usize..17_000]);
        let changes = prop::collection::btree_map(0u8..24, value, 1..8);
        prop_oneof![
            8 => changes.clone().prop_map(Step::Apply),
            1 => changes.prop_map(Step::Fail),
            1 => Just(Step::Reopen),
            3 => Just(Step::Snapshot),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn a_table_holds_what_was_applied(steps in prop::collection::vec(step(), 1..30)) {
            let directory = tempfile::tempdir().unwrap();
            let mut table = LsmTable::open(directory.path()).unwrap();
            let mut model: BTreeMap<Bytes, Bytes> = BTreeMap::new();
            let mut snapshots: Vec<(Arc<dyn TableReader>, BTreeMap<Bytes, Bytes>)> = Vec::new();
            for (at, step) in steps.into_iter().enumerate() {
                let fill = u8::try_from(at).unwrap();
                let of = |changes: BTreeMap<u8, Option<usize>>| -> BTreeMap<_, _> {
                    let value = |len| Bytes::from(vec![fill; len]);
                    changes.into_iter().map(|(k, v)| (key(k), v.map(value))).collect()
                };
                match step {
                    Step::Snapshot => snapshots.push((table.snapshot().unwrap(), model.clone())),
                    Step::Apply(changes) => {
                        let changes = of(changes);
                        for (key, value) in changes.clone() {
                            match value {
                                Some(value) => model.insert(key, value),
                                None => model.remove(&key),
                            };
                        }
                        change(&table, changes);
                    }
                    Step::Fail(changes) => {
                        let changes = of(changes).into_iter().map(Ok);
                        let failed = std::iter::once(Err(TableError::NoSpace));
                        table.apply(&mut changes.chain(failed)).unwrap_err();
                        snapshots.clear();
                        table.reopen().unwrap();
                    }
                    Step::Reopen => {
                        snapshots.clear();
                        drop(table);
                        table = LsmTable::open(directory.path()).unwrap();
                    }
                }
                check(&table, &model);
                for (snapshot, model) in &snapshots {
                    check(snapshot.as_ref(), model);
                }
            }
        }
    }

    fn check(table: &dyn TableReader, model: &BTreeMap<Bytes, Bytes>) {
        let (chunks, others): (Vec<_>, Vec<_>) =
            model.clone().into_iter().partition(|(key, _)| keys::is_chunk(key));
        assert_eq!(pairs(table), [others.clone(), chunks].concat());
        let keys: Result<Vec<Bytes>, _> = table.keys(&[2], &[3]).collect();
        assert_eq!(keys.unwrap(), others.into_iter().map(|(key, _)| key).collect::<Vec<_>>());
        for number in 0..24 {
            assert_eq!(table.get(&key(number)).unwrap(), model.get(&key(number)).cloned());
        }
        let (first, last) = (keys::chunk(BlobId(1), 0), keys::chunk(BlobId(1), 11));
        let floor = model.range(first.clone()..=last.clone()).next_back();
        let floor = floor.map(|(key, value)| (key.clone(), value.clone()));
        assert_eq!(table.floor(&first, &last).unwrap(), floor);
    }

    #[test]
    fn a_snapshot_is_not_in_the_way_of_a_new_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let table = LsmTable::open(directory.path()).unwrap();
        change(&table, BTreeMap::from([(key(2), Some(Bytes::from_static(b"v")))]));
        let snapshot = table.snapshot().unwrap();
        table.reopen().unwrap();
        assert!(matches!(snapshot.get(&key(2)), Err(TableError::Stopped)));
        assert!(matches!(snapshot.floor(&key(2), &key(2)), Err(TableError::Stopped)));
        assert!(matches!(snapshot.range(&[2], &[3]).next(), Some(Err(TableError::Stopped))));
        assert!(matches!(snapshot.keys(&[2], &[3]).next(), Some(Err(TableError::Stopped))));
        assert_eq!(table.get(&key(2)).unwrap(), Some(Bytes::from_static(b"v")));
    }

    #[test]
    fn what_was_replaced_or_removed_takes_no_room() {
        const BYTES: usize = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let table = LsmTable::open(directory.path()).unwrap();
        // A megabyte for either tree, again and again.
        let round = |fill: u8| -> BTreeMap<Bytes, Option<Bytes>> {
            let small = (0..BYTES / 1_000)
                .map(|n| (Bytes::from([&[2], &n.to_be_bytes()[..]].concat()), vec![fill; 1_000]));
            let large = (0..BYTES / 100_000)
                .map(|n| (keys::chunk(BlobId(1), u64::try_from(n).unwrap()), vec![fill; 100_000]));
            small.chain(large).map(|(key, value)| (key, Some(value.into()))).collect()
        };
        let used = || {
            let trees = table.trees().unwrap();
            trees.keys.disk_space() + trees.chunks.disk_space()
        };
        let mut most = 0;
        for fill in 0..60 {
            // As for those who read while it is being brought up.
            let snapshot = table.snapshot().unwrap();
            change(&table, round(fill));
            drop(snapshot);
            most = used().max(most);
        }
        let removed = round(0).into_keys().map(|key| (key, None)).collect();
        change(&table, removed);
        // Compactions go on beside us: each further file makes one more.
        for turn in 0u64.. {
            if used() < u64::try_from(BYTES).unwrap() {
                break;
            }
            assert!(turn < 200, "{} bytes are left, of {most}", used());
            let other = Bytes::from([&[2], &turn.to_be_bytes()[..]].concat());
            change(&table, BTreeMap::from([(other, None), (keys::chunk(BlobId(1), 0), None)]));
        }
        assert_eq!(pairs(&table), []);
    }
}
