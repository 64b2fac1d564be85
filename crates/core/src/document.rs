//! Documents: what may be written into them, how they are found, and what a write of them is.

pub mod body;
pub mod change;
pub mod field;
pub mod filter;
pub mod idempotency;
pub mod index;
pub mod index_key;
pub mod limits;
pub mod live;
pub mod order;
pub mod origin;
pub mod patch;
pub mod path;
pub mod query;
pub mod rules;
pub mod settings;
pub mod shape;
pub mod snapshot;
pub mod transaction;
pub mod value;

#[cfg(test)]
mod arbitrary;
