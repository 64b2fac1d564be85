//! Segment files: their names and the block at their start.
//!
//! ```text
//! 0     magic          8 bytes   "reveille"
//! 8     version        u32       1
//! 12    flags          u32       bit 0: records are written without sync
//! 16    number         u64       the same as in the name
//! 24    first seq      u64       of the first record in it
//! 32    salt           u64
//! 40    segment bytes  u64       length of the file
//! 48    zeros
//! 4092  crc            u32       CRC-32C of everything before
//! ```
//!
//! Magic, version and the checksum stay where they are in every later version.

use std::sync::Arc;

use super::frame::{FrameKeys, HEADER_BYTES, MARK_BYTES, frame_bytes, take};
use crate::disk::DiskFile;

/// The length of the block; records begin behind it.
pub(super) const BLOCK_BYTES: usize = 4096;
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"reveille";
const FLAG_UNSYNCED: u32 = 1;
const CRC_AT: usize = BLOCK_BYTES - 4;

/// What the block at the start of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) first_seq: u64,
    pub(super) salt: u64,
    pub(super) bytes: u64,
    /// Records are written without sync: a power cut may lose any of them.
    pub(super) unsynced: bool,
}

/// A segment that is full.
pub(super) struct ClosedSegment {
    pub(super) number: u64,
    /// No record in it is later than this one.
    pub(super) last: u64,
    pub(super) bytes: u64,
}

/// The segment that is being written.
pub(super) struct ActiveSegment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) segment: Segment,
    pub(super) keys: FrameKeys,
    /// Where the next record goes.
    pub(super) tail: u64,
}

impl ActiveSegment {
    pub(super) fn new(file: Arc<dyn DiskFile>, segment: Segment, tail: u64) -> ActiveSegment {
        ActiveSegment { file, segment, keys: segment.keys(), tail }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlockError {
    Damaged,
    NewerFormat(u32),
}

impl Segment {
    pub(super) fn name(&self) -> String {
        name(self.number)
    }

    pub(super) fn keys(&self) -> FrameKeys {
        FrameKeys::new(self.salt)
    }

    pub(super) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let flags = if self.unsynced { FLAG_UNSYNCED } else { 0 };
        let mut block = [0; BLOCK_BYTES];
        block[0..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&flags.to_le_bytes());
        block[16..24].copy_from_slice(&self.number.to_le_bytes());
        block[24..32].copy_from_slice(&self.first_seq.to_le_bytes());
        block[32..40].copy_from_slice(&self.salt.to_le_bytes());
        block[40..48].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    pub(super) fn decode(block: &[u8]) -> Result<Segment, BlockError> {
        let (version, segment) = read(block).ok_or(BlockError::Damaged)?;
        match version {
            VERSION => Ok(segment),
            0 => Err(BlockError::Damaged),
            newer => Err(BlockError::NewerFormat(newer)),
        }
    }
}

/// The version and the fields, if the block is whole. They mean something only in our version.
fn read(block: &[u8]) -> Option<(u32, Segment)> {
    let (mut fields, mut crc) = block.get(..BLOCK_BYTES)?.split_at_checked(CRC_AT)?;
    if crc32c::crc32c(fields) != u32::from_le_bytes(take(&mut crc)?) {
        return None;
    }
    if take(&mut fields)? != MAGIC {
        return None;
    }
    let version = u32::from_le_bytes(take(&mut fields)?);
    let flags = u32::from_le_bytes(take(&mut fields)?);
    let segment = Segment {
        number: u64::from_le_bytes(take(&mut fields)?),
        first_seq: u64::from_le_bytes(take(&mut fields)?),
        salt: u64::from_le_bytes(take(&mut fields)?),
        bytes: u64::from_le_bytes(take(&mut fields)?),
        unsynced: flags & FLAG_UNSYNCED != 0,
    };
    Some((version, segment))
}

pub(super) fn name(number: u64) -> String {
    format!("{number:016x}.seg")
}

/// The number of the segment that has this name, if it is a segment's.
pub(super) fn parse_name(file: &str) -> Option<u64> {
    let number = u64::from_str_radix(file.strip_suffix(".seg")?, 16).ok()?;
    (name(number) == file).then_some(number)
}

/// Whether a frame of `frame` bytes fits at `position`, with a mark behind it.
pub(super) fn fits(position: u64, frame: u64, segment_bytes: u64) -> bool {
    position.saturating_add(frame).saturating_add(MARK_BYTES) <= segment_bytes
}

/// The largest payload that fits into an empty segment.
pub(super) fn max_payload(segment_bytes: u64) -> u64 {
    let room = segment_bytes - BLOCK_BYTES as u64 - MARK_BYTES;
    let payload = room - HEADER_BYTES as u64;
    debug_assert!(fits(BLOCK_BYTES as u64, frame_bytes(payload), segment_bytes));
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment =
        Segment { number: 3, first_seq: 77, salt: 0xabcd, bytes: 8192, unsynced: true };

    #[test]
    fn a_block_reads_back_and_notices_every_flipped_bit() {
        let good = SEGMENT.encode();
        assert_eq!(Segment::decode(&good), Ok(SEGMENT));
        for bit in 0..BLOCK_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Segment::decode(&bad), Err(BlockError::Damaged), "bit {bit}");
        }
        assert_eq!(Segment::decode(&good[..4000]), Err(BlockError::Damaged));
        assert_eq!(Segment::decode(&[0; BLOCK_BYTES]), Err(BlockError::Damaged));
    }

    #[test]
    fn names_sort_and_parse() {
        assert_eq!(name(0x1f), "000000000000001f.seg");
        assert_eq!(parse_name(&name(u64::MAX)), Some(u64::MAX));
        for other in ["1f.seg", "000000000000001F.seg", "000000000000001f", "spare-1", ".seg"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }

    #[test]
    fn the_largest_payload_just_fits() {
        for bytes in [8192, 16384, 64 << 20] {
            let start = BLOCK_BYTES as u64;
            let max = max_payload(bytes);
            assert!(fits(start, frame_bytes(max), bytes));
            assert!(!fits(start, frame_bytes(max + 1), bytes));
        }
    }
}
