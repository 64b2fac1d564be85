//! From an event's type to everything whose pattern matches it, among millions of patterns.

use super::{EventPattern, EventType};
use crate::matcher::{Found, Page};
use crate::steps::Steps;
use crate::trie::Trie;

/// Values under patterns over event types.
///
/// Patterns that differ only in how many `**` follow each other are one and the same here. What is
/// removed is given back for the next that come, not to the allocator. A search costs a few
/// lookups per segment; only patterns such as `*hub`, whose glob begins with its `*`, are tried
/// one by one where many stand behind the same segments.
pub struct EventMatcher<V>(Trie<V>);

impl<V: Copy + Ord> Default for EventMatcher<V> {
    fn default() -> EventMatcher<V> {
        EventMatcher::with_seed(0)
    }
}

impl<V: Copy + Ord> EventMatcher<V> {
    /// An empty matcher whose hashes begin at `seed`. What it matches does not depend on it, but
    /// clients who cannot know it find it harder to make segments collide.
    pub fn with_seed(seed: u64) -> EventMatcher<V> {
        EventMatcher(Trie::with_seed(seed))
    }

    /// Puts `value` under `pattern`; nothing happens if it is there already.
    pub fn insert(&mut self, pattern: &EventPattern, value: V) {
        self.0.insert(steps(pattern), value);
    }

    /// Takes `value` from under `pattern`, and whatever only it needed; `false` if it was not
    /// there.
    pub fn remove(&mut self, pattern: &EventPattern, value: V) -> bool {
        self.0.remove(steps(pattern), value)
    }

    /// Appends to `out` every value that stands under a matching pattern: sorted, each once.
    pub fn matches(&self, kind: &EventType, out: &mut Vec<V>) {
        let found = self.search(kind, Page::all(), &mut Steps::unlimited());
        out.extend(found.into_iter().flat_map(|found| found.values));
    }

    /// The same as far as it was asked for; `None` if that takes more steps than it may.
    pub fn search(&self, kind: &EventType, page: Page<V>, steps: &mut Steps) -> Option<Found<V>> {
        self.0.search(kind.segments(), true, page, steps)
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

/// The segments of the pattern without a `**` that follows another: it adds nothing.
fn steps(pattern: &EventPattern) -> impl Iterator<Item = &str> {
    let mut after_deep = false;
    pattern.segments().filter(move |segment| {
        let deep = *segment == "**";
        !(std::mem::replace(&mut after_deep, deep) && deep)
    })
}

#[cfg(test)]
mod tests;
