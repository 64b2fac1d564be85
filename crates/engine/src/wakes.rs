//! Wakes: subscriptions to streams, their consumers, and how these are told that there is work.

pub mod activity;
pub mod callback;
pub mod consumer;
pub mod error;
mod fan_out;
pub mod index;
pub mod lease;
pub mod observer;
mod review;
pub mod send;
pub mod subscribe;
pub mod timers;

#[cfg(test)]
mod tests;

mod inspect;
mod queries;

pub use error::{WakeError, WakeRejection};
pub use inspect::ConsumerItem;
pub use queries::{CallbackAnswer, CallbackError, CallbackRequest};
