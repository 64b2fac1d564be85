//! Documents: a small store of a tenant's objects, whose every change is an event.

pub mod error;

mod queries;
mod query;

pub use error::{DocumentError, DocumentRejection};
pub use queries::{DocumentCaller, DocumentWrite, IndexProgress, IndexView, WriteReceipt};
pub use query::{QueryAnswer, QueryCost, QueryPlan};
