//! A second world: subscriptions and their consumers, with endpoints that lie and a server that
//! crashes.
//!
//! There is no model that foretells every step of a consumer; the promises themselves are held
//! against everything that becomes durable, everything that is told, and everything that is said
//! to a consumer.
//!
//! ```text
//! schedule   what happens next, and what clients ask for
//! errand     one command, through fetches to its decision and answer
//! snapshot   everything durable about streams, subscriptions and consumers, read at once
//! audit      what must be true of one snapshot
//! history    what must be true from one snapshot to the next: epochs, wake ids, acks
//! beginnings who is told of a stream for the first time, and from where on
//! endpoint   attempts on their way, and how they are answered
//! agent      whoever was woken, and what it reports
//! oracle     whether a report must be heard
//! finale     everything heals: everybody is told of everything, and in the end nothing is left
//! ```

mod agent;
mod audit;
mod beginnings;
mod endpoint;
mod errand;
mod finale;
mod history;
mod oracle;
mod schedule;
mod snapshot;
mod workload;
mod world;

use crate::world::Violation;
use crate::{Options, Report};

/// Runs one seed; a failure comes with its step.
pub(crate) fn run(seed: u64, options: Options) -> Result<Report, (u64, Violation)> {
    let mut wakes = world::Wakes::new(seed, options).map_err(|error| (0, error))?;
    match wakes.run() {
        Ok(()) => {
            let hash = (wakes.base.trace.hash(), wakes.base.disk.trace_hash());
            Ok(Report { hash, tally: wakes.base.tally })
        }
        Err(violated) => Err((wakes.base.trace.step, violated)),
    }
}
