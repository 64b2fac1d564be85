//! An index that a tenant has declared, and how far it has come.
//!
//! A map of 0 collection pattern, 1 fields, each `[name, direction]` with 0 for ascending and 1 for
//! descending, 2 state: 0 building, 1 ready, 2 being removed, 3 key of the document up to which it
//! is built, 4 documents that it was built from, 5 declared at in ms.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::document::index::{CollectionPattern, IndexDefinition};
use reveille_core::document::order::{Direction, SortField};

use crate::codec::{self, Record, RecordError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRecord {
    pub definition: IndexDefinition,
    pub state: IndexState,
    pub declared_at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexState {
    /// Documents from before its time are still to have their entries.
    Building {
        /// From this key on; empty before the first.
        from: Bytes,
        /// So many have theirs.
        documents: u64,
    },
    Ready,
    /// Its entries are to be removed.
    Removing,
}

impl Record for IndexRecord {
    fn encode(&self) -> Bytes {
        let (state, from, documents) = match &self.state {
            IndexState::Building { from, documents } => (0, &from[..], *documents),
            IndexState::Ready => (1, &[][..], 0),
            IndexState::Removing => (2, &[][..], 0),
        };
        let fields = self.definition.fields().iter();
        let fields = fields.map(|by| (by.field.to_string(), direction_number(by.direction)));
        let fields = IndexFields {
            collection: self.definition.collection.as_str(),
            fields: fields.collect(),
            state,
            from,
            documents,
            declared_at: self.declared_at.0,
        };
        codec::write(128, &fields)
    }

    fn decode(value: &[u8]) -> Result<IndexRecord, RecordError> {
        codec::read::<IndexFields<'_>, _>("index", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct IndexFields<'a> {
    #[n(0)]
    collection: &'a str,
    #[n(1)]
    fields: Vec<(String, u8)>,
    #[cbor(n(2), default)]
    state: u8,
    #[cbor(n(3), with = "minicbor::bytes", default)]
    from: &'a [u8],
    #[cbor(n(4), default)]
    documents: u64,
    #[cbor(n(5), default)]
    declared_at: u64,
}

impl TryFrom<IndexFields<'_>> for IndexRecord {
    type Error = String;

    fn try_from(fields: IndexFields<'_>) -> Result<IndexRecord, String> {
        let collection = CollectionPattern::parse(fields.collection);
        let collection = collection.map_err(|error| error.to_string())?;
        let sort_field = |(name, direction): &(String, u8)| {
            let direction = match direction {
                0 => Direction::Asc,
                1 => Direction::Desc,
                _ => return Err("no direction".to_owned()),
            };
            SortField::new(name, direction).map_err(|error| error.to_string())
        };
        let by = fields.fields.iter().map(sort_field).collect::<Result<_, _>>()?;
        let state = match fields.state {
            0 => {
                let (from, documents) = (Bytes::copy_from_slice(fields.from), fields.documents);
                IndexState::Building { from, documents }
            }
            1 => IndexState::Ready,
            2 => IndexState::Removing,
            _ => return Err("no state".to_owned()),
        };
        let definition = IndexDefinition::new(collection, by).map_err(|error| error.to_string())?;
        Ok(IndexRecord { definition, state, declared_at: Millis(fields.declared_at) })
    }
}

fn direction_number(direction: Direction) -> u8 {
    match direction {
        Direction::Asc => 0,
        Direction::Desc => 1,
    }
}
