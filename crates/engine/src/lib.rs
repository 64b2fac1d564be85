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

pub mod activity;
mod budget;
mod cleaner;
pub mod command;
pub mod committer;
mod decide;
mod deliveries;
mod dice;
pub mod doors;
pub mod due;
pub mod effect;
mod engine;
pub mod explain;
pub mod failure;
pub mod herald;
pub mod hooks;
mod inspection;
pub mod keeper;
pub mod keyring;
pub mod keys;
pub mod limits;
pub mod live;
pub mod metrics;
pub mod outbound;
pub mod outbox;
pub mod partition;
pub mod reading;
pub mod registry;
mod shares;
pub mod spans;
mod subscriptions;
mod task;
pub mod touches;
mod txn;

pub use budget::Permit;
pub use cleaner::Retention;
pub use command::hook::Since;
pub use deliveries::{DeadLetter, Shown, ShownPage, delivery_name, delivery_named};
pub use engine::{Config, Engine, OpenError, StreamItem, StreamPage, Telling};
pub use failure::{Failure, Refused, Unavailable};
pub use inspection::{ConsumerItem, ConsumerPage};
pub use reveille_deliver::destination::{DestinationError, Rules};
pub use subscriptions::{CallRefused, Called};
