//! Deterministic simulation: the engine over a disk that loses, tears and refuses, seeded.
//!
//! One thread runs the real store and the real engine step by step, in an order that the seed
//! chooses, and crashes them anywhere. A simple model of streams decides every command a second
//! time; it knows what must be told, what readers may see, and what must be there after a crash.
//!
//! ```text
//! schedule   what happens next: clients, commits, applying, time, readers, faults
//! errand     one command, from its client through fetches to its decision and answer
//! model      what streams are, told once more
//! crash      how a life ends and what the next must find
//! audit      the whole state against the model
//! ```

#![allow(clippy::indexing_slicing, reason = "where a simulation goes wrong it should stop")]

mod audit;
mod crash;
mod deliver;
mod errand;
mod finale;
mod life;
mod mode;
mod model;
mod random;
mod readers;
mod request;
mod schedule;
mod server;
mod table;
mod trace;
mod wake;
mod worker;
mod workload;
mod world;

pub use world::Tally;
use world::World;

/// How to run seeds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The table is hardly ever brought up, whatever the seed says.
    pub lag: bool,
    /// Commits are not synced: a loss of power may take the newest, and nothing else.
    pub unsynced: bool,
    /// Subscriptions and their consumers instead of streams.
    pub wakes: bool,
    /// Events, hooks and their deliveries instead of streams.
    pub deliveries: bool,
    /// Every step is printed.
    pub trace: bool,
}

/// What a run was like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal seeds and options: everything that happened, and everything on the disk.
    pub hash: (u64, u64),
    /// What it covered.
    pub tally: Tally,
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    pub step: u64,
    pub what: String,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Report, Failure> {
    let failed = |step, violated: world::Violation| Failure { seed, step, what: violated.0 };
    if options.wakes {
        return wake::run(seed, options).map_err(|(step, violated)| failed(step, violated));
    }
    if options.deliveries {
        return deliver::run(seed, options).map_err(|(step, violated)| failed(step, violated));
    }
    let mut world = World::new(seed, options).map_err(|error| failed(0, error))?;
    match world.run() {
        Ok(()) => {
            Ok(Report { hash: (world.trace.hash(), world.disk.trace_hash()), tally: world.tally })
        }
        Err(violated) => Err(failed(world.trace.step, violated)),
    }
}
