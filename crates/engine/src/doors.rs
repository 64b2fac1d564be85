//! Two of the four doors to the world outside: time and randomness. (The others are the store's
//! `Disk` and deliver's `Courier`.)

#![allow(clippy::disallowed_methods, reason = "this file implements the doors")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reveille_core::Millis;

/// A future that ends when its time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What time it is, and waiting for a time.
pub trait Clock: Send + Sync + 'static {
    /// Wall time at start plus monotonic time since, corrected slowly: never backwards, no jumps.
    fn now(&self) -> Millis;
    /// Ends at the given time.
    fn sleep_until(&self, at: Millis) -> Sleep;
}

/// Random bytes.
pub trait Entropy: Send + Sync + 'static {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);

    /// A random number.
    fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The machine's clock.
pub struct SystemClock {
    started: Instant,
    started_at: Millis,
    correction: Mutex<Correction>,
}

/// How far the answer has been moved towards the wall clock.
struct Correction {
    offset_ms: i64,
    checked_ms: u64,
}

/// A clock that is wrong is corrected by at most this part of the time that has passed.
const SLEW_PARTS: u64 = 200;

impl Default for SystemClock {
    fn default() -> SystemClock {
        let correction = Mutex::new(Correction { offset_ms: 0, checked_ms: 0 });
        SystemClock { started: Instant::now(), started_at: wall(), correction }
    }
}

fn wall() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The part of the difference that may be corrected after `elapsed_ms`.
fn slewed(offset_ms: i64, wanted_ms: i64, elapsed_ms: u64) -> i64 {
    let step = i64::try_from(elapsed_ms / SLEW_PARTS).unwrap_or(i64::MAX);
    offset_ms + (wanted_ms - offset_ms).clamp(-step, step)
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut correction =
            self.correction.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Once a second is often enough: the step is a two-hundredth of the time passed, so the
        // answer never goes backwards.
        if elapsed >= correction.checked_ms + 1_000 {
            let passed = elapsed - correction.checked_ms;
            let monotonic = self.started_at + elapsed;
            let wanted = i128::from(wall().0) - i128::from(monotonic.0);
            let wanted = i64::try_from(wanted).unwrap_or(0);
            correction.offset_ms = slewed(correction.offset_ms, wanted, passed);
            correction.checked_ms = elapsed;
        }
        Millis((self.started_at + elapsed).0.saturating_add_signed(correction.offset_ms))
    }

    fn sleep_until(&self, at: Millis) -> Sleep {
        // Waiting in portions keeps far-away times within what a timer can hold.
        let wait = at.since(self.now()).min(24 * 3_600 * 1_000);
        Box::pin(tokio::time::sleep(Duration::from_millis(wait)))
    }
}

/// The machine's randomness.
#[derive(Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer).expect("the operating system gives random bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_followed_slowly() {
        assert_eq!(slewed(0, 3_600_000, 1_000), 5);
        assert_eq!(slewed(0, -3_600_000, 1_000), -5);
        assert_eq!(slewed(10, 12, 1_000), 12);
        assert_eq!(slewed(10, 12, 100), 10);
    }

    #[test]
    fn the_clock_never_goes_backwards() {
        let clock = SystemClock::default();
        let mut last = clock.now();
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
