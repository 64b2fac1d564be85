//! The engine of a machine that follows the log of another, and may take over.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_kernel::checkpointer::Checkpointer;
use reveille_kernel::error::Fatal;
use reveille_kernel::follower::Follower;
use reveille_store::log::Log;

use super::{App, Engine, EngineSettings, Shared, share};
use crate::base::shared_storage::SharedStorage;
use crate::base::storage::Storage as _;

pub(crate) struct FollowingEngine {
    shared: Arc<Shared>,
    follower: Follower<App>,
    checkpointer: Checkpointer<App>,
}

impl FollowingEngine {
    /// Goes on from what the machine's own table has.
    pub(crate) fn start(
        storage: &SharedStorage,
        number: u8,
        settings: &EngineSettings,
        now: Millis,
    ) -> Result<FollowingEngine, String> {
        let (state, checkpoint) = storage.open_table()?;
        let shared = share(state, number, settings, now)?;
        let feed = Box::new(storage.contest().feed(checkpoint));
        let follower = Follower::new(shared.clone(), feed, storage.replay_bytes());
        let min_free_bytes = settings.min_free_bytes;
        let disk = storage.disk();
        let checkpointer =
            Checkpointer::new(shared.clone(), disk, None, min_free_bytes, checkpoint);
        Ok(FollowingEngine { shared, follower, checkpointer })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Folds whatever the log has; returns the last batch that it has then.
    pub(crate) fn catch_up(&mut self) -> Result<u64, Fatal> {
        self.follower.catch_up()
    }

    pub(crate) fn checkpoint(&mut self) -> Result<(), Fatal> {
        self.checkpointer.apply()?;
        self.checkpointer.checkpoint()
    }

    /// Becomes the writer of a log that is its own from now on.
    pub(crate) fn lead(
        self,
        log: Box<dyn Log>,
        writer: u64,
        now: Millis,
    ) -> Result<Engine, String> {
        let FollowingEngine { shared, follower, checkpointer } = self;
        let committer = match follower.lead(log, writer) {
            Ok(Ok(committer)) => committer,
            Ok(Err(_)) => return Err("the log has more than can be read".to_owned()),
            Err(fatal) => return Err(fatal.to_string()),
        };
        let engine = Engine { shared, committer, checkpointer, spares: None };
        engine.take_up_work(now)?;
        Ok(engine)
    }
}
