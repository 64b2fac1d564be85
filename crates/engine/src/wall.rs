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
