//! Whoever is worst off, first: a few of many have gauges of their own, and the rest is a sum.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// How badly off somebody is.
pub trait Load: Copy + PartialEq {
    /// The same of several together.
    type Sum: Copy + Default;

    /// Whether there is nothing to say.
    fn is_idle(&self) -> bool;

    /// Those that fail are worse off than those that are busy.
    fn rank(&self) -> (bool, u64);

    fn add_to(&self, sum: &mut Self::Sum);

    fn take_from(&self, sum: &mut Self::Sum);
}

/// All who are not idle.
pub struct Ranking<K, L: Load> {
    loads: HashMap<K, L>,
    by_rank: BTreeSet<((bool, u64), K)>,
    total: L::Sum,
}

/// Those who are worst off, and all others together.
#[derive(Debug, Clone)]
pub struct Worst<K, L: Load> {
    pub first: Vec<(K, L)>,
    pub others: L::Sum,
}

impl<K, L: Load> Default for Ranking<K, L> {
    fn default() -> Ranking<K, L> {
        Ranking { loads: HashMap::new(), by_rank: BTreeSet::new(), total: L::Sum::default() }
    }
}

impl<K: Copy + Eq + Hash + Ord, L: Load> Ranking<K, L> {
    pub fn get(&self, of: K) -> Option<&L> {
        self.loads.get(&of)
    }

    /// Changes what has nothing to do with ranks and sums.
    pub(crate) fn note(&mut self, of: K, note: impl FnOnce(&mut L)) {
        self.loads.get_mut(&of).map(note);
    }

    /// Somebody is this badly off from now on.
    pub fn set(&mut self, of: K, after: L) {
        let before = self.loads.get(&of).copied();
        if before == Some(after) {
            return;
        }
        if let Some(before) = before {
            self.by_rank.remove(&(before.rank(), of));
            before.take_from(&mut self.total);
        }
        if after.is_idle() {
            self.loads.remove(&of);
            return;
        }
        self.by_rank.insert((after.rank(), of));
        after.add_to(&mut self.total);
        self.loads.insert(of, after);
    }

    /// Those who are worst off, at most so many, and the rest.
    pub fn worst(&self, limit: usize) -> Worst<K, L> {
        let worst = self.by_rank.iter().rev().take(limit);
        let of = |(_, of): &((bool, u64), K)| Some((*of, *self.loads.get(of)?));
        let first: Vec<(K, L)> = worst.filter_map(of).collect();
        let mut others = self.total;
        for (_, load) in &first {
            load.take_from(&mut others);
        }
        Worst { first, others }
    }
}
