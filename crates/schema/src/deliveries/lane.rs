//! A lane: a map of 0 the delivery whose turn it is, `[event, round]`, 1 how many wait for theirs.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;

use crate::codec::{self, Record, RecordError};

impl Record for Lane {
    fn encode(&self) -> Bytes {
        let head = (self.head.event.0, self.head.round);
        codec::write(32, &LaneFields { head, waiting: self.waiting })
    }

    fn decode(value: &[u8]) -> Result<Lane, RecordError> {
        codec::read::<LaneFields, _>("lane", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct LaneFields {
    #[cbor(n(0), default)]
    head: (u64, u16),
    #[cbor(n(1), default)]
    waiting: u64,
}

impl From<LaneFields> for Lane {
    fn from(fields: LaneFields) -> Lane {
        let (event, round) = fields.head;
        Lane { head: DeliveryNo { event: EventNo(event), round }, waiting: fields.waiting }
    }
}
