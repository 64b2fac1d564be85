//! Deliveries: one event for one hook, tried until it is accepted or given up; whatever events are
//! and whoever hooks are for is a face's business.

pub mod append;
pub mod dead_letter;
pub mod delivery;
pub mod ended;
pub mod error;
pub mod explain;
pub mod face;
pub mod find;
pub mod gauges;
pub mod hook;
pub mod index;
pub(crate) mod limits;
mod outcome;
pub mod replay;
pub mod retention;
pub mod send;
pub mod source;
pub mod spread;
pub mod timer_group;
pub mod timers;
pub mod trim;

#[cfg(test)]
mod tests;

pub use error::{DeliveryError, DeliveryRejection};
