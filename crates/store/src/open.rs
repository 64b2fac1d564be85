//! Opening one partition's store: the table as its checkpoint says, the log replayed over it.

use std::sync::Arc;

use crate::batch;
use crate::checkpoint::{self, CheckpointError};
use crate::disk::Disk;
use crate::log::{self, Log, RecoveryReport};
use crate::state::State;
use crate::table::{Table, TableError};

/// A store that is ready for its partition.
pub struct Opened {
    /// Takes the next batches.
    pub log: Log,
    /// Holds everything that was durable.
    pub state: Arc<State>,
    /// The batch up to which the log may be recycled.
    pub checkpoint: u64,
    /// What was found in the log.
    pub recovered: RecoveryReport,
}

/// The store cannot be opened; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log is damaged or unreadable.
    #[error(transparent)]
    Log(#[from] log::OpenError),
    /// The checkpoint is.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The table is.
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
    salt: Box<dyn FnMut() -> u64 + Send>,
) -> Result<Opened, OpenError> {
    let checkpoint = checkpoint::read(disk.as_ref())?;
    let state = Arc::new(State::new(table, checkpoint));
    let mut failed = None;
    let replayed = Log::open(disk, config, salt, checkpoint, &mut |seq, payload| {
        // Before the record and not after it: one that is followed by another was synced, but the
        // last may be lost until the log has secured it, and the table must never know more.
        if state.overlay_bytes().active > overlay_bytes
            && let Some(frozen) = state.freeze()
        {
            match state.apply(&frozen) {
                // A full disk is no reason not to start: memory holds it until there is room.
                Ok(()) | Err(TableError::NoSpace | TableError::Stopped) => {}
                Err(error) => {
                    let reason = error.to_string();
                    failed = Some(error);
                    return Err(reason);
                }
            }
        }
        let run = batch::decode(&payload).map_err(|error| error.to_string())?;
        state.publish(seq, Arc::new(run), payload.len());
        Ok(())
    });
    match (replayed, failed) {
        (_, Some(error)) => Err(error.into()),
        (Err(error), None) => Err(error.into()),
        (Ok((log, recovered)), None) => Ok(Opened { log, state, checkpoint, recovered }),
    }
}
