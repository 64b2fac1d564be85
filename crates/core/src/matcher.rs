//! From a path to everything whose pattern matches it, among millions of patterns.

use crate::path::StreamPath;
use crate::pattern::{Pattern, places};
use crate::steps::Steps;
use crate::trie::Trie;
pub use crate::trie::{Found, Page};

/// Values under patterns. One value may stand under many patterns, and a pattern may hold many.
///
/// What is removed is given back for the next that come, not to the allocator.
pub struct Matcher<V>(Trie<V>);

impl<V: Copy + Ord> Default for Matcher<V> {
    fn default() -> Matcher<V> {
        Matcher::with_seed(0)
    }
}

impl<V: Copy + Ord> Matcher<V> {
    /// An empty matcher whose hashes begin at `seed`. What it matches does not depend on it, but
    /// clients who cannot know it find it harder to make segments collide.
    pub fn with_seed(seed: u64) -> Matcher<V> {
        Matcher(Trie::with_seed(seed))
    }

    /// Puts `value` under `pattern`; nothing happens if it is there already.
    pub fn insert(&mut self, pattern: &Pattern, value: V) {
        self.0.insert(places(pattern.as_str()), value);
    }

    /// Takes `value` from under `pattern`, and whatever only it needed; `false` if it was not
    /// there.
    pub fn remove(&mut self, pattern: &Pattern, value: V) -> bool {
        self.0.remove(places(pattern.as_str()), value)
    }

    /// Appends to `out` every value that stands under a matching pattern: sorted, each once.
    pub fn matches(&self, path: &StreamPath, out: &mut Vec<V>) {
        let found = self.search(path, Page::all(), &mut Steps::unlimited());
        out.extend(found.into_iter().flat_map(|found| found.values));
    }

    /// The same as far as it was asked for; `None` if that takes more steps than it may.
    pub fn search(&self, path: &StreamPath, page: Page<V>, steps: &mut Steps) -> Option<Found<V>> {
        // The server's own streams are matched by no wildcard in first place (see `Pattern`).
        self.0.search(places(path.as_str()), !path.is_internal(), page, steps)
    }

    /// How many pairs of a pattern and a value there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no value under any pattern.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
