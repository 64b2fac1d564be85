//! The data directory: whose it is, which format it has, and that only one server uses it.

#![allow(clippy::disallowed_methods, reason = "a door: the lock and the format file")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::disk::real::create_dir_durably;

/// What this server reads and writes. A directory with another number is left alone.
pub const FORMAT: u32 = 5;

const FORMAT_FILE: &str = "format";
const LOCK_FILE: &str = "lock";
const SECRETS_KEY_FILE: &str = "secrets.key";

/// Whoever is not the owner may do nothing with what is kept here.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The permissions of a file's group and of everybody else.
const OTHERS: u32 = 0o077;

/// A data directory that this process alone uses.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    partitions: u32,
    /// Held for as long as the directory is in use; the operating system lets go of it with us.
    _lock: File,
}

/// The directory cannot be used; nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("another reveille server uses {0}; stop that one, or give this one its own --data-dir")]
    Locked(PathBuf),
    #[error(
        "{path} was written by a newer reveille (format {found}; this one reads format {FORMAT}); \
         start the newer version"
    )]
    Newer { path: PathBuf, found: u32 },
    /// A server wrote it whose format nobody reads any more.
    #[error(
        "{path} was written by a reveille from before the first release (format {found}; this one \
         reads format {FORMAT}), and nothing can convert it; start that version to read it, or give \
         this one a new, empty --data-dir"
    )]
    Older { path: PathBuf, found: u32 },
    #[error(
        "{path} was created with {found} partitions, which cannot be changed; \
         leave --partitions out or set it to {found}"
    )]
    Partitions { path: PathBuf, found: u32 },
    #[error("{0} is damaged; restore it, or the whole data directory, from a backup")]
    Corrupt(PathBuf),
    #[error("{0} is not empty and not a reveille data directory; choose another --data-dir")]
    Foreign(PathBuf),
    #[error(
        "{0} belongs to another user, and others may read it, with the secrets and events in it; \
         have its owner start the server, or change its owner and set its permissions to 0700"
    )]
    Exposed(PathBuf),
    #[error("cannot use {path} as data directory: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl Directory {
    /// How many partitions a directory that exists was created with, without opening it.
    pub fn partitions_of(path: &Path) -> Option<u32> {
        read_format(path, &fs::read_to_string(path.join(FORMAT_FILE)).ok()?).ok()
    }

    /// Opens or creates a data directory. `partitions` is checked against what it was created
    /// with; `None` takes whatever that was, or one.
    pub fn open(path: &Path, partitions: Option<u32>) -> Result<Directory, DirectoryError> {
        let io = |source| DirectoryError::Io { path: path.to_owned(), source };
        create_dir_durably(path).map_err(io)?;
        let is_exposed = close_to_others(path)?;
        let lock = lock(path)?;
        let format_path = path.join(FORMAT_FILE);
        let found = match fs::read_to_string(&format_path) {
            Ok(text) => read_format(path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_foreign(path)?;
                let partitions = partitions.unwrap_or(1);
                write_format(path, partitions).map_err(io)?;
                partitions
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(DirectoryError::Corrupt(format_path));
            }
            Err(source) => {
                return Err(DirectoryError::Io { path: format_path, source });
            }
        };
        if partitions.is_some_and(|spec| spec != found) {
            return Err(DirectoryError::Partitions { path: path.to_owned(), found });
        }
        // Only now is it known to be ours to change.
        if is_exposed {
            close_files(path).map_err(io)?;
        }
        Ok(Directory { path: path.to_owned(), partitions: found, _lock: lock })
    }

    /// The number of partitions that it was created with.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Where the key is that seals secrets, unless somebody says otherwise.
    pub fn secrets_key_path(&self) -> PathBuf {
        self.path.join(SECRETS_KEY_FILE)
    }

    /// Whether nothing was ever stored in it.
    pub fn is_unused(&self) -> bool {
        (0..self.partitions).all(|number| !self.log_path(number).exists())
    }

    pub fn log_path(&self, partition: u32) -> PathBuf {
        self.path.join(format!("partition-{partition:04}")).join("log")
    }

    pub fn table_path(&self, partition: u32) -> PathBuf {
        self.path.join(format!("partition-{partition:04}")).join("table")
    }
}

/// Closes the directory itself to other users. Says whether it was open to them, so that what is in
/// it may be as well.
fn close_to_others(path: &Path) -> Result<bool, DirectoryError> {
    let io = |source| DirectoryError::Io { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(io)?;
    if metadata.mode() & OTHERS == 0 {
        return Ok(false);
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(DirectoryError::Exposed(path.to_owned()));
    }
    // Nothing is changed in a directory that turns out to be somebody else's.
    if path.join(FORMAT_FILE).exists() || is_empty(path).map_err(io)? {
        fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE)).map_err(io)?;
    }
    Ok(true)
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(path)?.next().is_none())
}

/// Closes everything in a directory of ours to other users.
fn close_files(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let mode = if kind.is_dir() { DIRECTORY_MODE } else { FILE_MODE };
        if kind.is_symlink() {
            continue;
        }
        if entry.metadata()?.mode() & OTHERS != 0 {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
        }
        if kind.is_dir() {
            close_files(&entry.path())?;
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let lock_path = path.join(LOCK_FILE);
    let io = |source| DirectoryError::Io { path: lock_path.clone(), source };
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).open(&lock_path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

fn refuse_foreign(path: &Path) -> Result<(), DirectoryError> {
    let io = |source| DirectoryError::Io { path: path.to_owned(), source };
    for entry in fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        // A crash between creating and renaming the format file leaves its first name behind.
        if name != LOCK_FILE && name != "lost+found" && name != "format.new" {
            return Err(DirectoryError::Foreign(path.to_owned()));
        }
    }
    Ok(())
}

fn content(format: u32, partitions: u32) -> String {
    format!("reveille data directory\nformat {format}\npartitions {partitions}\n")
}

fn write_format(path: &Path, partitions: u32) -> io::Result<()> {
    let content = content(FORMAT, partitions);
    let crc = crc32c::crc32c(content.as_bytes());
    let new = path.join("format.new");
    let mut file = File::create(&new)?;
    file.write_all(format!("{content}checksum {crc:08x}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path.join(FORMAT_FILE))?;
    File::open(path)?.sync_all()
}

/// The number of partitions, if the format is one that this server knows.
fn read_format(path: &Path, text: &str) -> Result<u32, DirectoryError> {
    let corrupt = || DirectoryError::Corrupt(path.join(FORMAT_FILE));
    let mut lines = text.lines();
    let mut number = |prefix: &str| {
        lines.next().and_then(|line| line.strip_prefix(prefix)).and_then(|n| n.parse().ok())
    };
    let (first, format) = (number("reveille data directory"), number("format "));
    let _: Option<u32> = first;
    let format: u32 = format.ok_or_else(corrupt)?;
    if format > FORMAT {
        return Err(DirectoryError::Newer { path: path.to_owned(), found: format });
    }
    // The whole file has kept its shape since then: one that is damaged is called damaged.
    let partitions: u32 = number("partitions ").ok_or_else(corrupt)?;
    let content = content(format, partitions);
    let crc = crc32c::crc32c(content.as_bytes());
    if text != format!("{content}checksum {crc:08x}\n") {
        return Err(corrupt());
    }
    if format < FORMAT {
        return Err(DirectoryError::Older { path: path.to_owned(), found: format });
    }
    Ok(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_partitions_and_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = Directory::open(&path, Some(3)).unwrap();
        assert_eq!(first.partitions(), 3);
        assert!(matches!(Directory::open(&path, None), Err(DirectoryError::Locked(_))));
        drop(first);
        assert_eq!(Directory::open(&path, None).unwrap().partitions(), 3);
        let other = Directory::open(&path, Some(1));
        assert!(matches!(other, Err(DirectoryError::Partitions { found: 3, .. })));
    }

    #[test]
    fn a_directory_of_format_1_is_refused_with_a_sentence_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let text = "reveille data directory\nformat 1\npartitions 1\n";
        let crc = crc32c::crc32c(text.as_bytes());
        let text = format!("{text}checksum {crc:08x}\n");
        fs::write(dir.path().join("format"), &text).unwrap();
        let error = Directory::open(dir.path(), None).unwrap_err();
        assert!(matches!(error, DirectoryError::Older { found: 1, .. }));
        let sentence = error.to_string();
        for part in [&*dir.path().to_string_lossy(), "format 1", "format 5", "--data-dir"] {
            assert!(sentence.contains(part), "{sentence}");
        }
        assert_eq!(fs::read_to_string(dir.path().join("format")).unwrap(), text);
    }

    /// A directory that was made by a careless hand is closed, with all that is in it.
    #[test]
    fn nobody_else_can_read_what_is_kept() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        drop(Directory::open(&path, None).unwrap());
        assert_eq!(mode(&path), 0o700);
        let inner = path.join("partition-0000/log");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("segment"), "x").unwrap();
        for open in [path.clone(), inner.clone()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(inner.join("segment"), fs::Permissions::from_mode(0o644)).unwrap();
        drop(Directory::open(&path, None).unwrap());
        assert_eq!((mode(&path), mode(&inner)), (0o700, 0o700));
        assert_eq!(mode(&inner.join("segment")), 0o600);
        assert_eq!(mode(&path.join("format")), 0o600);
    }

    #[test]
    fn the_permissions_of_a_foreign_directory_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("letter.txt"), "dear").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(Directory::open(dir.path(), None), Err(DirectoryError::Foreign(_))));
        let mode = fs::metadata(dir.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn newer_foreign_and_damaged_directories_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        fs::write(path.join("letter.txt"), "dear").unwrap();
        assert!(matches!(Directory::open(path, None), Err(DirectoryError::Foreign(_))));
        fs::remove_file(path.join("letter.txt")).unwrap();
        drop(Directory::open(path, None).unwrap());
        let text = fs::read_to_string(path.join("format")).unwrap();
        fs::write(path.join("format"), text.replace("format 5", "format 6")).unwrap();
        let newer = Directory::open(path, None);
        assert!(matches!(newer, Err(DirectoryError::Newer { found: 6, .. })));
        for byte in 0..text.len() {
            let mut bent = text.clone().into_bytes();
            bent[byte] ^= 1;
            fs::write(path.join("format"), &bent).unwrap();
            assert!(Directory::open(path, None).is_err(), "byte {byte}");
        }
        fs::write(path.join("format"), &text).unwrap();
        assert!(Directory::open(path, None).is_ok());
    }
}
