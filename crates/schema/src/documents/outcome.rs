//! What is remembered of a write that had an idempotency key.
//!
//! A map of 0 SHA-256 of its body, 1 how it ended: 1 success, 2 not found, 3 a precondition failed,
//! 4 denied by a rule, 5 invalid, 2 the sentence of a failure, 3 time from which the key is as good
//! as new in ms.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::document::idempotency::{BodyHash, WriteEnd, WriteRecord};

use crate::codec::{self, Record, RecordError};

/// Those that are remembered.
const ENDS: [(u8, WriteEnd); 5] = [
    (1, WriteEnd::Success),
    (2, WriteEnd::NotFound),
    (3, WriteEnd::PreconditionFailed),
    (4, WriteEnd::RuleDenied),
    (5, WriteEnd::Invalid),
];

impl Record for WriteRecord {
    fn encode(&self) -> Bytes {
        let number = ENDS.iter().find(|(_, end)| *end == self.end).map(|(number, _)| *number);
        let fields = OutcomeFields {
            body: self.body.0,
            end: number.expect("only what is remembered has a record"),
            message: &self.message,
            expires: self.expires.0,
        };
        codec::write(64 + self.message.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<WriteRecord, RecordError> {
        codec::read::<OutcomeFields<'_>, _>("outcome of a write", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct OutcomeFields<'a> {
    #[cbor(n(0), with = "minicbor::bytes")]
    body: [u8; 32],
    #[n(1)]
    end: u8,
    #[cbor(n(2), default)]
    message: &'a str,
    #[n(3)]
    expires: u64,
}

impl TryFrom<OutcomeFields<'_>> for WriteRecord {
    type Error = &'static str;

    fn try_from(fields: OutcomeFields<'_>) -> Result<WriteRecord, &'static str> {
        let end = ENDS.iter().find(|(number, _)| *number == fields.end);
        Ok(WriteRecord {
            body: BodyHash(fields.body),
            end: end.map(|(_, end)| *end).ok_or("no end")?,
            message: fields.message.into(),
            expires: Millis(fields.expires),
        })
    }
}
