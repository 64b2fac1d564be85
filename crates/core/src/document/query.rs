//! A query: which documents of one collection, in which order, and how many at a time.

pub mod cursor;
pub mod page;

use aws_lc_rs::digest;

use self::cursor::{Cursor, CursorError, Fingerprint};
use super::field::Field;
use super::filter::{Filter, FilterError, FilterOp, check_count};
use super::limits::{QUERY_LIMIT, QUERY_LIMIT_MAX};
use super::order::{Order, SortKey};
use super::path::CollectionPath;
use super::snapshot::DocumentView;
use super::value::ValueRef;

/// A query that can be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub collection: CollectionPath,
    /// All of them must match.
    pub filters: Vec<Filter>,
    /// Without fields that must be equal to a value, and so are the same in all that match.
    pub order: Order,
    /// Documents of a page, at least one.
    pub limit: usize,
    /// The page begins after this place.
    pub start_after: Option<SortKey>,
    /// Whether tombstones are documents too.
    pub show_deleted: bool,
}

/// What somebody asks for, its parts already read.
#[derive(Debug, Clone)]
pub struct QuerySpec {
    pub collection: CollectionPath,
    pub filters: Vec<Filter>,
    pub order: Order,
    /// Zero is as good as none.
    pub limit: Option<u64>,
    pub start_after: Option<String>,
    pub show_deleted: bool,
}

/// How many documents a page may have; settings of the server.
#[derive(Debug, Clone, Copy)]
pub struct PageLimits {
    /// If the query does not say.
    pub default: usize,
    pub max: usize,
}

/// The query cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error("`limit` is at most {0}; go on with `startAfter`")]
    LimitTooHigh(usize),
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits { default: QUERY_LIMIT, max: QUERY_LIMIT_MAX }
    }
}

impl Query {
    pub fn new(spec: QuerySpec, limits: PageLimits) -> Result<Query, QueryError> {
        let QuerySpec { collection, filters, mut order, limit, start_after, show_deleted } = spec;
        check_count(&filters)?;
        let limit = match limit {
            None | Some(0) => limits.default.min(limits.max).max(1),
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| *limit <= limits.max)
                .ok_or(QueryError::LimitTooHigh(limits.max))?,
        };
        order.retain(|field| equal_to(&filters, field).is_none());
        let mut query =
            Query { collection, filters, order, limit, start_after: None, show_deleted };
        if let Some(text) = start_after {
            let fields = query.order.fields().len();
            query.start_after = Some(Cursor::parse(&text, query.fingerprint(), fields)?.key);
        }
        Ok(query)
    }

    /// Whether a document is one of those that are asked for. Takes no memory.
    pub fn matches(&self, view: &DocumentView<'_>) -> bool {
        (self.show_deleted || !view.document.is_tombstone())
            && self.filters.iter().all(|filter| filter.matches(view))
    }

    /// The value that a field must have to match, if there is one.
    pub(super) fn equal_to(&self, field: &Field) -> Option<ValueRef<'_>> {
        equal_to(&self.filters, field)
    }

    /// What all pages of a query have in common, and no other query.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = digest::Context::new(&digest::SHA256);
        let mut put = |part: &str| {
            let len = u64::try_from(part.len()).unwrap_or(u64::MAX);
            hash.update(&len.to_be_bytes());
            hash.update(part.as_bytes());
        };
        put(self.collection.as_str());
        put(if self.show_deleted { "deleted" } else { "" });
        for filter in &self.filters {
            put(&filter.field.to_string());
            put(&filter.op.to_string());
            put(&filter.value().to_string());
        }
        put("order");
        for by in self.order.fields() {
            put(&by.field.to_string());
            put(by.direction.as_str());
        }
        put(self.order.id().as_str());
        Fingerprint::from_hash(hash.finish().as_ref())
    }
}

fn equal_to<'f>(filters: &'f [Filter], field: &Field) -> Option<ValueRef<'f>> {
    let one_value = |filter: &'f Filter| match (filter.op, filter.values()) {
        (FilterOp::Equal | FilterOp::In, [value]) => Some(ValueRef::from(value)),
        _ => None,
    };
    filters.iter().filter(|filter| filter.field == *field).find_map(one_value)
}

#[cfg(test)]
mod tests;
