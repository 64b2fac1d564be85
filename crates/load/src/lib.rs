//! The load generator behind `reveille bench`: raw sockets, one thread for what is measured, any Durable Streams server.
//!
//! ```text
//! workload what to do, as the command line says it        (append, read, wake, delivery, …)
//! pool     N connections in a closed loop, one request in flight on each
//! postgres the same for a peer that speaks its own protocol
//! sink     the endpoint that is called, in this process
//! wire     bytes of an HTTP/1.1 answer  -> status, framing, the few headers that matter
//! tally    what happened: answers, latencies, errors by status
//! usage    what it cost: CPU and memory of the server, of this process, of everything else
//! report   all of it, for people and as JSON
//! ```
//!
//! **Invariant:** no answer is dropped. Whatever is not the expected status is counted under its
//! status or under the kind of failure, and the report says so when it is more than one in a
//! thousand.

mod append;
mod create;
mod idle;
mod latency;
mod read;
mod soak;

mod consumers;
mod wake;
mod wakes;

mod deliveries;
mod delivery;

mod documents;
mod facts;

mod dialect;
mod events;
mod live;
mod message;
mod neighbors;
mod pool;
mod postgres;
mod sink;
mod target;
mod unresponsive;

mod connection;
mod sse;
mod wire;

mod clock;
mod histogram;
mod report;
mod tally;
mod usage;

use anyhow::Context as _;
use clap::Subcommand;

pub use crate::append::Append;
pub use crate::consumers::Consumers;
pub use crate::create::Create;
pub use crate::deliveries::Deliveries;
pub use crate::delivery::Delivery;
pub use crate::dialect::Dialect;
pub use crate::documents::{DocumentMode, Documents};
pub use crate::events::Workers;
pub use crate::facts::Facts;
pub use crate::histogram::Latency;
pub use crate::idle::Idle;
pub use crate::latency::{LiveLatency, Mode};
pub use crate::read::Read;
pub use crate::report::{DeliveryFigures, ERROR_RATE_MAX, Fanout, Report, SoakSample, WakeFigures};
pub use crate::soak::Soak;
pub use crate::target::{Output, Target};
pub use crate::usage::ResourceUsage;
pub use crate::wake::Wake;
pub use crate::wakes::Wakes;

/// What to measure.
#[derive(Debug, Clone, Subcommand)]
pub enum Workload {
    /// Durable appends per second: every connection sends its next append when the last is answered
    #[command(
        after_help = "Example: reveille bench append --connections 64 --streams 1000 --seconds 5"
    )]
    Append(Append),
    /// Catch-up reads of one stream, in megabytes per second; fills the stream first
    #[command(after_help = "Example: reveille bench read --bytes 10000000 --seconds 5")]
    Read(Read),
    /// Time from sending an append to a live reader holding it
    #[command(after_help = "Example: reveille bench latency --mode sse --count 1000")]
    Latency(LiveLatency),
    /// Streams created per second, each with its first message
    #[command(after_help = "Example: reveille bench create --count 1000000 --connections 64")]
    Create(Create),
    /// Idle SSE readers: how many stay up, what they cost, how fast one message reaches the last
    #[command(after_help = "Example: reveille bench idle --readers 1000 --pid 4711")]
    Idle(Idle),
    /// Appends for a long time, with a line of rate, latency, memory and disk every ten seconds
    #[command(
        after_help = "Example: reveille bench soak --seconds 600 --pid 4711 --data-dir ./reveille-data"
    )]
    Soak(Soak),
    /// Time from sending an append to the consumer's endpoint holding the wake
    #[command(after_help = "\
The endpoint is in this process and answers {\"done\":true}; the server must be allowed to call it.

Example: reveille bench wake --dead 10000 --hanging 1000")]
    Wake(Wake),
    /// Wakes per second, with appends at full rate
    #[command(after_help = "Example: reveille bench wakes --streams 1000 --connections 64")]
    Wakes(Wakes),
    /// Consumers that were woken once: how fast, and what they cost when they are idle
    #[command(after_help = "Example: reveille bench consumers --count 1000000 --pid 4711")]
    Consumers(Consumers),
    /// Deliveries per second to the endpoints of hooks, with events at full rate
    #[command(after_help = "\
The endpoint is in this process; the server must be told where. In two terminals:
  reveille serve --worker-url-template 'http://127.0.0.1:4438/{workerId}/{rpcMethod}'
  reveille bench deliveries

Example: reveille bench deliveries --hooks 1000 --batch 1 --ahead 20000")]
    Deliveries(Deliveries),
    /// Time from sending an event to the hook's endpoint holding the delivery
    #[command(after_help = "\
The endpoints are in this process; the server must be told where. In two terminals:
  reveille serve --worker-url-template 'http://127.0.0.1:4438/{workerId}/{rpcMethod}' \\
    --binding hanging=http://127.0.0.1:4439/hanging \\
    --binding flooded=http://127.0.0.1:4439/live
  reveille bench delivery --hanging 64
The bindings are for --hanging and --flood; --flood needs a server with --auth keys, too.

Example: reveille bench delivery --flood --hanging 64 --key $ADMIN_KEY")]
    Delivery(Delivery),
    /// Writes, reads and queries of documents per second
    #[command(after_help = "\
Example: reveille bench documents --mode queries --count 10000 --connections 64")]
    Documents(Documents),
    /// Durable facts per second: every connection says its next one when the last is answered
    #[command(after_help = "Example: reveille bench facts --connections 64 --seconds 5")]
    Facts(Facts),
}

impl Workload {
    /// Where the load goes and how the report is printed.
    pub fn target(&self) -> &Target {
        match self {
            Workload::Append(work) => &work.target,
            Workload::Read(work) => &work.target,
            Workload::Latency(work) => &work.target,
            Workload::Create(work) => &work.target,
            Workload::Idle(work) => &work.target,
            Workload::Soak(work) => &work.target,
            Workload::Wake(work) => &work.target,
            Workload::Wakes(work) => &work.target,
            Workload::Consumers(work) => &work.target,
            Workload::Deliveries(work) => &work.target,
            Workload::Delivery(work) => &work.target,
            Workload::Documents(work) => &work.target,
            Workload::Facts(work) => &work.target,
        }
    }
}

/// Runs the work to its end and says what happened.
pub fn run(work: &Workload) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let tasks = tokio::task::LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        match work {
            Workload::Append(work) => append::run(work).await,
            Workload::Read(work) => read::run(work).await,
            Workload::Latency(work) => latency::run(work).await,
            Workload::Create(work) => create::run(work).await,
            Workload::Idle(work) => idle::run(work).await,
            Workload::Soak(work) => soak::run(work).await,
            Workload::Wake(work) => wake::run(work).await,
            Workload::Wakes(work) => wakes::run(work).await,
            Workload::Consumers(work) => consumers::run(work).await,
            Workload::Deliveries(work) => deliveries::run(work).await,
            Workload::Delivery(work) => delivery::run(work).await,
            Workload::Documents(work) => documents::run(work).await,
            Workload::Facts(work) => facts::run(work).await,
        }
    }))
}
