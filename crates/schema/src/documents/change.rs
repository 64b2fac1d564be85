//! The last change of a tenant.
//!
//! A map of 0 seq, 1 second of its lsn, 2 number within that second, 3 the last change before
//! its rules were last set or taken away.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::document::change::{ChangeHead, Lsn};

use crate::codec::{self, Record, RecordError};

impl Record for ChangeHead {
    fn encode(&self) -> Bytes {
        let fields = HeadFields {
            seq: self.seq,
            second: self.lsn.map(|lsn| lsn.second),
            ordinal: self.lsn.map(|lsn| lsn.ordinal),
            rules_seq: self.rules_seq,
        };
        codec::write(32, &fields)
    }

    fn decode(value: &[u8]) -> Result<ChangeHead, RecordError> {
        codec::read::<HeadFields, _>("change head", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct HeadFields {
    #[n(0)]
    seq: u64,
    #[n(1)]
    second: Option<u64>,
    #[n(2)]
    ordinal: Option<u64>,
    #[n(3)]
    rules_seq: Option<u64>,
}

impl TryFrom<HeadFields> for ChangeHead {
    type Error = &'static str;

    fn try_from(fields: HeadFields) -> Result<ChangeHead, &'static str> {
        let lsn = match (fields.second, fields.ordinal) {
            (Some(second), Some(ordinal)) => Some(Lsn { second, ordinal }),
            (None, None) => None,
            _ => return Err("half an lsn"),
        };
        Ok(ChangeHead { seq: fields.seq, lsn, rules_seq: fields.rules_seq })
    }
}
