//! Two of the four doors to the world outside: time and randomness. (The others are the store's
//! `Disk` and deliver's `Courier`.)

#![allow(clippy::disallowed_methods, reason = "this file implements the doors")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use reveille_core::Millis;

/// A future that ends when its time has come.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What time it is, and waiting for a time.
pub trait Clock: Send + Sync + 'static {
    /// Wall time at start plus monotonic time since, corrected slowly: never backwards, no jumps.
    fn now(&self) -> Millis;
    /// What the machine's clock shows, steps and all: for dates that the world reads. Nothing is
    /// timed by it.
    fn wall(&self) -> Millis {
        self.now()
    }
    /// Ends at the given time.
    fn sleep_until(&self, at: Millis) -> Sleep;
    /// Processor time that this process has used, where that is known.
    fn used(&self) -> Option<Duration> {
        None
    }
    /// How many processors there are for it.
    fn processors(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
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
    /// How the answer is being moved towards the wall clock.
    slew: ArcSwap<Slew>,
}

/// How the answer is moved towards the wall clock from one look at that to the next.
#[derive(Debug, Clone, Copy)]
struct Slew {
    /// How far it had been moved at that look.
    from_ms: i64,
    /// How far the wall clock was then.
    to_ms: i64,
    /// When that was, in milliseconds since the start.
    checked_ms: u64,
}

/// The wall clock is looked at this often.
const CHECK_EVERY_MS: u64 = 1_000;
/// A clock that is wrong is corrected by at most this part of the time that has passed, so that
/// the answer never goes backwards.
const SLEW_PARTS: u64 = 200;

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock {
            started: Instant::now(),
            started_at: wall(),
            slew: ArcSwap::from_pointee(Slew { from_ms: 0, to_ms: 0, checked_ms: 0 }),
        }
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

impl Slew {
    /// How far the answer is moved at a time since the start. It never shrinks by as much as the
    /// time grows, so that the answer never goes backwards.
    fn offset_ms(&self, elapsed_ms: u64) -> i64 {
        slewed(self.from_ms, self.to_ms, elapsed_ms.saturating_sub(self.checked_ms))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let slew = self.slew.load();
        let offset = slew.offset_ms(elapsed);
        let monotonic = self.started_at + elapsed;
        if elapsed >= slew.checked_ms + CHECK_EVERY_MS {
            let wanted = i128::from(wall().0) - i128::from(monotonic.0);
            let to_ms = i64::try_from(wanted).unwrap_or(0);
            // Several callers may do this at once; whose look counts makes no difference.
            self.slew.store(Arc::new(Slew { from_ms: offset, to_ms, checked_ms: elapsed }));
        }
        Millis(monotonic.0.saturating_add_signed(offset))
    }

    fn wall(&self) -> Millis {
        wall()
    }

    fn sleep_until(&self, at: Millis) -> Sleep {
        // Waiting in portions keeps far-away times within what a timer can hold.
        let wait = at.since(self.now()).min(24 * 3_600 * 1_000);
        Box::pin(tokio::time::sleep(Duration::from_millis(wait)))
    }

    fn used(&self) -> Option<Duration> {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(used).ok()
    }
}

/// A clock that begins no earlier than a time, and goes on from there as another one does.
pub struct SteadyClock {
    clock: Arc<dyn Clock>,
    ahead_ms: u64,
}

impl SteadyClock {
    /// What the other clock says, but nothing before this.
    pub fn new(clock: Arc<dyn Clock>, not_before: Millis) -> SteadyClock {
        let ahead_ms = not_before.since(clock.now());
        if ahead_ms > 1_000 {
            tracing::warn!(
                ahead_ms,
                "the clock is behind what was written last; going on from there"
            );
        }
        SteadyClock { clock, ahead_ms }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Millis {
        self.clock.now() + self.ahead_ms
    }

    fn wall(&self) -> Millis {
        self.clock.wall()
    }

    fn sleep_until(&self, at: Millis) -> Sleep {
        self.clock.sleep_until(Millis(at.0.saturating_sub(self.ahead_ms)))
    }

    fn used(&self) -> Option<Duration> {
        self.clock.used()
    }

    fn processors(&self) -> usize {
        self.clock.processors()
    }
}

/// The machine's randomness, fetched in portions: every wake takes some.
#[derive(Default)]
pub struct SystemEntropy {
    drawn: Mutex<Drawn>,
}

/// Random bytes that nobody has had yet, at the end of a buffer.
struct Drawn {
    bytes: [u8; DRAWN_BYTES],
    left: usize,
}

const DRAWN_BYTES: usize = 512;

impl Default for Drawn {
    fn default() -> Drawn {
        Drawn { bytes: [0; DRAWN_BYTES], left: 0 }
    }
}

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        let from_system = |bytes: &mut [u8]| {
            getrandom::fill(bytes).expect("the operating system gives random bytes");
        };
        if buffer.len() > DRAWN_BYTES / 8 {
            return from_system(buffer);
        }
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let Drawn { bytes, left } = &mut *drawn;
        if *left < buffer.len() {
            from_system(bytes);
            *left = DRAWN_BYTES;
        }
        let (_, fresh) = bytes.split_at_mut(DRAWN_BYTES - *left);
        let (given, _) = fresh.split_at_mut(buffer.len());
        buffer.copy_from_slice(given);
        // Some of them become secrets.
        given.fill(0);
        *left -= buffer.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_the_same_random_bytes() {
        let entropy = SystemEntropy::default();
        let mut seen = std::collections::HashSet::new();
        for len in (9..80).cycle().take(2_000) {
            let mut bytes = vec![0; len];
            entropy.fill(&mut bytes);
            // No nine of them were given before, nor are they those of a wiped buffer.
            assert!(bytes.chunks_exact(9).all(|piece| seen.insert(piece.to_vec())));
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_is_followed_slowly() {
        assert_eq!(slewed(0, 3_600_000, 1_000), 5);
        assert_eq!(slewed(0, -3_600_000, 1_000), -5);
        assert_eq!(slewed(10, 12, 1_000), 12);
        assert_eq!(slewed(10, 12, 100), 10);
    }

    /// While it follows a wall clock that was set back, too.
    #[test]
    fn a_slew_never_takes_the_time_back() {
        let slew = Slew { from_ms: 0, to_ms: -3_600_000, checked_ms: 5_000 };
        let answer = |elapsed: u64| i64::try_from(elapsed).unwrap() + slew.offset_ms(elapsed);
        for elapsed in 5_000..8_000 {
            assert!(answer(elapsed) >= answer(elapsed - 1), "{elapsed}");
        }
        assert_eq!(answer(7_000), 6_990);
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
