//! What must happen to deliveries and hooks later, whatever crashes before.

use bytes::{BufMut, Bytes};
use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, HookId};
use reveille_core::delivery::id::{DeliveryId, EventNo};

use super::{parse_id, put_id};
use crate::parts;

const DELIVERY: u8 = 0x01;
const DELIVERY_GROUP: u8 = 0x02;
const RESUME: u8 = 0x03;
const UNHOOK: u8 = 0x04;
const REPLAY: u8 = 0x05;
const FAN_OUT: u8 = 0x06;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryTimer {
    /// A delivery is to be tried, or may have waited long enough for an attempt.
    Delivery(DeliveryId),
    /// Deliveries that began together, this one first, may have waited long enough for their first
    /// attempts. The timer's value says which they are.
    DeliveryGroup(DeliveryId),
    /// A hook is active again: what was held meanwhile is to be tried.
    Resume(Tenant, HookId),
    /// A hook has ended: its deliveries and what belongs to them are to be removed.
    Unhook(Tenant, HookId),
    /// The next dead letters of a replay are to be made again.
    Replay(Tenant, u64),
    /// An event is for more hooks than one batch has deliveries for: the next of them.
    FanOut(FaceId, Tenant, EventNo),
}

impl DeliveryTimer {
    pub const DOMAIN: u8 = 0x03;

    pub fn encode(&self) -> Bytes {
        let of_delivery = |kind, id: &DeliveryId| {
            let mut out = parts::timer(Self::DOMAIN, kind);
            put_id(&mut out, *id);
            out.freeze()
        };
        let of_hook = |kind, tenant: &Tenant, hook: &HookId| {
            let mut out = parts::timer(Self::DOMAIN, kind);
            parts::put_numbered(&mut out, tenant, hook.0);
            out.freeze()
        };
        match self {
            DeliveryTimer::Delivery(id) => of_delivery(DELIVERY, id),
            DeliveryTimer::DeliveryGroup(first) => of_delivery(DELIVERY_GROUP, first),
            DeliveryTimer::Resume(tenant, hook) => of_hook(RESUME, tenant, hook),
            DeliveryTimer::Unhook(tenant, hook) => of_hook(UNHOOK, tenant, hook),
            DeliveryTimer::Replay(tenant, id) => of_hook(REPLAY, tenant, &HookId(*id)),
            DeliveryTimer::FanOut(face, tenant, event) => {
                let mut out = parts::timer(Self::DOMAIN, FAN_OUT);
                out.put_u8(face.0);
                parts::put_numbered(&mut out, tenant, event.0);
                out.freeze()
            }
        }
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<DeliveryTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        let hook = || parts::parse_numbered(subject).map(|(tenant, id)| (tenant, HookId(id)));
        Some(match kind {
            DELIVERY => DeliveryTimer::Delivery(parse_id(subject)?),
            DELIVERY_GROUP => DeliveryTimer::DeliveryGroup(parse_id(subject)?),
            RESUME => {
                let (tenant, hook) = hook()?;
                DeliveryTimer::Resume(tenant, hook)
            }
            UNHOOK => {
                let (tenant, hook) = hook()?;
                DeliveryTimer::Unhook(tenant, hook)
            }
            REPLAY => {
                let (tenant, HookId(id)) = hook()?;
                DeliveryTimer::Replay(tenant, id)
            }
            FAN_OUT => {
                let (face, subject) = subject.split_first()?;
                let (tenant, event) = parts::parse_numbered(subject)?;
                DeliveryTimer::FanOut(FaceId(*face), tenant, EventNo(event))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use reveille_core::delivery::id::DeliveryNo;

    use super::*;

    fn all() -> Vec<(DeliveryTimer, &'static [u8])> {
        let tenant = Tenant::parse("acme").unwrap();
        let id =
            |round| DeliveryId { hook: HookId(7), no: DeliveryNo { event: EventNo(8), round } };
        vec![
            (DeliveryTimer::Delivery(id(9)), {
                b"\x03\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\x09"
            }),
            (DeliveryTimer::DeliveryGroup(id(0)), {
                b"\x03\x02\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0"
            }),
            (DeliveryTimer::Resume(tenant.clone(), HookId(7)), b"\x03\x03\0\0\0\0\0\0\0\x07acme"),
            (DeliveryTimer::Unhook(tenant.clone(), HookId(7)), b"\x03\x04\0\0\0\0\0\0\0\x07acme"),
            (DeliveryTimer::Replay(tenant.clone(), 7), b"\x03\x05\0\0\0\0\0\0\0\x07acme"),
            (DeliveryTimer::FanOut(FaceId(4), tenant, EventNo(8)), {
                b"\x03\x06\x04\0\0\0\0\0\0\0\x08acme"
            }),
        ]
    }

    #[test]
    fn timers_read_back() {
        for (timer, bytes) in all() {
            assert_eq!(timer.encode(), bytes, "{timer:?}");
            assert_eq!(DeliveryTimer::decode(bytes), Some(timer));
        }
    }

    #[test]
    fn damaged_timers_are_nothing() {
        for (timer, bytes) in all() {
            let shortest = if bytes[1] < RESUME { bytes.len() } else { bytes.len() - 3 };
            for cut in 0..shortest {
                assert_eq!(DeliveryTimer::decode(&bytes[..cut]), None, "{timer:?} cut at {cut}");
            }
            let longer = [bytes, &[0]].concat();
            assert_eq!(DeliveryTimer::decode(&longer), None, "{timer:?} with more");
        }
        for bytes in [&b"\x03\x00"[..], b"\x03\x07\0\0\0\0\0\0\0\x07acme", b"\x04\x03"] {
            assert_eq!(DeliveryTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
