//! How many attempts may be under way: a number for the whole process, which partitions share.
//!
//! Half of all places are divided among the partitions, so that none can keep another from sending;
//! the other half is for whoever needs more.
//!
//! Tenants share what a partition can have by one rule: a tenant may take another place while it
//! holds fewer than are free. One alone has half of them, whoever comes next half of the rest, and
//! as places are given back they come to equal parts, with as many left for the next one. A quick
//! place is given back after a second at the latest, whatever an endpoint does (`queues.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The places of a process. Attempts that were sent a moment ago and those that have been open for
/// a while are counted apart, each up to the same number.
pub struct PlacePool {
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
        Arc::new(PlacePool { reserve, quick, slow, waiting: Mutex::default() })
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

    /// Places that could be taken now.
    pub(super) fn free(&self) -> usize {
        let own = (self.reserve + self.borrowed).saturating_sub(self.used);
        own + self.common.load(Ordering::Relaxed)
    }

    /// Whether a tenant that holds so many of them may take another one.
    pub(super) fn has_room_for(&self, held: usize) -> bool {
        held < self.free()
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
        assert!(other.free() == 2 && other.take() && other.take());
        assert!(other.free() == 0 && !other.take());
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
        assert_eq!(pool.slow().free(), 3, "slow ones have places of their own");
    }

    /// Takes what a tenant may have that holds so many.
    fn take_share(places: &mut Places, mut held: usize) -> usize {
        while places.has_room_for(held) && places.take() {
            held += 1;
        }
        held
    }

    #[test]
    fn tenants_that_hold_what_they_can_leave_room_and_come_to_equal_parts() {
        let mut places = Places::alone(60);
        assert_eq!(take_share(&mut places, 0), 30);
        let mut held = [30, take_share(&mut places, 0)];
        assert_eq!(held, [30, 15]);
        // Each gives one back in turn, and takes what it may.
        for round in 0..100 {
            let mine = &mut held[round % 2];
            places.give();
            *mine = take_share(&mut places, *mine - 1);
        }
        assert_eq!((held, places.free()), ([20, 20], 20), "a third each, and one for the next");
    }
}
