//! How a query is answered: which keys are read, and in which order they come.
//!
//! An index serves a query by its first fields: those that the query wants equal to a value come
//! first and are the beginning of every key; the next one may be wanted in a range, or be one of
//! a few values; and what follows is what documents come sorted by. The collection itself is an
//! index of no fields: its keys are ids.
//!
//! A plan only says where to look: each document that is found there must be looked at
//! ([`Query::matches`]) and sorted ([`PageCollector`](crate::document::query::page::PageCollector)).

use bytes::Bytes;

use super::IndexDefinition;
use super::range::{of_filter, of_id};
use crate::document::field::Field;
use crate::document::filter::{Filter, FilterOp};
use crate::document::index_key::{complement, encode};
use crate::document::order::{Direction, SortField, SortKey};
use crate::document::query::Query;
use crate::document::query::page::Sorted;
use crate::key_range::{above, after_prefix};

pub use super::range::KeyRange;

/// Where the keys are that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The documents themselves, by id.
    Collection,
    /// The index of this position among those that were to be chosen from.
    Index(usize),
}

/// How a query is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub source: Source,
    /// In the order in which they are read, each from its start, or backwards from its end. Keys
    /// are those behind the collection's or the index's own prefix.
    pub ranges: Vec<KeyRange>,
    pub is_backwards: bool,
    /// How documents come, compared with the query's order.
    pub sorted: Sorted,
    /// Whether filters leave less than everything to be read.
    pub is_narrowed: bool,
}

impl Plan {
    /// Whether answering may mean reading a whole collection: only for a small one.
    pub fn is_scan(&self, query: &Query) -> bool {
        let is_listing = query.filters.is_empty() && self.sorted == Sorted::Exactly;
        self.source == Source::Collection && !self.is_narrowed && !is_listing
    }
}

/// The best plan with these indexes. Those that are not for the collection are passed over.
pub fn plan(query: &Query, indexes: &[IndexDefinition]) -> Plan {
    let mut best = Candidate::new(query, Source::Collection, &[]);
    for (at, index) in indexes.iter().enumerate() {
        if index.collection.matches(&query.collection) {
            let candidate = Candidate::new(query, Source::Index(at), index.fields());
            if candidate.rank() > best.rank() {
                best = candidate;
            }
        }
    }
    best.into_plan()
}

/// One index, held against one query.
struct Candidate<'q> {
    query: &'q Query,
    source: Source,
    fields: &'q [SortField],
    /// How many fields at the beginning are wanted equal to a value, and their bytes.
    equal: usize,
    prefix: Vec<u8>,
    ranges: Vec<KeyRange>,
    is_bounded: bool,
    is_backwards: bool,
    sorted: Sorted,
}

impl<'q> Candidate<'q> {
    fn new(query: &'q Query, source: Source, fields: &'q [SortField]) -> Candidate<'q> {
        let mut prefix = Vec::new();
        let mut equal = 0;
        while let Some(by) = fields.get(equal)
            && let Some(value) = query.equal_to(&by.field)
        {
            encode(Some(value), by.direction, &mut prefix);
            equal += 1;
        }
        let mut candidate = Candidate {
            query,
            source,
            fields,
            equal,
            prefix,
            ranges: Vec::new(),
            is_bounded: false,
            is_backwards: false,
            sorted: Sorted::No,
        };
        candidate.find_ranges();
        candidate.find_order();
        candidate
    }

    /// The more filters find, the better; then whether documents come sorted, if they are to be,
    /// because a page of them can be read without the rest; and the least fields.
    fn rank(&self) -> (bool, usize, (u8, u8), usize) {
        let is_point = self.source == Source::Collection && wants_ids(self.query);
        let (bounded, sorted) = (u8::from(self.is_bounded), self.sorted as u8);
        let rest = if self.query.order.fields().is_empty() {
            (bounded, sorted)
        } else {
            (sorted, bounded)
        };
        (is_point, self.equal, rest, usize::MAX - self.fields.len())
    }

    fn find_ranges(&mut self) {
        let query = self.query;
        let next = self.fields.get(self.equal);
        let field = next.map_or(&Field::Id, |by| &by.field);
        let mut whole = KeyRange::of_prefix(&self.prefix);
        let of_field = || query.filters.iter().filter(|filter| filter.field == *field);
        for filter in of_field() {
            let range = match next {
                Some(by) => of_filter(filter, by.direction, &self.prefix),
                None => of_id(filter, &self.prefix),
            };
            if let Some(range) = range {
                self.is_bounded = true;
                whole.intersect(range);
            }
        }
        match of_field().find(|filter| filter.op == FilterOp::In) {
            Some(list) => {
                self.is_bounded = true;
                self.ranges =
                    list.values().iter().filter_map(|value| self.of_value(next, value)).collect();
                self.ranges.iter_mut().for_each(|range| range.intersect(whole.clone()));
                self.ranges.sort_by(|left, right| left.start.cmp(&right.start));
                // Texts that are equal as far as keys go are in the same range.
                self.ranges.dedup();
            }
            None => self.ranges = vec![whole],
        }
        self.ranges.retain(|range| !range.is_empty());
    }

    /// The keys of one value of an `in`.
    fn of_value(&self, next: Option<&SortField>, value: &serde_json::Value) -> Option<KeyRange> {
        let mut key = self.prefix.clone();
        match next {
            Some(by) => {
                encode(Some(value.into()), by.direction, &mut key);
                Some(KeyRange::of_prefix(&key))
            }
            None => {
                key.extend_from_slice(value.as_str()?.as_bytes());
                let end = Some(above(&key));
                Some(KeyRange { start: key.into(), end })
            }
        }
    }

    /// Whether what follows the equal fields is what the query sorts by, one way or the other.
    /// Several ranges are of the first of these and follow each other in its order, so that they
    /// are as good as one.
    ///
    /// Documents that do not match are in this order as well: a page may end at one of them.
    fn find_order(&mut self) {
        let order = &self.query.order;
        let mut rest = self.fields.get(self.equal..).unwrap_or_default().iter();
        let mut is_backwards = None;
        for wanted in order.fields() {
            let Some(by) = rest.next().filter(|by| by.field == wanted.field) else { return };
            let is_reversed = by.direction != wanted.direction;
            if *is_backwards.get_or_insert(is_reversed) != is_reversed {
                return;
            }
        }
        let is_whole = rest.next().is_none();
        let id = order.id();
        let is_backwards = is_backwards.unwrap_or(id == Direction::Desc);
        let is_id_sorted = is_whole && (id == Direction::Desc) == is_backwards;
        self.sorted = match (is_id_sorted, order.fields().is_empty()) {
            (true, _) => Sorted::Exactly,
            (false, false) => Sorted::ExceptTies,
            (false, true) => return,
        };
        self.is_backwards = is_backwards;
    }

    fn into_plan(mut self) -> Plan {
        if let Some(after) = &self.query.start_after
            && self.sorted != Sorted::No
        {
            let rest = self.keys_after(after);
            self.ranges.iter_mut().for_each(|range| range.intersect(rest.clone()));
            self.ranges.retain(|range| !range.is_empty());
        }
        if self.is_backwards {
            self.ranges.reverse();
        }
        Plan {
            source: self.source,
            ranges: self.ranges,
            is_backwards: self.is_backwards,
            sorted: self.sorted,
            is_narrowed: self.equal > 0 || self.is_bounded,
        }
    }

    /// Where reading goes on, as the parts of a cursor are those of keys.
    fn keys_after(&self, after: &SortKey) -> KeyRange {
        let mut key = self.prefix.clone();
        let rest = self.fields.get(self.equal..).unwrap_or_default();
        let order = self.query.order.fields();
        for (at, (by, wanted)) in rest.iter().zip(order).enumerate() {
            let begin = key.len();
            key.extend_from_slice(after.part(at));
            if wanted.direction != by.direction {
                complement(key.get_mut(begin..).unwrap_or_default());
            }
        }
        let mut id = after.id().to_vec();
        if self.query.order.id() == Direction::Desc {
            complement(&mut id);
            id.pop();
        }
        let is_at_document = self.sorted == Sorted::Exactly && !id.is_empty();
        if is_at_document {
            key.extend_from_slice(&id);
        }
        match (self.is_backwards, is_at_document) {
            (false, true) => KeyRange { start: above(&key), end: None },
            (false, false) => KeyRange { start: key.into(), end: None },
            (true, true) => KeyRange { start: Bytes::new(), end: Some(key.into()) },
            (true, false) if key.is_empty() => KeyRange { start: Bytes::new(), end: None },
            (true, false) => KeyRange { start: Bytes::new(), end: Some(after_prefix(&key)) },
        }
    }
}

/// Whether a query names the documents that it is for.
pub(super) fn wants_ids(query: &Query) -> bool {
    let names = |filter: &Filter| matches!(filter.op, FilterOp::Equal | FilterOp::In);
    query.filters.iter().any(|filter| filter.field == Field::Id && names(filter))
}
