//! One life of the server: from opening the store to the crash.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_engine::access_times::AccessTimes;
use reveille_engine::checkpointer::Checkpointer;
use reveille_engine::committer::{Committer, Shared};
use reveille_engine::partition::Settings;
use reveille_store::disk::SimDisk;
use reveille_store::log::{self, RecoveryReport, SparePool};
use reveille_store::open::{self, Opened};

use crate::mode::Mode;
use crate::random::Random;
use crate::server::Base;
use crate::table::SimTable;

/// The real engine over a simulated disk, without its threads.
pub(crate) struct Life {
    pub(crate) shared: Arc<Shared>,
    pub(crate) committer: Committer,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) spares: SparePool,
}

impl Life {
    /// Opens the store of a world as it is on the disk.
    pub(crate) fn again(base: &mut Base, settings: Settings) -> Result<Life, String> {
        let salt = base.random.next();
        let begun = Life::begin(&base.disk, &base.table, &base.mode, base.now, salt, settings);
        let (life, recovered) = begun?;
        base.trace.note(&format!("recovered {recovered:?}"));
        Ok(life)
    }

    /// Opens the store as the engine does.
    pub(crate) fn begin(
        disk: &SimDisk,
        table: &SimTable,
        mode: &Mode,
        now: Millis,
        salt: u64,
        settings: Settings,
    ) -> Result<(Life, RecoveryReport), String> {
        let mut salts = Random::new(salt);
        let config = log::Config { segment_bytes: mode.segment_bytes, sync: mode.sync };
        let opened = open::open(
            Arc::new(disk.clone()),
            Arc::new(table.clone()),
            config,
            mode.replay_bytes,
            Box::new(move || salts.next()),
        );
        let Opened { log, state, checkpoint, recovered } =
            opened.map_err(|error| error.to_string())?;
        let shared = Shared::new(state, Arc::new(AccessTimes::new(now)), settings)?;
        let shared = Arc::new(shared);
        shared.log_bytes.store(log.bytes(), std::sync::atomic::Ordering::Relaxed);
        let spares = log.spares();
        let checkpointer = Checkpointer::new(
            shared.clone(),
            Arc::new(disk.clone()),
            log.spares(),
            mode.min_free,
            checkpoint,
        );
        checkpointer.watch_disk();
        let committer = Committer::new(log, shared.clone());
        let life = Life { shared, committer, checkpointer, spares };
        Ok((life, recovered))
    }
}
