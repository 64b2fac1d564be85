//! Positions in a stream, and their form on the wire.

use std::fmt;
use std::str::FromStr;

use crate::limits::POSITION_MAX;

/// A position in a stream: the number of stored bytes before it.
///
/// On the wire it is two groups of sixteen digits; the first is always zero, the second is the
/// position, so that byte order of the text is the order of the stream. An offset is the position
/// *after* the data it was returned for. Forks share the positions of their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(u64);

/// The text is not an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an offset is `-1`, `now`, or a value that this server returned as `Stream-Next-Offset`")]
pub struct OffsetError;

impl Offset {
    /// Before the first byte.
    pub const ZERO: Offset = Offset(0);

    /// The offset of a position.
    pub const fn new(position: u64) -> Offset {
        Offset(position)
    }

    /// The number of stored bytes before this offset.
    pub const fn position(self) -> u64 {
        self.0
    }

    /// The offset `bytes` further on.
    pub fn plus(self, bytes: u64) -> Offset {
        Offset(self.0.saturating_add(bytes))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000000000000000_{:016}", self.0)
    }
}

impl FromStr for Offset {
    type Err = OffsetError;

    fn from_str(text: &str) -> Result<Offset, OffsetError> {
        let (high, low) = text.split_once('_').ok_or(OffsetError)?;
        let high = digits(high).ok_or(OffsetError)?;
        let low = digits(low).ok_or(OffsetError)?;
        // A well-formed offset with a first group is beyond every stream of ours.
        Ok(if high == 0 { Offset(low) } else { Offset(POSITION_MAX) })
    }
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Where a read begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the first byte (`-1`, or no offset at all).
    Start,
    /// At the tail, whatever it is (`now`).
    Now,
    /// At a position that an earlier answer named.
    At(Offset),
}

impl FromStr for ReadFrom {
    type Err = OffsetError;

    fn from_str(text: &str) -> Result<ReadFrom, OffsetError> {
        match text {
            "-1" => Ok(ReadFrom::Start),
            "now" => Ok(ReadFrom::Now),
            other => other.parse().map(ReadFrom::At),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sentinels_and_positions() {
        assert_eq!("-1".parse(), Ok(ReadFrom::Start));
        assert_eq!("now".parse(), Ok(ReadFrom::Now));
        assert_eq!(Offset::ZERO.to_string(), "0000000000000000_0000000000000000");
        assert_eq!("9999999999999999_9999999999999999".parse(), Ok(Offset(POSITION_MAX)));
    }

    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "",
            "_",
            "1",
            "1_",
            "_1",
            "0_0_0",
            "-2",
            "NOW",
            "1_2,3_4",
            " 0_0",
            "0_0 ",
            "0_+1",
            "0_-1",
            "0x1_0",
            "../_0",
            "0_00000000000000000",
            "\u{0}",
            "0_0\r\n",
        ] {
            assert_eq!(bad.parse::<ReadFrom>(), Err(OffsetError), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn text_order_is_stream_order(a in 0..=POSITION_MAX, b in 0..=POSITION_MAX) {
            let (left, right) = (Offset(a), Offset(b));
            prop_assert_eq!(left.to_string().parse(), Ok(left));
            prop_assert_eq!(left.to_string().cmp(&right.to_string()), left.cmp(&right));
        }
    }
}
