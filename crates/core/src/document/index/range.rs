//! Ranges of keys: where the documents are that a filter can match.

use bytes::Bytes;

use crate::document::filter::{Filter, FilterOp};
use crate::document::index_key::{complement, encode, tags};
use crate::document::order::Direction;
use crate::document::value::ValueRef;
use crate::key_range::after_prefix;

/// Keys from `start` up to, and without, `end`; without an end, all that follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Bytes,
    pub end: Option<Bytes>,
}

/// A place between values, as ascending bytes.
enum Edge {
    /// Before all that begin with these bytes.
    Before(Vec<u8>),
    /// After all that do.
    After(Vec<u8>),
}

impl KeyRange {
    /// All keys that begin so.
    pub(super) fn of_prefix(prefix: &[u8]) -> KeyRange {
        let end = (!prefix.is_empty()).then(|| after_prefix(prefix));
        KeyRange { start: Bytes::copy_from_slice(prefix), end }
    }

    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    pub(super) fn intersect(&mut self, other: KeyRange) {
        if other.start > self.start {
            self.start = other.start;
        }
        self.end = match (self.end.take(), other.end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// The keys that can match a range filter, where the field follows `prefix`. What was cut off of
/// its encoding is looked at again: the range has rather too much.
pub(super) fn of_filter(filter: &Filter, direction: Direction, prefix: &[u8]) -> Option<KeyRange> {
    let value = ValueRef::from(filter.value());
    let mut bytes = Vec::new();
    let is_whole = encode(Some(value), Direction::Asc, &mut bytes);
    let (first, last) = tags(value.kind());
    let (low, high) = (Edge::Before(vec![first]), Edge::After(vec![last]));
    let (low, high) = match filter.op {
        FilterOp::More if is_whole => (Edge::After(bytes), high),
        FilterOp::More | FilterOp::AtLeast => (Edge::Before(bytes), high),
        FilterOp::Less if is_whole => (low, Edge::Before(bytes)),
        FilterOp::Less | FilterOp::AtMost => (low, Edge::After(bytes)),
        FilterOp::Equal
        | FilterOp::NotEqual
        | FilterOp::In
        | FilterOp::NotIn
        | FilterOp::ArrayContains => return None,
    };
    let (start, end) = match direction {
        Direction::Asc => (low.key(direction, prefix), high.key(direction, prefix)),
        Direction::Desc => (high.key(direction, prefix), low.key(direction, prefix)),
    };
    Some(KeyRange { start, end: Some(end) })
}

impl Edge {
    fn key(self, direction: Direction, prefix: &[u8]) -> Bytes {
        let (mut bytes, is_after) = match self {
            Edge::Before(bytes) => (bytes, false),
            Edge::After(bytes) => (bytes, true),
        };
        let is_down = direction == Direction::Desc;
        if is_down {
            complement(&mut bytes);
        }
        let key = [prefix, &bytes].concat();
        // What comes before in ascending bytes comes after in descending ones.
        if is_after == is_down { key.into() } else { after_prefix(&key) }
    }
}

/// The keys that can match a filter on the id, which stands plainly behind `prefix`.
pub(super) fn of_id(filter: &Filter, prefix: &[u8]) -> Option<KeyRange> {
    let all = KeyRange::of_prefix(prefix);
    let Some(id) = filter.value().as_str() else {
        // An id is a text: no range of other values has one.
        let is_range = filter.op.is_range() || filter.op == FilterOp::Equal;
        return is_range.then(|| KeyRange { start: all.start.clone(), end: Some(all.start) });
    };
    let at = Bytes::from([prefix, id.as_bytes()].concat());
    let behind = crate::key_range::above(&at);
    Some(match filter.op {
        FilterOp::Equal => KeyRange { start: at, end: Some(behind) },
        FilterOp::More => KeyRange { start: behind, end: all.end },
        FilterOp::AtLeast => KeyRange { start: at, end: all.end },
        FilterOp::Less => KeyRange { start: all.start, end: Some(at) },
        FilterOp::AtMost => KeyRange { start: all.start, end: Some(behind) },
        FilterOp::NotEqual | FilterOp::In | FilterOp::NotIn | FilterOp::ArrayContains => {
            return None;
        }
    })
}
