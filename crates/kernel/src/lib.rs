//! The shell around the laws: partitions that decide, commit, apply, and act on what they decided.
//!
//! ```text
//! caller ─ command ─► partition (decides under its lock, never waits)
//!                        │ batch
//!                     committer (its own thread: log, sync)
//!                        │ published to readers, answers leave, effects run
//!                     checkpointer (its own thread: overlay into the table, checkpoint, recycle)
//! ```
//!
//! Nothing here knows a domain: what is decided, what follows from it and who is called is said by
//! whoever implements [`Domains`](domains::Domains) and the handlers.

pub mod budget;
pub mod checkpointer;
pub mod command;
pub mod committer;
pub mod counters;
pub mod domains;
pub mod doors;
pub mod error;
pub mod fairness;
pub mod follower;
pub mod keys;
pub mod limits;
pub mod outbound;
pub mod outbox;
pub mod partition;
pub mod pending;
mod random;
pub mod reply_budget;
pub mod set_aside;
pub mod shared;
pub mod submit;
pub mod task;
pub mod timers;
pub mod txn;
