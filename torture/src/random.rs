//! Choices that a seed repeats.

/// SplitMix64: tiny, and good enough to choose work with.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A seed nobody chose: the hasher's keys are the standard library's only randomness.
    pub(crate) fn fresh_seed() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one("seed") >> 32
    }

    /// An independent sequence for `label`, the same for the same seed.
    pub(crate) fn branch(&self, label: u64) -> Random {
        let mut branch = Random(self.0 ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93));
        branch.next();
        branch
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` up to but not including `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.between(0, n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.between(0, items.len() as u64);
        items.get(usize::try_from(index).ok()?)
    }
}
