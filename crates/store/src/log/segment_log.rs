//! The write-ahead log in segment files: one record at a time, each durable before the next is
//! written.
//!
//! The log lives in segment files of a fixed length whose blocks exist before they are needed:
//!
//! ```text
//! 0000000000000007.seg   header │ record 81 │ record 82 │ mark: continued
//! 0000000000000008.seg   header │ record 83 │ record 84 │ mark: idle │ whatever was there before
//! spare-12               to become segment 9
//! ```
//!
//! `frame` and `segment` say what the bytes mean, `recover` and `tail` how they are read back after
//! a crash; `docs/format.md` says both in full.

mod error;
mod frame;
mod recover;
mod segment;
mod spare;
mod syncer;
mod tail;
mod window;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::{BatchId, CommitError, Log};
use crate::disk::{Disk, is_exhausted, is_full};
pub use error::{DurabilityEvidence, OpenError};
use frame::{HEADER_BYTES, Header, Kind};
use recover::OpenedLog;
pub use recover::{RecoveryReport, SegmentRecovery, TornRecord};
use segment::{ActiveSegment, BLOCK_BYTES, ClosedSegment, Segment};
pub use spare::SparePool;
pub use syncer::Syncer;

/// A buffer that grew beyond this for a large record is not kept.
const BUFFER_KEEP_BYTES: usize = 4 << 20;

#[derive(Debug, Clone)]
pub struct Config {
    /// The length of a segment: a multiple of 4096, at least 8192 and below 4 GiB.
    pub segment_bytes: u64,
    /// Whether a record is synced before the next is written. Without, a power cut loses the
    /// newest records (never some in the middle), and the death of the process none.
    pub sync: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { segment_bytes: 64 << 20, sync: true }
    }
}

/// Where the salts of segments come from; they must not be guessable.
pub type Salt = Box<dyn FnMut() -> u64 + Send>;

/// The log of one machine. A commit to a disk is never ambiguous: it succeeds, or is refused, or
/// stops the log. So the ids of batches are of no use to it, and it does not keep them.
pub struct SegmentLog {
    disk: Arc<dyn Disk>,
    config: Config,
    salt: Salt,
    spares: SparePool,
    /// The segments before the active one, oldest first.
    closed: VecDeque<ClosedSegment>,
    active: ActiveSegment,
    syncer: Syncer,
    next_seq: u64,
    /// The next record needs a new segment, even if it would fit into this one.
    must_rotate: bool,
    /// There is a mark at the tail.
    sealed: bool,
    stopped: bool,
    /// The frame of the record that is being written; kept to be used again.
    buffer: Vec<u8>,
}

impl SegmentLog {
    /// Opens or creates a log. Every record after `after` is to be read from what this returns,
    /// and then [`SegmentRecovery::finish`] gives the log.
    ///
    /// `after` is the last record that the table holds durably. If opening fails nothing on the
    /// disk was changed, and whatever was read before must be dropped.
    pub fn open(
        disk: Arc<dyn Disk>,
        config: Config,
        salt: Salt,
        after: u64,
    ) -> Result<SegmentRecovery, OpenError> {
        config.check();
        SegmentRecovery::begin(disk, config, salt, after)
    }

    /// Begins a log whose first record will be `after + 1`, in a directory without segments: for a
    /// table that was restored without its log.
    pub fn create(
        disk: Arc<dyn Disk>,
        config: Config,
        mut salt: Salt,
        after: u64,
    ) -> Result<SegmentLog, OpenError> {
        config.check();
        recover::expect_none(&*disk)?;
        let spares = open_spares(&disk, &config)?;
        let segment = config.segment(1, after + 1, salt());
        let file = spares
            .begin(&segment)
            .map_err(|failed| OpenError::Io { file: failed.file, source: failed.source })?;
        let active = ActiveSegment::new(file, segment, BLOCK_BYTES as u64);
        Ok(SegmentLog::new(disk, config, salt, spares, active, after + 1))
    }

    /// The log as recovery leaves it.
    fn recovered(
        disk: Arc<dyn Disk>,
        config: Config,
        salt: Salt,
        opened: OpenedLog,
    ) -> Result<SegmentLog, OpenError> {
        let spares = open_spares(&disk, &config)?;
        let is_other_mode = opened.active.segment.unsynced == config.sync;
        Ok(SegmentLog {
            closed: opened.closed,
            must_rotate: opened.is_behind || is_other_mode,
            sealed: opened.sealed,
            ..SegmentLog::new(disk, config, salt, spares, opened.active, opened.next_seq)
        })
    }

    fn new(
        disk: Arc<dyn Disk>,
        config: Config,
        salt: Salt,
        spares: SparePool,
        active: ActiveSegment,
        next_seq: u64,
    ) -> SegmentLog {
        SegmentLog {
            disk,
            config,
            salt,
            spares,
            closed: VecDeque::new(),
            syncer: Syncer::new(Arc::clone(&active.file)),
            active,
            next_seq,
            must_rotate: false,
            sealed: false,
            stopped: false,
            buffer: Vec::new(),
        }
    }

    /// The sequence of the record that is committed next.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The bytes of the segments in use; spares do not count.
    pub fn bytes(&self) -> u64 {
        self.closed.iter().map(|closed| closed.bytes).sum::<u64>() + self.active.segment.bytes
    }

    /// The largest payload of one record.
    pub fn max_record(&self) -> u64 {
        segment::max_payload(self.config.segment_bytes)
    }

    /// The pool of spares, for whoever keeps it filled.
    pub fn spares(&self) -> SparePool {
        self.spares.clone()
    }

    /// Makes commits durable later, if they are not synced one by one: before the table takes what
    /// is in them, for it must never know more than the log.
    pub fn syncer(&self) -> Option<Syncer> {
        (!self.config.sync).then(|| self.syncer.clone())
    }

    /// Makes one record durable, whose payload is `parts` one after the other, and returns its
    /// sequence.
    ///
    /// After `NoSpace`, `TooLarge` and `Unavailable` (no descriptor for the next segment) the log is
    /// as it was. Every other error stops it for good: a sync that failed must not be tried again, since the data may be gone.
    pub fn commit(&mut self, parts: &[&[u8]]) -> Result<u64, CommitError> {
        self.check_running()?;
        let payload = parts.iter().map(|part| part.len() as u64).sum();
        let max = self.max_record();
        if payload > max {
            return Err(CommitError::TooLarge { bytes: payload, max });
        }
        let bytes = frame::frame_bytes(payload);
        if self.must_rotate || !segment::fits(self.active.tail, bytes, self.active.segment.bytes) {
            self.rotate()?;
        }
        frame::write_record(&mut self.buffer, self.active.keys, self.next_seq, parts);
        debug_assert_eq!(self.buffer.len() as u64, bytes, "one frame, as announced");
        self.write_frame()?;
        if self.buffer.capacity() > BUFFER_KEEP_BYTES {
            self.buffer = Vec::new();
        }
        self.active.tail += bytes;
        self.next_seq += 1;
        Ok(self.next_seq - 1)
    }

    /// Marks that everything committed was synced. To be called when the log goes idle: without
    /// the mark, damage to the last record looks like the trace of a crash. The mark itself is not
    /// synced, and the next record overwrites it.
    pub fn seal(&mut self) -> Result<(), CommitError> {
        self.check_running()?;
        if self.sealed || self.must_rotate || !self.config.sync {
            return Ok(());
        }
        let mark = Header { seq: self.next_seq, kind: Kind::Mark { continued: false } };
        let written = self.active.file.write_at(&mark.encode(self.active.keys), self.active.tail);
        written.map_err(|error| self.fail_at_tail(error))?;
        self.sealed = true;
        Ok(())
    }

    /// Gives up the segments that hold nothing after record `through`, which the table must hold
    /// durably. They become spares as far as spares are wanted.
    pub fn trim(&mut self, through: u64) -> Result<(), CommitError> {
        self.check_running()?;
        let mut spares = Vec::new();
        let mut trimmed = false;
        while let Some(closed) = self.closed.front().filter(|closed| closed.last <= through) {
            let file = segment::name(closed.number);
            let done = match self.spares.name_for(closed.bytes, spares.len()) {
                Some(spare) => {
                    let renamed = self.disk.rename(&file, &spare);
                    spares.push(spare);
                    renamed
                }
                None => self.disk.remove(&file),
            };
            done.map_err(|source| self.stop(file, 0, source))?;
            self.closed.pop_front();
            trimmed = true;
        }
        if trimmed {
            // Before a spare is written to, it must not be a segment any more, even in a crash.
            let synced = self.disk.sync_dir();
            synced.map_err(|source| self.stop("the log directory".to_owned(), 0, source))?;
        }
        for spare in spares {
            self.spares.put(spare);
        }
        Ok(())
    }

    /// Writes the buffer at the tail and syncs it.
    fn write_frame(&mut self) -> Result<(), CommitError> {
        self.sealed = false;
        if let Err(error) = self.active.file.write_at(&self.buffer, self.active.tail) {
            if is_full(&error) {
                self.erase_unfinished()?;
            }
            return Err(self.fail_at_tail(error));
        }
        self.sync_tail()
    }

    /// A record that ends in zeros may be whole although its write was cut short, and would come
    /// back after a restart although it was refused. Without its header it cannot; if the full disk
    /// does not take even that, then the next record overwrites it.
    fn erase_unfinished(&mut self) -> Result<(), CommitError> {
        match self.active.file.write_at(&[0; HEADER_BYTES], self.active.tail) {
            // Without sync too: it was refused, and no crash may bring it back.
            Ok(()) => self.sync_file(),
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => Err(self.fail_at_tail(error)),
        }
    }

    fn sync_tail(&mut self) -> Result<(), CommitError> {
        if self.config.sync { self.sync_file() } else { Ok(()) }
    }

    fn sync_file(&mut self) -> Result<(), CommitError> {
        let synced = self.active.file.sync();
        synced.map_err(|source| self.stop(self.active.segment.name(), self.active.tail, source))
    }

    /// Goes on in a new segment, which begins with the next record.
    fn rotate(&mut self) -> Result<(), CommitError> {
        if self.active.segment.unsynced {
            // So that only the last segment can have lost anything.
            let synced = self.active.file.sync();
            synced.map_err(|source| {
                self.stop(self.active.segment.name(), self.active.tail, source)
            })?;
        }
        let number = self.active.segment.number + 1;
        let segment = self.config.segment(number, self.next_seq, (self.salt)());
        let file = match self.spares.begin(&segment) {
            Ok(file) => file,
            Err(failed) if failed.unchanged && is_full(&failed.source) => {
                return Err(CommitError::NoSpace);
            }
            // Others hold what is missing, and will let go of it: the same commit comes again.
            Err(failed) if failed.unchanged && is_exhausted(&failed.source) => {
                let reason = format!("{}: {}", failed.file, failed.source);
                return Err(CommitError::Unavailable { reason });
            }
            Err(failed) => return Err(self.stop(failed.file, 0, failed.source)),
        };
        // Tells later, if this segment is the last one found, that another one is missing. It is
        // good to have and not needed: a full disk may refuse it, and nobody syncs it.
        let mark = Header { seq: self.next_seq, kind: Kind::Mark { continued: true } };
        let written = self.active.file.write_at(&mark.encode(self.active.keys), self.active.tail);
        if let Err(source) = written
            && !is_full(&source)
        {
            return Err(self.fail_at_tail(source));
        }
        self.syncer.follow(Arc::clone(&file));
        let active = ActiveSegment::new(file, segment, BLOCK_BYTES as u64);
        let Segment { number, bytes, .. } = std::mem::replace(&mut self.active, active).segment;
        self.closed.push_back(ClosedSegment { number, last: self.next_seq - 1, bytes });
        self.must_rotate = false;
        self.sealed = false;
        Ok(())
    }

    fn check_running(&self) -> Result<(), CommitError> {
        if self.stopped { Err(CommitError::Stopped) } else { Ok(()) }
    }

    /// The error for a write at the tail: a full disk passes, everything else stops the log.
    fn fail_at_tail(&mut self, error: io::Error) -> CommitError {
        if is_full(&error) {
            return CommitError::NoSpace;
        }
        self.stop(self.active.segment.name(), self.active.tail, error)
    }

    fn stop(&mut self, file: String, position: u64, source: io::Error) -> CommitError {
        self.stopped = true;
        CommitError::Broken { place: format!("byte {position} of {file}"), source }
    }
}

impl Log for SegmentLog {
    fn commit(&mut self, _: BatchId, payload: &Bytes) -> Result<u64, CommitError> {
        SegmentLog::commit(self, &[payload])
    }

    fn release(&mut self, through: u64) -> Result<(), CommitError> {
        self.trim(through)
    }

    fn idle(&mut self) -> Result<(), CommitError> {
        match self.seal() {
            // Without the mark nothing is lost; the disk is full, and that passes.
            Ok(()) | Err(CommitError::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn last_sequence(&self) -> u64 {
        self.next_seq - 1
    }

    fn batch_bytes_max(&self) -> usize {
        usize::try_from(self.max_record()).unwrap_or(usize::MAX)
    }

    fn bytes(&self) -> u64 {
        SegmentLog::bytes(self)
    }

    fn syncer(&self) -> Option<Syncer> {
        SegmentLog::syncer(self)
    }
}

impl Config {
    fn check(&self) {
        let bytes = self.segment_bytes;
        assert!(bytes.is_multiple_of(BLOCK_BYTES as u64), "a segment is made of whole blocks");
        assert!(bytes >= 2 * BLOCK_BYTES as u64, "a segment has room for records");
        assert!(bytes < 1 << 32, "the length of a record has 32 bits");
    }

    fn segment(&self, number: u64, first_seq: u64, salt: u64) -> Segment {
        Segment { number, first_seq, salt, bytes: self.segment_bytes, unsynced: !self.sync }
    }
}

fn open_spares(disk: &Arc<dyn Disk>, config: &Config) -> Result<SparePool, OpenError> {
    SparePool::open(Arc::clone(disk), config.segment_bytes)
        .map_err(|source| OpenError::Io { file: "a spare segment".to_owned(), source })
}
