//! How far the wall clock is from the time that decisions have.
//!
//! Retries, leases and time-outs run on a partition's time, which no step of the machine's clock
//! moves. What the world reads or writes as a date, such as a signature's timestamp, a token's
//! expiry or `Stream-Expires-At`, is the wall clock's.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use reveille_core::Millis;
use reveille_kernel::doors::Clock;

use crate::app::Part;

/// A difference below this is none: two looks at two clocks are never at the same moment, and a date
/// that is shown twice is to be the same.
const STEP_MS: i64 = 1_000;

/// The date of a time that was kept: where the wall clock was set to something else, and time has
/// not followed yet, as the wall clock has it now.
pub fn date_of(clock: &dyn Clock, at: Millis) -> Millis {
    Millis(at.0.saturating_add_signed(steps_ahead(clock)))
}

/// The time of a date: what [`date_of`] undoes.
pub fn time_of(clock: &dyn Clock, date: Millis) -> Millis {
    Millis(date.0.saturating_add_signed(steps_ahead(clock).saturating_neg()))
}

/// How far the wall clock is ahead, in whole steps.
fn steps_ahead(clock: &dyn Clock) -> i64 {
    let ahead = i128::from(clock.wall().0) - i128::from(clock.now().0);
    i64::try_from(ahead).unwrap_or(0) / STEP_MS * STEP_MS
}

/// What the wall clock shows beside a partition's time. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct WallOffset(Arc<AtomicI64>);

impl Part for WallOffset {}

impl WallOffset {
    /// Looks at the clock.
    pub fn follow(&self, clock: &dyn Clock) {
        let ahead = i128::from(clock.wall().0) - i128::from(clock.now().0);
        self.0.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
    }

    /// What the wall clock shows at a partition's time.
    pub fn wall_at(&self, now: Millis) -> Millis {
        Millis(now.0.saturating_add_signed(self.0.load(Ordering::Relaxed)))
    }

    /// The partition's time at which the wall clock shows this.
    pub fn time_at(&self, wall: Millis) -> Millis {
        let ahead = self.0.load(Ordering::Relaxed);
        Millis(wall.0.saturating_add_signed(ahead.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clocks {
        now: u64,
        wall: u64,
    }

    impl Clock for Clocks {
        fn now(&self) -> Millis {
            Millis(self.now)
        }

        fn wall(&self) -> Millis {
            Millis(self.wall)
        }

        fn sleep_until(&self, _: Millis) -> reveille_kernel::doors::Sleep {
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn a_date_follows_the_wall_clock_when_it_was_set_and_is_still_otherwise() {
        let now = 1_000_000_000;
        for (wall, shown) in [
            (now, 7_000),
            (now + 999, 7_000),
            (now - 999, 7_000),
            (now + 3_600_250, 3_607_000),
            (now - 4_250, 3_000),
            (now - 900_000, 0),
        ] {
            let clock = Clocks { now, wall };
            assert_eq!(date_of(&clock, Millis(7_000)), Millis(shown));
            if shown > 0 {
                assert_eq!(time_of(&clock, Millis(shown)), Millis(7_000));
            }
        }
    }

    #[test]
    fn the_wall_clock_may_be_on_either_side() {
        for ahead in [0, 3_600_000, -3_600_000] {
            let offset = WallOffset::default();
            offset.0.store(ahead, Ordering::Relaxed);
            let now = Millis(10_000_000);
            let wall = offset.wall_at(now);
            assert_eq!(i64::try_from(wall.0).unwrap() - 10_000_000, ahead);
            assert_eq!(offset.time_at(wall), now);
        }
    }
}
