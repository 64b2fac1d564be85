//! From a path to everything whose pattern matches it, among millions of patterns.
//!
//! A trie of segments: one node per beginning of a pattern, with an edge per literal segment, one
//! for `*` and one for `**`. A path is walked once, with the set of nodes that its segments so far
//! can have reached; that set stays small, because only wildcards make it grow.
//!
//! ```text
//! root ─ agents ─▶ · ─ * ─▶ (7) ─ inbox ─▶ (3, 9)      7    /agents/*
//!   │              └── ** ─▶ (8)                       3, 9 /agents/*/inbox
//!   └─── ** ─────▶ (1)                                 8    /agents/**        1  /**
//! ```
//!
//! Segments are interned, so that a path's segment is hashed once, however many nodes are asked
//! for it. Nodes are numbers into one vector, and all edges are in one map.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;

use foldhash::fast::FixedState;

use crate::path::StreamPath;
use crate::pattern::{Pattern, places};

/// Values under patterns. One value may stand under many patterns, and a pattern may hold many.
///
/// What is removed is given back for the next that come, not to the allocator.
pub struct Matcher<V> {
    /// A node's number is its place here, counted from one. The first is the root.
    nodes: Vec<Node<V>>,
    free_nodes: Vec<NodeId>,
    edges: HashMap<Edge, NodeId, FixedState>,
    segments: HashMap<Box<str>, Interned, FixedState>,
    free_segments: Vec<u32>,
    /// Pairs of a pattern and a value.
    len: usize,
}

/// Never zero, so that a link that is not there takes no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NodeId(NonZeroU32);

const ROOT: NodeId = NodeId(NonZeroU32::MIN);

struct Node<V> {
    values: Values<V>,
    any: Option<NodeId>,
    deep: Option<NodeId>,
    /// How many edges of literal segments leave from here.
    literals: u32,
    /// Whether `**` led here: then every further segment leads here again.
    is_deep: bool,
}

/// A literal segment that leaves a node.
///
/// The hash must mix both halves: under a weak one, the edges called `agents` of a million nodes
/// would all collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Edge {
    from: NodeId,
    segment: u32,
}

/// The number of a segment's text, and how many edges carry it.
struct Interned {
    id: u32,
    uses: u32,
}

/// Nearly always one value or none, so those take no room of their own.
enum Values<V> {
    None,
    One(V),
    #[expect(clippy::box_collection, reason = "a node is 32 bytes, not 48")]
    Many(Box<BTreeSet<V>>),
}

impl<V: Copy + Ord> Default for Matcher<V> {
    fn default() -> Matcher<V> {
        Matcher::with_seed(0)
    }
}

impl<V: Copy + Ord> Matcher<V> {
    /// An empty matcher whose hashes begin at `seed`. What it matches does not depend on it, but
    /// clients who cannot know it find it harder to make segments collide.
    pub fn with_seed(seed: u64) -> Matcher<V> {
        Matcher {
            nodes: vec![Node::new(false)],
            free_nodes: Vec::new(),
            edges: HashMap::with_hasher(FixedState::with_seed(seed)),
            segments: HashMap::with_hasher(FixedState::with_seed(seed)),
            free_segments: Vec::new(),
            len: 0,
        }
    }

    /// Puts `value` under `pattern`; nothing happens if it is there already.
    pub fn insert(&mut self, pattern: &Pattern, value: V) {
        let mut at = ROOT;
        for segment in places(pattern.as_str()) {
            at = match self.child(at, segment) {
                Some(child) => child,
                None => self.grow(at, segment),
            };
        }
        if self.node_mut(at).values.insert(value) {
            self.len += 1;
        }
    }

    /// Takes `value` from under `pattern`, and whatever only it needed; `false` if it was not
    /// there.
    pub fn remove(&mut self, pattern: &Pattern, value: V) -> bool {
        let mut way = Vec::new();
        let mut at = ROOT;
        for segment in places(pattern.as_str()) {
            let Some(child) = self.child(at, segment) else {
                return false;
            };
            way.push((at, segment));
            at = child;
        }
        if !self.node_mut(at).values.remove(value) {
            return false;
        }
        self.len -= 1;
        for (parent, segment) in way.into_iter().rev() {
            if !self.node(at).is_needless() {
                break;
            }
            self.prune(parent, segment, at);
            at = parent;
        }
        true
    }

    /// Appends to `out` every value that stands under a matching pattern: sorted, each once.
    pub fn matches(&self, path: &StreamPath, out: &mut Vec<V>) {
        // The server's own streams are matched by no wildcard in first place (see `Pattern`).
        let mut wildcards = !path.is_internal();
        let mut live = vec![ROOT];
        live.extend(self.node(ROOT).deep.filter(|_| wildcards));
        let mut next = Vec::new();
        for segment in places(path.as_str()) {
            self.advance(&live, segment, wildcards, &mut next);
            std::mem::swap(&mut live, &mut next);
            if live.is_empty() {
                return;
            }
            wildcards = true;
        }
        let mut found = Vec::new();
        for node in live {
            self.node(node).values.copy_to(&mut found);
        }
        found.sort_unstable();
        found.dedup();
        out.append(&mut found);
    }

    /// How many pairs of a pattern and a value there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value under any pattern.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The nodes that one more segment leads to.
    fn advance(&self, live: &[NodeId], segment: &str, wildcards: bool, next: &mut Vec<NodeId>) {
        next.clear();
        let interned = self.segments.get(segment).map(|interned| interned.id);
        for &from in live {
            let node = self.node(from);
            if node.is_deep {
                next.push(from);
            }
            if wildcards {
                next.extend(node.any);
            }
            if node.literals > 0 {
                let edge = interned.and_then(|segment| self.edges.get(&Edge { from, segment }));
                next.extend(edge);
            }
        }
        // `**` stands for nothing, too. None follows another, so one round is enough.
        for index in 0..next.len() {
            let deep = next.get(index).and_then(|&node| self.node(node).deep);
            next.extend(deep);
        }
        // A `**` that was live already may have been entered anew.
        next.sort_unstable();
        next.dedup();
    }

    fn child(&self, at: NodeId, segment: &str) -> Option<NodeId> {
        match segment {
            "*" => self.node(at).any,
            "**" => self.node(at).deep,
            literal => {
                let segment = self.segments.get(literal)?.id;
                self.edges.get(&Edge { from: at, segment }).copied()
            }
        }
    }

    /// Adds the child that is not there yet.
    fn grow(&mut self, parent: NodeId, segment: &str) -> NodeId {
        let child = self.free_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(Node::new(false));
            let number = u32::try_from(self.nodes.len()).ok().and_then(NonZeroU32::new);
            NodeId(number.expect("four billion nodes do not fit into memory"))
        });
        *self.node_mut(child) = Node::new(segment == "**");
        match segment {
            "*" => self.node_mut(parent).any = Some(child),
            "**" => self.node_mut(parent).deep = Some(child),
            literal => {
                let segment = self.intern(literal);
                self.edges.insert(Edge { from: parent, segment }, child);
                self.node_mut(parent).literals += 1;
            }
        }
        child
    }

    /// Takes away a child that nothing needs.
    fn prune(&mut self, parent: NodeId, segment: &str, child: NodeId) {
        match segment {
            "*" => self.node_mut(parent).any = None,
            "**" => self.node_mut(parent).deep = None,
            literal => {
                let segment = self.release(literal);
                self.edges.remove(&Edge { from: parent, segment });
                self.node_mut(parent).literals -= 1;
            }
        }
        self.free_nodes.push(child);
    }

    /// The number of `text`, for one more edge.
    fn intern(&mut self, text: &str) -> u32 {
        if let Some(interned) = self.segments.get_mut(text) {
            interned.uses += 1;
            return interned.id;
        }
        // Without a free number, all below the count of segments are taken.
        let id = self.free_segments.pop().unwrap_or_else(|| {
            u32::try_from(self.segments.len()).expect("there are no more segments than nodes")
        });
        self.segments.insert(text.into(), Interned { id, uses: 1 });
        id
    }

    /// The number of `text`, which one edge less carries now.
    fn release(&mut self, text: &str) -> u32 {
        let interned = self.segments.get_mut(text).expect("an edge carries this segment");
        let id = interned.id;
        interned.uses -= 1;
        if interned.uses == 0 {
            self.segments.remove(text);
            self.free_segments.push(id);
        }
        id
    }

    fn node(&self, id: NodeId) -> &Node<V> {
        self.nodes.get(id.index()).expect("only nodes that exist have a number")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<V> {
        self.nodes.get_mut(id.index()).expect("only nodes that exist have a number")
    }
}

impl NodeId {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<V> Node<V> {
    fn new(is_deep: bool) -> Node<V> {
        Node { values: Values::None, any: None, deep: None, literals: 0, is_deep }
    }

    fn is_needless(&self) -> bool {
        let childless = self.literals == 0 && self.any.is_none() && self.deep.is_none();
        childless && matches!(self.values, Values::None)
    }
}

impl<V: Copy + Ord> Values<V> {
    /// Whether it is new.
    fn insert(&mut self, value: V) -> bool {
        match self {
            Values::None => *self = Values::One(value),
            Values::One(one) if *one == value => return false,
            Values::One(one) => *self = Values::Many(Box::new(BTreeSet::from([*one, value]))),
            Values::Many(many) => return many.insert(value),
        }
        true
    }

    /// Whether it was there.
    fn remove(&mut self, value: V) -> bool {
        match self {
            Values::One(one) if *one == value => *self = Values::None,
            Values::None | Values::One(_) => return false,
            Values::Many(many) => {
                if !many.remove(&value) {
                    return false;
                }
                if let (1, Some(last)) = (many.len(), many.first().copied()) {
                    *self = Values::One(last);
                }
            }
        }
        true
    }

    fn copy_to(&self, out: &mut Vec<V>) {
        match self {
            Values::None => {}
            Values::One(one) => out.push(*one),
            Values::Many(many) => out.extend(many.iter()),
        }
    }
}

#[cfg(test)]
mod tests;
