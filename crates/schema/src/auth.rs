//! Keys of the API, and keys that sign.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `01` meta | `token_key` | signs callback tokens, 32 bytes |
//! | `01` meta | `signing_keys` | sign webhooks: `Vec<`[`SigningKey`]`>` |
//! | `01` meta | `trigger_keys` | sign tokens of triggers: `Vec<`[`SigningKey`]`>` |
//! | `0b` key | SHA-256 of the key (32) | [`Key`](reveille_core::key::Key); in the first partition alone |
//!
//! There are no timers.

mod key;
mod signing_key;
#[cfg(test)]
mod tests;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::key::KeyHash;

use crate::parts;

pub use signing_key::{SigningKey, encode_signing_keys};

const KEY: u8 = 0x0b;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[KEY];

/// Where the key is that signs callback tokens.
pub fn token_key() -> Bytes {
    parts::named("token_key")
}

/// Where the keys are that sign webhooks.
pub fn signing_keys() -> Bytes {
    parts::named("signing_keys")
}

/// Where the keys are that sign tokens of triggers.
pub fn trigger_keys() -> Bytes {
    parts::named("trigger_keys")
}

/// Where it is written what a key of the API allows.
pub fn api_key(hash: &KeyHash) -> Bytes {
    let mut key = BytesMut::with_capacity(33);
    key.put_u8(KEY);
    key.put_slice(&hash.0);
    key.freeze()
}

/// All keys of the API: from the first, to before the second.
pub fn api_keys() -> (Bytes, Bytes) {
    parts::tag_range::<KEY>()
}

pub fn parse_api_key(key: &[u8]) -> Option<KeyHash> {
    key.strip_prefix(&[KEY])?.try_into().ok().map(KeyHash)
}
