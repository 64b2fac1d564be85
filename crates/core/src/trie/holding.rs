//! What a trie holds, for tests that nothing is left of what was removed.

use super::*;

/// What is in use, and what waits to be used again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Nodes in use, the root among them.
    pub(crate) nodes: usize,
    /// Edges of literal segments.
    pub(crate) edges: usize,
    /// Edges of globs.
    pub(crate) globs: usize,
    /// How many edges carry each segment.
    pub(crate) segments: Vec<(String, u32)>,
}

impl<V: Copy + Ord> Trie<V> {
    pub(crate) fn held(&self) -> Held {
        let mut segments: Vec<(String, u32)> = self
            .segments
            .iter()
            .map(|(text, interned)| (text.to_string(), interned.uses))
            .collect();
        segments.sort();
        Held {
            nodes: self.nodes.len() - self.free_nodes.len(),
            edges: self.edges.len(),
            globs: self.globs.values().map(BTreeMap::len).sum(),
            segments,
        }
    }

    /// How many numbers were ever given to nodes, and how many of segments wait for the next.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        (self.nodes.len(), self.free_segments.len())
    }

    /// How many steps a search takes.
    pub(crate) fn steps<'a>(&self, text: impl Iterator<Item = &'a str>) -> usize {
        let mut steps = Steps::unlimited();
        self.search(text, true, Page::all(), &mut steps);
        steps.used()
    }
}
