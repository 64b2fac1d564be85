//! What became of a hook's deliveries.
//!
//! A map of counts: 0 begun, 1 pending, 2 failed, 3 delivered, 4 died, 5 dropped, 6 attempts,
//! 7 dead letters, 8 records of deliveries, 9 records of attempts, 10 since when no attempt was
//! accepted, ms, if the last one was not.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::delivery::hook::DeliveryCounts;

use crate::codec::{self, Record, RecordError};

impl Record for DeliveryCounts {
    fn encode(&self) -> Bytes {
        codec::write(48, &CountFields::from(self))
    }

    fn decode(value: &[u8]) -> Result<DeliveryCounts, RecordError> {
        codec::read::<CountFields, _>("delivery counts", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct CountFields {
    #[cbor(n(0), default)]
    begun: u64,
    #[cbor(n(1), default)]
    pending: u64,
    #[cbor(n(2), default)]
    failed: u64,
    #[cbor(n(3), default)]
    delivered: u64,
    #[cbor(n(4), default)]
    died: u64,
    #[cbor(n(5), default)]
    dropped: u64,
    #[cbor(n(6), default)]
    attempts: u64,
    #[cbor(n(7), default)]
    dead_letters: u64,
    #[cbor(n(8), default)]
    kept: u64,
    #[cbor(n(9), default)]
    logs: u64,
    #[cbor(n(10), decode_with = "codec::some")]
    failing_since: Option<u64>,
}

impl From<&DeliveryCounts> for CountFields {
    fn from(counts: &DeliveryCounts) -> CountFields {
        CountFields {
            begun: counts.begun,
            pending: counts.pending,
            failed: counts.failed,
            delivered: counts.delivered,
            died: counts.died,
            dropped: counts.dropped,
            attempts: counts.attempts,
            dead_letters: counts.dead_letters,
            kept: counts.kept,
            logs: counts.logs,
            failing_since: counts.failing_since.map(|at| at.0),
        }
    }
}

impl From<CountFields> for DeliveryCounts {
    fn from(fields: CountFields) -> DeliveryCounts {
        DeliveryCounts {
            begun: fields.begun,
            pending: fields.pending,
            failed: fields.failed,
            delivered: fields.delivered,
            died: fields.died,
            dropped: fields.dropped,
            attempts: fields.attempts,
            dead_letters: fields.dead_letters,
            kept: fields.kept,
            logs: fields.logs,
            failing_since: fields.failing_since.map(Millis),
        }
    }
}
