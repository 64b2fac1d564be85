//! What a stream knows of a producer: a map of 0 epoch, 1 sequence of the last accepted append.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::producer::ProducerState;

use crate::codec::{self, Record, RecordError};

impl Record for ProducerState {
    fn encode(&self) -> Bytes {
        codec::write(24, &ProducerFields { epoch: self.epoch, seq: self.seq })
    }

    fn decode(value: &[u8]) -> Result<ProducerState, RecordError> {
        codec::read::<ProducerFields, _>("producer", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ProducerFields {
    #[cbor(n(0), default)]
    epoch: u64,
    #[cbor(n(1), default)]
    seq: u64,
}

impl From<ProducerFields> for ProducerState {
    fn from(fields: ProducerFields) -> ProducerState {
        ProducerState { epoch: fields.epoch, seq: fields.seq }
    }
}
