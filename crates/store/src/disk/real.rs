//! The disk door onto a directory of the operating system.
#![allow(clippy::disallowed_methods, reason = "this file implements the door")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile};

/// Whoever is not the owner may do nothing with what is kept.
const DIRECTORY_MODE: u32 = 0o700;

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    dir: PathBuf,
    /// Open for as long as the disk is: whoever syncs must not depend on a free descriptor.
    entries: File,
}

impl RealDisk {
    /// Uses `dir`, which is created, durably, if it is not there.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let dir = dir.into();
        create_dir_durably(&dir)?;
        let entries = File::open(&dir)?;
        Ok(RealDisk { dir, entries })
    }

    fn path(&self, name: &str) -> PathBuf {
        debug_assert!(!name.contains('/'), "a name is not a path");
        self.dir.join(name)
    }
}

/// A directory whose own entry is lost in a power cut takes its files along, however well those
/// were synced: so each new level is synced into its parent.
pub(crate) fn create_dir_durably(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        // Whoever made it may have died before it was synced. Where we may not look into the
        // parent it was made by somebody else.
        let _ = File::open(parent_of(dir)).and_then(|parent| parent.sync_all());
        return Ok(());
    }
    create_levels(dir)
}

fn create_levels(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = parent_of(dir);
    create_levels(parent)?;
    match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

fn parent_of(dir: &Path) -> &Path {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_file() {
                continue;
            }
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(self.path(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.entries.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stats = rustix::fs::statvfs(&self.dir)?;
        Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(buf, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_what_is_written() {
        let root = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(root.path().join("a/b")).unwrap();
        let file = disk.create("one").unwrap();
        file.write_at(b"hello", 3).unwrap();
        file.sync().unwrap();
        assert_eq!(disk.create("one").err().unwrap().kind(), io::ErrorKind::AlreadyExists);

        disk.rename("one", "two").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["two"]);
        let file = disk.open("two").unwrap();
        assert_eq!(file.len().unwrap(), 8);
        let mut buf = [9; 16];
        assert_eq!(file.read_at(&mut buf, 1).unwrap(), 7);
        assert_eq!(&buf[..8], b"\0\0hello\x09");
        assert!(disk.free_bytes().unwrap() > 0);

        disk.remove("two").unwrap();
        assert_eq!(disk.open("two").err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
