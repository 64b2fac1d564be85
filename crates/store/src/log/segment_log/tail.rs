//! The end of the log: tells a torn tail from damage, and repairs the tail.
//!
//! A record is written only after the one before it was synced. So a crash can spoil one record,
//! the last, and nothing that was written later can exist. Where a record cannot be read and
//! something later can, the disk has lost synced data, and recovery refuses to go on.
//!
//! In a segment that is written without sync, a power cut may spoil anything. There the log ends
//! with the last record that can be reached, and the records behind it are wiped.

use std::io;

use super::error::{DurabilityEvidence, OpenError};
use super::frame::{ALIGN, HEADER_BYTES, Header, Kind, MARK_BYTES, are_remains};
use super::recover::{RecordsEnd, SegmentReader, TornRecord};
use super::segment;

const SCAN_BYTES: usize = 1 << 20;
const WIPE_BYTES: u64 = 1 << 20;

/// The tail, ready to be written on.
pub(super) struct RepairedTail {
    pub(super) sealed: bool,
    pub(super) torn: Option<TornRecord>,
}

/// What lies behind the tail and is later than what should come next.
#[derive(Default)]
struct LaterFrames {
    first: Option<DurabilityEvidence>,
    records: u64,
    /// Where the header of the last one ends.
    end: u64,
}

/// Judges what follows the last record, and repairs it unless that would hide a loss.
pub(super) fn repair(
    reader: &mut SegmentReader,
    end: &RecordsEnd,
) -> Result<RepairedTail, OpenError> {
    let tail = judge(reader, end)?;
    if !tail.sealed {
        write_repairs(reader, end, tail.torn.as_ref()).map_err(|source| reader.io(source))?;
    }
    Ok(tail)
}

fn judge(reader: &mut SegmentReader, end: &RecordsEnd) -> Result<RepairedTail, OpenError> {
    let keys = reader.segment.keys();
    let here = reader.window.get(end.position, HEADER_BYTES);
    let here = here.map(<[u8]>::to_vec).map_err(|source| reader.io(source))?;
    let header = Header::decode(keys, &here);
    let mark = match header {
        Some(Header { seq, kind: Kind::Mark { continued } }) => Some((seq, continued)),
        _ => None,
    };
    if mark.is_some_and(|(seq, continued)| continued && seq >= end.next_seq) {
        return Err(OpenError::Missing { file: segment::name(reader.segment.number + 1) });
    }
    let later = find_later(reader, end).map_err(|source| reader.io(source))?;
    if let Some(evidence) = &later.first
        && !reader.segment.unsynced
    {
        return Err(reader.corrupt(end, evidence.clone()));
    }
    if mark == Some((end.next_seq, false)) {
        return Ok(RepairedTail { sealed: true, torn: None });
    }
    if later.first.is_none() && !are_remains(keys, &here, end.next_seq) {
        return Ok(RepairedTail { sealed: false, torn: None });
    }
    let room = reader.segment.bytes - end.position;
    let bytes = header.map_or(MARK_BYTES, |header| header.frame_bytes());
    let bytes = bytes.min(room).max(later.end.saturating_sub(end.position));
    let file = reader.segment.name();
    let torn = TornRecord { file, position: end.position, bytes, later_records: later.records };
    Ok(RepairedTail { sealed: false, torn: Some(torn) })
}

/// Looks at every place where a frame could begin. Only one with a higher sequence than the next
/// proves anything: a user may have stored a copy of the segment in the segment itself.
fn find_later(reader: &mut SegmentReader, end: &RecordsEnd) -> io::Result<LaterFrames> {
    let keys = reader.segment.keys();
    let mut later = LaterFrames::default();
    let mut base = end.position;
    while base < reader.segment.bytes {
        let piece = reader.window.get(base, SCAN_BYTES + HEADER_BYTES)?;
        for start in (0..SCAN_BYTES).step_by(ALIGN as usize) {
            let Some(bytes) = piece.get(start..start + HEADER_BYTES) else {
                break;
            };
            let Some(Header { seq, kind }) = Header::decode(keys, bytes) else {
                continue;
            };
            if seq <= end.next_seq {
                continue;
            }
            let position = base + start as u64;
            let evidence = match kind {
                Kind::Record { .. } => DurabilityEvidence::Record { position, seq },
                Kind::Mark { .. } => DurabilityEvidence::Mark { position, seq },
            };
            later.records += u64::from(matches!(kind, Kind::Record { .. }));
            later.end = position + HEADER_BYTES as u64;
            later.first.get_or_insert(evidence);
        }
        base += SCAN_BYTES as u64;
    }
    Ok(later)
}

fn write_repairs(
    reader: &mut SegmentReader,
    end: &RecordsEnd,
    torn: Option<&TornRecord>,
) -> io::Result<()> {
    match torn {
        Some(torn) => wipe(reader, torn)?,
        // A crash may have left the end of a record and not its beginning. If the next record
        // had the same length and a crash left only its beginning, both together would be the
        // first one, back from the dead: so its checksums must not stay.
        None => reader.window.file.write_at(&[0; HEADER_BYTES], end.position)?,
    }
    // The last record may be in the memory of the operating system and not on the disk: the
    // process was killed before its sync, or its sync failed, and then another sync alone would
    // not save it. Nobody may see it before it is durable, so it is written and synced again; the
    // bytes are the same, and a crash in between cannot hurt it.
    if let (Some((position, bytes)), false) = (end.last, reader.segment.unsynced) {
        let frame = reader.window.get(position, bytes as usize)?.to_vec();
        reader.window.file.write_at(&frame, position)?;
    }
    reader.window.file.sync()
}

fn wipe(reader: &SegmentReader, torn: &TornRecord) -> io::Result<()> {
    let zeros = vec![0; torn.bytes.min(WIPE_BYTES) as usize];
    let mut wiped = 0;
    while wiped < torn.bytes {
        let count = (torn.bytes - wiped).min(WIPE_BYTES);
        let piece = zeros.get(..count as usize).unwrap_or(&zeros);
        reader.window.file.write_at(piece, torn.position + wiped)?;
        wiped += count;
    }
    Ok(())
}
