//! Hybrid logical time: it follows the clock, and never goes back or stands still.
//!
//! ```text
//! 1746230400000.009     13 digits of milliseconds, 3 of a counter: the text sorts as the time does
//! ```

use std::fmt;

use crate::time::Millis;

const COUNTER_MAX: u16 = 999;
const MS_MAX: u64 = 9_999_999_999_999;

/// A time of a fact. The later of two facts of a tenant has the larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hlc {
    pub ms: u64,
    /// Counts those of one millisecond.
    pub counter: u16,
}

impl Hlc {
    /// The next time after `last`, whatever the clock says. After so many in one millisecond that
    /// the counter has no more digits, it goes ahead of the clock.
    #[must_use]
    pub fn after(last: Hlc, now: Millis) -> Hlc {
        let now = now.0.min(MS_MAX);
        if now > last.ms {
            Hlc { ms: now, counter: 0 }
        } else if last.counter < COUNTER_MAX {
            Hlc { ms: last.ms, counter: last.counter + 1 }
        } else {
            Hlc { ms: last.ms.saturating_add(1), counter: 0 }
        }
    }

    /// Reads what is written.
    pub fn parse(text: &str) -> Option<Hlc> {
        let (ms, counter) = text.split_once('.')?;
        let is_plain =
            |text: &str, len| text.len() == len && text.bytes().all(|it| it.is_ascii_digit());
        let fits = is_plain(ms, 13) && is_plain(counter, 3);
        fits.then_some(Hlc { ms: ms.parse().ok()?, counter: counter.parse().ok()? })
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:013}.{:03}", self.ms, self.counter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_sort_as_their_texts_do() {
        let texts = ["1746230400000.009", "1746230400000.010", "1746230400001.000"];
        let times = texts.map(|text| Hlc::parse(text).unwrap());
        assert!(times.is_sorted() && texts.is_sorted());
        assert_eq!(times.map(|it| it.to_string()), texts);
        for bad in
            ["", "1746230400000", "1746230400000.9", "+746230400000.009", "174623040000.0009"]
        {
            assert_eq!(Hlc::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn it_follows_the_clock_and_counts_within_a_millisecond() {
        let last = Hlc { ms: 1_746_230_400_000, counter: 9 };
        let next = |now| Hlc::after(last, Millis(now)).to_string();
        assert_eq!(next(1_746_230_400_001), "1746230400001.000");
        assert_eq!(next(1_746_230_400_000), "1746230400000.010");
        // The clock was put back, or the server began again with another.
        assert_eq!(next(5), "1746230400000.010");
        let full = Hlc { counter: 999, ..last };
        assert_eq!(Hlc::after(full, Millis(last.ms)).to_string(), "1746230400001.000");
    }

    proptest! {
        #[test]
        fn it_always_grows_and_its_text_with_it(
            nows in proptest::collection::vec(1_000_000_000_000..1_000_000_000_010_u64, 1..300)
        ) {
            let mut last = Hlc::default();
            for now in nows {
                let next = Hlc::after(last, Millis(now));
                prop_assert!(next > last && next.to_string() > last.to_string());
                prop_assert!(next.ms >= now);
                prop_assert_eq!(Hlc::parse(&next.to_string()), Some(next));
                last = next;
            }
        }
    }
}
