//! Contradictions and cards, as the events that tell of them have them.
//!
//! A change is a map of 0 entity, 1 scope, 2 number of the garden, 3 and 4 its logical time:
//! milliseconds and counter, 5 relation, 6 the fact that contradicts, 7 those that it contradicts,
//! 8 summary of the card, 9 how many facts it is made of, 10 to 12 its copy for those who may read the
//! scope: stream, position, length. It has either 5 to 7 or 8 and 9.
//!
//! A card is a map of 0 summary, 1 how many facts hold, 2 refreshed at, ms, 3 and 4 its logical
//! time. Its entity and its scope are in the key.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::fact::card::Card;
use reveille_core::fact::garden::GardenNo;
use reveille_core::fact::{EntityUri, FactNo, Hlc, Scope};

use super::fact::CopyPlace;
use crate::codec::{self, Record, RecordError};

/// An event that is no fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRecord {
    pub entity: EntityUri,
    pub scope: Scope,
    pub garden: Option<GardenNo>,
    pub hlc: Hlc,
    pub kind: ChangeKind,
    /// Where its copy is, if it is in no garden.
    pub copy: Option<CopyPlace>,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// A fact contradicts others.
    Contradiction { relation: Arc<str>, fact: FactNo, existing: Vec<FactNo> },
    /// A card was made anew.
    Card { summary: Arc<str>, fact_count: u64 },
}

impl Record for ChangeRecord {
    fn encode(&self) -> Bytes {
        let ChangeRecord { entity, scope, garden, hlc, kind, copy } = self;
        let mut fields = ChangeFields {
            entity: entity.as_str(),
            scope: scope.as_str(),
            garden: garden.map(|garden| garden.0),
            hlc_ms: hlc.ms,
            hlc_counter: hlc.counter,
            relation: None,
            fact: None,
            existing: Vec::new(),
            summary: None,
            fact_count: None,
            copy_stream: copy.map(|copy| copy.stream.0),
            copy_from: copy.map(|copy| copy.from.position()),
            copy_len: copy.map(|copy| copy.len),
        };
        match kind {
            ChangeKind::Contradiction { relation, fact, existing } => {
                fields.relation = Some(relation);
                fields.fact = Some(fact.0);
                fields.existing = existing.iter().map(|fact| fact.0).collect();
            }
            ChangeKind::Card { summary, fact_count } => {
                fields.summary = Some(summary);
                fields.fact_count = Some(*fact_count);
            }
        }
        codec::write(128, &fields)
    }

    fn decode(value: &[u8]) -> Result<ChangeRecord, RecordError> {
        codec::read::<ChangeFields<'_>, _>("change of facts", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ChangeFields<'a> {
    #[n(0)]
    entity: &'a str,
    #[n(1)]
    scope: &'a str,
    #[n(2)]
    garden: Option<u64>,
    #[n(3)]
    hlc_ms: u64,
    #[cbor(n(4), default)]
    hlc_counter: u16,
    #[n(5)]
    relation: Option<&'a str>,
    #[n(6)]
    fact: Option<u64>,
    #[cbor(n(7), default, skip_if = "Vec::is_empty")]
    existing: Vec<u64>,
    #[n(8)]
    summary: Option<&'a str>,
    #[n(9)]
    fact_count: Option<u64>,
    #[n(10)]
    copy_stream: Option<u64>,
    #[n(11)]
    copy_from: Option<u64>,
    #[n(12)]
    copy_len: Option<u64>,
}

impl TryFrom<ChangeFields<'_>> for ChangeRecord {
    type Error = &'static str;

    fn try_from(fields: ChangeFields<'_>) -> Result<ChangeRecord, &'static str> {
        let kind = match (fields.relation, fields.fact, fields.summary, fields.fact_count) {
            (Some(relation), Some(fact), None, None) => ChangeKind::Contradiction {
                relation: relation.into(),
                fact: FactNo(fact),
                existing: fields.existing.into_iter().map(FactNo).collect(),
            },
            (None, None, Some(summary), Some(fact_count)) => {
                ChangeKind::Card { summary: summary.into(), fact_count }
            }
            _ => return Err("neither a contradiction nor a card"),
        };
        Ok(ChangeRecord {
            entity: EntityUri::parse(fields.entity).map_err(|_| "no entity")?,
            scope: Scope::parse(fields.scope).map_err(|_| "no scope")?,
            garden: fields.garden.map(GardenNo),
            hlc: Hlc { ms: fields.hlc_ms, counter: fields.hlc_counter },
            kind,
            copy: CopyPlace::of(fields.copy_stream, fields.copy_from, fields.copy_len)?,
        })
    }
}

pub fn encode_card(card: &Card) -> Bytes {
    let fields = CardFields {
        summary: &card.summary,
        fact_count: card.fact_count,
        refreshed_at: card.refreshed_at.0,
        hlc_ms: card.hlc.ms,
        hlc_counter: card.hlc.counter,
    };
    codec::write(32 + card.summary.len(), &fields)
}

pub fn decode_card(entity: EntityUri, scope: Scope, value: &[u8]) -> Result<Card, RecordError> {
    let fields: CardFields<'_> =
        minicbor::decode(value).map_err(|why| RecordError::new("card", why))?;
    Ok(Card {
        entity,
        scope,
        summary: fields.summary.to_owned(),
        fact_count: fields.fact_count,
        refreshed_at: Millis(fields.refreshed_at),
        hlc: Hlc { ms: fields.hlc_ms, counter: fields.hlc_counter },
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct CardFields<'a> {
    #[n(0)]
    summary: &'a str,
    #[cbor(n(1), default)]
    fact_count: u64,
    #[n(2)]
    refreshed_at: u64,
    #[n(3)]
    hlc_ms: u64,
    #[cbor(n(4), default)]
    hlc_counter: u16,
}
