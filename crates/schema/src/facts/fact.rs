//! A fact, and what holds in its slot.
//!
//! A fact is a map of 0 entity, 1 relation, 2 kind of the value, 3 the value as JSON, 4 source, 5
//! confidence in millionths, 6 scope, 7 slug of the garden, 8 number of the garden, 9 until when it
//! holds, ms, 10 said at, ms, 11 and 12 its logical time: milliseconds and counter, 13 whether it
//! contradicted others, 14 to 16 its copy for those who may read the scope: stream, position, length.
//!
//! A slot is a map of 0 the values that hold, each `[fact, identity of the value, until ms]`.
//!
//! Kinds are 0 string, 1 text, 2 number, 3 boolean, 4 datetime, 5 ref, 6 null; scopes are their
//! names.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::fact::garden::{GardenNo, GardenSlug};
use reveille_core::fact::slot::{LiveValue, Slot};
use reveille_core::fact::statement::{Confidence, Statement};
use reveille_core::fact::value::{ValueId, ValueKind};
use reveille_core::fact::{EntityUri, Fact, FactNo, FactValue, Hlc, Scope};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset};

use crate::codec::{self, Record, RecordError};

/// A fact without its number, which its key has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRecord {
    pub fact: Fact,
    /// Where its copy is, if it is in no garden.
    pub copy: Option<CopyPlace>,
}

/// A message of the stream for those who may read a scope; a comma follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPlace {
    pub stream: StreamId,
    pub from: Offset,
    pub len: u64,
}

/// Kinds of values, by their numbers.
const KINDS: [ValueKind; 7] = [
    ValueKind::String,
    ValueKind::Text,
    ValueKind::Number,
    ValueKind::Boolean,
    ValueKind::DateTime,
    ValueKind::Ref,
    ValueKind::Null,
];

impl FactRecord {
    /// What is kept under the key of a fact.
    pub fn decode(no: FactNo, value: &[u8]) -> Result<FactRecord, RecordError> {
        let wrong = |why| RecordError::new("fact", why);
        let fields: FactFields<'_> =
            minicbor::decode(value).map_err(|why| RecordError::new("fact", why))?;
        let kind = KINDS.get(usize::from(fields.kind)).ok_or_else(|| wrong("no kind"))?;
        let garden = fields.garden_slug.map(GardenSlug::parse).transpose();
        let said = Statement {
            entity: EntityUri::parse(fields.entity).map_err(|_| wrong("no entity"))?,
            relation: fields.relation.into(),
            value: FactValue::from_stored(*kind, fields.value.into()),
            source: fields.source.into(),
            confidence: Confidence::from_millionths(fields.confidence),
            scope: Scope::parse(fields.scope).map_err(|_| wrong("no scope"))?,
            garden: garden.map_err(|_| wrong("no garden"))?,
            valid_until: fields.valid_until.map(Millis),
        };
        if fields.garden.is_some() != said.garden.is_some() {
            return Err(wrong("half a garden"));
        }
        let fact = Fact {
            no,
            said,
            garden: fields.garden.map(GardenNo),
            at: Millis(fields.at),
            hlc: Hlc { ms: fields.hlc_ms, counter: fields.hlc_counter },
            contradicted: fields.contradicted,
        };
        let copy = CopyPlace::of(fields.copy_stream, fields.copy_from, fields.copy_len);
        Ok(FactRecord { fact, copy: copy.map_err(wrong)? })
    }

    pub fn encode(&self) -> Bytes {
        let Fact { said, garden, at, hlc, contradicted, .. } = &self.fact;
        let kind = KINDS.iter().position(|kind| *kind == said.value.kind());
        let fields = FactFields {
            entity: said.entity.as_str(),
            relation: &said.relation,
            kind: kind.and_then(|kind| u8::try_from(kind).ok()).expect("every kind has a number"),
            value: said.value.json(),
            source: &said.source,
            confidence: said.confidence.millionths(),
            scope: said.scope.as_str(),
            garden_slug: said.garden.as_ref().map(GardenSlug::as_str),
            garden: garden.map(|garden| garden.0),
            valid_until: said.valid_until.map(|until| until.0),
            at: at.0,
            hlc_ms: hlc.ms,
            hlc_counter: hlc.counter,
            contradicted: *contradicted,
            copy_stream: self.copy.map(|copy| copy.stream.0),
            copy_from: self.copy.map(|copy| copy.from.position()),
            copy_len: self.copy.map(|copy| copy.len),
        };
        let names = said.entity.as_str().len() + said.relation.len() + said.source.len();
        codec::write(96 + names + said.value.json().len(), &fields)
    }
}

impl CopyPlace {
    pub(super) fn of(
        stream: Option<u64>,
        from: Option<u64>,
        len: Option<u64>,
    ) -> Result<Option<CopyPlace>, &'static str> {
        match (stream, from, len) {
            (Some(stream), Some(from), Some(len)) => {
                Ok(Some(CopyPlace { stream: StreamId(stream), from: Offset::new(from), len }))
            }
            (None, None, None) => Ok(None),
            _ => Err("half a copy"),
        }
    }
}

impl Record for Slot {
    fn encode(&self) -> Bytes {
        let live =
            self.live.iter().map(|it| LiveFields(it.fact.0, it.value.0, it.until.map(|at| at.0)));
        let fields = SlotFields { live: live.collect() };
        codec::write(8 + 32 * self.live.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<Slot, RecordError> {
        codec::read::<SlotFields, _>("slot", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct FactFields<'a> {
    #[n(0)]
    entity: &'a str,
    #[n(1)]
    relation: &'a str,
    #[cbor(n(2), default)]
    kind: u8,
    #[n(3)]
    value: &'a str,
    #[cbor(n(4), default)]
    source: &'a str,
    #[n(5)]
    confidence: u32,
    #[n(6)]
    scope: &'a str,
    #[n(7)]
    garden_slug: Option<&'a str>,
    #[n(8)]
    garden: Option<u64>,
    #[n(9)]
    valid_until: Option<u64>,
    #[n(10)]
    at: u64,
    #[n(11)]
    hlc_ms: u64,
    #[cbor(n(12), default)]
    hlc_counter: u16,
    #[cbor(n(13), default, skip_if = "codec::is_false")]
    contradicted: bool,
    #[n(14)]
    copy_stream: Option<u64>,
    #[n(15)]
    copy_from: Option<u64>,
    #[n(16)]
    copy_len: Option<u64>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SlotFields {
    #[cbor(n(0), default)]
    live: Vec<LiveFields>,
}

/// The fact, the identity of its value, and until when it holds.
#[derive(Encode, Decode)]
struct LiveFields(
    #[n(0)] u64,
    #[cbor(n(1), with = "minicbor::bytes")] [u8; 16],
    #[n(2)] Option<u64>,
);

impl TryFrom<SlotFields> for Slot {
    type Error = &'static str;

    fn try_from(fields: SlotFields) -> Result<Slot, &'static str> {
        let live = fields.live.into_iter().map(|LiveFields(fact, value, until)| LiveValue {
            fact: FactNo(fact),
            value: ValueId(value),
            until: until.map(Millis),
        });
        Ok(Slot { live: live.collect() })
    }
}
