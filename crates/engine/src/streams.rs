//! Streams: messages in their order, who reads them, and when they end.

pub mod access_times;
pub mod append;
pub mod create;
pub mod delete;
pub mod lifetime;
pub mod live;
pub mod observer;
pub(crate) mod own;
pub mod read;
pub(crate) mod txn;

mod queries;
#[cfg(test)]
mod tests;

use reveille_core::stream::Rejected;
use reveille_kernel::error::Error;

pub use queries::{StreamFilter, StreamItem};

/// Why something was not done with a stream.
pub type StreamError = Error<Rejected>;
