//! The disk door: the only way the log touches files, so that tests can crash it anywhere.

pub mod real;
pub mod simulated;

use std::io;
use std::sync::Arc;

pub use real::RealDisk;
pub use simulated::SimDisk;

/// A directory of files; the only way the store's log touches a disk.
///
/// Creating, renaming and removing are durable only after [`Disk::sync_dir`].
pub trait Disk: Send + Sync + 'static {
    /// The names of the files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file; fails if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, replacing whatever had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes every earlier create, rename and remove durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Bytes that can still be written before the disk is full.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// An open file. Handles may be shared between threads; nobody keeps a cursor.
#[allow(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait DiskFile: Send + Sync {
    /// Fills `buf` from `at`; returns fewer bytes only at the end of the file.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `buf`. After an error any part of it may have been written.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()>;
    /// Makes every earlier write to this file durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
}

/// Whether an error says that the disk is full, which passes, rather than broken, which does not.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an error says that the process, or the machine, has run out of descriptors or memory for
/// now: nothing was done, and the same may succeed later.
pub fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}
