//! The audit log: who changed what, in the batch that changed it.
//!
//! A chain belongs to a tenant, not to a partition: so whoever may see one tenant can check all that
//! it sees, and rows of others are no part of that. What concerns all tenants has a chain of its
//! own, in the first partition.
//!
//! A command becomes a part of the log by being [`Audited`]: nobody can do the one without the
//! other, and what was not done has no row.

mod chain;
mod queries;
#[cfg(test)]
mod tests;

pub(crate) use chain::ROW_WEIGHT;
pub use chain::{Audited, RecordAudit, TrimAudit, record};
pub use queries::{AuditCursor, AuditFilter, CheckedChain, ListedRow, Subject, is_about_trigger};
