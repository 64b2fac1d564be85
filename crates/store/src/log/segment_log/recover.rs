//! Recovery: finds the segments that matter and reads their records in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{DurabilityEvidence, OpenError};
use super::frame::{HEADER_BYTES, Header, Kind};
use super::segment::{
    self, ActiveSegment, BLOCK_BYTES, BlockError, ClosedSegment, Segment, VERSION,
};
use super::tail;
use super::window::Window;
use super::{Config, Salt, SegmentLog};
use crate::disk::Disk;
use crate::log::{Feed, FeedBatch, FeedError, Wake};

/// What was found when the log was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records that were read for the table, and the bytes of their payloads.
    pub records: u64,
    pub bytes: u64,
    /// The last record in the log, read or not; 0 if there is none.
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
pub(super) struct OpenedLog {
    pub(super) closed: VecDeque<ClosedSegment>,
    pub(super) active: ActiveSegment,
    pub(super) next_seq: u64,
    pub(super) sealed: bool,
    /// The table holds more than the log has.
    pub(super) is_behind: bool,
}

/// A segment that is being read.
pub(super) struct SegmentReader {
    pub(super) segment: Segment,
    pub(super) window: Window,
}

/// Where the records of a segment end, as far as they were read.
pub(super) struct RecordsEnd {
    pub(super) position: u64,
    pub(super) next_seq: u64,
    /// Position and length of the last record, if the segment has any.
    pub(super) last: Option<(u64, u64)>,
}

/// A log that is being opened: the feed of everything that the table does not hold.
///
/// The last record may still be lost when it is returned, because nobody knows whether it was
/// synced before the crash; [`SegmentRecovery::finish`] secures it. All others were.
pub struct SegmentRecovery {
    disk: Arc<dyn Disk>,
    config: Config,
    salt: Salt,
    after: u64,
    /// What was read to its end, oldest first, and before that what need not be read.
    closed: VecDeque<ClosedSegment>,
    /// Absent if there is no segment at all.
    current: Option<(SegmentReader, RecordsEnd)>,
    later: VecDeque<SegmentReader>,
    report: RecoveryReport,
}

impl SegmentRecovery {
    pub(super) fn begin(
        disk: Arc<dyn Disk>,
        config: Config,
        salt: Salt,
        after: u64,
    ) -> Result<SegmentRecovery, OpenError> {
        let numbers = segment_numbers(&*disk)?;
        let mut later = read_headers(&*disk, &numbers, after)?;
        let mut closed = VecDeque::new();
        let current = match later.pop_front() {
            Some(first) => {
                closed = older_than(&*disk, &numbers, first.segment)?;
                first.secure(later.is_empty())?;
                Some(first.begin())
            }
            // A log that was ever written keeps its last segment: it cannot just be empty.
            None if after > 0 => return Err(OpenError::Empty { after }),
            None => None,
        };
        let report = RecoveryReport::default();
        Ok(SegmentRecovery { disk, config, salt, after, closed, current, later, report })
    }

    /// The next record after those that the table holds; `None` at the end of the log.
    ///
    /// Records of a segment are read for as long as they are valid, up to the one with which the
    /// next segment begins: what a full disk may have left behind that point was written again
    /// there.
    pub fn next_record(&mut self) -> Result<Option<FeedBatch>, OpenError> {
        while let Some((reader, end)) = &mut self.current {
            let limit = self.later.front().map(|next| next.segment.first_seq);
            let record = if limit == Some(end.next_seq) { None } else { reader.next(end)? };
            let Some((sequence, payload)) = record else {
                if !self.enter_next()? {
                    return Ok(None);
                }
                continue;
            };
            if sequence > self.after {
                self.report.records += 1;
                self.report.bytes += payload.len() as u64;
                return Ok(Some(FeedBatch { sequence, id: None, payload }));
            }
        }
        Ok(None)
    }

    /// The file that is being read.
    pub fn file(&self) -> String {
        self.current.as_ref().map_or_else(String::new, |(reader, _)| reader.segment.name())
    }

    /// Reads what is left, repairs the end and gives the log.
    ///
    /// Changes nothing on the disk unless it succeeds.
    pub fn finish(mut self) -> Result<(SegmentLog, RecoveryReport), OpenError> {
        while self.next_record()?.is_some() {}
        let SegmentRecovery { disk, config, salt, after, closed, current, mut report, .. } = self;
        let Some((mut last, end)) = current else {
            return Ok((SegmentLog::create(disk, config, salt, after)?, report));
        };
        let is_behind = end.next_seq <= after;
        // Only without syncs can the table know more than the log.
        if is_behind && !last.segment.unsynced {
            let file = last.segment.name();
            return Err(OpenError::Behind { file, last: end.next_seq - 1, after });
        }
        let tail = tail::repair(&mut last, &end)?;
        report.torn = tail.torn;
        report.last_seq = end.next_seq - 1;
        let active = ActiveSegment::new(last.window.file, last.segment, end.position);
        let next_seq = end.next_seq.max(after + 1);
        let opened = OpenedLog { closed, active, next_seq, sealed: tail.sealed, is_behind };
        Ok((SegmentLog::recovered(disk, config, salt, opened)?, report))
    }

    /// Goes on with the next segment, if there is one. After an error everything is as it was, so
    /// that damage is found again and nobody takes it for the end.
    fn enter_next(&mut self) -> Result<bool, OpenError> {
        let (Some((reader, end)), Some(next)) = (&self.current, self.later.front()) else {
            return Ok(false);
        };
        let Segment { first_seq, .. } = next.segment;
        if end.next_seq != first_seq {
            let file = next.segment.name();
            return Err(reader.corrupt(end, DurabilityEvidence::Segment { file, first_seq }));
        }
        next.secure(self.later.len() == 1)?;
        let Segment { number, bytes, .. } = reader.segment;
        self.closed.push_back(ClosedSegment { number, bytes, last: first_seq - 1 });
        self.current = self.later.pop_front().map(SegmentReader::begin);
        Ok(true)
    }
}

impl Feed for SegmentRecovery {
    fn next_batch(&mut self) -> Result<Option<FeedBatch>, FeedError> {
        self.next_record().map_err(|error| FeedError::Broken { problem: error.to_string() })
    }

    /// Nobody writes to a log that is being opened.
    fn wake_by(&mut self, _: Wake) {}
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

/// The numbers of all segments, in order.
fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, OpenError> {
    let names =
        disk.list().map_err(|source| OpenError::Io { file: "the log directory".into(), source })?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::parse_name(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The segments from the one that holds record `after + 1`, in order; none is left out. Older ones
/// are not needed, so damage in them is nobody's trouble, nor are holes: a crash may keep any of
/// the renames with which segments are given up, and lose those before it.
fn read_headers(
    disk: &dyn Disk,
    numbers: &[u64],
    after: u64,
) -> Result<VecDeque<SegmentReader>, OpenError> {
    let mut chain: VecDeque<SegmentReader> = VecDeque::new();
    for number in numbers.iter().rev() {
        let next = chain.front().map(|reader| reader.segment.number);
        if let Some(next) = next.filter(|next| number + 1 != *next) {
            return Err(OpenError::Missing { file: segment::name(next - 1) });
        }
        let reader = read_header(disk, *number)?;
        let begins_before = reader.segment.first_seq <= after + 1;
        chain.push_front(reader);
        if begins_before {
            return Ok(chain);
        }
    }
    match chain.front() {
        None => Ok(chain),
        Some(SegmentReader { segment, .. }) => {
            Err(OpenError::Gap { file: segment.name(), have: segment.first_seq, want: after + 1 })
        }
    }
}

/// A segment gets its name after its header was synced: a crash cannot leave one without.
fn read_header(disk: &dyn Disk, number: u64) -> Result<SegmentReader, OpenError> {
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
        Ok(segment) => return Ok(SegmentReader { segment, window }),
    };
    Err(OpenError::Header { file, problem })
}

/// The segments before `start`, of which the table holds everything.
fn older_than(
    disk: &dyn Disk,
    numbers: &[u64],
    start: Segment,
) -> Result<VecDeque<ClosedSegment>, OpenError> {
    let older = numbers.iter().take_while(|number| **number < start.number);
    older
        .map(|number| {
            let file = segment::name(*number);
            let bytes = disk.open(&file).and_then(|file| file.len());
            let bytes = bytes.map_err(|source| OpenError::Io { file, source })?;
            Ok(ClosedSegment { number: *number, last: start.first_seq - 1, bytes })
        })
        .collect()
}

impl SegmentReader {
    /// What is read of the last segment may reach the table at once, and that must not know more
    /// than the log.
    fn secure(&self, is_last: bool) -> Result<(), OpenError> {
        if is_last && self.segment.unsynced {
            self.window.file.sync().map_err(|source| self.io(source))?;
        }
        Ok(())
    }

    /// Before the first of its records.
    fn begin(self) -> (SegmentReader, RecordsEnd) {
        let next_seq = self.segment.first_seq;
        (self, RecordsEnd { position: BLOCK_BYTES as u64, next_seq, last: None })
    }

    /// The record at `end` with its sequence, if it is there; then `end` is behind it.
    fn next(&mut self, end: &mut RecordsEnd) -> Result<Option<(u64, Bytes)>, OpenError> {
        let segment = self.segment;
        let read = self.record(end);
        let read = read.map_err(|source| OpenError::Io { file: segment.name(), source })?;
        Ok(read.map(|(payload, bytes)| {
            let record = (end.next_seq, Bytes::copy_from_slice(payload));
            end.last = Some((end.position, bytes));
            end.position += bytes;
            end.next_seq += 1;
            record
        }))
    }

    /// The payload and the length of the record that should follow, if it is there.
    fn record(&mut self, end: &RecordsEnd) -> io::Result<Option<(&[u8], u64)>> {
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

    pub(super) fn corrupt(&self, end: &RecordsEnd, evidence: DurabilityEvidence) -> OpenError {
        OpenError::Corrupt {
            file: self.segment.name(),
            position: end.position,
            expected_seq: end.next_seq,
            evidence,
        }
    }

    pub(super) fn io(&self, source: io::Error) -> OpenError {
        OpenError::Io { file: self.segment.name(), source }
    }
}
