//! Documents: a small store of a tenant's objects, whose every change is an event.
//!
//! ```text
//! queries    what faces ask
//! write      a transaction is decided: documents, entries, changes and its outcome in one batch
//! change     changes go into the tenant's stream; face: they are a source of deliveries
//! hooks      whoever is told of changes, in the step that decides them
//! outcome    what is remembered under idempotency keys
//! rules      who may, as the documents are that were looked at
//! index      what memory knows of indexes and rules, for decisions
//! entries    entries follow their documents
//! declare    indexes are declared; build: and built, and removed, in slices
//! query      a page of documents
//! live       the documents of a collection, and what becomes of them
//! purge      what is left of deleted documents goes
//! ```

pub mod build;
pub mod declare;
pub mod error;
pub mod face;
pub mod hooks;
pub mod index;
pub mod live;
pub mod outcome;
pub mod purge;
pub mod rules;
pub mod timers;
pub mod write;

mod change;
mod entries;
mod queries;
mod query;
#[cfg(test)]
mod tests;
mod txn;

pub use declare::{IndexProgress, IndexView};
pub use error::{DocumentError, DocumentRejection};
pub use queries::{DocumentCaller, DocumentWrite};
pub use query::{QueryAnswer, QueryCost, QueryPlan};
pub use write::WriteReceipt;
