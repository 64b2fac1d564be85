//! Following a partition that somebody else writes, and taking it over.
//!
//! A follower folds the batches of the log into the same state and the same memory as the writer
//! did; when it becomes the writer, nothing has to be loaded. It decides nothing before it has seen
//! everything that the log has.

use std::sync::Arc;

use reveille_store::log::{Feed, FeedError, Log};
use reveille_store::open::replay;

use crate::committer::{Committer, EffectHandler};
use crate::error::Fatal;
use crate::shared::Shared;

/// A partition that follows a log.
pub struct Follower<D: EffectHandler> {
    shared: Arc<Shared<D>>,
    feed: Box<dyn Feed>,
    /// The overlay goes into the table when it has grown this far.
    overlay_bytes: usize,
    /// The last batch that it has.
    sequence: u64,
}

impl<D: EffectHandler> Follower<D> {
    /// Follows a log from where the state ends. Commands are refused meanwhile.
    pub fn new(shared: Arc<Shared<D>>, feed: Box<dyn Feed>, overlay_bytes: usize) -> Follower<D> {
        let sequence = shared.state.reader().seq();
        shared.lock().deposed = true;
        Follower { shared, feed, overlay_bytes, sequence }
    }

    /// Folds whatever the log has by now. Returns the last batch that it has then.
    pub fn catch_up(&mut self) -> Result<u64, Fatal> {
        loop {
            let batch = match self.feed.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) | Err(FeedError::Unavailable { .. }) => return Ok(self.sequence),
                Err(error) => return Err(Fatal(error.to_string())),
            };
            let sequence = batch.sequence;
            let replayed = replay(&self.shared.state, batch, self.overlay_bytes);
            let run = replayed.map_err(|error| Fatal(error.to_string()))?;
            let fatal = |error: crate::error::Damaged| Fatal(error.to_string());
            self.shared.follow(&run).map_err(fatal)?;
            self.shared.lock().follow_run(&run).map_err(fatal)?;
            self.sequence = sequence;
        }
    }

    /// Becomes the writer of a log, as soon as it has everything that is there: from the moment that
    /// the log is its own, nobody else can add to it. `Err` gives the follower back: the log has
    /// more than could be read now.
    pub fn lead(
        mut self,
        log: Box<dyn Log>,
        writer: u64,
    ) -> Result<Result<Committer<D>, Follower<D>>, Fatal> {
        if self.catch_up()? < log.last_sequence() {
            return Ok(Err(self));
        }
        self.shared.lock().deposed = false;
        Ok(Ok(Committer::new(log, self.shared, writer)))
    }
}
