//! Typed events: taking them in, who gets a delivery of each, and how long they are kept.

pub mod explain;
pub mod face;
pub mod hook;
pub mod index;
pub mod ingest;
pub mod timers;
pub(crate) mod txn;

mod audit;
mod lists;
mod queries;
#[cfg(test)]
mod tests;

pub use lists::{DeadLetter, DeadLetterCursor};
pub use queries::{delivery_name, delivery_named};
