//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use reveille_core::Millis;
use reveille_engine::doors::{Clock, Sleep};
use tokio::sync::watch;

use super::guarded;

/// 2025-06-01T00:00:00Z, where every test begins.
pub(crate) const START_MS: u64 = 1_748_736_000_000;

/// Time that is advanced by hand. Clones are the same clock.
#[derive(Clone)]
pub(crate) struct HandClock {
    now: Arc<watch::Sender<u64>>,
    /// How many sleep until when: a test waits for a sleeper before it moves the time.
    sleepers: Arc<watch::Sender<BTreeMap<u64, usize>>>,
    /// How far the wall clock was set from it.
    wall_ms: Arc<AtomicI64>,
    /// Processor time that was used, in microseconds.
    used_us: Arc<AtomicU64>,
}

impl HandClock {
    pub(crate) fn new() -> HandClock {
        HandClock {
            now: Arc::new(watch::Sender::new(START_MS)),
            sleepers: Arc::new(watch::Sender::new(BTreeMap::new())),
            wall_ms: Arc::default(),
            used_us: Arc::default(),
        }
    }

    /// The server has used so much processor time more.
    pub(crate) fn use_processors(&self, micros: u64) {
        self.used_us.fetch_add(micros, Ordering::SeqCst);
    }

    /// Somebody sets the machine's clock.
    pub(crate) fn step_wall(&self, millis: i64) {
        self.wall_ms.fetch_add(millis, Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, millis: u64) {
        self.now.send_modify(|now| *now += millis);
    }

    /// Moves the time by `millis` as often as somebody waits that long, until the future ends.
    pub(crate) async fn run_out<T>(&self, millis: u64, future: impl Future<Output = T>) -> T {
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                value = &mut future => return value,
                () = self.sleeper(millis) => self.advance(millis),
            }
        }
    }

    /// Waits until somebody sleeps until exactly `millis` from now.
    pub(crate) async fn sleeper(&self, millis: u64) {
        self.sleepers(millis, 1).await;
    }

    /// Waits until `count` sleep until exactly `millis` from now.
    pub(crate) async fn sleepers(&self, millis: u64, count: usize) {
        let at = *self.now.borrow() + millis;
        let mut sleepers = self.sleepers.subscribe();
        let waiting = sleepers.wait_for(|all| all.get(&at).is_some_and(|found| *found >= count));
        guarded("somebody to sleep", waiting).await.unwrap();
    }
}

impl Clock for HandClock {
    fn now(&self) -> Millis {
        Millis(*self.now.borrow())
    }

    fn wall(&self) -> Millis {
        Millis(self.now().0.saturating_add_signed(self.wall_ms.load(Ordering::SeqCst)))
    }

    fn sleep_until(&self, at: Millis) -> Sleep {
        let mut now = self.now.subscribe();
        let sleeper = Sleeper::new(self.sleepers.clone(), at.0);
        Box::pin(async move {
            let _sleeper = sleeper;
            // The clock is gone when the test is: then nobody waits either.
            let _ = now.wait_for(|now| *now >= at.0).await;
        })
    }

    fn used(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.used_us.load(Ordering::SeqCst)))
    }

    fn processors(&self) -> usize {
        2
    }
}

/// Counted for as long as it sleeps.
struct Sleeper {
    all: Arc<watch::Sender<BTreeMap<u64, usize>>>,
    at: u64,
}

impl Sleeper {
    fn new(all: Arc<watch::Sender<BTreeMap<u64, usize>>>, at: u64) -> Sleeper {
        all.send_modify(|all| *all.entry(at).or_default() += 1);
        Sleeper { all, at }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.all.send_modify(|all| {
            if let Some(count) = all.get_mut(&self.at) {
                *count -= 1;
                if *count == 0 {
                    all.remove(&self.at);
                }
            }
        });
    }
}
