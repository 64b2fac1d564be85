//! A consumer as it is kept.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | integer | epoch |
//! | 1 | 12 bytes | id of the wake of this epoch |
//! | 2 | array | phase: `[0]` idle, `[0, at]` collecting until then, `[1, attempt, until]` woken and waiting until then, `[2, attempt, until]` pausing until then, `[3, until]` live, `[4]` gone for following nothing, `[5]` gone for failing |
//! | 3 | array | links: `[path, stream id or null, acknowledged position or null]` |
//! | 4, 5, 6 | integer | failing since; pending since; woken at |
//! | 7 | text | holder of the lease |
//! | 8 | integer | wakes saved |
//! | 9 | integer | id of the stream that it is for |
//! | 10 | integer | time of its timer |
//! | 11 | array | last error: `[at, text]` |
//! | 12 | integer | failed attempts |
//! | 13 | 24 bytes | trace id and span id of the current wake |
//! | 14 | array | paths of the streams with more than was acknowledged, in order |
//! | 15 | integer | ends of wakes in a row that acknowledged nothing while there was work |
//! | 16 | array | given up: `[at, kept until]` |
//!
//! Written by hand: field 1 comes after 10, and that after 6.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Decoder, Encode, decode};
use reveille_core::consumer::{Consumer, GivenUp, Link, Phase, RemovalReason, Stage, WakeId};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset, StreamPath};

use crate::codec::{self, List, MapWriter, Record, RecordError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerRecord {
    pub consumer: Consumer,
    /// The incarnation of the stream that it is for; a consumer of an earlier one is no more, but
    /// for its epoch.
    pub primary: Option<StreamId>,
    /// The time of its timer.
    pub timer_at: Option<Millis>,
    /// What went wrong last, and when.
    pub last_error: Option<(Millis, Arc<str>)>,
    /// Attempts that failed, ever.
    pub failures: u64,
    /// The trace that its current wake belongs to: trace id and span id.
    pub trace: Option<[u8; 24]>,
    /// The streams with more than was acknowledged, in order, where a subscription is one consumer;
    /// `None` if they are many, or if an older server wrote this: then each has a key in the
    /// backlog.
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

impl Record for ConsumerRecord {
    fn encode(&self) -> Bytes {
        let consumer = &self.consumer;
        let millis = |at: Millis| at.0;
        let mut map = MapWriter::new(160);
        map.put(0, consumer.epoch);
        map.put(2, PhaseFields::from(&consumer.phase));
        map.put(3, List(consumer.links.iter().map(LinkFields::from)));
        map.put_some(4, consumer.failing_since.map(millis));
        map.put_some(5, consumer.pending_since.map(millis));
        map.put_some(6, consumer.woken_at.map(millis));
        map.put_some(10, self.timer_at.map(millis));
        map.put_some(1, consumer.wake_id.map(|id| ByteArray::from(id.0)));
        map.put_some(7, consumer.holder.as_deref());
        map.put_some(8, Some(consumer.wakes_saved).filter(|saved| *saved > 0));
        map.put_some(9, self.primary.map(|id| id.0));
        map.put_some(11, self.last_error.as_ref().map(|(at, what)| (at.0, &**what)));
        map.put_some(12, Some(self.failures).filter(|failures| *failures > 0));
        map.put_some(13, self.trace.map(ByteArray::from));
        map.put_some(16, consumer.given_up.map(|it| (it.at.0, it.until.0)));
        map.put_some(15, Some(consumer.fruitless_dones).filter(|dones| *dones > 0));
        map.put_some(14, self.marked.as_ref().map(|all| List(all.iter().map(StreamPath::as_str))));
        map.finish()
    }

    fn decode(value: &[u8]) -> Result<ConsumerRecord, RecordError> {
        codec::read::<ConsumerFields<'_>, _>("consumer", value)
    }
}

#[derive(Decode)]
#[cbor(map)]
struct ConsumerFields<'a> {
    #[cbor(n(0), default)]
    epoch: u64,
    #[cbor(n(1), decode_with = "codec::some_bytes")]
    wake_id: Option<[u8; 12]>,
    #[cbor(n(2), default)]
    phase: PhaseFields,
    #[cbor(n(3), default, decode_with = "read_links")]
    links: Vec<Link>,
    #[cbor(n(4), decode_with = "codec::some")]
    failing_since: Option<u64>,
    #[cbor(n(5), decode_with = "codec::some")]
    pending_since: Option<u64>,
    #[cbor(n(6), decode_with = "codec::some")]
    woken_at: Option<u64>,
    #[cbor(n(7), decode_with = "codec::some")]
    holder: Option<&'a str>,
    #[cbor(n(8), default)]
    wakes_saved: u64,
    #[cbor(n(9), decode_with = "codec::some")]
    primary: Option<u64>,
    #[cbor(n(10), decode_with = "codec::some")]
    timer_at: Option<u64>,
    #[cbor(b(11), decode_with = "codec::some")]
    last_error: Option<(u64, &'a str)>,
    #[cbor(n(12), default)]
    failures: u64,
    #[cbor(n(13), decode_with = "codec::some_bytes")]
    trace: Option<[u8; 24]>,
    #[cbor(n(14), decode_with = "read_marked")]
    marked: Option<Vec<StreamPath>>,
    #[cbor(n(15), default)]
    fruitless_dones: u32,
    #[cbor(n(16), decode_with = "codec::some")]
    given_up: Option<(u64, u64)>,
}

impl From<ConsumerFields<'_>> for ConsumerRecord {
    fn from(fields: ConsumerFields<'_>) -> ConsumerRecord {
        let consumer = Consumer {
            epoch: fields.epoch,
            wake_id: fields.wake_id.map(WakeId),
            phase: fields.phase.into(),
            links: fields.links,
            failing_since: fields.failing_since.map(Millis),
            pending_since: fields.pending_since.map(Millis),
            woken_at: fields.woken_at.map(Millis),
            holder: fields.holder.map(Into::into),
            wakes_saved: fields.wakes_saved,
            fruitless_dones: fields.fruitless_dones,
            given_up: fields
                .given_up
                .map(|(at, until)| GivenUp { at: Millis(at), until: Millis(until) }),
        };
        ConsumerRecord {
            consumer,
            primary: fields.primary.map(StreamId),
            timer_at: fields.timer_at.map(Millis),
            last_error: fields.last_error.map(|(at, what)| (Millis(at), what.into())),
            failures: fields.failures,
            trace: fields.trace,
            marked: fields.marked,
        }
    }
}

#[derive(Encode, Decode)]
#[cbor(flat)]
enum PhaseFields {
    #[n(0)]
    Idle(#[n(0)] Option<u64>),
    #[n(1)]
    Sent(#[n(0)] u32, #[n(1)] u64),
    #[n(2)]
    Paused(#[n(0)] u32, #[n(1)] u64),
    #[n(3)]
    Live(#[n(0)] u64),
    #[n(4)]
    Unsubscribed,
    #[n(5)]
    Failed,
}

impl Default for PhaseFields {
    fn default() -> PhaseFields {
        PhaseFields::Idle(None)
    }
}

impl From<&Phase> for PhaseFields {
    fn from(phase: &Phase) -> PhaseFields {
        match *phase {
            Phase::Idle { wake_at } => PhaseFields::Idle(wake_at.map(|at| at.0)),
            Phase::Waking { attempt, stage: Stage::Sent { until } } => {
                PhaseFields::Sent(attempt, until.0)
            }
            Phase::Waking { attempt, stage: Stage::Paused { until } } => {
                PhaseFields::Paused(attempt, until.0)
            }
            Phase::Live { until } => PhaseFields::Live(until.0),
            Phase::Gone(RemovalReason::Unsubscribed) => PhaseFields::Unsubscribed,
            Phase::Gone(RemovalReason::Failed) => PhaseFields::Failed,
        }
    }
}

impl From<PhaseFields> for Phase {
    fn from(fields: PhaseFields) -> Phase {
        let sent = |until| Stage::Sent { until: Millis(until) };
        let paused = |until| Stage::Paused { until: Millis(until) };
        match fields {
            PhaseFields::Idle(wake_at) => Phase::Idle { wake_at: wake_at.map(Millis) },
            PhaseFields::Sent(attempt, until) => Phase::Waking { attempt, stage: sent(until) },
            PhaseFields::Paused(attempt, until) => Phase::Waking { attempt, stage: paused(until) },
            PhaseFields::Live(until) => Phase::Live { until: Millis(until) },
            PhaseFields::Unsubscribed => Phase::Gone(RemovalReason::Unsubscribed),
            PhaseFields::Failed => Phase::Gone(RemovalReason::Failed),
        }
    }
}

#[derive(Encode, Decode)]
struct LinkFields<'a> {
    #[n(0)]
    path: &'a str,
    #[cbor(n(1), encode_with = "Encode::encode", is_nil = "codec::is_never_nil")]
    stream: Option<u64>,
    #[cbor(n(2), encode_with = "Encode::encode", is_nil = "codec::is_never_nil")]
    acked: Option<u64>,
}

impl<'a> From<&'a Link> for LinkFields<'a> {
    fn from(link: &'a Link) -> LinkFields<'a> {
        LinkFields {
            path: link.path.as_str(),
            stream: link.stream.map(|id| id.0),
            acked: link.acked.map(Offset::position),
        }
    }
}

impl TryFrom<LinkFields<'_>> for Link {
    type Error = &'static str;

    fn try_from(fields: LinkFields<'_>) -> Result<Link, &'static str> {
        Ok(Link {
            path: StreamPath::parse(fields.path).map_err(|_| "a link without a path")?,
            stream: fields.stream.map(StreamId),
            acked: fields.acked.map(Offset::new),
        })
    }
}

fn read_links<C>(input: &mut Decoder<'_>, _: &mut C) -> Result<Vec<Link>, decode::Error> {
    codec::read_list::<LinkFields<'_>, _>(input)
}

fn read_marked<C>(
    input: &mut Decoder<'_>,
    _: &mut C,
) -> Result<Option<Vec<StreamPath>>, decode::Error> {
    codec::read_paths(input).map(Some)
}
