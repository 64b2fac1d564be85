//! Values under patterns of segments, and the search for all that match, among millions.
//!
//! One node per beginning of a pattern, with an edge per literal segment, one for `*`, one for
//! `**`, and one per glob such as `git*`. A text is walked once, with the set of nodes that its
//! segments so far can have reached; that set stays small, because only wildcards make it grow.
//!
//! ```text
//! root ─ agents ─▶ · ─ * ─▶ (7) ─ inbox ─▶ (3, 9)      7    agents *
//!   │              └── ** ─▶ (8)                       3, 9 agents * inbox
//!   ├─── git* ───▶ (4)                                 8    agents **
//!   └─── ** ─────▶ (1)                                 4    git*              1  **
//! ```
//!
//! Segments are interned, so that a text's segment is hashed once, however many nodes are asked
//! for it. Nodes are numbers into one vector, and all edges are in one map. Globs are kept apart,
//! because few nodes have any: sorted, so that only those are tried whose beginning up to the
//! first `*` is a beginning of the segment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::ops::Bound;

use foldhash::fast::FixedState;

use crate::steps::Steps;
use crate::wildcard;

/// Characters of a glob that are compared in the time of one step.
pub(crate) const CHARACTERS_PER_STEP: usize = 8;

/// Which values a search is for: in their order, those above one and up to another, and of these
/// the first so many.
#[derive(Debug, Clone, Copy)]
pub struct Page<V> {
    pub after: Option<V>,
    pub through: Option<V>,
    pub limit: usize,
}

impl<V> Page<V> {
    /// All of them.
    pub fn all() -> Page<V> {
        Page { after: None, through: None, limit: usize::MAX }
    }
}

/// What a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<V> {
    /// Sorted, each once.
    pub values: Vec<V>,
    /// The highest that there is, be it beyond what was asked for.
    pub highest: Option<V>,
}

/// Values under patterns. One value may stand under many patterns, and a pattern may hold many.
///
/// What is removed is given back for the next that come, not to the allocator.
pub(crate) struct Trie<V> {
    /// A node's number is its place here, counted from one. The first is the root.
    nodes: Vec<Node<V>>,
    free_nodes: Vec<NodeId>,
    edges: HashMap<Edge, NodeId, FixedState>,
    segments: HashMap<Box<str>, Interned, FixedState>,
    free_segments: Vec<u32>,
    /// The globs of every node that has some, each with where it leads to.
    globs: HashMap<NodeId, BTreeMap<Box<str>, NodeId>, FixedState>,
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
    has_globs: bool,
}

/// What one segment of a pattern is.
#[derive(Clone, Copy)]
enum Step<'a> {
    Any,
    Deep,
    Glob(&'a str),
    Literal(&'a str),
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

impl<V: Copy + Ord> Trie<V> {
    /// An empty matcher whose hashes begin at `seed`. What it matches does not depend on it, but
    /// clients who cannot know it find it harder to make segments collide.
    pub(crate) fn with_seed(seed: u64) -> Trie<V> {
        Trie {
            nodes: vec![Node::new(false)],
            free_nodes: Vec::new(),
            edges: HashMap::with_hasher(FixedState::with_seed(seed)),
            segments: HashMap::with_hasher(FixedState::with_seed(seed)),
            free_segments: Vec::new(),
            globs: HashMap::with_hasher(FixedState::with_seed(seed)),
            len: 0,
        }
    }

    /// Puts `value` under `pattern`; nothing happens if it is there already. No `**` may follow
    /// another.
    pub(crate) fn insert<'a>(&mut self, pattern: impl Iterator<Item = &'a str>, value: V) {
        let mut at = ROOT;
        for step in pattern.map(Step::of) {
            at = match self.child(at, step) {
                Some(child) => child,
                None => self.grow(at, step),
            };
        }
        if self.node_mut(at).values.insert(value) {
            self.len += 1;
        }
    }

    /// Takes `value` from under `pattern`, and whatever only it needed; `false` if it was not
    /// there.
    pub(crate) fn remove<'a>(&mut self, pattern: impl Iterator<Item = &'a str>, value: V) -> bool {
        let mut way = Vec::new();
        let mut at = ROOT;
        for step in pattern.map(Step::of) {
            let Some(child) = self.child(at, step) else {
                return false;
            };
            way.push((at, step));
            at = child;
        }
        if !self.node_mut(at).values.remove(value) {
            return false;
        }
        self.len -= 1;
        for (parent, step) in way.into_iter().rev() {
            if !self.node(at).is_needless() {
                break;
            }
            self.prune(parent, step, at);
            at = parent;
        }
        true
    }

    /// Every value that stands under a matching pattern, as far as it was asked for; `None` if
    /// finding them takes more steps than it may. `wildcards_first` says whether a wildcard may
    /// stand for the first segment.
    pub(crate) fn search<'a>(
        &self,
        text: impl Iterator<Item = &'a str>,
        wildcards_first: bool,
        page: Page<V>,
        steps: &mut Steps,
    ) -> Option<Found<V>> {
        let mut found = Found { values: Vec::new(), highest: None };
        let mut wildcards = wildcards_first;
        let mut live = vec![ROOT];
        live.extend(self.node(ROOT).deep.filter(|_| wildcards));
        let mut next = Vec::new();
        for segment in text {
            self.advance(&live, segment, wildcards, &mut next, steps)?;
            std::mem::swap(&mut live, &mut next);
            if live.is_empty() {
                return Some(found);
            }
            wildcards = true;
        }
        for node in live {
            let before = found.values.len();
            self.node(node).values.copy_to(page, &mut found);
            within(steps.count(1 + found.values.len() - before))?;
        }
        found.values.sort_unstable();
        found.values.dedup();
        found.values.truncate(page.limit);
        Some(found)
    }

    /// How many pairs of a pattern and a value there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The nodes that one more segment leads to; `None` if that takes too many steps.
    fn advance(
        &self,
        live: &[NodeId],
        segment: &str,
        wildcards: bool,
        next: &mut Vec<NodeId>,
        steps: &mut Steps,
    ) -> Option<()> {
        next.clear();
        within(steps.count(live.len()))?;
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
            if node.has_globs && wildcards {
                self.advance_globs(from, segment, next, steps)?;
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
        Some(())
    }

    /// The nodes that the globs of one node lead to.
    fn advance_globs(
        &self,
        from: NodeId,
        segment: &str,
        next: &mut Vec<NodeId>,
        steps: &mut Steps,
    ) -> Option<()> {
        let Some(globs) = self.globs.get(&from) else { return Some(()) };
        let mut beginning = String::with_capacity(segment.len() + 1);
        for more in std::iter::once("").chain(segment.split_inclusive(|_: char| true)) {
            beginning.push_str(more);
            beginning.push('*');
            within(steps.count(1))?;
            let ahead = globs.range::<str, _>((Bound::Included(&*beginning), Bound::Unbounded));
            for (glob, child) in ahead.take_while(|(glob, _)| glob.starts_with(&*beginning)) {
                let (fits, compared) = wildcard::glob_matches(glob, segment);
                within(steps.count(1 + compared / CHARACTERS_PER_STEP))?;
                if fits {
                    next.push(*child);
                }
            }
            beginning.pop();
        }
        Some(())
    }

    fn child(&self, at: NodeId, step: Step<'_>) -> Option<NodeId> {
        match step {
            Step::Any => self.node(at).any,
            Step::Deep => self.node(at).deep,
            Step::Glob(glob) => self.globs.get(&at)?.get(glob).copied(),
            Step::Literal(literal) => {
                let segment = self.segments.get(literal)?.id;
                self.edges.get(&Edge { from: at, segment }).copied()
            }
        }
    }

    /// Adds the child that is not there yet.
    fn grow(&mut self, parent: NodeId, step: Step<'_>) -> NodeId {
        let child = self.free_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(Node::new(false));
            let number = u32::try_from(self.nodes.len()).ok().and_then(NonZeroU32::new);
            NodeId(number.expect("four billion nodes do not fit into memory"))
        });
        *self.node_mut(child) = Node::new(matches!(step, Step::Deep));
        match step {
            Step::Any => self.node_mut(parent).any = Some(child),
            Step::Deep => self.node_mut(parent).deep = Some(child),
            Step::Glob(glob) => {
                self.globs.entry(parent).or_default().insert(glob.into(), child);
                self.node_mut(parent).has_globs = true;
            }
            Step::Literal(literal) => {
                let segment = self.intern(literal);
                self.edges.insert(Edge { from: parent, segment }, child);
                self.node_mut(parent).literals += 1;
            }
        }
        child
    }

    /// Takes away a child that nothing needs.
    fn prune(&mut self, parent: NodeId, step: Step<'_>, child: NodeId) {
        match step {
            Step::Any => self.node_mut(parent).any = None,
            Step::Deep => self.node_mut(parent).deep = None,
            Step::Glob(glob) => self.prune_glob(parent, glob),
            Step::Literal(literal) => {
                let segment = self.release(literal);
                self.edges.remove(&Edge { from: parent, segment });
                self.node_mut(parent).literals -= 1;
            }
        }
        self.free_nodes.push(child);
    }

    fn prune_glob(&mut self, parent: NodeId, glob: &str) {
        let globs = self.globs.get_mut(&parent).expect("the node has this glob");
        globs.remove(glob);
        if globs.is_empty() {
            self.globs.remove(&parent);
            self.node_mut(parent).has_globs = false;
        }
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

impl<'a> Step<'a> {
    fn of(segment: &'a str) -> Step<'a> {
        match segment {
            "*" => Step::Any,
            "**" => Step::Deep,
            glob if glob.contains('*') => Step::Glob(glob),
            literal => Step::Literal(literal),
        }
    }
}

impl NodeId {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<V> Node<V> {
    fn new(is_deep: bool) -> Node<V> {
        Node { values: Values::None, any: None, deep: None, literals: 0, is_deep, has_globs: false }
    }

    fn is_needless(&self) -> bool {
        let wild = self.any.is_some() || self.deep.is_some() || self.has_globs;
        !wild && self.literals == 0 && matches!(self.values, Values::None)
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

    fn copy_to(&self, page: Page<V>, found: &mut Found<V>) {
        let above = |value: &V| page.after.is_none_or(|after| *value > after);
        let below = |value: &V| page.through.is_none_or(|through| *value <= through);
        let highest = match self {
            Values::None => None,
            Values::One(one) => {
                let one = Some(*one).filter(|one| above(one) && below(one));
                found.values.extend(one);
                one
            }
            Values::Many(many) => {
                let from = page.after.map_or(Bound::Unbounded, Bound::Excluded);
                let first = many.range((from, Bound::Unbounded)).take_while(|value| below(value));
                found.values.extend(first.take(page.limit));
                let to = page.through.map_or(Bound::Unbounded, Bound::Included);
                many.range((Bound::Unbounded, to)).next_back().filter(|last| above(last)).copied()
            }
        };
        found.highest = found.highest.max(highest);
    }
}

fn within(is_within: bool) -> Option<()> {
    is_within.then_some(())
}

#[cfg(test)]
pub(crate) mod holding;
