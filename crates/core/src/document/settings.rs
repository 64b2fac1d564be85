//! What a server may be told about documents, with what holds if it is told nothing.

use super::limits::{QUERY_LIMIT, QUERY_LIMIT_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_OPS_MAX};
use super::query::PageLimits;
use super::transaction::TransactionLimits;

/// Settings of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentSettings {
    /// Most writes of one transaction.
    pub ops_max: usize,
    /// Most documents of a page.
    pub query_limit_max: usize,
    /// How many documents of a collection a query without an index looks at.
    pub scan_limit: u64,
    /// By when a transaction is decided, or refused.
    pub transaction_timeout_ms: u64,
    /// How long a transaction waits that has met another one, before it is tried once more.
    pub conflict_delay_ms: u64,
    /// How long the outcome of a write is remembered.
    pub idempotency_ttl_ms: u64,
    /// How long the tombstone of a deleted document is kept.
    pub tombstone_ttl_ms: u64,
    /// Calls in a second with tokens of one trigger; zero is no limit.
    pub trigger_calls_per_s: u32,
}

impl Default for DocumentSettings {
    fn default() -> DocumentSettings {
        DocumentSettings {
            ops_max: TRANSACTION_OPS_MAX,
            query_limit_max: QUERY_LIMIT_MAX,
            scan_limit: 10_000,
            transaction_timeout_ms: 5_000,
            conflict_delay_ms: 25,
            idempotency_ttl_ms: 8 * 3_600_000,
            tombstone_ttl_ms: 30 * 86_400_000,
            trigger_calls_per_s: 100,
        }
    }
}

impl DocumentSettings {
    pub fn transaction_limits(&self) -> TransactionLimits {
        TransactionLimits { ops_max: self.ops_max, bytes_max: TRANSACTION_BYTES_MAX }
    }

    pub fn page_limits(&self) -> PageLimits {
        PageLimits { default: QUERY_LIMIT, max: self.query_limit_max }
    }
}
