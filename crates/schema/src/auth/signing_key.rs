//! The keys that sign webhooks: an array of maps, of which the first one signs.
//!
//! Each is a map of 0 seed (32 bytes), 1 created at in ms, 2 published until in ms.

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode};
use reveille_core::Millis;

use crate::codec::{self, List, Record, RecordError};

/// A key that signs webhooks.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// The secret.
    pub seed: [u8; 32],
    /// Since when it signs.
    pub created_at: Millis,
    /// Until when it is still published, once another one signs.
    pub retires_at: Option<Millis>,
}

impl Record for Vec<SigningKey> {
    fn encode(&self) -> Bytes {
        encode_signing_keys(self)
    }

    fn decode(value: &[u8]) -> Result<Vec<SigningKey>, RecordError> {
        codec::read_list::<SigningKeyFields, _>(&mut Decoder::new(value))
            .map_err(|why| RecordError::new("signing key", why))
    }
}

/// What [`Record::encode`] of a list with these keys would be.
pub fn encode_signing_keys(keys: &[SigningKey]) -> Bytes {
    codec::write(64, &List(keys.iter().map(SigningKeyFields::from)))
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SigningKeyFields {
    #[cbor(n(0), with = "minicbor::bytes")]
    seed: [u8; 32],
    #[cbor(n(1), default)]
    created_at: u64,
    #[n(2)]
    retires_at: Option<u64>,
}

impl From<&SigningKey> for SigningKeyFields {
    fn from(key: &SigningKey) -> SigningKeyFields {
        SigningKeyFields {
            seed: key.seed,
            created_at: key.created_at.0,
            retires_at: key.retires_at.map(|at| at.0),
        }
    }
}

impl From<SigningKeyFields> for SigningKey {
    fn from(fields: SigningKeyFields) -> SigningKey {
        SigningKey {
            seed: fields.seed,
            created_at: Millis(fields.created_at),
            retires_at: fields.retires_at.map(Millis),
        }
    }
}
