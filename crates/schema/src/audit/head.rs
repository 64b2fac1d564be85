//! How far a chain of the audit log reaches.
//!
//! A map of 0 first place that is kept, 1 hash that it follows, 2 next place, 3 hash of the last
//! row, 4 time of the last row in ms.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::audit::{ChainHash, ChainHead};

use crate::codec::{self, Record, RecordError};

impl Record for ChainHead {
    fn encode(&self) -> Bytes {
        codec::write(96, &HeadFields::from(self))
    }

    fn decode(value: &[u8]) -> Result<ChainHead, RecordError> {
        codec::read::<HeadFields, _>("audit head", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct HeadFields {
    #[n(0)]
    first: u64,
    #[cbor(n(1), with = "minicbor::bytes")]
    anchor: [u8; 32],
    #[n(2)]
    next: u64,
    #[cbor(n(3), with = "minicbor::bytes")]
    hash: [u8; 32],
    #[cbor(n(4), default)]
    last_at: u64,
}

impl From<&ChainHead> for HeadFields {
    fn from(head: &ChainHead) -> HeadFields {
        HeadFields {
            first: head.first,
            anchor: head.anchor.0,
            next: head.next,
            hash: head.hash.0,
            last_at: head.last_at.0,
        }
    }
}

impl From<HeadFields> for ChainHead {
    fn from(fields: HeadFields) -> ChainHead {
        ChainHead {
            first: fields.first,
            anchor: ChainHash(fields.anchor),
            next: fields.next,
            hash: ChainHash(fields.hash),
            last_at: Millis(fields.last_at),
        }
    }
}
