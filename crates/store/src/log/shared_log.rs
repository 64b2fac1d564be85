//! A log in memory that several writers and readers share, for tests and the simulator.
//!
//! It does what a log on a network does: a newer writer deposes the older ones, answers get lost,
//! and whoever asks again under the same name learns the truth.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

use super::{BatchId, CommitError, Feed, FeedBatch, FeedError, Log, Wake};

/// The log itself; clones are the same log. It outlives its writers and feeds, as machines crash
/// and the log does not.
#[derive(Clone, Default)]
pub struct SharedLog {
    shared: Arc<Mutex<SharedLogState>>,
}

/// A writer, until a newer one is opened.
pub struct SharedLogWriter {
    log: SharedLog,
    term: u64,
    last: u64,
}

/// What one reader has read so far.
pub struct SharedLogFeed {
    log: SharedLog,
    /// The last sequence that was returned.
    after: u64,
    /// Kept here, so that it ends with the feed.
    wake: Option<Wake>,
}

#[derive(Default)]
struct SharedLogState {
    /// That of the newest writer.
    term: u64,
    /// Everything after `released`, without holes.
    batches: VecDeque<FeedBatch>,
    released: u64,
    wakes: Vec<Weak<dyn Fn() + Send + Sync>>,
    bytes_max: Option<usize>,
    full: bool,
    lose_answer: bool,
    lose_batch: bool,
}

impl SharedLog {
    /// Opens a writer and deposes every older one.
    pub fn writer(&self) -> SharedLogWriter {
        let mut shared = self.lock();
        shared.term += 1;
        SharedLogWriter { log: self.clone(), term: shared.term, last: shared.last() }
    }

    /// Every batch after a sequence, also those that are still to come.
    pub fn feed(&self, after: u64) -> SharedLogFeed {
        SharedLogFeed { log: self.clone(), after, wake: None }
    }

    /// The next commit that finds its batch in the log, or puts it there, does not hear of it.
    pub fn lose_next_answer(&self) {
        self.lock().lose_answer = true;
    }

    /// The next batch does not reach the log, and its writer hears nothing.
    pub fn lose_next_batch(&self) {
        self.lock().lose_batch = true;
    }

    /// Whether there is room for further batches.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    pub fn set_batch_bytes_max(&self, bytes: usize) {
        self.lock().bytes_max = Some(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, SharedLogState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedLogState {
    fn last(&self) -> u64 {
        self.batches.back().map_or(self.released, |batch| batch.sequence)
    }

    /// The sequence of the batch, which is in the log when this returns one.
    fn take(&mut self, term: u64, id: BatchId, payload: &Bytes) -> Result<u64, CommitError> {
        // First of all: a batch that is in the log is in it, whoever leads by now.
        if let Some(known) = self.batches.iter().rev().find(|batch| batch.id == Some(id)) {
            return Ok(known.sequence);
        }
        if term != self.term {
            return Err(CommitError::Deposed);
        }
        let max = self.bytes_max.unwrap_or(usize::MAX);
        if payload.len() > max {
            let count = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
            return Err(CommitError::TooLarge { bytes: count(payload.len()), max: count(max) });
        }
        if self.full {
            return Err(CommitError::NoSpace);
        }
        let sequence = self.last() + 1;
        self.batches.push_back(FeedBatch { sequence, id: Some(id), payload: payload.clone() });
        Ok(sequence)
    }

    fn wakes(&mut self) -> Vec<Wake> {
        self.wakes.retain(|wake| wake.strong_count() > 0);
        self.wakes.iter().filter_map(Weak::upgrade).collect()
    }
}

impl SharedLogWriter {
    /// The newest writer of a log has the highest.
    pub fn term(&self) -> u64 {
        self.term
    }
}

impl Log for SharedLogWriter {
    fn commit(&mut self, batch: BatchId, payload: &Bytes) -> Result<u64, CommitError> {
        let lost = || Err(CommitError::Unavailable { reason: "the answer was lost".to_owned() });
        let mut shared = self.log.lock();
        if std::mem::take(&mut shared.lose_batch) {
            return lost();
        }
        let sequence = shared.take(self.term, batch, payload)?;
        let is_lost = std::mem::take(&mut shared.lose_answer);
        let wakes = shared.wakes();
        drop(shared);
        for wake in wakes {
            wake();
        }
        if is_lost {
            return lost();
        }
        self.last = self.last.max(sequence);
        Ok(sequence)
    }

    fn release(&mut self, through: u64) -> Result<(), CommitError> {
        let mut shared = self.log.lock();
        if self.term != shared.term {
            return Err(CommitError::Deposed);
        }
        while let Some(batch) = shared.batches.pop_front_if(|batch| batch.sequence <= through) {
            shared.released = batch.sequence;
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<(), CommitError> {
        Ok(())
    }

    fn last_sequence(&self) -> u64 {
        self.last
    }

    fn batch_bytes_max(&self) -> usize {
        self.log.lock().bytes_max.unwrap_or(usize::MAX)
    }

    fn bytes(&self) -> u64 {
        let bytes: usize = self.log.lock().batches.iter().map(|batch| batch.payload.len()).sum();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Feed for SharedLogFeed {
    fn next_batch(&mut self) -> Result<Option<FeedBatch>, FeedError> {
        let shared = self.log.lock();
        if self.after < shared.released {
            return Err(FeedError::Released {
                wanted: self.after + 1,
                oldest: shared.released + 1,
            });
        }
        let index = usize::try_from(self.after - shared.released).unwrap_or(usize::MAX);
        let batch = shared.batches.get(index).cloned();
        self.after = batch.as_ref().map_or(self.after, |batch| batch.sequence);
        Ok(batch)
    }

    fn wake_by(&mut self, wake: Wake) {
        self.log.lock().wakes.push(Arc::downgrade(&wake));
        self.wake = Some(wake);
    }
}
