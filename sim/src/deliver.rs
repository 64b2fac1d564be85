//! A third world: events, hooks and their deliveries, with endpoints that fail, hang and repeat
//! themselves, and a server that crashes.
//!
//! A model decides a second time what is taken in and whom it is for. Every delivery that becomes
//! durable and every attempt that is made is held against it, and against the promises.
//!
//! ```text
//! schedule   what happens next
//! workload   what clients ask for
//! errand     one command, through fetches to its decision and answer
//! model      events and hooks, told once more: who is owed what
//! snapshot   everything durable about hooks, events and deliveries
//! history    what must be true from one snapshot to the next
//! audit      what must be true of one snapshot
//! endpoint   attempts on their way, and how they are answered
//! finale     everything heals: everything owed is delivered, and in the end nothing is left
//! ```

mod audit;
mod endpoint;
mod errand;
mod finale;
mod history;
mod model;
mod schedule;
mod snapshot;
mod workload;
mod world;

use crate::world::Violation;
use crate::{Options, Report};

/// Runs one seed; a failure comes with its step.
pub(crate) fn run(seed: u64, options: Options) -> Result<Report, (u64, Violation)> {
    let mut world = world::Deliveries::new(seed, options).map_err(|error| (0, error))?;
    match world.run() {
        Ok(()) => {
            let hash = (world.base.trace.hash(), world.base.disk.trace_hash());
            Ok(Report { hash, tally: world.base.tally })
        }
        Err(violated) => Err((world.base.trace.step, violated)),
    }
}
