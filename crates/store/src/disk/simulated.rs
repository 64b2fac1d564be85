//! A disk in memory that loses, reorders and tears whatever was not synced when it crashes.
//!
//! Data moves in sectors. A sector that was written and not synced keeps, in a crash, any one of
//! the contents it had since the last sync, whatever its neighbors keep; one of the last write may
//! be torn in its middle. Of the directory operations that were not synced any may survive without
//! those before it, unless they are about the same names: not every file system journals them in
//! order. Everything follows from the seed and the calls.

mod files;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile};
use files::Files;

/// A disk in memory; clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

struct DiskState {
    random: Random,
    files: Files,
    /// Handles of an earlier generation were open when the disk crashed.
    generation: u64,
    /// Operations so far that change or sync something.
    operations: u64,
    /// The operation that is interrupted.
    fail_at: Option<u64>,
    /// An operation was interrupted: nothing works until the crash.
    down: bool,
    fail_sync: bool,
    fill_write: bool,
    /// So many files more cannot be opened or made.
    exhausted: u64,
    /// The sum of the lengths of all files stays below this.
    capacity: u64,
    trace: u64,
}

struct OperationOutcome {
    takes_effect: bool,
    interrupted: bool,
}

impl SimDisk {
    pub fn new(seed: u64) -> SimDisk {
        let state = DiskState {
            random: Random(seed),
            files: Files::default(),
            generation: 0,
            operations: 0,
            fail_at: None,
            down: false,
            fail_sync: false,
            fill_write: false,
            exhausted: 0,
            capacity: u64::MAX,
            trace: seed,
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Loses power: what was not synced survives in part, and open handles are dead.
    pub fn crash(&self) {
        let state = &mut *self.lock();
        state.files.crash(&mut state.random);
        state.generation += 1;
        state.fail_at = None;
        state.down = false;
        state.fail_sync = false;
        state.fill_write = false;
        state.exhausted = 0;
        state.note(&[b"crash", &state.random.0.to_le_bytes()]);
    }

    /// The `n`-th next operation that changes or syncs something (1 is the very next) is
    /// interrupted, and from then on everything fails until [`SimDisk::crash`].
    pub fn fail_after(&self, n: u64) {
        let mut state = self.lock();
        state.fail_at = Some(state.operations + n);
    }

    /// The next sync of a file fails, and as on a real system the data it should have saved stays
    /// readable, while a later sync does not save it either.
    pub fn fail_next_sync(&self) {
        self.lock().fail_sync = true;
    }

    /// The next write stores a part of its bytes and finds the disk full, even when it overwrites:
    /// as on a file system that copies on write.
    pub fn fill_next_write(&self) {
        self.lock().fill_write = true;
    }

    /// The next `count` times that a file is opened or made, there is no descriptor for it.
    pub fn exhaust(&self, count: u64) {
        self.lock().exhausted = count;
    }

    /// From now on files may grow by `bytes` in all.
    pub fn set_free(&self, bytes: u64) {
        let mut state = self.lock();
        state.capacity = state.files.used().saturating_add(bytes);
    }

    /// Damages one bit of what is stored, below every cache.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, name: &str, byte: u64, bit: u8) {
        let flipped = self.lock().files.flip_bit(name, byte, bit);
        assert!(flipped, "{name} has no byte {byte}");
    }

    /// Operations so far that changed or synced something.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// A hash of everything done to the disk: equal for equal seeds and equal calls.
    pub fn trace_hash(&self) -> u64 {
        self.lock().trace
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        lock(&self.state)
    }
}

impl DiskState {
    /// Counts an operation and decides whether it is the one that is interrupted.
    fn begin(&mut self, what: &[&[u8]]) -> io::Result<OperationOutcome> {
        self.check_up()?;
        self.operations += 1;
        self.note(what);
        let interrupted = self.fail_at == Some(self.operations);
        self.down = interrupted;
        let takes_effect = !interrupted || self.random.one_in(2);
        Ok(OperationOutcome { takes_effect, interrupted })
    }

    /// Takes a descriptor for a file, if there is one.
    fn take_descriptor(&mut self) -> io::Result<()> {
        self.check_up()?;
        if self.exhausted > 0 {
            self.exhausted -= 1;
            return Err(rustix::io::Errno::MFILE.into());
        }
        Ok(())
    }

    fn check_up(&self) -> io::Result<()> {
        if self.down { Err(crashed()) } else { Ok(()) }
    }

    fn write(&mut self, inode: u64, buf: &[u8], at: u64) -> io::Result<()> {
        let fate = self.begin(&[b"write", &inode.to_le_bytes(), &at.to_le_bytes(), buf])?;
        let len = self.files.len(inode);
        let end = at + buf.len() as u64;
        let room = self.capacity.saturating_sub(self.files.used());
        let mut fits = buf.len() as u64;
        if end > len {
            fits = fits.min(len.saturating_add(room).saturating_sub(at));
        }
        if std::mem::take(&mut self.fill_write) {
            fits = fits.min(self.random.below(buf.len() as u64));
        }
        let stored = buf.get(..fits as usize).unwrap_or(buf);
        if fate.takes_effect && !stored.is_empty() {
            self.files.write(inode, stored, at);
        }
        fate.end()?;
        if stored.len() < buf.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self, inode: u64) -> io::Result<()> {
        // An interrupted sync has saved any part of the data: what the crash will decide.
        self.begin(&[b"sync", &inode.to_le_bytes()])?.end()?;
        if std::mem::take(&mut self.fail_sync) {
            self.files.drop_unsynced(inode);
            return Err(io::Error::other("simulated failure of a sync"));
        }
        self.files.sync(inode);
        Ok(())
    }

    /// Folds an operation into the trace.
    fn note(&mut self, what: &[&[u8]]) {
        for part in what {
            self.trace = part.iter().fold(self.trace ^ part.len() as u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        }
    }
}

impl OperationOutcome {
    fn end(self) -> io::Result<()> {
        if self.interrupted { Err(crashed()) } else { Ok(()) }
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.lock();
        state.check_up()?;
        Ok(state.files.names())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.take_descriptor()?;
        let inode = state.files.find(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(inode, state.generation))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.take_descriptor()?;
        let fate = state.begin(&[b"create", name.as_bytes()])?;
        if state.files.find(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = if fate.takes_effect { state.files.create(name) } else { 0 };
        fate.end()?;
        Ok(self.handle(inode, state.generation))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let fate = state.begin(&[b"rename", from.as_bytes(), to.as_bytes()])?;
        if state.files.find(from).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if fate.takes_effect {
            state.files.rename(from, to);
        }
        fate.end()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        let fate = state.begin(&[b"remove", name.as_bytes()])?;
        if state.files.find(name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if fate.takes_effect {
            state.files.remove(name);
        }
        fate.end()
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.begin(&[b"sync_dir"])?.end()?;
        state.files.sync_dir();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.lock();
        state.check_up()?;
        Ok(state.capacity.saturating_sub(state.files.used()))
    }
}

impl SimDisk {
    fn handle(&self, inode: u64, generation: u64) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { state: Arc::clone(&self.state), inode, generation })
    }
}

struct SimFile {
    state: Arc<Mutex<DiskState>>,
    inode: u64,
    generation: u64,
}

impl SimFile {
    fn lock(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = lock(&self.state);
        state.check_up()?;
        if state.generation == self.generation { Ok(state) } else { Err(crashed()) }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.lock()?.files.read(self.inode, buf, at))
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.lock()?.write(self.inode, buf, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.lock()?.sync(self.inode)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock()?.files.len(self.inode))
    }
}

fn lock(state: &Mutex<DiskState>) -> MutexGuard<'_, DiskState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn crashed() -> io::Error {
    io::Error::other("the simulated disk has crashed")
}

/// SplitMix64: small, and good enough to choose what a crash keeps.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`, or 0 if there is none.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
