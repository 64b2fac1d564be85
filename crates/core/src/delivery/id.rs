//! Which delivery: a function of hook, event and round, so that doing it twice changes nothing.

use super::hook::HookId;

/// An event, from the numbers that streams and subscriptions have too: the larger of two is the
/// younger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventNo(pub u64);

/// A delivery among those of its hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryNo {
    /// What is delivered.
    pub event: EventNo,
    /// 0 at first; each time that somebody has a dead one made again, one more.
    pub round: u16,
}

/// A delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    pub hook: HookId,
    /// Of what.
    pub no: DeliveryNo,
}

const NUMBER_BITS: u32 = 56;
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;

impl DeliveryId {
    /// As one number: hook, event, round. The name that the world knows it by is made of it.
    pub fn to_u128(self) -> u128 {
        let (hook, event) = (self.hook.0 & NUMBER_MAX, self.no.event.0 & NUMBER_MAX);
        u128::from(hook) << (NUMBER_BITS + 16) | u128::from(event) << 16 | u128::from(self.no.round)
    }

    /// The delivery of a number.
    pub fn from_u128(number: u128) -> DeliveryId {
        let part = |shift: u32| u64::try_from((number >> shift) & u128::from(NUMBER_MAX));
        let round = u16::try_from(number & u128::from(u16::MAX)).unwrap_or_default();
        let event = EventNo(part(16).unwrap_or_default());
        let hook = HookId(part(NUMBER_BITS + 16).unwrap_or_default());
        DeliveryId { hook, no: DeliveryNo { event, round } }
    }
}
