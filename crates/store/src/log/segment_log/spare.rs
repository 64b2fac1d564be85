//! Spare segments: files of full length that wait to become the next segment.
//!
//! Overwriting blocks that a file already has is what makes a sync cheap, so a spare is filled
//! with zeros or is a segment that is no longer needed. Its content does not matter.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::segment::Segment;
use crate::background;
use crate::disk::{Disk, DiskFile};

/// Spares beyond this are given back to the file system.
const SPARES_MAX: usize = 4;
/// Zeros are written in portions, so that nobody waits long for the processor meanwhile.
const WRITE_BYTES: u64 = 16 << 10;
/// Zeros are synced in portions, so that the sync of a commit never queues behind all of them.
const SYNC_BYTES: u64 = 512 << 10;

/// The spare segments of a log; clones are the same pool.
#[derive(Clone)]
pub struct SparePool {
    shared: Arc<PoolState>,
}

struct PoolState {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    ready: Mutex<SpareNames>,
    /// Held while a spare is made, so that two callers do not make two.
    filling: Mutex<()>,
}

struct SpareNames {
    names: VecDeque<String>,
    next_number: u64,
}

/// A segment that could not be begun.
pub(super) struct BeginError {
    pub(super) file: String,
    pub(super) source: io::Error,
    /// The log on disk is certainly as it was.
    pub(super) unchanged: bool,
}

impl SparePool {
    /// Takes over the spares on the disk; those of another length or too many are removed.
    pub(super) fn open(disk: Arc<dyn Disk>, segment_bytes: u64) -> io::Result<SparePool> {
        let mut numbers: Vec<u64> =
            disk.list()?.iter().filter_map(|name| parse_name(name)).collect();
        numbers.sort_unstable();
        let next_number = numbers.last().map_or(1, |last| last + 1);
        let mut names = VecDeque::new();
        for number in numbers {
            let name = spare_name(number);
            if names.len() < SPARES_MAX && disk.open(&name)?.len()? == segment_bytes {
                names.push_back(name);
            } else {
                disk.remove(&name)?;
            }
        }
        let ready = Mutex::new(SpareNames { names, next_number });
        let shared = PoolState { disk, segment_bytes, ready, filling: Mutex::new(()) };
        Ok(SparePool { shared: Arc::new(shared) })
    }

    /// Makes one spare if there is none, and says whether it did. Blocks while it writes zeros;
    /// after each portion of them the caller may rest.
    ///
    /// An error, a full disk above all, leaves everything as it was and may be tried again.
    pub fn fill(&self, rest: impl Fn()) -> io::Result<bool> {
        let _alone = self.shared.filling.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.ready().names.is_empty() {
            return Ok(false);
        }
        let (name, _file) = self.make(rest)?;
        self.put(name);
        Ok(true)
    }

    /// A spare that is ready, or one that is made now.
    fn take(&self) -> io::Result<(String, Arc<dyn DiskFile>)> {
        loop {
            let ready = self.ready().names.pop_front();
            let Some(name) = ready else {
                return self.make(|| {});
            };
            match self.shared.disk.open(&name) {
                // Somebody made room by hand, which is no reason to stop.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.ready().names.push_front(name);
                    return Err(error);
                }
                Ok(file) => return Ok((name, file)),
            }
        }
    }

    /// Makes a spare a segment. It gets its name when its header is durable, so that whatever is
    /// named like a segment has a header.
    pub(super) fn begin(&self, segment: &Segment) -> Result<Arc<dyn DiskFile>, BeginError> {
        let disk = &self.shared.disk;
        let name = segment.name();
        let failed =
            |file: &str, source| BeginError { file: file.to_owned(), source, unchanged: true };
        let (spare, file) = self.take().map_err(|source| failed("a spare segment", source))?;
        let ready = file
            .write_at(&segment.encode(), 0)
            .and_then(|()| file.sync())
            .and_then(|()| disk.rename(&spare, &name));
        if let Err(source) = ready {
            let error = failed(&spare, source);
            self.put(spare);
            return Err(error);
        }
        match disk.sync_dir() {
            Ok(()) => Ok(file),
            Err(source) => Err(BeginError { unchanged: false, ..failed(&name, source) }),
        }
    }

    pub(super) fn put(&self, name: String) {
        self.ready().names.push_back(name);
    }

    /// A name for a segment of `bytes` that becomes a spare, if another spare is wanted.
    pub(super) fn name_for(&self, bytes: u64, planned: usize) -> Option<String> {
        let mut ready = self.ready();
        let wanted = bytes == self.shared.segment_bytes && ready.names.len() + planned < SPARES_MAX;
        wanted.then(|| ready.next_name())
    }

    fn make(&self, rest: impl Fn()) -> io::Result<(String, Arc<dyn DiskFile>)> {
        let name = self.ready().next_name();
        let disk = &self.shared.disk;
        let made = disk.create(&name).and_then(|file| {
            fill_with_zeros(&*file, self.shared.segment_bytes, rest)?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok((name, file)),
            Err(error) => {
                // A half-made spare would hold the space that somebody else may be waiting for.
                // If it cannot be removed now, the next start removes it.
                let _ = disk.remove(&name);
                Err(error)
            }
        }
    }

    fn ready(&self) -> MutexGuard<'_, SpareNames> {
        self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpareNames {
    fn next_name(&mut self) -> String {
        let name = spare_name(self.next_number);
        self.next_number += 1;
        name
    }
}

fn fill_with_zeros(file: &dyn DiskFile, bytes: u64, rest: impl Fn()) -> io::Result<()> {
    let zeros = vec![0; bytes.min(WRITE_BYTES) as usize];
    let mut at = 0;
    while at < bytes {
        let count = (bytes - at).min(WRITE_BYTES);
        file.write_at(zeros.get(..count as usize).unwrap_or(&zeros), at)?;
        at += count;
        background::give_way();
        if at.is_multiple_of(SYNC_BYTES) {
            file.sync()?;
            rest();
        }
    }
    file.sync()
}

fn spare_name(number: u64) -> String {
    format!("spare-{number}")
}

fn parse_name(file: &str) -> Option<u64> {
    let number = file.strip_prefix("spare-")?.parse().ok()?;
    (spare_name(number) == file).then_some(number)
}
