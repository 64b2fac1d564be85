//! A delivery as it is kept.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | array | phase: `[0]` waits for its turn in a lane, `[1, at]` tried at that time, `[2, until, attempt]` being tried, `[3]` held, `[4, at]` delivered, `[5, at]` dead after all attempts, `[6, at]` dead because it was refused, `[7, at]` dropped because its gate closed, `[8, at, reason]` dead for another reason: 2 poison, 3 payload too large, 4 headers too large, 5 address blocked, 6 redirect, 7 secret missing, 8 hook deleted, 9 corrupt, 10 expired, `[9, at, reason]` dropped for another reason: 1 status, 2 cancelled |
//! | 1 | integer | began at, ms |
//! | 2 | integer | time of its timer, ms; absent while that of its group stands for it |
//! | 3 | integer | lane |
//! | 4 | bool | it is dead and was made again, or discarded |
//! | 5 | array | attempts that have ended: maps of 0 number, 1 at, 2 took ms, 3 status, 4 error, 5 beginning of the answer, 6 kind of failure (0 dns, 1 connect, 2 tls, 3 timeout, 4 blocked, 5 redirect, 6 size, 7 secret, 8 http, 9 stream_closed, 10 stream_mismatch), 7 SHA-256 of the answer's headers, 8 seconds after which the endpoint asked to be tried again |
//! | 6 | integer | its event came at, ms; absent if that was when it began |
//! | 7 | integer | the version of its hook that it is for; absent: 1 |
//! | 8 | bool | it is dead and was discarded |
//! | 9 | integer | the replay that it was made by |

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use minicbor::bytes::ByteSlice;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use reveille_core::Millis;
use reveille_core::delivery::hook::FIRST_VERSION;
use reveille_core::delivery::{AttemptRecord, DeadReason, Delivery, DropReason, ErrorKind, Phase};

use crate::codec::{self, List, Record, RecordError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    pub delivery: Delivery,
    /// When it began.
    pub created_at: Millis,
    /// When its event came.
    pub event_at: Millis,
    /// The time of its timer; `None` while that of its group stands for it.
    pub timer_at: Option<Millis>,
    pub lane: Option<u64>,
    /// Whether it is dead and somebody has had it made again, or has discarded it.
    pub retried: bool,
    /// The version of its hook that matched.
    pub hook_version: u64,
    /// Whether it is dead and somebody has discarded it.
    pub discarded: bool,
    /// The replay that it was made by.
    pub replay: Option<u64>,
}

impl Record for DeliveryRecord {
    fn encode(&self) -> Bytes {
        codec::write(64, &DeliveryFields::from(self))
    }

    fn decode(value: &[u8]) -> Result<DeliveryRecord, RecordError> {
        codec::read::<DeliveryFields<'_>, _>("delivery", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct DeliveryFields<'a> {
    #[n(0)]
    phase: PhaseFields,
    #[cbor(n(1), default)]
    created_at: u64,
    #[cbor(n(2), decode_with = "codec::some")]
    timer_at: Option<u64>,
    #[cbor(n(3), decode_with = "codec::some")]
    lane: Option<u64>,
    #[cbor(n(4), skip_if = "codec::is_false")]
    retried: bool,
    #[n(5)]
    attempts: Attempts<'a>,
    #[cbor(n(6), decode_with = "codec::some")]
    event_at: Option<u64>,
    #[cbor(n(7), decode_with = "codec::some")]
    hook_version: Option<u64>,
    #[cbor(n(8), skip_if = "codec::is_false")]
    discarded: bool,
    #[cbor(n(9), decode_with = "codec::some")]
    replay: Option<u64>,
}

impl<'a> From<&'a DeliveryRecord> for DeliveryFields<'a> {
    fn from(record: &'a DeliveryRecord) -> DeliveryFields<'a> {
        let is_late = record.event_at != record.created_at;
        DeliveryFields {
            phase: record.delivery.phase.into(),
            created_at: record.created_at.0,
            timer_at: record.timer_at.map(|at| at.0),
            lane: record.lane,
            retried: record.retried,
            attempts: Attempts(Cow::Borrowed(&record.delivery.attempts)),
            event_at: is_late.then_some(record.event_at.0),
            hook_version: (record.hook_version != FIRST_VERSION).then_some(record.hook_version),
            discarded: record.discarded,
            replay: record.replay,
        }
    }
}

impl TryFrom<DeliveryFields<'_>> for DeliveryRecord {
    type Error = &'static str;

    #[inline]
    fn try_from(fields: DeliveryFields<'_>) -> Result<DeliveryRecord, &'static str> {
        let attempts = fields.attempts.0.into_owned();
        Ok(DeliveryRecord {
            delivery: Delivery { phase: fields.phase.try_into()?, attempts },
            created_at: Millis(fields.created_at),
            event_at: Millis(fields.event_at.unwrap_or(fields.created_at)),
            timer_at: fields.timer_at.map(Millis),
            lane: fields.lane,
            retried: fields.retried,
            hook_version: fields.hook_version.unwrap_or(FIRST_VERSION),
            discarded: fields.discarded,
            replay: fields.replay,
        })
    }
}

#[derive(Encode, Decode)]
#[cbor(flat)]
enum PhaseFields {
    #[n(0)]
    Queued,
    #[n(1)]
    Pending(#[n(0)] u64),
    #[n(2)]
    Leased(#[n(0)] u64, #[n(1)] u32),
    #[n(3)]
    Held,
    #[n(4)]
    Delivered(#[n(0)] u64),
    #[n(5)]
    Exhausted(#[n(0)] u64),
    #[n(6)]
    Refused(#[n(0)] u64),
    #[n(7)]
    Dropped(#[n(0)] u64),
    #[n(8)]
    Dead(#[n(0)] u64, #[n(1)] u8),
    #[n(9)]
    DroppedFor(#[n(0)] u64, #[n(1)] u8),
}

impl From<Phase> for PhaseFields {
    fn from(phase: Phase) -> PhaseFields {
        match phase {
            Phase::Queued => PhaseFields::Queued,
            Phase::Pending { at } => PhaseFields::Pending(at.0),
            Phase::Leased { attempt, until } => PhaseFields::Leased(until.0, attempt),
            Phase::Held => PhaseFields::Held,
            Phase::Delivered { at } => PhaseFields::Delivered(at.0),
            Phase::Dead { at, why: DeadReason::Exhausted } => PhaseFields::Exhausted(at.0),
            Phase::Dead { at, why: DeadReason::Refused } => PhaseFields::Refused(at.0),
            Phase::Dead { at, why } => PhaseFields::Dead(at.0, dead_number(why)),
            Phase::Dropped { at, why: DropReason::NotOwed } => PhaseFields::Dropped(at.0),
            Phase::Dropped { at, why } => PhaseFields::DroppedFor(at.0, drop_number(why)),
        }
    }
}

impl TryFrom<PhaseFields> for Phase {
    type Error = &'static str;

    #[inline]
    fn try_from(fields: PhaseFields) -> Result<Phase, &'static str> {
        let dead = |at, why| Phase::Dead { at: Millis(at), why };
        let dropped = |at, why| Phase::Dropped { at: Millis(at), why };
        Ok(match fields {
            PhaseFields::Queued => Phase::Queued,
            PhaseFields::Pending(at) => Phase::Pending { at: Millis(at) },
            PhaseFields::Leased(until, attempt) => Phase::Leased { attempt, until: Millis(until) },
            PhaseFields::Held => Phase::Held,
            PhaseFields::Delivered(at) => Phase::Delivered { at: Millis(at) },
            PhaseFields::Exhausted(at) => dead(at, DeadReason::Exhausted),
            PhaseFields::Refused(at) => dead(at, DeadReason::Refused),
            PhaseFields::Dropped(at) => dropped(at, DropReason::NotOwed),
            PhaseFields::Dead(at, number) => {
                dead(at, numbered(&DeadReason::ALL, number).ok_or("unknown reason")?)
            }
            PhaseFields::DroppedFor(at, number) => {
                dropped(at, numbered(&DropReason::ALL, number).ok_or("unknown reason")?)
            }
        })
    }
}

/// The numbers are the places in the lists of all reasons and kinds, which only grow at their ends.
fn numbered<T: Copy>(all: &[T], number: u8) -> Option<T> {
    all.get(usize::from(number)).copied()
}

fn dead_number(reason: DeadReason) -> u8 {
    match reason {
        DeadReason::Exhausted => 0,
        DeadReason::Refused => 1,
        DeadReason::Poison => 2,
        DeadReason::PayloadTooLarge => 3,
        DeadReason::HeadersTooLarge => 4,
        DeadReason::Blocked => 5,
        DeadReason::Redirect => 6,
        DeadReason::SecretMissing => 7,
        DeadReason::HookDeleted => 8,
        DeadReason::Corrupt => 9,
        DeadReason::Expired => 10,
        DeadReason::LoopGuard => 11,
    }
}

fn drop_number(reason: DropReason) -> u8 {
    match reason {
        DropReason::NotOwed => 0,
        DropReason::Status => 1,
        DropReason::Cancelled => 2,
    }
}

pub(super) fn kind_number(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Dns => 0,
        ErrorKind::Connect => 1,
        ErrorKind::Tls => 2,
        ErrorKind::Timeout => 3,
        ErrorKind::Blocked => 4,
        ErrorKind::Redirect => 5,
        ErrorKind::Size => 6,
        ErrorKind::Secret => 7,
        ErrorKind::Http => 8,
        ErrorKind::StreamClosed => 9,
        ErrorKind::StreamMismatch => 10,
    }
}

/// Absent if there are none.
struct Attempts<'a>(Cow<'a, [AttemptRecord]>);

impl<C> Encode<C> for Attempts<'_> {
    fn encode<W: Write>(
        &self,
        out: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        List(self.0.iter().map(AttemptFields::from)).encode(out, ctx)
    }

    fn is_nil(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'b, C> Decode<'b, C> for Attempts<'_> {
    fn decode(input: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(Attempts(codec::read_list::<AttemptFields<'_>, _>(input)?.into()))
    }

    fn nil() -> Option<Self> {
        Some(Attempts(Cow::default()))
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct AttemptFields<'a> {
    #[cbor(n(0), default)]
    number: u32,
    #[cbor(n(1), default)]
    at: u64,
    #[cbor(n(2), default)]
    took_ms: u64,
    #[cbor(n(3), decode_with = "codec::some")]
    status: Option<u16>,
    #[cbor(n(4), decode_with = "codec::some")]
    error: Option<&'a str>,
    #[cbor(n(5), decode_with = "codec::some")]
    response: Option<&'a str>,
    #[cbor(n(6), decode_with = "codec::some")]
    kind: Option<u8>,
    #[cbor(b(7), decode_with = "codec::some")]
    headers_hash: Option<&'a ByteSlice>,
    #[cbor(n(8), decode_with = "codec::some")]
    retry_after_s: Option<u64>,
    #[cbor(n(9), skip_if = "codec::is_false")]
    is_cut: bool,
}

impl<'a> From<&'a AttemptRecord> for AttemptFields<'a> {
    fn from(attempt: &'a AttemptRecord) -> AttemptFields<'a> {
        AttemptFields {
            number: attempt.number,
            at: attempt.at.0,
            took_ms: attempt.took_ms,
            status: attempt.status,
            error: attempt.error.as_deref(),
            response: attempt.response.as_deref(),
            kind: attempt.kind.map(kind_number),
            headers_hash: attempt.headers_hash.as_deref().map(|hash| hash[..].into()),
            retry_after_s: attempt.retry_after_s,
            is_cut: attempt.is_cut,
        }
    }
}

impl TryFrom<AttemptFields<'_>> for AttemptRecord {
    type Error = &'static str;

    fn try_from(fields: AttemptFields<'_>) -> Result<AttemptRecord, &'static str> {
        let hash = |bytes: &ByteSlice| match <[u8; 32]>::try_from(&**bytes) {
            Ok(hash) => Ok(Arc::new(hash)),
            Err(_) => Err("no hash of headers"),
        };
        let kind = |number| numbered(&ErrorKind::ALL, number).ok_or("unknown kind of failure");
        Ok(AttemptRecord {
            number: fields.number,
            at: Millis(fields.at),
            took_ms: fields.took_ms,
            status: fields.status,
            error: fields.error.map(Into::into),
            response: fields.response.map(Into::into),
            kind: fields.kind.map(kind).transpose()?,
            headers_hash: fields.headers_hash.map(hash).transpose()?,
            retry_after_s: fields.retry_after_s,
            is_cut: fields.is_cut,
        })
    }
}
