//! The checkpoint file: up to which batch the table surely holds everything.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `rvlcheck` |
//! | 8 | log sequence, little-endian |
//! | 4 | CRC-32C of the bytes before, little-endian |
//!
//! It is written under another name, synced and renamed, after the table has been synced; only
//! then are older log segments recycled.

use std::io;

use crate::disk::Disk;

/// The file's name, beside the log's segments.
pub const FILE: &str = "checkpoint";
const NEW_FILE: &str = "checkpoint.new";
const MAGIC: &[u8; 8] = b"rvlcheck";
const LEN: usize = 20;

/// The checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("the file `{FILE}` is damaged; restore it, or the whole data directory, from a backup")]
    Corrupt,
    #[error("the file `{FILE}` cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Reads the checkpoint; a directory that never had one is at zero.
pub fn read(disk: &dyn Disk) -> Result<u64, CheckpointError> {
    if !disk.list()?.iter().any(|name| name == FILE) {
        return Ok(0);
    }
    let file = disk.open(FILE)?;
    let mut bytes = [0; LEN + 1];
    let len = file.read_at(&mut bytes, 0)?;
    let whole =
        bytes.first_chunk::<LEN>().filter(|_| len == LEN).ok_or(CheckpointError::Corrupt)?;
    let (content, crc) = whole.split_last_chunk::<4>().ok_or(CheckpointError::Corrupt)?;
    let (magic, seq) = content.split_first_chunk::<8>().ok_or(CheckpointError::Corrupt)?;
    if magic != MAGIC || crc32c::crc32c(content) != u32::from_le_bytes(*crc) {
        return Err(CheckpointError::Corrupt);
    }
    let seq = seq.try_into().map_err(|_| CheckpointError::Corrupt)?;
    Ok(u64::from_le_bytes(seq))
}

/// Writes the checkpoint so that a crash leaves the old one or the new one.
pub fn write(disk: &dyn Disk, seq: u64) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&seq.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    if disk.list()?.iter().any(|name| name == NEW_FILE) {
        disk.remove(NEW_FILE)?;
    }
    let file = disk.create(NEW_FILE)?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(NEW_FILE, FILE)?;
    disk.sync_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn a_checkpoint_reads_back_and_every_flipped_bit_is_seen() {
        let disk = SimDisk::new(1);
        assert_eq!(read(&disk).unwrap(), 0);
        write(&disk, 7).unwrap();
        write(&disk, 1 << 40).unwrap();
        assert_eq!(read(&disk).unwrap(), 1 << 40);
        for byte in 0..20 {
            disk.flip_bit(FILE, byte, 3);
            assert!(matches!(read(&disk), Err(CheckpointError::Corrupt)), "byte {byte}");
            disk.flip_bit(FILE, byte, 3);
        }
    }

    #[test]
    fn a_crash_leaves_the_old_or_the_new_checkpoint() {
        for seed in 0..50 {
            for operation in 1..8 {
                let disk = SimDisk::new(seed);
                write(&disk, 1).unwrap();
                disk.fail_after(operation);
                let done = write(&disk, 2).is_ok();
                disk.crash();
                let found = read(&disk).unwrap();
                assert!(found == 2 || (found == 1 && !done), "seed {seed}, operation {operation}");
            }
        }
    }
}
