//! Opening one partition's store: the table as its checkpoint says, the log replayed over it.

use std::sync::Arc;

use crate::batch::{self, BatchError};
use crate::checkpoint::{self, CheckpointError};
use crate::disk::Disk;
use crate::log::{self, FeedBatch, RecoveryReport, Salt, SegmentLog};
use crate::run::Run;
use crate::state::State;
use crate::table::{Table, TableError};

/// A store that is ready for its partition.
pub struct OpenedStore {
    pub log: SegmentLog,
    /// Holds everything that was durable.
    pub state: Arc<State>,
    /// The batch up to which the log may be recycled.
    pub checkpoint: u64,
    pub recovered: RecoveryReport,
}

/// To be removed once nobody says it any more: the name says too little.
pub type Opened = OpenedStore;

/// The store cannot be opened; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Log(#[from] log::OpenError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("record {seq} in {file} cannot be applied: it is {source}")]
    Record { file: String, seq: u64, source: BatchError },
}

/// A batch could not be shown to readers.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Opens or creates a store. While the log is replayed, at most about `overlay_bytes` of it are
/// held in memory; the rest goes into the table.
pub fn open(
    disk: Arc<dyn Disk>,
    table: Arc<dyn Table>,
    config: log::Config,
    overlay_bytes: usize,
    salt: Salt,
) -> Result<OpenedStore, OpenError> {
    let checkpoint = checkpoint::read(disk.as_ref())?;
    let state = Arc::new(State::new(table, checkpoint));
    let mut recovery = SegmentLog::open(disk, config, salt, checkpoint)?;
    while let Some(record) = recovery.next_record()? {
        let seq = record.sequence;
        replay(&state, record, overlay_bytes).map_err(|error| match error {
            ReplayError::Batch(source) => OpenError::Record { file: recovery.file(), seq, source },
            ReplayError::Table(error) => error.into(),
        })?;
    }
    let (log, recovered) = recovery.finish()?;
    Ok(OpenedStore { log, state, checkpoint, recovered })
}

/// Shows a batch of a log to readers, for whoever has not decided it. When the overlay has more
/// than `overlay_bytes`, everything before the batch goes into the table first.
///
/// Returns what the batch has changed, for whoever folds it into memory.
pub fn replay(
    state: &State,
    batch: FeedBatch,
    overlay_bytes: usize,
) -> Result<Arc<Run>, ReplayError> {
    // Before the batch and not after it: one that is followed by another was synced, but the last
    // may be lost until the log has secured it, and the table must never know more.
    if state.overlay_bytes().active > overlay_bytes
        && let Some(frozen) = state.freeze()
    {
        match state.apply(&frozen) {
            // A full disk is no reason not to go on: memory holds it until there is room.
            Ok(()) | Err(TableError::NoSpace | TableError::Exhausted | TableError::Stopped) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let run = Arc::new(batch::decode(&batch.payload)?);
    state.publish(batch.sequence, run.clone(), batch.payload.len());
    Ok(run)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::batch::Batch;
    use crate::disk::SimDisk;
    use crate::log::{BatchId, Feed as _, Log as _};
    use crate::log::{Config, SharedLog};
    use crate::table::MemoryTable;

    fn payload(number: u8) -> Bytes {
        let mut batch = Batch::default();
        batch.set(Bytes::copy_from_slice(&[2, number]), Some(Bytes::copy_from_slice(&[number])));
        batch.encode().0
    }

    fn found(state: &State) -> Vec<u8> {
        let pairs = state.reader().range(&[2], &[3], 99).unwrap();
        pairs.into_iter().map(|(_, value)| value[0]).collect()
    }

    fn open_on(disk: &SimDisk, table: &MemoryTable) -> Result<OpenedStore, OpenError> {
        let table = Arc::new(table.clone());
        open(Arc::new(disk.clone()), table, Config::default(), 1, Box::new(|| 7))
    }

    #[test]
    fn a_store_has_what_was_committed_through_the_door() {
        let (disk, table) = (SimDisk::new(1), MemoryTable::default());
        let id = |number| BatchId { writer: 1, number };
        for round in 0..3u8 {
            let opened = open_on(&disk, &table).unwrap();
            assert_eq!(found(&opened.state), (0..round * 2).collect::<Vec<_>>());
            let mut log: Box<dyn log::Log> = Box::new(opened.log);
            for number in [round * 2, round * 2 + 1] {
                let seq = log.commit(id(number.into()), &payload(number)).unwrap();
                assert_eq!((seq, log.last_sequence()), (u64::from(number) + 1, seq));
            }
            log.idle().unwrap();
        }
        // Nothing but the newest batch is left to memory.
        assert_eq!(table.pairs().len(), 3);
    }

    #[test]
    fn a_record_that_is_no_batch_is_refused_by_name() {
        let (disk, table) = (SimDisk::new(1), MemoryTable::default());
        let mut log = open_on(&disk, &table).unwrap().log;
        log.commit(&[&payload(1)]).unwrap();
        log.commit(&[b"not a batch"]).unwrap();
        let error = open_on(&disk, &table).err().unwrap();
        assert!(
            matches!(&error, OpenError::Record { file, seq: 2, .. } if file.ends_with(".seg")),
            "{error}"
        );
    }

    #[test]
    fn a_follower_has_what_the_leader_committed() {
        let log = SharedLog::default();
        let (mut leader, mut feed) = (log.writer(), log.feed(0));
        let follower = State::new(Arc::new(MemoryTable::default()), 0);
        for number in 0..9 {
            let id = BatchId { writer: 1, number: number.into() };
            leader.commit(id, &payload(number)).unwrap();
            while let Some(batch) = feed.next_batch().unwrap() {
                replay(&follower, batch, 300).unwrap();
            }
            assert_eq!(found(&follower), (0..=number).collect::<Vec<_>>());
        }
        assert!(follower.reader().dropped() > 0, "some of it is in the table");
    }
}
