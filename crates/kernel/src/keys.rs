//! The keys that the kernel itself writes; all others are the domains' business.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `01` value | name | see the functions below; domains have names of their own here |
//! | `01` value | `aside`, `00`, key of a timer | what the timer had; it could not be fulfilled |
//! | `05` timer | due time in ms `u64`, domain `u8`, kind `u8`, subject | the domain's, mostly empty |
//!
//! Integers are big-endian, so that byte order is the order of the numbers. Tags are persisted:
//! they are never changed and never reused.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::{Millis, Tenant};

pub(crate) const VALUE: u8 = 0x01;
const TIMER: u8 = 0x05;
const SET_ASIDE: &[u8] = b"\x01aside\x00";

/// When somebody last asked whether writing works, in ms.
pub fn probe() -> Bytes {
    Bytes::from_static(b"\x01probe")
}

/// A number that nothing in this partition has had yet.
pub fn next_id() -> Bytes {
    Bytes::from_static(b"\x01next_stream_id")
}

/// The latest time that a decision of the partition has had, in ms.
pub fn time() -> Bytes {
    Bytes::from_static(b"\x01time")
}

/// Where a timer is kept that cannot be fulfilled.
pub fn set_aside(timer: &[u8]) -> Bytes {
    [SET_ASIDE, timer].concat().into()
}

/// The key that such a timer had.
pub fn parse_set_aside(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(SET_ASIDE)
}

/// The keys of all such timers: from the first, to before the second.
pub fn all_set_aside() -> (Bytes, Bytes) {
    (Bytes::from_static(SET_ASIDE), Bytes::from_static(b"\x01aside\x01"))
}

/// The key of a timer: the time, and what its domain calls it.
pub fn timer(at: Millis, timer: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + timer.len());
    key.put_u8(TIMER);
    key.put_u64(at.0);
    key.put_slice(timer);
    key.freeze()
}

/// The time of a timer's key, and what its domain calls it.
pub fn parse_timer(key: &[u8]) -> Option<(Millis, &[u8])> {
    let (at, timer) = key.strip_prefix(&[TIMER])?.split_first_chunk::<8>()?;
    Some((Millis(u64::from_be_bytes(*at)), timer))
}

/// Where the timers of a time begin.
pub fn timers_from(at: Millis) -> Bytes {
    timer(at, &[])
}

/// After the last timer.
pub fn timers_end() -> Bytes {
    Bytes::from_static(&[TIMER + 1])
}

/// After the last timer of a time.
pub fn timers_after(at: Millis) -> Bytes {
    timers_from(Millis(at.0.saturating_add(1)))
}

/// Writes a number.
pub fn encode_u64(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Reads a number.
pub fn decode_u64(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

/// The partition that a tenant lives in. Persisted by its consequences: never changed.
pub fn partition_of(tenant: &Tenant, partitions: u32) -> u32 {
    crc32c::crc32c(tenant.as_str().as_bytes()) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_read_back_in_the_order_of_their_times() {
        let key = timer(Millis(255), b"\x01\x02x");
        assert_eq!(parse_timer(&key), Some((Millis(255), b"\x01\x02x".as_slice())));
        assert_eq!(parse_timer(b"\x05short"), None);
        assert!(timers_from(Millis(255)) < key && key < timers_after(Millis(255)));
        assert!(timers_after(Millis(255)) <= timer(Millis(256), b""));
        assert!(timer(Millis::NEVER, b"\xff") < timers_end());
    }

    #[test]
    fn timers_that_are_set_aside_are_apart_from_everything_else() {
        let (from, to) = all_set_aside();
        let key = set_aside(&timer(Millis(255), b"\x01\x02x"));
        assert!(from <= key && key < to && key < timers_from(Millis(0)));
        assert_eq!(parse_set_aside(&key), Some(&*timer(Millis(255), b"\x01\x02x")));
        assert!(set_aside(b"") < to && set_aside(&[0xff; 32]) < to);
        assert!([probe(), next_id(), time()].iter().all(|it| *it < from || *it >= to));
    }

    #[test]
    fn numbers_read_back() {
        assert_eq!(decode_u64(&encode_u64(7)), Some(7));
        assert_eq!(decode_u64(b"seven"), None);
    }
}
