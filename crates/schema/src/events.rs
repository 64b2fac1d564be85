//! What the face of typed events keeps beside the events themselves, and what of that is of no use
//! later.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `0f` event id | tenant, `00`, id | number of the event that had this id last, `u64`; for ids that clients chose, and in older data for all |
//! | `0f` event ids | tenant, `00`, `00`, ULID whose last 16 bits are zero `u128` | number of the first event of a request whose events were given ids, `u64`: its n-th event, from 0, has this ULID plus n, unless it has a client's, and this number plus n |
//! | `17` ingested | tenant, `00`, id of a batch | how many events it had, `u64` |
//! | `18` later | time in ms `u64`, key | empty: the key is of no use after that time |
//!
//! | timer of domain `04` | subject |
//! |---|---|
//! | `02` backfill | hook `u64`, tenant |
//!
//! Hooks for events have the number of this domain as their face, and in their spec what
//! [`encode_hook_spec`] writes.

mod hook;
#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::event::Ulid;
use reveille_core::{Millis, Tenant};

use crate::parts;

pub use hook::{decode_spec as decode_hook_spec, encode_spec as encode_hook_spec};
pub use timer::EventTimer;

const EVENT_ID: u8 = 0x0f;
const INGESTED: u8 = 0x17;
const LATER: u8 = 0x18;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[EVENT_ID, INGESTED, LATER];

/// For an id that a sender chose.
pub fn event_id_key(tenant: &Tenant, id: &str) -> Bytes {
    parts::of_tenant(EVENT_ID, tenant, id.as_bytes())
}

/// For many ids that were given together, this one first. No sender's id begins like it.
pub fn event_ids_key(tenant: &Tenant, first: Ulid) -> Bytes {
    let mut id = [0; 17];
    let (_, number) = id.split_at_mut(1);
    number.copy_from_slice(&first.to_u128().to_be_bytes());
    parts::of_tenant(EVENT_ID, tenant, &id)
}

pub fn ingested_key(tenant: &Tenant, batch: &str) -> Bytes {
    parts::of_tenant(INGESTED, tenant, batch.as_bytes())
}

/// Says that `key` is of no use after a time.
pub fn later_key(at: Millis, key: &[u8]) -> Bytes {
    let mut later = BytesMut::with_capacity(9 + key.len());
    later.put_u8(LATER);
    later.put_u64(at.0);
    later.put_slice(key);
    later.freeze()
}

/// The later keys up to and including a time: from the first, to before the second.
pub fn later_keys_until(at: Millis) -> (Bytes, Bytes) {
    (parts::numbered(LATER, 0), parts::numbered(LATER, at.0.saturating_add(1)))
}

/// The key that is of no use.
pub fn parse_later_key(key: &Bytes) -> Option<Bytes> {
    (key.len() > 9).then(|| key.slice(9..))
}
