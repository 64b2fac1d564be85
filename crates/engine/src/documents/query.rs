//! Answering a query, in one consistent look.

use reveille_core::document::index::IndexDefinition;
use reveille_core::document::query::page::Page;

/// A page, and what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryAnswer {
    pub page: Page,
    pub cost: QueryCost,
}

/// What a query took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryCost {
    pub plan: QueryPlan,
    /// With those that did not match, and tombstones.
    pub documents_read: u64,
    pub index_entries_read: u64,
    /// Of both.
    pub bytes_read: u64,
    pub took_ms: u64,
    /// Whether all that matched had to be seen before the first of them was known.
    pub sorted_in_memory: bool,
}

/// Where documents were looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryPlan {
    /// In the collection itself, by id.
    Scan,
    Index(IndexDefinition),
}
