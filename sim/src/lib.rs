//! Deterministic simulation: the engine over a disk that loses, tears and refuses, seeded.
//!
//! One thread runs the real store and the real engine step by step, in an order that the seed
//! chooses, and crashes them anywhere. [`base`] is the server and everything that happens to it; a
//! world around it has clients, and knows what must be told, what may be seen, and what must be
//! there after a crash.
//!
//! ```text
//! base         one server: operations, commits, timers, faults, crashes, the order of it all
//! streams      streams and their readers, against a model of streams
//! wakes        subscriptions and their consumers, with endpoints that lie
//! deliveries   events, hooks and their deliveries, with endpoints that fail and repeat themselves
//! reminders    a face that no server has, on the delivery engine as it is
//! documents    transactions of documents, against a model of them
//! triggers     conditions over changes of documents, governed while they are told
//! facts        people, gardens and subscribers whose access is revoked, against a plain reading
//! partitions   all of that in small, of tenants over two partitions of one process
//! ```

#![allow(clippy::indexing_slicing, reason = "where a simulation goes wrong it should stop")]

mod base;
mod deliveries;
mod documents;
mod facts;
mod partitions;
mod reminders;
mod streams;
mod triggers;
mod wakes;

pub use base::{Branches, Coverage, SEEDS_FOR_ALL_BRANCHES};

/// Every world, by the name of the option that chooses it; the first is run if none is chosen.
pub static WORLDS: [WorldEntry; 8] = [
    WorldEntry { name: "streams", run: base::run::<streams::Streams> },
    WorldEntry { name: "wakes", run: base::run::<wakes::Wakes> },
    WorldEntry { name: "deliveries", run: base::run::<deliveries::Deliveries> },
    WorldEntry { name: "reminders", run: base::run::<reminders::Reminders> },
    WorldEntry { name: "documents", run: base::run::<documents::Documents> },
    WorldEntry { name: "triggers", run: base::run::<triggers::Triggers> },
    WorldEntry { name: "facts", run: base::run::<facts::Facts> },
    WorldEntry { name: "partitions", run: base::run::<partitions::Partitions> },
];

/// A world that can be run.
#[derive(Debug)]
pub struct WorldEntry {
    /// As it is chosen.
    pub name: &'static str,
    run: fn(u64, Options) -> Result<Report, Failure>,
}

/// How to run seeds.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which world.
    pub world: &'static WorldEntry,
    /// The table is hardly ever brought up, whatever the seed says.
    pub lag: bool,
    /// Commits are not synced: a power cut may take the newest, and nothing else. Of use to a world
    /// that can fall back, which streams and documents are.
    pub unsynced: bool,
    /// Two machines share the log: one writes, the other follows and takes over.
    pub failover: bool,
    /// Every step is printed.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { world: &WORLDS[0], lag: false, unsynced: false, failover: false, trace: false }
    }
}

/// What a run was like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal seeds and options: everything that happened, and everything on the disk.
    pub hash: (u64, u64),
    /// What it covered.
    pub coverage: Coverage,
    /// The branches of its world that it took.
    pub branches: Branches,
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// When it was noticed.
    pub step: u64,
    /// The promise.
    pub what: String,
}

/// The world of a name.
pub fn world(name: &str) -> Option<&'static WorldEntry> {
    WORLDS.iter().find(|world| world.name == name)
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Report, Failure> {
    (options.world.run)(seed, options)
}
