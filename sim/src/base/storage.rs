//! What outlives a process: where a partition's log and table are, and how they break.

use std::sync::Arc;

use reveille_store::disk::{Disk, SimDisk};
use reveille_store::log::{self, Log, RecoveryReport, SparePool};
use reveille_store::open::{self, OpenedStore};
use reveille_store::state::State;

use super::mode::Mode;
use super::random::Random;
use super::table::SimTable;

/// A store that is ready for its engine, whatever its log is.
pub(crate) struct OpenedStorage {
    pub(crate) log: Box<dyn Log>,
    /// `None` if the log is none of segments.
    pub(crate) spares: Option<SparePool>,
    pub(crate) state: Arc<State>,
    /// The batch up to which the table surely has everything.
    pub(crate) checkpoint: u64,
    pub(crate) recovered: RecoveryReport,
}

/// The door behind which a partition's log and table are.
pub(crate) trait Storage {
    /// Opens the store as it is now.
    fn open(&mut self, salt: u64) -> Result<OpenedStorage, String>;
    /// Whose room is watched.
    fn disk(&self) -> Arc<dyn Disk>;
    fn inject(&mut self, fault: StorageFault);
    /// The process has ended; what it wrote stays in the memory of the operating system.
    fn end_process(&mut self);
    fn cut_power(&mut self);
    /// Whether nothing works before the power was cut.
    fn is_stopped(&self) -> bool;
    /// Equal for equal runs: everything that was ever done to it.
    fn trace_hash(&self) -> u64;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageFault {
    /// The operation after so many is interrupted, and nothing works after it.
    InterruptAfter(u64),
    FailNextSync,
    FillNextWrite,
    /// The disk has so much room left.
    LeaveFree(u64),
    /// Whether the table finds no room.
    FillTable(bool),
    FreeEverything,
}

/// A disk and a table of one machine.
pub(crate) struct LocalStorage {
    disk: SimDisk,
    table: SimTable,
    log: log::Config,
    replay_bytes: usize,
}

impl LocalStorage {
    pub(crate) fn new(random: &mut Random, mode: &Mode) -> LocalStorage {
        LocalStorage {
            disk: SimDisk::new(random.next()),
            table: SimTable::new(random.next()),
            log: log::Config { segment_bytes: mode.segment_bytes, sync: mode.sync },
            replay_bytes: mode.replay_bytes,
        }
    }
}

impl Storage for LocalStorage {
    fn open(&mut self, salt: u64) -> Result<OpenedStorage, String> {
        let mut salts = Random::new(salt);
        let opened = open::open(
            Arc::new(self.disk.clone()),
            Arc::new(self.table.clone()),
            self.log.clone(),
            self.replay_bytes,
            Box::new(move || salts.next()),
        );
        let OpenedStore { log, state, checkpoint, recovered } =
            opened.map_err(|error| error.to_string())?;
        let spares = Some(log.spares());
        Ok(OpenedStorage { log: Box::new(log), spares, state, checkpoint, recovered })
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    fn inject(&mut self, fault: StorageFault) {
        match fault {
            StorageFault::InterruptAfter(operations) => self.disk.fail_after(operations),
            StorageFault::FailNextSync => self.disk.fail_next_sync(),
            StorageFault::FillNextWrite => self.disk.fill_next_write(),
            StorageFault::LeaveFree(bytes) => self.disk.set_free(bytes),
            StorageFault::FillTable(is_full) => self.table.set_full(is_full),
            StorageFault::FreeEverything => {
                self.disk.set_free(1 << 40);
                self.table.set_full(false);
            }
        }
    }

    fn end_process(&mut self) {
        self.table.restart();
    }

    fn cut_power(&mut self) {
        self.disk.crash();
        self.table.restart();
    }

    fn is_stopped(&self) -> bool {
        self.disk.free_bytes().is_err()
    }

    fn trace_hash(&self) -> u64 {
        self.disk.trace_hash()
    }
}
