//! How events, deliveries and their counts are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use minicbor::Decoder;
use reveille_core::delivery::hook::{DeliveryCounts, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;
use reveille_core::delivery::{AttemptRecord, DeadReason, Delivery, Phase};
use reveille_core::event::EventType;
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset};

use super::{Read, RecordError, Writer, Written, fields, finish};

/// An event as it is kept: its words are in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The name that its sender gave it, or that it was given.
    pub id: Arc<str>,
    pub kind: EventType,
    /// When it came.
    pub at: Millis,
    /// The stream that has its words.
    pub stream: StreamId,
    /// Where they begin.
    pub from: Offset,
    /// How many bytes they are.
    pub len: u64,
}

/// A delivery as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    pub delivery: Delivery,
    /// When it began.
    pub created_at: Millis,
    /// When its event came.
    pub event_at: Millis,
    /// The time of its entry in the due index; `None` while that of its lot stands for it.
    pub timer_at: Option<Millis>,
    /// The lane that it is in.
    pub lane: Option<u64>,
    /// Whether it is dead and somebody has had it made again.
    pub retried: bool,
}

mod phase {
    pub(super) const QUEUED: u8 = 0;
    pub(super) const PENDING: u8 = 1;
    pub(super) const LEASED: u8 = 2;
    pub(super) const HELD: u8 = 3;
    pub(super) const DELIVERED: u8 = 4;
    pub(super) const EXHAUSTED: u8 = 5;
    pub(super) const REFUSED: u8 = 6;
    pub(super) const DROPPED: u8 = 7;
}

/// Writes an event.
pub fn encode_event(event: &EventRecord) -> Bytes {
    finish(96, |out| {
        out.map(6)?;
        out.u32(0)?.str(&event.id)?.u32(1)?.str(event.kind.as_str())?;
        out.u32(2)?.u64(event.at.0)?.u32(3)?.u64(event.stream.0)?;
        out.u32(4)?.u64(event.from.position())?.u32(5)?.u64(event.len)?;
        Ok(())
    })
}

/// Reads an event.
pub fn decode_event(value: &[u8]) -> Result<EventRecord, RecordError> {
    let wrong = minicbor::decode::Error::message;
    let (mut id, mut kind, mut at) = (None, None, Millis(0));
    let (mut stream, mut from, mut len) = (StreamId(0), Offset::ZERO, 0);
    let read = |input: &mut Decoder<'_>| -> Read<EventRecord> {
        fields(input, |field, input| {
            match field {
                0 => id = Some(Arc::from(input.str()?)),
                1 => kind = EventType::parse(input.str()?).ok(),
                2 => at = Millis(input.u64()?),
                3 => stream = StreamId(input.u64()?),
                4 => from = Offset::new(input.u64()?),
                5 => len = input.u64()?,
                _ => input.skip()?,
            }
            Ok(())
        })?;
        let id = id.ok_or_else(|| wrong("no id"))?;
        Ok(EventRecord { id, kind: kind.ok_or_else(|| wrong("no type"))?, at, stream, from, len })
    };
    read(&mut Decoder::new(value)).map_err(|why| damaged("event", &why))
}

/// Writes a delivery.
pub fn encode_delivery(record: &DeliveryRecord) -> Bytes {
    finish(64, |out| write_delivery(out, record))
}

/// Reads a delivery.
pub fn decode_delivery(value: &[u8]) -> Result<DeliveryRecord, RecordError> {
    read_delivery(&mut Decoder::new(value)).map_err(|why| damaged("delivery", &why))
}

fn write_delivery(out: &mut Writer, record: &DeliveryRecord) -> Written {
    let DeliveryRecord { delivery, created_at, event_at, timer_at, lane, retried } = record;
    let attempts = &delivery.attempts;
    let late = event_at != created_at;
    let optional = [timer_at.is_some(), lane.is_some(), *retried, !attempts.is_empty(), late];
    let there = optional.iter().filter(|there| **there).count();
    out.map(2 + u64::try_from(there).unwrap_or(0))?;
    out.u32(0)?;
    write_phase(out, delivery.phase)?;
    out.u32(1)?.u64(created_at.0)?;
    if let Some(at) = timer_at {
        out.u32(2)?.u64(at.0)?;
    }
    if let Some(lane) = lane {
        out.u32(3)?.u64(*lane)?;
    }
    if *retried {
        out.u32(4)?.bool(true)?;
    }
    if !attempts.is_empty() {
        out.u32(5)?.array(u64::try_from(attempts.len()).unwrap_or(0))?;
        for attempt in attempts {
            write_attempt(out, attempt)?;
        }
    }
    if late {
        out.u32(6)?.u64(event_at.0)?;
    }
    Ok(())
}

fn read_delivery(input: &mut Decoder<'_>) -> Read<DeliveryRecord> {
    let (mut phase, mut attempts) = (None, Vec::new());
    let (mut created_at, mut event_at) = (Millis(0), None);
    let (mut timer_at, mut lane, mut retried) = (None, None, false);
    fields(input, |field, input| {
        match field {
            0 => phase = Some(read_phase(input)?),
            1 => created_at = Millis(input.u64()?),
            2 => timer_at = Some(Millis(input.u64()?)),
            3 => lane = Some(input.u64()?),
            4 => retried = input.bool()?,
            5 => {
                for _ in 0..input.array()?.unwrap_or(0) {
                    attempts.push(read_attempt(input)?);
                }
            }
            6 => event_at = Some(Millis(input.u64()?)),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    let event_at = event_at.unwrap_or(created_at);
    let phase = phase.ok_or_else(|| minicbor::decode::Error::message("no phase"))?;
    let delivery = Delivery { phase, attempts };
    Ok(DeliveryRecord { delivery, created_at, event_at, timer_at, lane, retried })
}

fn write_phase(out: &mut Writer, phase: Phase) -> Written {
    let mut timed = |kind: u8, at: Millis| -> Written {
        out.array(2)?.u8(kind)?.u64(at.0)?;
        Ok(())
    };
    match phase {
        Phase::Pending { at } => timed(phase::PENDING, at),
        Phase::Delivered { at } => timed(phase::DELIVERED, at),
        Phase::Dead { at, why: DeadReason::Exhausted } => timed(phase::EXHAUSTED, at),
        Phase::Dead { at, why: DeadReason::Refused } => timed(phase::REFUSED, at),
        Phase::Dropped { at } => timed(phase::DROPPED, at),
        Phase::Leased { attempt, until } => {
            out.array(3)?.u8(phase::LEASED)?.u64(until.0)?.u32(attempt)?;
            Ok(())
        }
        Phase::Queued => {
            out.array(1)?.u8(phase::QUEUED)?;
            Ok(())
        }
        Phase::Held => {
            out.array(1)?.u8(phase::HELD)?;
            Ok(())
        }
    }
}

fn read_phase(input: &mut Decoder<'_>) -> Read<Phase> {
    input.array()?;
    let kind = input.u8()?;
    let mut time = || -> Read<Millis> { Ok(Millis(input.u64()?)) };
    Ok(match kind {
        phase::QUEUED => Phase::Queued,
        phase::HELD => Phase::Held,
        phase::PENDING => Phase::Pending { at: time()? },
        phase::LEASED => Phase::Leased { until: time()?, attempt: input.u32()? },
        phase::DELIVERED => Phase::Delivered { at: time()? },
        phase::EXHAUSTED => Phase::Dead { at: time()?, why: DeadReason::Exhausted },
        phase::REFUSED => Phase::Dead { at: time()?, why: DeadReason::Refused },
        phase::DROPPED => Phase::Dropped { at: time()? },
        _ => return Err(minicbor::decode::Error::message("an unknown phase")),
    })
}

fn write_attempt(out: &mut Writer, attempt: &AttemptRecord) -> Written {
    let AttemptRecord { number, at, took_ms, status, error, response } = attempt;
    let optional = [status.is_some(), error.is_some(), response.is_some()];
    let there = optional.iter().filter(|there| **there).count();
    out.map(3 + u64::try_from(there).unwrap_or(0))?;
    out.u32(0)?.u32(*number)?.u32(1)?.u64(at.0)?.u32(2)?.u64(*took_ms)?;
    if let Some(status) = status {
        out.u32(3)?.u16(*status)?;
    }
    if let Some(error) = error {
        out.u32(4)?.str(error)?;
    }
    if let Some(response) = response {
        out.u32(5)?.str(response)?;
    }
    Ok(())
}

fn read_attempt(input: &mut Decoder<'_>) -> Read<AttemptRecord> {
    let mut attempt = AttemptRecord {
        number: 0,
        at: Millis(0),
        took_ms: 0,
        status: None,
        error: None,
        response: None,
    };
    fields(input, |field, input| {
        match field {
            0 => attempt.number = input.u32()?,
            1 => attempt.at = Millis(input.u64()?),
            2 => attempt.took_ms = input.u64()?,
            3 => attempt.status = Some(input.u16()?),
            4 => attempt.error = Some(input.str()?.into()),
            5 => attempt.response = Some(input.str()?.into()),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    Ok(attempt)
}

/// Writes a tally.
pub fn encode_delivery_counts(counts: &DeliveryCounts) -> Bytes {
    let numbers = [
        counts.begun,
        counts.pending,
        counts.failed,
        counts.delivered,
        counts.died,
        counts.dropped,
        counts.attempts,
        counts.dead_letters,
        counts.kept,
        counts.logs,
    ];
    finish(48, |out| {
        out.map(u64::try_from(numbers.len()).unwrap_or(0))?;
        for (field, number) in (0..).zip(numbers) {
            out.u32(field)?.u64(number)?;
        }
        Ok(())
    })
}

/// Reads a tally.
pub fn decode_delivery_counts(value: &[u8]) -> Result<DeliveryCounts, RecordError> {
    let mut counts = DeliveryCounts::default();
    fields(&mut Decoder::new(value), |field, input| {
        let number = match field {
            0 => &mut counts.begun,
            1 => &mut counts.pending,
            2 => &mut counts.failed,
            3 => &mut counts.delivered,
            4 => &mut counts.died,
            5 => &mut counts.dropped,
            6 => &mut counts.attempts,
            7 => &mut counts.dead_letters,
            8 => &mut counts.kept,
            9 => &mut counts.logs,
            _ => return input.skip(),
        };
        *number = input.u64()?;
        Ok(())
    })
    .map_err(|why| damaged("tally", &why))?;
    Ok(counts)
}

/// Writes a lane.
pub fn encode_lane(lane: Lane) -> Bytes {
    finish(32, |out| {
        out.map(2)?.u32(0)?.array(2)?.u64(lane.head.event.0)?.u16(lane.head.round)?;
        out.u32(1)?.u64(lane.waiting)?;
        Ok(())
    })
}

/// Reads a lane.
pub fn decode_lane(value: &[u8]) -> Result<Lane, RecordError> {
    let mut lane = Lane { head: DeliveryNo { event: EventNo(0), round: 0 }, waiting: 0 };
    fields(&mut Decoder::new(value), |field, input| {
        match field {
            0 => {
                input.array()?;
                lane.head = DeliveryNo { event: EventNo(input.u64()?), round: input.u16()? };
            }
            1 => lane.waiting = input.u64()?,
            _ => input.skip()?,
        }
        Ok(())
    })
    .map_err(|why| damaged("lane", &why))?;
    Ok(lane)
}

/// Writes which deliveries began together: by hook, how far its events are from the first of all.
/// None of them is a repetition.
pub fn encode_delivery_group(ids: &[DeliveryId]) -> Bytes {
    let mut by_hook: BTreeMap<HookId, Vec<u64>> = BTreeMap::new();
    let first = ids.iter().map(|id| id.no.event.0).min().unwrap_or(0);
    for id in ids {
        by_hook.entry(id.hook).or_default().push(id.no.event.0 - first);
    }
    let len = |count: usize| u64::try_from(count).unwrap_or(0);
    finish(16 + 8 * by_hook.len() + 2 * ids.len(), |out| {
        out.map(2)?.u32(0)?.u64(first)?.u32(1)?.array(len(by_hook.len()))?;
        for (hook, events) in &by_hook {
            out.array(1 + len(events.len()))?.u64(hook.0)?;
            for event in events {
                out.u64(*event)?;
            }
        }
        Ok(())
    })
}

/// Reads which deliveries began together.
pub fn decode_delivery_group(value: &[u8]) -> Result<Vec<DeliveryId>, RecordError> {
    let (mut first, mut ids) = (0, Vec::new());
    fields(&mut Decoder::new(value), |field, input| {
        match field {
            0 => first = input.u64()?,
            1 => {
                for _ in 0..input.array()?.unwrap_or(0) {
                    let events = input.array()?.unwrap_or(0).saturating_sub(1);
                    let hook = HookId(input.u64()?);
                    for _ in 0..events {
                        let event = EventNo(first.saturating_add(input.u64()?));
                        ids.push(DeliveryId { hook, no: DeliveryNo { event, round: 0 } });
                    }
                }
            }
            _ => input.skip()?,
        }
        Ok(())
    })
    .map_err(|why| damaged("lot", &why))?;
    Ok(ids)
}

fn damaged(what: &'static str, why: &minicbor::decode::Error) -> RecordError {
    RecordError { what, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> DeliveryRecord {
        let attempt = |number, error: Option<&str>, response: Option<&str>| AttemptRecord {
            number,
            at: Millis(7),
            took_ms: 12,
            status: Some(503),
            error: error.map(Into::into),
            response: response.map(Into::into),
        };
        let attempts = vec![attempt(1, Some("answered 503"), None), attempt(2, None, Some("ok"))];
        DeliveryRecord {
            delivery: Delivery { phase: Phase::Leased { attempt: 3, until: Millis(99) }, attempts },
            created_at: Millis(5),
            event_at: Millis(4),
            timer_at: Some(Millis(99)),
            lane: Some(u64::MAX),
            retried: true,
        }
    }

    #[test]
    fn deliveries_read_back_in_every_phase_and_damage_is_an_error() {
        let at = Millis(8);
        let phases = [
            Phase::Queued,
            Phase::Held,
            Phase::Pending { at },
            Phase::Leased { attempt: 2, until: at },
            Phase::Delivered { at },
            Phase::Dead { at, why: DeadReason::Exhausted },
            Phase::Dead { at, why: DeadReason::Refused },
            Phase::Dropped { at },
        ];
        for phase in phases {
            let mut record = full();
            record.delivery.phase = phase;
            assert_eq!(decode_delivery(&encode_delivery(&record)), Ok(record));
        }
        let delivery = Delivery { phase: Phase::Queued, attempts: vec![] };
        let (created_at, event_at, timer_at, lane, retried) = (at, at, None, None, false);
        let plain = DeliveryRecord { delivery, created_at, event_at, timer_at, lane, retried };
        assert_eq!(decode_delivery(&encode_delivery(&plain)), Ok(plain));
        let whole = encode_delivery(&full());
        for cut in 0..whole.len() {
            assert!(decode_delivery(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn lots_read_back_and_damage_is_an_error() {
        let id = |hook, event| DeliveryId {
            hook: HookId(hook),
            no: DeliveryNo { event: EventNo(event), round: 0 },
        };
        let lot = [id(1, 70_000), id(1, 70_999), id(2, 70_001), id(u64::MAX, 69_000)];
        let whole = encode_delivery_group(&lot);
        assert_eq!(decode_delivery_group(&whole), Ok(lot.to_vec()));
        for cut in 0..whole.len() {
            assert!(decode_delivery_group(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert_eq!(decode_delivery_group(&encode_delivery_group(&[])), Ok(vec![]));
        let hundred: Vec<_> = (0..100).map(|event| id(7, 1_000_000 + event)).collect();
        assert!(encode_delivery_group(&hundred).len() < 200, "a lot is small");
    }

    #[test]
    fn events_tallies_and_lanes_read_back() {
        let event = EventRecord {
            id: "evt-1".into(),
            kind: EventType::parse("webhook.github.push").unwrap(),
            at: Millis(3),
            stream: StreamId(4),
            from: Offset::new(5),
            len: 6,
        };
        let whole = encode_event(&event);
        assert_eq!(decode_event(&whole), Ok(event));
        for cut in 0..whole.len() {
            assert!(decode_event(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let counts = DeliveryCounts {
            begun: 1,
            pending: 2,
            failed: 3,
            delivered: 4,
            died: 5,
            dropped: 6,
            attempts: 7,
            dead_letters: 8,
            kept: 9,
            logs: 10,
        };
        assert_eq!(decode_delivery_counts(&encode_delivery_counts(&counts)), Ok(counts));
        let lane = Lane { head: DeliveryNo { event: EventNo(1), round: 2 }, waiting: 3 };
        assert_eq!(decode_lane(&encode_lane(lane)), Ok(lane));
    }
}
