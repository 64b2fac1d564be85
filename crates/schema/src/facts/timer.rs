//! What must happen to facts and gardens later, whatever crashes before.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::fact::FACE;
use reveille_core::fact::garden::GardenNo;

use crate::parts;

const PURGE_GARDEN: u8 = 0x01;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactTimer {
    /// A garden was deleted so long ago that nothing of it is to be left: the next of that.
    PurgeGarden(Tenant, GardenNo),
}

impl FactTimer {
    pub const DOMAIN: u8 = FACE.0;

    pub fn encode(&self) -> Bytes {
        let FactTimer::PurgeGarden(tenant, garden) = self;
        let mut out = parts::timer(Self::DOMAIN, PURGE_GARDEN);
        parts::put_numbered(&mut out, tenant, garden.0);
        out.freeze()
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<FactTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        if kind != PURGE_GARDEN {
            return None;
        }
        let (tenant, garden) = parts::parse_numbered(subject)?;
        Some(FactTimer::PurgeGarden(tenant, GardenNo(garden)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_read_back() {
        let timer = FactTimer::PurgeGarden(Tenant::parse("acme").unwrap(), GardenNo(7));
        let bytes = b"\x07\x01\0\0\0\0\0\0\0\x07acme";
        assert_eq!(timer.encode(), &bytes[..]);
        assert_eq!(FactTimer::decode(bytes), Some(timer));
    }

    #[test]
    fn damaged_timers_are_nothing() {
        for bytes in [
            &b"\x07\x01\0\0\0\0\0\0\0\x07acme\0"[..],
            b"\x07\x01\0\0\0\0\0\0\0\x07",
            b"\x07\x02\0\0\0\0\0\0\0\x07acme",
            b"\x05\x01\0\0\0\0\0\0\0\x07acme",
        ] {
            assert_eq!(FactTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
