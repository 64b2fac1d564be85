//! The domains on the kernel: streams, wakes, deliveries, typed events, documents, triggers and keys, each
//! with its commands, its memory and what may be asked about it.
//!
//! Nothing here knows status codes or JSON field names.

pub mod app;
pub mod audit;
pub mod auth;
pub mod deliveries;
pub mod documents;
pub mod effect;
pub mod encoder;
pub mod events;
pub mod facts;
pub mod handlers;
pub mod keyring;
pub mod limits;
pub mod metrics;
pub mod quota;
pub mod ranking;
pub mod records;
pub mod secrets;
pub mod spans;
pub mod streams;
pub mod triggers;
pub mod wakes;
pub mod wall;

mod addresses;
mod cleaner;
mod complaints;
mod engine;
mod matching;
mod open;
mod outbound;
pub mod set_aside;
pub mod snapshot;
#[cfg(test)]
mod testing;

pub use engine::{Config, Engine, OutboundConfig, Retention};
pub use open::{OpenError, partitions_of};
pub use reveille_deliver::destination::{DestinationError, Rules};
pub use reveille_kernel::budget::Permit;
pub use reveille_kernel::doors;
pub use reveille_kernel::error::{Damaged, Error, Never, Unavailable};
pub use reveille_kernel::reply_budget::{ReplyPermit, ReplyRoom};
