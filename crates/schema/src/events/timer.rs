//! Which hooks are to get events from before their time, whatever crashes meanwhile.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::event::hook::FACE;

use crate::parts;

// Kind 01 was a fan-out, which deliveries of every face have now.
const BACKFILL: u8 = 0x02;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTimer {
    /// A hook is to get events from before its time: the next of them.
    Backfill(Tenant, HookId),
}

impl EventTimer {
    pub const DOMAIN: u8 = FACE.0;

    pub fn encode(&self) -> Bytes {
        let EventTimer::Backfill(tenant, hook) = self;
        let mut out = parts::timer(Self::DOMAIN, BACKFILL);
        parts::put_numbered(&mut out, tenant, hook.0);
        out.freeze()
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<EventTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        let (tenant, number) = parts::parse_numbered(subject)?;
        match kind {
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
        vec![(EventTimer::Backfill(tenant, HookId(7)), b"\x04\x02\0\0\0\0\0\0\0\x07acme")]
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
        for bytes in [&b"\x04\x01\0\0\0\0\0\0\0\x08acme"[..], b"\x03\x01\0\0\0\0\0\0\0\x08acme"] {
            assert_eq!(EventTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
