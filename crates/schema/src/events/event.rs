//! An event as it is kept: its words are in a stream.
//!
//! A map of 0 id, 1 type, 2 came at in ms, 3 stream id, 4 position of its words in the stream,
//! 5 their length.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::event::EventType;
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset};

use crate::codec::{self, Record, RecordError};

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

impl Record for EventRecord {
    fn encode(&self) -> Bytes {
        let fields = EventFields {
            id: &self.id,
            kind: self.kind.as_str(),
            at: self.at.0,
            stream: self.stream.0,
            from: self.from.position(),
            len: self.len,
        };
        codec::write(96, &fields)
    }

    fn decode(value: &[u8]) -> Result<EventRecord, RecordError> {
        codec::read::<EventFields<'_>, _>("event", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct EventFields<'a> {
    #[n(0)]
    id: &'a str,
    #[n(1)]
    kind: &'a str,
    #[cbor(n(2), default)]
    at: u64,
    #[cbor(n(3), default)]
    stream: u64,
    #[cbor(n(4), default)]
    from: u64,
    #[cbor(n(5), default)]
    len: u64,
}

impl TryFrom<EventFields<'_>> for EventRecord {
    type Error = &'static str;

    fn try_from(fields: EventFields<'_>) -> Result<EventRecord, &'static str> {
        Ok(EventRecord {
            id: fields.id.into(),
            kind: EventType::parse(fields.kind).map_err(|_| "no type")?,
            at: Millis(fields.at),
            stream: StreamId(fields.stream),
            from: Offset::new(fields.from),
            len: fields.len,
        })
    }
}
