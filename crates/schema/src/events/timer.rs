//! Which events are to be given to hooks later, whatever crashes before.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::EventNo;
use reveille_core::event::hook::FACE;

use crate::parts;

const FAN_OUT_TO_HOOKS: u8 = 0x01;
const BACKFILL: u8 = 0x02;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTimer {
    /// An event is for more hooks than one batch has deliveries for: the next of them.
    FanOutToHooks(Tenant, EventNo),
    /// A hook is to get events from before its time: the next of them.
    Backfill(Tenant, HookId),
}

impl EventTimer {
    pub const DOMAIN: u8 = FACE.0;

    pub fn encode(&self) -> Bytes {
        let (kind, tenant, number) = match self {
            EventTimer::FanOutToHooks(tenant, event) => (FAN_OUT_TO_HOOKS, tenant, event.0),
            EventTimer::Backfill(tenant, hook) => (BACKFILL, tenant, hook.0),
        };
        let mut out = parts::timer(Self::DOMAIN, kind);
        parts::put_numbered(&mut out, tenant, number);
        out.freeze()
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<EventTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        let (tenant, number) = parts::parse_numbered(subject)?;
        match kind {
            FAN_OUT_TO_HOOKS => Some(EventTimer::FanOutToHooks(tenant, EventNo(number))),
            BACKFILL => Some(EventTimer::Backfill(tenant, HookId(number))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(EventTimer, &'static [u8])> {
        let tenant = Tenant::parse("acme").unwrap();
        vec![
            (EventTimer::FanOutToHooks(tenant.clone(), EventNo(8)), {
                b"\x04\x01\0\0\0\0\0\0\0\x08acme"
            }),
            (EventTimer::Backfill(tenant, HookId(7)), b"\x04\x02\0\0\0\0\0\0\0\x07acme"),
        ]
    }

    #[test]
    fn timers_read_back() {
        for (timer, bytes) in all() {
            assert_eq!(timer.encode(), bytes, "{timer:?}");
            assert_eq!(EventTimer::decode(bytes), Some(timer));
        }
    }

    #[test]
    fn damaged_timers_are_nothing() {
        for (timer, bytes) in all() {
            for cut in 0..bytes.len() - 3 {
                assert_eq!(EventTimer::decode(&bytes[..cut]), None, "{timer:?} cut at {cut}");
            }
            let longer = [bytes, &[0]].concat();
            assert_eq!(EventTimer::decode(&longer), None, "{timer:?} with more");
        }
        for bytes in [&b"\x04\x03\0\0\0\0\0\0\0\x08acme"[..], b"\x03\x01\0\0\0\0\0\0\0\x08acme"] {
            assert_eq!(EventTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
