//! The shell around the laws: partitions that decide, commit, apply, and act on what they decided.
//!
//! ```text
//! caller ─ command ─► partition (decides under its lock, never waits)
//!                        │ batch
//!                     committer (its own thread: log, sync)
//!                        │ published to readers, answers leave, effects run
//!                     keeper (its own thread: overlay into the table, checkpoint, trim)
//! ```
//!
//! Nothing here knows status codes or JSON field names.

pub mod access_times;
pub mod activity;
mod budget;
pub mod checkpointer;
mod cleaner;
pub mod command;
pub mod committer;
mod decide;
mod deliveries;
pub mod doors;
pub mod due;
pub mod effect;
pub mod encoder;
mod engine;
pub mod explain;
pub mod failure;
mod fairness;
pub mod hooks;
mod inspection;
pub mod keyring;
pub mod keys;
pub mod limits;
pub mod live;
pub mod metrics;
pub mod outbound;
pub mod outbox;
pub mod partition;
mod random;
pub mod reading;
pub mod registry;
pub mod spans;
mod subscriptions;
mod task;
mod txn;

pub use budget::Permit;
pub use cleaner::Retention;
pub use command::hook::Since;
pub use deliveries::{DeadLetter, DeliveryPage, DeliveryView, delivery_name, delivery_named};
pub use engine::{Config, Engine, OpenError, StreamItem, StreamPage, Telling};
pub use failure::{Failure, Refused, Unavailable};
pub use inspection::{ConsumerItem, ConsumerPage};
pub use reveille_deliver::destination::{DestinationError, Rules};
pub use subscriptions::{CallbackError, CallbackRequest};
