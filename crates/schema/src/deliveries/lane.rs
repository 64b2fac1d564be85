//! A lane: a map of 0 the delivery whose turn it is, `[event, round]`, 1 how many wait for theirs, 2
//! the first of these in order, each `[event, round]`, where an event is counted from the one before.
//! The others have a key each.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;

use crate::codec::{self, Record, RecordError};

impl Record for Lane {
    fn encode(&self) -> Bytes {
        let head = (self.head.event.0, self.head.round);
        let (mut before, mut next) = (0, Vec::with_capacity(self.next.len()));
        for DeliveryNo { event, round } in &self.next {
            next.push(NextFields(event.0.wrapping_sub(before), *round));
            before = event.0;
        }
        codec::write(32 + 8 * next.len(), &LaneFields { head, waiting: self.waiting, next })
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
    #[cbor(n(2), default, skip_if = "Vec::is_empty")]
    next: Vec<NextFields>,
}

/// How much later its event is, and its round.
#[derive(Encode, Decode)]
struct NextFields(#[n(0)] u64, #[n(1)] u16);

impl From<LaneFields> for Lane {
    fn from(fields: LaneFields) -> Lane {
        let (event, round) = fields.head;
        let head = DeliveryNo { event: EventNo(event), round };
        let mut before = 0_u64;
        let next = fields.next.into_iter().map(|NextFields(later, round)| {
            before = before.wrapping_add(later);
            DeliveryNo { event: EventNo(before), round }
        });
        Lane { head, waiting: fields.waiting, next: next.collect() }
    }
}
