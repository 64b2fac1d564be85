//! How often something may happen: the generic cell rate algorithm, in whole numbers.
//!
//! A meter has a theoretical arrival time: when everything that was let through would have come if
//! it had kept to the rate. The next one may come once that is no further ahead than a burst allows.
//! The time is kept as what is owed at a moment, in thousandths of one: a millisecond pays off as
//! many of them as there may be in a second, so nothing is rounded. Whoever comes late because the
//! clock knows whole milliseconds only has less than one of them to its credit, so nothing drifts.

use crate::time::Millis;

/// So many in a second, and so many at once after a pause; none is as good as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_s: u32,
    pub burst: u32,
}

/// How much of a rate is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateMeter {
    /// What is owed, in thousandths of one, at this time; less than 0 is a credit.
    owed_milli: i64,
    at: Millis,
}

const ONE_MILLI: i64 = 1_000;

impl Rate {
    /// So many in a second, evenly: after a pause at once what a tenth of a second is worth.
    pub fn even(per_s: u32) -> Rate {
        Rate { per_s, burst: per_s.div_ceil(10) }
    }

    /// What may be owed when another one comes.
    fn slack_milli(self) -> i64 {
        i64::from(self.burst.max(1)) * ONE_MILLI - ONE_MILLI
    }

    fn milli_per_ms(self) -> i64 {
        i64::from(self.per_s.max(1))
    }
}

impl RateMeter {
    /// The earliest time at which another one may come; perhaps long ago.
    pub fn next_at(&self, rate: Rate) -> Millis {
        let excess_milli = self.owed_milli.saturating_sub(rate.slack_milli()).max(0);
        self.at + excess_milli.unsigned_abs().div_ceil(rate.milli_per_ms().unsigned_abs())
    }

    /// Lets one through now, or says when. A clock that is set back stands still here.
    pub fn try_take(&mut self, rate: Rate, now: Millis) -> Result<(), Millis> {
        let next = self.next_at(rate);
        if next > now.max(self.at) {
            return Err(next);
        }
        let passed_ms = i64::try_from(now.since(self.at)).unwrap_or(i64::MAX);
        let paid_milli = passed_ms.saturating_mul(rate.milli_per_ms());
        let credit_milli = rate.milli_per_ms() - 1;
        let owed_milli = self.owed_milli.saturating_sub(paid_milli).max(-credit_milli);
        self.owed_milli = owed_milli + ONE_MILLI;
        self.at = self.at.max(now);
        Ok(())
    }

    /// One that was let through never came.
    pub fn give_back(&mut self) {
        self.owed_milli = self.owed_milli.saturating_sub(ONE_MILLI).max(0);
    }

    /// The rate is another one from now on: nobody waits for what the one before has let through.
    pub fn changed_to(&mut self, rate: Rate) {
        self.owed_milli = self.owed_milli.min(rate.slack_milli() + ONE_MILLI);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// When each of so many comes that are always waiting.
    fn arrivals(rate: Rate, begin: Millis, count: usize) -> Vec<Millis> {
        let (mut meter, mut now) = (RateMeter::default(), begin);
        let mut take = || {
            while let Err(next) = meter.try_take(rate, now) {
                assert!(next > now);
                now = next;
            }
            now
        };
        (0..count).map(|_| take()).collect()
    }

    #[test]
    fn after_a_pause_a_burst_comes_at_once_and_then_as_many_as_a_second_takes() {
        let rate = Rate { per_s: 4, burst: 3 };
        let found = arrivals(rate, Millis(10_000), 7);
        let expected = [0, 0, 0, 250, 500, 750, 1_000].map(|ms| Millis(10_000 + ms));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_no_millisecond_divides_does_not_drift() {
        for per_s in [1, 3, 7, 60, 999, 1_001, 7_919] {
            let rate = Rate { per_s, burst: 1 };
            let minute = usize::try_from(per_s).unwrap() * 60;
            let last = *arrivals(rate, Millis(0), minute + 1).last().unwrap();
            assert_eq!(last, Millis(60_000), "{per_s} in a second");
        }
    }

    #[test]
    fn nothing_overflows_and_none_is_as_good_as_one() {
        let fast = Rate { per_s: u32::MAX, burst: u32::MAX };
        let mut meter = RateMeter::default();
        for now in [Millis(0), Millis::NEVER, Millis::NEVER] {
            assert_eq!(meter.try_take(fast, now), Ok(()));
        }
        let none = Rate { per_s: 0, burst: 0 };
        assert_eq!(arrivals(none, Millis(5), 3), [5, 1_005, 2_005].map(Millis));
        assert_eq!(Rate::even(25), Rate { per_s: 25, burst: 3 });
    }

    #[test]
    fn a_clock_that_is_set_back_lets_nothing_more_through_and_stops_nothing() {
        let rate = Rate { per_s: 1, burst: 2 };
        let mut meter = RateMeter::default();
        assert_eq!(meter.try_take(rate, Millis(90_000)), Ok(()));
        assert_eq!(meter.try_take(rate, Millis(10)), Ok(()), "there is one left");
        assert_eq!(meter.try_take(rate, Millis(20)), Err(Millis(91_000)));
        assert_eq!(meter.try_take(rate, Millis(91_000)), Ok(()));
    }

    #[test]
    fn what_never_came_is_given_back_and_a_new_rate_counts_at_once() {
        let (slow, fast) = (Rate { per_s: 1, burst: 1 }, Rate { per_s: 1_000, burst: 100 });
        let mut meter = RateMeter::default();
        assert_eq!(meter.try_take(slow, Millis(0)), Ok(()));
        meter.give_back();
        assert_eq!(meter.try_take(slow, Millis(0)), Ok(()));
        meter.changed_to(fast);
        for _ in 0..99 {
            assert_eq!(meter.try_take(fast, Millis(0)), Ok(()));
        }
        assert_eq!(meter.try_take(fast, Millis(0)), Err(Millis(1)));
        meter.changed_to(slow);
        assert_eq!(meter.try_take(slow, Millis(0)), Err(Millis(1_000)));
    }

    proptest! {
        /// Whoever asks, and whenever: no window has more than a burst and what its length is worth,
        /// which is less than a millisecond more than the clock says.
        #[test]
        fn no_window_has_more_than_a_burst_and_its_rate(
            per_s in 1_u32..5_000,
            burst in 1_u32..50,
            steps in prop::collection::vec((-300_i64..700, 1_usize..20), 1..60),
        ) {
            let rate = Rate { per_s, burst };
            let (mut meter, mut now, mut latest) = (RateMeter::default(), 1_000_000_u64, 0);
            let mut let_through = Vec::new();
            for (step, asks) in steps {
                now = now.saturating_add_signed(step);
                latest = now.max(latest);
                for _ in 0..asks {
                    match meter.try_take(rate, Millis(now)) {
                        Ok(()) => let_through.push(latest),
                        Err(next) => prop_assert!(next > Millis(now)),
                    }
                }
            }
            for (first, from) in let_through.iter().enumerate() {
                for (last, to) in let_through.iter().enumerate().skip(first) {
                    let count = u64::try_from(last - first + 1).unwrap();
                    let worth_milli = (to - from + 1) * u64::from(per_s);
                    let most_milli = u64::from(burst) * 1_000 + worth_milli;
                    prop_assert!(count * 1_000 < most_milli, "{count} from {from} to {to}");
                }
            }
        }
    }
}
