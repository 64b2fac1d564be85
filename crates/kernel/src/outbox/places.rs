//! How many attempts may be under way: a number for the whole process, which partitions share.
//!
//! Half of all places are divided among the partitions, so that none can keep another from sending;
//! the other half is for whoever needs more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The places of a process. Attempts that were sent a moment ago and those that have been open for
/// a while are counted apart, each up to the same number.
pub struct PlacePool {
    concurrency: usize,
    /// Those that every partition has for itself.
    reserve: usize,
    quick: Arc<AtomicUsize>,
    slow: Arc<AtomicUsize>,
    /// Who is told when a place that everybody may take is free again.
    waiting: Mutex<Vec<Arc<Notify>>>,
}

impl PlacePool {
    /// So many places for so many partitions.
    pub fn new(concurrency: usize, partitions: usize) -> Arc<PlacePool> {
        let concurrency = concurrency.max(1);
        let reserve = match partitions {
            0 | 1 => concurrency,
            _ => (concurrency / 2 / partitions).max(1),
        };
        let free = concurrency.saturating_sub(reserve * partitions.max(1));
        let common = || Arc::new(AtomicUsize::new(free));
        let (quick, slow) = (common(), common());
        Arc::new(PlacePool { concurrency, reserve, quick, slow, waiting: Mutex::default() })
    }

    pub(super) fn concurrency(&self) -> usize {
        self.concurrency
    }

    pub(super) fn tell(&self, ready: Arc<Notify>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(ready);
    }

    pub(super) fn quick(self: &Arc<PlacePool>) -> Places {
        Places::new(self.reserve, self.quick.clone(), Some(self.clone()))
    }

    pub(super) fn slow(self: &Arc<PlacePool>) -> Places {
        Places::new(self.reserve, self.slow.clone(), Some(self.clone()))
    }

    fn freed(&self) {
        for ready in self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            ready.notify_one();
        }
    }
}

/// The places that one partition has of one kind.
pub(super) struct Places {
    used: usize,
    reserve: usize,
    borrowed: usize,
    common: Arc<AtomicUsize>,
    pool: Option<Arc<PlacePool>>,
}

impl Places {
    fn new(reserve: usize, common: Arc<AtomicUsize>, pool: Option<Arc<PlacePool>>) -> Places {
        Places { used: 0, reserve, borrowed: 0, common, pool }
    }

    /// Places that belong to nobody else.
    pub(super) fn alone(places: usize) -> Places {
        Places::new(places, Arc::default(), None)
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn is_free(&self) -> bool {
        self.used < self.reserve + self.borrowed || self.common.load(Ordering::Relaxed) > 0
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&mut self) -> bool {
        if self.used >= self.reserve + self.borrowed {
            let less = |free: usize| free.checked_sub(1);
            if self.common.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_err() {
                return false;
            }
            self.borrowed += 1;
        }
        self.used += 1;
        true
    }

    /// Gives a place back: first one that others may want.
    pub(super) fn give(&mut self) {
        self.used -= 1;
        if self.borrowed > 0 {
            self.borrowed -= 1;
            if self.common.fetch_add(1, Ordering::AcqRel) == 0
                && let Some(pool) = &self.pool
            {
                pool.freed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_have_the_places_of_all() {
        let pool = PlacePool::new(16, 4);
        let (mut greedy, mut other) = (pool.quick(), pool.quick());
        let taken = std::iter::from_fn(|| greedy.take().then_some(())).count();
        assert_eq!(taken, 2 + 8, "its own, and what is for everybody");
        assert!(other.is_free() && other.take() && other.take());
        assert!(!other.is_free() && !other.take());
        greedy.give();
        assert!(other.take(), "what was borrowed is for everybody again");
        assert!(!greedy.take());
        assert_eq!((greedy.used(), other.used()), (9, 3));
    }

    #[test]
    fn a_partition_alone_has_all_places() {
        let pool = PlacePool::new(3, 1);
        let mut places = pool.quick();
        assert_eq!(std::iter::from_fn(|| places.take().then_some(())).count(), 3);
        assert!(pool.slow().is_free(), "slow ones have places of their own");
    }
}
