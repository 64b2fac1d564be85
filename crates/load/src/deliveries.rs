//! `deliveries`: how many deliveries per second, with events coming in as fast as they leave.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use tokio::sync::Semaphore;

use crate::clock;
use crate::events::{EventTarget, Worker, Workers};
use crate::pool::{AheadLimit, ConnectionPool};
use crate::report::{DeliveryFigures, Report, rate};
use crate::sink::Sink;
use crate::tally::Tally;
use crate::target::Target;
use crate::usage::Meter;

const LIVE: Worker = Worker { id: "live", binding: None };
const TENANT: &str = "calm";
/// After the last event the deliveries end by then, or somebody sends more of them than there are.
const DRAIN_MAX: Duration = Duration::from_secs(300);
/// What comes twice comes within this.
const QUIET: Duration = Duration::from_millis(200);

/// Deliveries per second.
#[derive(Debug, Clone, Args)]
pub struct Deliveries {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub workers: Workers,
    /// Hooks, each of which gets every event
    #[arg(long, default_value_t = 1)]
    pub hooks: u64,
    /// Events in a request
    #[arg(long, default_value_t = 100)]
    pub batch: u64,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 16)]
    pub connections: usize,
    /// Measured time
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Time before it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Deliveries that the events may be ahead of the endpoint
    #[arg(long, value_name = "DELIVERIES", default_value_t = 10_000)]
    pub ahead: u64,
    /// Time without a delivery after which the missing ones are lost
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub patience: f64,
    /// Bytes of each event, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// Send no events, only count: somebody else calls the endpoint
    #[arg(long = "loop")]
    pub only_count: bool,
}

pub(crate) async fn run(work: &Deliveries) -> anyhow::Result<Report> {
    let warmup = clock::parse_seconds("--warmup", work.warmup)?;
    let measured_time = clock::parse_seconds("--seconds", work.seconds)?;
    let patience = clock::parse_seconds("--patience", work.patience)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    let ahead = Rc::new(Semaphore::new(usize::try_from(work.ahead)?));
    let sink = Sink::open_at(work.workers.sink, Rc::clone(&ahead), Arc::default()).await?;
    let pool = if work.only_count { None } else { Some(start(work, ahead).await?) };
    let take = || pool.as_ref().map_or_else(Tally::default, ConnectionPool::take_tally);

    clock::sleep(warmup).await;
    let mut elsewhere = take();
    let before = sink.calls();
    let start = Meter::read(work.target.pid);
    clock::sleep(measured_time).await;
    let mut measured = take();
    let deliveries = sink.calls() - before;
    let end = Meter::read(work.target.pid);
    if let Some(pool) = pool {
        elsewhere.absorb(&pool.stop().await);
        let sent = (measured.done + elsewhere.done) * work.batch * work.hooks;
        drain(&sink, sent, patience, &mut elsewhere).await;
    }

    let events = measured.done * work.batch;
    let events_per_second = rate(events, start.seconds_until(&end));
    // The operations of this work are the deliveries; the latencies are those of the requests.
    measured.done = deliveries;
    measured.bytes = deliveries * u64::try_from(work.body)?;
    let mut report = Report::new("deliveries", settings(work), &measured, &elsewhere, (start, end));
    report.deliveries = Some(DeliveryFigures {
        deliveries,
        events,
        events_per_second,
        ..DeliveryFigures::default()
    });
    ensure!(!work.only_count || deliveries > 0, "nobody called {}", work.workers.sink);
    Ok(report)
}

/// Makes the hooks and lets the events go.
async fn start(work: &Deliveries, ahead: Rc<Semaphore>) -> anyhow::Result<ConnectionPool> {
    let each = work.hooks.saturating_mul(work.batch);
    ensure!(
        (1..=work.ahead).contains(&each),
        "a request makes --hooks times --batch deliveries, {each}: at least 1 and at most --ahead"
    );
    let events = EventTarget::resolve(&work.target, &work.workers, TENANT).await?;
    let limit = AheadLimit { permits: ahead, per_request: u32::try_from(each)? };
    let requests = events.batches(events.messages(work.body)?, work.batch, Some(limit))?;
    events.hook(LIVE, work.hooks).await?;
    Ok(ConnectionPool::start(events.address, work.connections, requests))
}

/// Waits for the deliveries of every event that was taken in, and counts those that are missing
/// or too many.
async fn drain(sink: &Sink, sent: u64, patience: Duration, tally: &mut Tally) {
    sink.wait_until_quiet(QUIET, DRAIN_MAX).await;
    if sink.calls() < sent {
        sink.wait_until_quiet(patience, DRAIN_MAX).await;
    }
    let arrived = sink.calls();
    tally.errors.count("not delivered".to_owned(), sent.saturating_sub(arrived));
    tally.errors.count("delivered twice".to_owned(), arrived.saturating_sub(sent));
}

fn settings(work: &Deliveries) -> String {
    let Deliveries { hooks, batch, connections, ahead, body, only_count, .. } = work;
    if *only_count {
        return "counted where they arrive, sent by somebody else".to_owned();
    }
    format!(
        "{body} B to {hooks} hooks, {batch} events a request over {connections} connections, \
         at most {ahead} ahead"
    )
}
