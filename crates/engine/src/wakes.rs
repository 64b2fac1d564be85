//! Wakes: subscriptions to streams, their consumers, and how these are told that there is work.

pub mod activity;
mod backfill;
pub mod callback;
pub mod consumer;
pub mod error;
mod fan_out;
pub mod gauges;
pub mod index;
pub mod lease;
pub mod observer;
pub mod operate;
mod review;
pub mod send;
pub mod subscribe;
pub mod timers;
pub(crate) mod trouble;

#[cfg(test)]
mod tests;

mod audit;
mod inspect;
mod queries;

pub use error::{WakeError, WakeRejection};
pub use inspect::{ConsumerFilter, ConsumerItem};
pub use operate::ConsumerOrder;
pub use queries::{CallbackAnswer, CallbackError, CallbackRequest};
