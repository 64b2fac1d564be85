//! Hooks and the deliveries to them.
//!
//! | timer of domain `03` | subject |
//! |---|---|
//! | `01` delivery | hook `u64`, event `u64`, round `u16` |
//! | `02` delivery group | hook `u64`, event `u64`, round `u16` of one of them |
//! | `03` resume | hook `u64`, tenant |
//! | `04` unhook | hook `u64`, tenant |

#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, BytesMut};
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};

use crate::parts;

pub use timer::DeliveryTimer;

pub(crate) fn put_id(out: &mut BytesMut, id: DeliveryId) {
    out.put_u64(id.hook.0);
    put_no(out, id.no);
}

pub(crate) fn parse_id(bytes: &[u8]) -> Option<DeliveryId> {
    let (hook, no) = parts::split_u64(bytes)?;
    Some(DeliveryId { hook: HookId(hook), no: parse_no(no)? })
}

pub(crate) fn put_no(out: &mut BytesMut, no: DeliveryNo) {
    out.put_u64(no.event.0);
    out.put_u16(no.round);
}

pub(crate) fn parse_no(bytes: &[u8]) -> Option<DeliveryNo> {
    let (event, round) = parts::split_u64(bytes)?;
    let round = u16::from_be_bytes(round.try_into().ok()?);
    Some(DeliveryNo { event: EventNo(event), round })
}
