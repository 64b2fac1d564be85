//! How consumers and their links are written.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::Decoder;
use minicbor::data::Type;
use reveille_core::consumer::{Consumer, Link, Phase, RemovalReason, Stage, WakeId};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset, StreamPath};

use super::{Read, RecordError, Writer, Written, fields, finish};

/// A consumer as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerRecord {
    pub consumer: Consumer,
    /// The incarnation of the stream that it is for; a consumer of an earlier one is no more.
    pub primary: Option<StreamId>,
    /// The time of its entry in the due index.
    pub timer_at: Option<Millis>,
    /// What went wrong last, and when.
    pub last_error: Option<(Millis, Arc<str>)>,
    /// Attempts that failed, ever.
    pub failures: u64,
    /// The trace that its current wake belongs to: trace id and span id.
    pub trace: Option<[u8; 24]>,
    /// The streams with more than was acknowledged, in order, where a subscription is one consumer;
    /// `None` if they are many: then each has a key in the backlog.
    pub marked: Option<Vec<StreamPath>>,
}

impl ConsumerRecord {
    /// A consumer that was not kept so far.
    pub fn new(consumer: Consumer, primary: Option<StreamId>) -> ConsumerRecord {
        ConsumerRecord {
            consumer,
            primary,
            timer_at: None,
            last_error: None,
            failures: 0,
            trace: None,
            marked: None,
        }
    }
}

/// A stream that a subscription is for, as far as it was processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRecord {
    /// The incarnation; `None` while there is no stream.
    pub stream: Option<StreamId>,
    /// Everything before this is processed.
    pub acked: Option<Offset>,
    /// Whether it was named, and not only matched.
    pub explicit: bool,
}

mod field {
    pub(super) const EPOCH: u32 = 0;
    pub(super) const WAKE_ID: u32 = 1;
    pub(super) const PHASE: u32 = 2;
    pub(super) const LINKS: u32 = 3;
    pub(super) const FAILING_SINCE: u32 = 4;
    pub(super) const PENDING_SINCE: u32 = 5;
    pub(super) const WOKEN_AT: u32 = 6;
    pub(super) const HOLDER: u32 = 7;
    pub(super) const WAKES_SAVED: u32 = 8;
    pub(super) const PRIMARY: u32 = 9;
    pub(super) const TIMER_AT: u32 = 10;
    pub(super) const LAST_ERROR: u32 = 11;
    pub(super) const FAILURES: u32 = 12;
    pub(super) const TRACE: u32 = 13;
    pub(super) const MARKED: u32 = 14;
}

mod phase {
    pub(super) const IDLE: u8 = 0;
    pub(super) const SENT: u8 = 1;
    pub(super) const PAUSED: u8 = 2;
    pub(super) const LIVE: u8 = 3;
    pub(super) const UNSUBSCRIBED: u8 = 4;
    pub(super) const FAILED: u8 = 5;
}

/// Writes a consumer.
pub fn encode_consumer(record: &ConsumerRecord) -> Bytes {
    finish(160, |out| write_consumer(out, record))
}

/// Reads a consumer.
pub fn decode_consumer(value: &[u8]) -> Result<ConsumerRecord, RecordError> {
    read_consumer(&mut Decoder::new(value))
        .map_err(|why| RecordError { what: "consumer", why: why.to_string() })
}

/// Writes a link.
pub fn encode_link(link: LinkRecord) -> Bytes {
    finish(24, |out| {
        out.map(3)?.u32(0)?;
        write_optional(out, link.stream.map(|id| id.0))?;
        out.u32(1)?;
        write_optional(out, link.acked.map(|at| at.position()))?;
        out.u32(2)?.bool(link.explicit)?;
        Ok(())
    })
}

/// Reads a link.
pub fn decode_link(value: &[u8]) -> Result<LinkRecord, RecordError> {
    let mut link = LinkRecord { stream: None, acked: None, explicit: false };
    fields(&mut Decoder::new(value), |field, input| {
        match field {
            0 => link.stream = read_optional(input)?.map(StreamId),
            1 => link.acked = read_optional(input)?.map(Offset::new),
            2 => link.explicit = input.bool()?,
            _ => input.skip()?,
        }
        Ok(())
    })
    .map_err(|why| RecordError { what: "link", why: why.to_string() })?;
    Ok(link)
}

fn write_consumer(out: &mut Writer, record: &ConsumerRecord) -> Written {
    let ConsumerRecord { consumer, primary, timer_at, last_error, failures, trace, marked } =
        record;
    let times = [
        (field::FAILING_SINCE, consumer.failing_since),
        (field::PENDING_SINCE, consumer.pending_since),
        (field::WOKEN_AT, consumer.woken_at),
        (field::TIMER_AT, *timer_at),
    ];
    let optional = [
        consumer.wake_id.is_some(),
        consumer.holder.is_some(),
        consumer.wakes_saved > 0,
        primary.is_some(),
        last_error.is_some(),
        *failures > 0,
        trace.is_some(),
        marked.is_some(),
    ];
    let there = optional.iter().filter(|there| **there).count();
    let there = there + times.iter().filter(|(_, time)| time.is_some()).count();
    out.map(3 + u64::try_from(there).unwrap_or(0))?;
    out.u32(field::EPOCH)?.u64(consumer.epoch)?;
    out.u32(field::PHASE)?;
    write_phase(out, &consumer.phase)?;
    out.u32(field::LINKS)?;
    write_links(out, &consumer.links)?;
    for (field, time) in times {
        if let Some(time) = time {
            out.u32(field)?.u64(time.0)?;
        }
    }
    if let Some(wake_id) = consumer.wake_id {
        out.u32(field::WAKE_ID)?.bytes(&wake_id.0)?;
    }
    if let Some(holder) = &consumer.holder {
        out.u32(field::HOLDER)?.str(holder)?;
    }
    if consumer.wakes_saved > 0 {
        out.u32(field::WAKES_SAVED)?.u64(consumer.wakes_saved)?;
    }
    if let Some(primary) = primary {
        out.u32(field::PRIMARY)?.u64(primary.0)?;
    }
    if let Some((at, what)) = last_error {
        out.u32(field::LAST_ERROR)?.array(2)?.u64(at.0)?.str(what)?;
    }
    if *failures > 0 {
        out.u32(field::FAILURES)?.u64(*failures)?;
    }
    if let Some(trace) = trace {
        out.u32(field::TRACE)?.bytes(trace)?;
    }
    if let Some(marked) = marked {
        out.u32(field::MARKED)?.array(u64::try_from(marked.len()).unwrap_or(0))?;
        for path in marked {
            out.str(path.as_str())?;
        }
    }
    Ok(())
}

fn write_phase(out: &mut Writer, phase: &Phase) -> Written {
    match phase {
        Phase::Idle { wake_at: None } => out.array(1)?.u8(phase::IDLE)?,
        Phase::Idle { wake_at: Some(at) } => out.array(2)?.u8(phase::IDLE)?.u64(at.0)?,
        Phase::Waking { attempt, stage } => {
            let (kind, until) = match stage {
                Stage::Sent { until } => (phase::SENT, until),
                Stage::Paused { until } => (phase::PAUSED, until),
            };
            out.array(3)?.u8(kind)?.u32(*attempt)?.u64(until.0)?
        }
        Phase::Live { until } => out.array(2)?.u8(phase::LIVE)?.u64(until.0)?,
        Phase::Gone(RemovalReason::Unsubscribed) => out.array(1)?.u8(phase::UNSUBSCRIBED)?,
        Phase::Gone(RemovalReason::Failed) => out.array(1)?.u8(phase::FAILED)?,
    };
    Ok(())
}

fn write_links(out: &mut Writer, links: &[Link]) -> Written {
    out.array(u64::try_from(links.len()).unwrap_or(0))?;
    for link in links {
        out.array(3)?.str(link.path.as_str())?;
        write_optional(out, link.stream.map(|id| id.0))?;
        write_optional(out, link.acked.map(|at| at.position()))?;
    }
    Ok(())
}

pub(super) fn write_optional(out: &mut Writer, number: Option<u64>) -> Written {
    match number {
        Some(number) => out.u64(number)?,
        None => out.null()?,
    };
    Ok(())
}

fn read_consumer(input: &mut Decoder<'_>) -> Read<ConsumerRecord> {
    let mut record = ConsumerRecord::new(Consumer::new(0, Vec::new()), None);
    fields(input, |field, input| {
        let consumer = &mut record.consumer;
        match field {
            field::EPOCH => consumer.epoch = input.u64()?,
            field::WAKE_ID => consumer.wake_id = Some(WakeId(read_array(input)?)),
            field::PHASE => consumer.phase = read_phase(input)?,
            field::LINKS => consumer.links = read_links(input)?,
            field::FAILING_SINCE => consumer.failing_since = Some(Millis(input.u64()?)),
            field::PENDING_SINCE => consumer.pending_since = Some(Millis(input.u64()?)),
            field::WOKEN_AT => consumer.woken_at = Some(Millis(input.u64()?)),
            field::HOLDER => consumer.holder = Some(input.str()?.into()),
            field::WAKES_SAVED => consumer.wakes_saved = input.u64()?,
            field::PRIMARY => record.primary = Some(StreamId(input.u64()?)),
            field::TIMER_AT => record.timer_at = Some(Millis(input.u64()?)),
            field::LAST_ERROR => {
                input.array()?;
                record.last_error = Some((Millis(input.u64()?), input.str()?.into()));
            }
            field::FAILURES => record.failures = input.u64()?,
            field::TRACE => record.trace = Some(read_array(input)?),
            field::MARKED => record.marked = Some(read_paths(input)?),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    Ok(record)
}

fn read_array<const N: usize>(input: &mut Decoder<'_>) -> Read<[u8; N]> {
    let bytes = input.bytes()?.try_into();
    bytes.map_err(|_| minicbor::decode::Error::message("an array of another length"))
}

fn read_phase(input: &mut Decoder<'_>) -> Read<Phase> {
    let len = input.array()?;
    let phase = match input.u8()? {
        phase::IDLE if len == Some(1) => Phase::Idle { wake_at: None },
        phase::IDLE => Phase::Idle { wake_at: Some(Millis(input.u64()?)) },
        kind @ (phase::SENT | phase::PAUSED) => {
            let (attempt, until) = (input.u32()?, Millis(input.u64()?));
            let sent = kind == phase::SENT;
            let stage = if sent { Stage::Sent { until } } else { Stage::Paused { until } };
            Phase::Waking { attempt, stage }
        }
        phase::LIVE => Phase::Live { until: Millis(input.u64()?) },
        phase::UNSUBSCRIBED => Phase::Gone(RemovalReason::Unsubscribed),
        phase::FAILED => Phase::Gone(RemovalReason::Failed),
        _ => return Err(minicbor::decode::Error::message("an unknown phase")),
    };
    Ok(phase)
}

fn read_links(input: &mut Decoder<'_>) -> Read<Vec<Link>> {
    let count = input.array()?.unwrap_or(0);
    let mut links = Vec::new();
    for _ in 0..count {
        input.array()?;
        let path = read_path(input)?;
        let stream = read_optional(input)?.map(StreamId);
        let acked = read_optional(input)?.map(Offset::new);
        links.push(Link { path, stream, acked });
    }
    Ok(links)
}

fn read_paths(input: &mut Decoder<'_>) -> Read<Vec<StreamPath>> {
    let count = input.array()?.unwrap_or(0);
    (0..count).map(|_| read_path(input)).collect()
}

fn read_path(input: &mut Decoder<'_>) -> Read<StreamPath> {
    StreamPath::parse(input.str()?)
        .map_err(|_| minicbor::decode::Error::message("a link without a path"))
}

pub(super) fn read_optional(input: &mut Decoder<'_>) -> Read<Option<u64>> {
    if input.datatype()? == Type::Null {
        input.null()?;
        return Ok(None);
    }
    input.u64().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(phase: Phase) -> ConsumerRecord {
        let path = StreamPath::parse("/a").unwrap();
        let links = vec![
            Link { path: path.clone(), stream: Some(StreamId(4)), acked: Some(Offset::new(7)) },
            Link { path, stream: None, acked: None },
        ];
        let consumer = Consumer {
            epoch: 3,
            wake_id: Some(WakeId([7; 12])),
            phase,
            links,
            failing_since: Some(Millis(1)),
            pending_since: Some(Millis(2)),
            woken_at: Some(Millis(3)),
            holder: Some("w".into()),
            wakes_saved: 9,
        };
        ConsumerRecord {
            consumer,
            primary: Some(StreamId(4)),
            timer_at: Some(Millis(5)),
            last_error: Some((Millis(6), "no".into())),
            failures: 2,
            trace: Some([1; 24]),
            marked: Some(vec![StreamPath::parse("/a").unwrap(), StreamPath::parse("/b").unwrap()]),
        }
    }

    #[test]
    fn consumers_read_back() {
        for phase in [
            Phase::Idle { wake_at: None },
            Phase::Idle { wake_at: Some(Millis(1)) },
            Phase::Waking { attempt: 3, stage: Stage::Sent { until: Millis::NEVER } },
            Phase::Waking { attempt: 3, stage: Stage::Paused { until: Millis(9) } },
            Phase::Live { until: Millis(4) },
            Phase::Gone(RemovalReason::Failed),
            Phase::Gone(RemovalReason::Unsubscribed),
        ] {
            let full = record(phase);
            assert_eq!(decode_consumer(&encode_consumer(&full)), Ok(full.clone()));
        }
        let plain = ConsumerRecord::new(Consumer::new(0, Vec::new()), None);
        assert_eq!(decode_consumer(&encode_consumer(&plain)), Ok(plain));
    }

    #[test]
    fn links_read_back_and_damage_is_an_error() {
        for link in [
            LinkRecord { stream: None, acked: None, explicit: true },
            LinkRecord { stream: Some(StreamId(1)), acked: Some(Offset::ZERO), explicit: false },
        ] {
            assert_eq!(decode_link(&encode_link(link)), Ok(link));
        }
        let whole = encode_consumer(&record(Phase::Idle { wake_at: None }));
        for cut in 0..whole.len() {
            assert!(decode_consumer(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
