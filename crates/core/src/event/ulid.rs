//! Identifiers that sort by the time they were made: 48 bits of milliseconds, 80 drawn ones.
//!
//! Written in Crockford's base 32, they are 26 upper-case characters without `I`, `L`, `O`, `U`.
//! Many that are made together differ in their last 16 bits alone, and stand in their order.

use std::fmt;

use crate::time::Millis;

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CHARS: usize = 26;
const MILLIS_MAX: u64 = (1 << 48) - 1;
/// The bits that tell those apart that are made together.
const PLACE_BITS: u32 = u16::BITS;

/// A ULID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ulid(u128);

/// The text is not a ULID as this server writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id is 26 digits and upper-case letters without I, L, O and U, the first at most 7")]
pub struct UlidError;

impl Ulid {
    /// The identifier made at `now` with what was drawn for it. After the year 10889 the time
    /// stands still.
    pub fn new(now: Millis, drawn: [u8; 10]) -> Ulid {
        let mut bytes = [0; 16];
        let (_, low) = bytes.split_at_mut(6);
        low.copy_from_slice(&drawn);
        Ulid(u128::from(now.0.min(MILLIS_MAX)) << 80 | u128::from_be_bytes(bytes))
    }

    /// The first of many that are made together at `now`, with what was drawn for all of them.
    pub fn first_of_many(now: Millis, drawn: [u8; 8]) -> Ulid {
        let drawn = u128::from(u64::from_be_bytes(drawn));
        Ulid(u128::from(now.0.min(MILLIS_MAX)) << 80 | drawn << PLACE_BITS)
    }

    /// All that may be made together with this first one, itself included.
    pub fn and_following(self) -> impl Iterator<Item = Ulid> {
        (0..=u16::MAX).map(move |place| Ulid(self.0 | u128::from(place)))
    }

    /// The first of those that this one was made with, and its place among them.
    pub fn first_and_place(self) -> (Ulid, u16) {
        let first = self.0 >> PLACE_BITS << PLACE_BITS;
        let place = u16::try_from(self.0 - first).expect("16 bits are left");
        (Ulid(first), place)
    }

    /// The identifier of this number.
    pub fn from_u128(number: u128) -> Ulid {
        Ulid(number)
    }

    /// The number, which sorts as the text does.
    pub fn to_u128(self) -> u128 {
        self.0
    }

    /// When it was made.
    pub fn made_at(self) -> Millis {
        Millis(u64::try_from(self.0 >> 80).expect("48 bits are left"))
    }

    /// Reads exactly what is written: no lower case, no look-alikes.
    pub fn parse(text: &str) -> Result<Ulid, UlidError> {
        if text.len() != CHARS {
            return Err(UlidError);
        }
        let mut number = 0u128;
        for byte in text.bytes() {
            let digit = DIGITS.iter().position(|digit| *digit == byte).ok_or(UlidError)?;
            let digit = u128::try_from(digit).map_err(|_| UlidError)?;
            // The first character has two bits more than are left.
            number = number.checked_mul(32).ok_or(UlidError)? | digit;
        }
        Ok(Ulid(number))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut text, mut rest) = ([0; CHARS], self.0);
        for place in text.iter_mut().rev() {
            let digit = DIGITS.get(rest as usize & 31);
            *place = *digit.expect("five bits are below 32");
            rest >>= 5;
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_identifiers() {
        assert_eq!(Ulid::new(Millis(0), [0; 10]).to_string(), "00000000000000000000000000");
        assert_eq!(Ulid::from_u128(u128::MAX).to_string(), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        // The time is the example of the specification's README.
        let known = Ulid::new(Millis(1_469_918_176_385), [0xff; 10]);
        assert_eq!(known.to_string(), "01ARYZ6S41ZZZZZZZZZZZZZZZZ");
        assert_eq!(known.made_at(), Millis(1_469_918_176_385));
        assert_eq!(Ulid::new(Millis::NEVER, [0; 10]).made_at(), Millis(MILLIS_MAX));
    }

    #[test]
    fn only_what_is_written_is_read() {
        for text in [
            "",
            "01ARYZ6S41ZZZZZZZZZZZZZZZ",
            "01ARYZ6S41ZZZZZZZZZZZZZZZZZ",
            "01aryz6s41zzzzzzzzzzzzzzzz",
            "O1ARYZ6S41ZZZZZZZZZZZZZZZZ",
            "01ARYZ6S4IZZZZZZZZZZZZZZZZ",
            "80000000000000000000000000",
            "ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARYZ6S41ZZZZZZZZZZZZZ\u{20ac}",
        ] {
            assert_eq!(Ulid::parse(text), Err(UlidError), "{text}");
        }
    }

    #[test]
    fn those_made_together_stand_in_their_order() {
        let first = Ulid::first_of_many(Millis(1_469_918_176_385), [0xff; 8]);
        assert_eq!(first.to_string(), "01ARYZ6S41ZZZZZZZZZZZZY000");
        assert_eq!(first.made_at(), Millis(1_469_918_176_385));
        let all: Vec<Ulid> = first.and_following().collect();
        assert!(all.is_sorted() && all.len() == 1 << 16);
        for (place, one) in (0..=u16::MAX).zip(&all) {
            assert_eq!(one.first_and_place(), (first, place));
        }
    }

    proptest! {
        #[test]
        fn identifiers_read_back_and_sort_as_their_text(one: u128, other: u128) {
            let (one, other) = (Ulid::from_u128(one), Ulid::from_u128(other));
            prop_assert_eq!(Ulid::parse(&one.to_string()), Ok(one));
            prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
        }
    }
}
