//! Recovery: finds the segments that matter and replays their records in order.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;

use super::Replay;
use super::error::{Found, OpenError};
use super::frame::{HEADER_BYTES, Header, Kind};
use super::segment::{self, Active, BLOCK_BYTES, BlockError, Closed, Segment, VERSION};
use super::tail;
use super::window::Window;
use crate::disk::Disk;

/// What was found when the log was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records that were replayed, and the bytes of their payloads.
    pub records: u64,
    pub bytes: u64,
    /// The last record in the log, replayed or not; 0 if there is none.
    pub last_seq: u64,
    /// What was left of a write at the end of the log that never finished. It was wiped.
    pub torn: Option<TornRecord>,
}

/// A record that a crash left incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornRecord {
    pub file: String,
    pub position: u64,
    pub bytes: u64,
    /// Whole records behind the torn one that were lost with it; only without sync.
    pub later_records: u64,
}

/// The log as recovery leaves it.
pub(super) struct Opened {
    pub(super) closed: VecDeque<Closed>,
    pub(super) active: Active,
    pub(super) next_seq: u64,
    pub(super) sealed: bool,
    pub(super) recovered: RecoveryReport,
}

/// A segment that is being read.
pub(super) struct Reading {
    pub(super) segment: Segment,
    pub(super) window: Window,
}

/// Where the records of a segment end.
pub(super) struct End {
    pub(super) position: u64,
    pub(super) next_seq: u64,
    /// Position and length of the last record, if the segment has any.
    pub(super) last: Option<(u64, u64)>,
}

/// Replays every record after `after`; `None` if there is no segment at all.
///
/// Changes nothing on the disk unless it succeeds.
pub(super) fn run(
    disk: &dyn Disk,
    after: u64,
    replay: Replay<'_>,
) -> Result<Option<Opened>, OpenError> {
    let numbers = segment_numbers(disk)?;
    let mut chain = read_headers(disk, &numbers, after)?;
    let Some(mut last) = chain.pop_back() else {
        return Ok(None);
    };
    let mut closed = older_than(disk, &numbers, chain.front().unwrap_or(&last).segment)?;
    let mut recovered = RecoveryReport::default();

    let mut chain = chain.into_iter().peekable();
    while let Some(mut reading) = chain.next() {
        let next = chain.peek().map_or(last.segment, |next| next.segment);
        let end = read_records(&mut reading, Some(next.first_seq), after, replay, &mut recovered)?;
        if end.next_seq != next.first_seq {
            let found = Found::Segment { file: next.name(), first_seq: next.first_seq };
            return Err(reading.corrupt(&end, found));
        }
        let Segment { number, bytes, .. } = reading.segment;
        closed.push_back(Closed { number, bytes, last: end.next_seq - 1 });
    }

    if last.segment.unsynced {
        // What is replayed may reach the table at once, and that must not know more than the log.
        let synced = last.window.file.sync();
        synced.map_err(|source| last.io(source))?;
    }
    let end = read_records(&mut last, None, after, replay, &mut recovered)?;
    // Only without syncs can the table know more than the log.
    if end.next_seq <= after && !last.segment.unsynced {
        let file = last.segment.name();
        return Err(OpenError::Behind { file, last: end.next_seq - 1, after });
    }
    let settled = tail::settle(&mut last, &end)?;
    recovered.torn = settled.torn;
    recovered.last_seq = end.next_seq - 1;
    Ok(Some(Opened {
        closed,
        active: Active::new(last.window.file, last.segment, end.position),
        next_seq: end.next_seq,
        sealed: settled.sealed,
        recovered,
    }))
}

/// Refuses a directory that has a log already.
pub(super) fn expect_none(disk: &dyn Disk) -> Result<(), OpenError> {
    match segment_numbers(disk)?.first() {
        None => Ok(()),
        Some(number) => {
            let source = io::ErrorKind::AlreadyExists.into();
            Err(OpenError::Io { file: segment::name(*number), source })
        }
    }
}

/// The numbers of all segments, which leave none out.
fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, OpenError> {
    let names =
        disk.list().map_err(|source| OpenError::Io { file: "the log directory".into(), source })?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::parse_name(name)).collect();
    numbers.sort_unstable();
    for (number, next) in numbers.iter().zip(numbers.iter().skip(1)) {
        if number + 1 != *next {
            return Err(OpenError::Missing { file: segment::name(number + 1) });
        }
    }
    Ok(numbers)
}

/// The segments from the one that holds record `after + 1`, in order. Older ones are not needed,
/// so damage in them is nobody's trouble.
fn read_headers(
    disk: &dyn Disk,
    numbers: &[u64],
    after: u64,
) -> Result<VecDeque<Reading>, OpenError> {
    let mut chain: VecDeque<Reading> = VecDeque::new();
    for number in numbers.iter().rev() {
        let reading = read_header(disk, *number)?;
        let begins_before = reading.segment.first_seq <= after + 1;
        chain.push_front(reading);
        if begins_before {
            return Ok(chain);
        }
    }
    match chain.front() {
        None => Ok(chain),
        Some(Reading { segment, .. }) => {
            Err(OpenError::Gap { file: segment.name(), have: segment.first_seq, want: after + 1 })
        }
    }
}

/// A segment gets its name after its header was synced: a crash cannot leave one without.
fn read_header(disk: &dyn Disk, number: u64) -> Result<Reading, OpenError> {
    let file = segment::name(number);
    let io = |source| OpenError::Io { file: segment::name(number), source };
    let mut window = Window::new(disk.open(&file).map_err(io)?);
    let bytes = window.file.len().map_err(io)?;
    let decoded = Segment::decode(window.get(0, BLOCK_BYTES).map_err(io)?);
    let problem = match decoded {
        Err(BlockError::NewerFormat(version)) => {
            return Err(OpenError::NewerFormat { file, version, known: VERSION });
        }
        Err(BlockError::Damaged) => "its checksum is wrong",
        Ok(segment) if segment.number != number => "it is that of another segment",
        Ok(segment) if segment.bytes != bytes => "it tells another length than the file has",
        Ok(segment) => return Ok(Reading { segment, window }),
    };
    Err(OpenError::Header { file, problem })
}

/// The segments before `start`, of which the table holds everything.
fn older_than(
    disk: &dyn Disk,
    numbers: &[u64],
    start: Segment,
) -> Result<VecDeque<Closed>, OpenError> {
    let older = numbers.iter().take_while(|number| **number < start.number);
    older
        .map(|number| {
            let file = segment::name(*number);
            let bytes = disk.open(&file).and_then(|file| file.len());
            let bytes = bytes.map_err(|source| OpenError::Io { file, source })?;
            Ok(Closed { number: *number, last: start.first_seq - 1, bytes })
        })
        .collect()
}

/// Reads records for as long as they are valid, up to the one with which the next segment begins:
/// what a full disk may have left behind that point was written again there.
fn read_records(
    reading: &mut Reading,
    limit: Option<u64>,
    after: u64,
    replay: Replay<'_>,
    recovered: &mut RecoveryReport,
) -> Result<End, OpenError> {
    let segment = reading.segment;
    let mut end = End { position: BLOCK_BYTES as u64, next_seq: segment.first_seq, last: None };
    while limit != Some(end.next_seq) {
        let read = reading.record(&end);
        let read = read.map_err(|source| OpenError::Io { file: segment.name(), source })?;
        let Some((payload, bytes)) = read else { break };
        if end.next_seq > after {
            recovered.records += 1;
            recovered.bytes += payload.len() as u64;
            replay(end.next_seq, Bytes::copy_from_slice(payload)).map_err(|reason| {
                OpenError::Replay { file: segment.name(), seq: end.next_seq, reason }
            })?;
        }
        end.last = Some((end.position, bytes));
        end.position += bytes;
        end.next_seq += 1;
    }
    Ok(end)
}

impl Reading {
    /// The payload and the length of the record that should follow, if it is there.
    fn record(&mut self, end: &End) -> io::Result<Option<(&[u8], u64)>> {
        let keys = self.segment.keys();
        let header = Header::decode(keys, self.window.get(end.position, HEADER_BYTES)?);
        let Some(Header { seq, kind: Kind::Record { len, crc } }) = header else {
            return Ok(None);
        };
        let bytes = Header { seq, kind: Kind::Record { len, crc } }.frame_bytes();
        if seq != end.next_seq || !segment::fits(end.position, bytes, self.segment.bytes) {
            return Ok(None);
        }
        let frame = self.window.get(end.position, bytes as usize)?;
        let padded = frame.get(HEADER_BYTES..).unwrap_or(&[]);
        let payload = padded.get(..len as usize).filter(|_| keys.crc(padded) == crc);
        Ok(payload.map(|payload| (payload, bytes)))
    }

    pub(super) fn corrupt(&self, end: &End, found: Found) -> OpenError {
        OpenError::Corrupt {
            file: self.segment.name(),
            position: end.position,
            expected_seq: end.next_seq,
            found,
        }
    }

    pub(super) fn io(&self, source: io::Error) -> OpenError {
        OpenError::Io { file: self.segment.name(), source }
    }
}
