//! What every world is built on: a server over a disk that loses, tears and refuses, taken apart
//! into steps whose order a seed chooses.
//!
//! A world is a folder with its clients, its model and its audit. It implements [`World`] and says
//! what it asks of the server as [`Request`]s; the base does the rest:
//!
//! ```text
//! schedule    what happens next: clients, operations, commits, the table, timers, time, faults
//! operation   one request on its way: prepare → decide ⇄ fetch → wait → answered
//! commit      batches become durable; whoever waited for them is answered, and nobody else
//! timers      the due index at work
//! crash       power cuts, kills, restarts, broken and full disks, and what the next life finds
//! finale      everything heals, and whatever was begun is finished
//!
//! failover    another machine follows the log, and takes over
//!
//! partition   one partition: its storage, its engine while it runs, its batches, its timers
//! storage     what outlives a process: the door behind which the log and the table are
//! shared_storage  the same on machines that share a log
//! engine      the one place that calls the engine
//! ```
//!
//! Partitions of one machine crash together. All that a base knows of a partition's log is its
//! [`Storage`](storage::Storage), so a world may bring another one.

mod branches;
mod check;
mod commit;
mod coverage;
pub(crate) mod crash;
pub(crate) mod engine;
mod failover;
pub(crate) mod finale;
mod mode;
mod operation;
mod partition;
mod random;
pub(crate) mod raw_state;
mod schedule;
mod shared_storage;
mod storage;
mod table;
mod timers;
mod trace;
mod undurable;
mod world;

#[cfg(test)]
mod tests;

pub use branches::{Branches, SEEDS_FOR_ALL_BRANCHES};
pub(crate) use check::{CheckResult, Violation, violation};
pub use coverage::Coverage;
pub(crate) use mode::{FaultWeights, Mode};
pub(crate) use operation::{Decision, Origin, Request};
pub(crate) use partition::BatchInfo;
pub(crate) use random::Random;
pub(crate) use schedule::run;
pub(crate) use storage::LocalStorage;
pub(crate) use undurable::Undurable;
pub(crate) use world::{ActionTable, BEGIN, Base, Outcome, Setup, World, WorldCall};
