//! The link of a subscription to a stream, in the dialect where a subscription is one consumer.
//!
//! A map of 0 stream id or null, 1 acknowledged position or null, 2 whether it was named.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Offset;
use reveille_core::stream::StreamId;

use crate::codec::{self, Record, RecordError};

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

impl Record for LinkRecord {
    fn encode(&self) -> Bytes {
        let fields = LinkFields {
            stream: self.stream.map(|id| id.0),
            acked: self.acked.map(Offset::position),
            explicit: self.explicit,
        };
        codec::write(24, &fields)
    }

    fn decode(value: &[u8]) -> Result<LinkRecord, RecordError> {
        codec::read::<LinkFields, _>("link", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct LinkFields {
    #[cbor(n(0), encode_with = "Encode::encode", is_nil = "codec::is_never_nil")]
    stream: Option<u64>,
    #[cbor(n(1), encode_with = "Encode::encode", is_nil = "codec::is_never_nil")]
    acked: Option<u64>,
    #[cbor(n(2), default)]
    explicit: bool,
}

impl From<LinkFields> for LinkRecord {
    fn from(fields: LinkFields) -> LinkRecord {
        LinkRecord {
            stream: fields.stream.map(StreamId),
            acked: fields.acked.map(Offset::new),
            explicit: fields.explicit,
        }
    }
}
