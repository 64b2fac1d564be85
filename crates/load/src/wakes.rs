//! `wakes`: how many wakes per second, with appends at full rate.

use anyhow::ensure;
use clap::Args;

use crate::append::append_requests;
use crate::clock;
use crate::dialect::Dialect;
use crate::pool::{self, ConnectionPool};
use crate::report::{Report, WakeFigures, rate};
use crate::sink::Sink;
use crate::target::Target;
use crate::usage::Meter;

/// Wakes per second.
#[derive(Debug, Clone, Args)]
pub struct Wakes {
    #[command(flatten)]
    pub target: Target,
    /// How wakes are asked for
    #[arg(long, value_enum, default_value_t = Dialect::Webhooks)]
    pub dialect: Dialect,
    /// Streams with a consumer each, appended to in turn
    #[arg(long, default_value_t = 1000)]
    pub streams: u64,
    /// Connections, each with one append in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Measured time
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Time before it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
}

pub(crate) async fn run(work: &Wakes) -> anyhow::Result<Report> {
    let warmup = clock::parse_seconds("--warmup", work.warmup)?;
    let measured_time = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?.group("live");
    let requests = append_requests(&streams, work.streams, work.body)?;
    let sink = Sink::open().await?;
    let url = sink.live_url();
    work.dialect.subscribe(&streams, &url, work.streams, work.connections).await?;
    pool::create_empty(&streams, work.connections, work.streams).await?;

    let pool = ConnectionPool::start(streams.address, work.connections, requests);
    clock::sleep(warmup).await;
    let mut elsewhere = pool.take_tally();
    let before = sink.calls();
    let start = Meter::read(work.target.pid);
    clock::sleep(measured_time).await;
    let mut measured = pool.take_tally();
    let wakes = sink.calls() - before;
    let end = Meter::read(work.target.pid);
    elsewhere.absorb(&pool.stop().await);

    let appends = measured.done;
    let appends_per_second = rate(appends, start.seconds_until(&end));
    // The operations of this work are the wakes; the latencies are those of the appends.
    measured.done = wakes;
    let Wakes { connections, streams, body, .. } = work;
    let name = work.dialect.name();
    let settings =
        format!("{name}, {body} B over {connections} connections to {streams} consumers");
    let mut report = Report::new("wakes", settings, &measured, &elsewhere, (start, end));
    report.wakes =
        Some(WakeFigures { wakes, appends, appends_per_second, ..WakeFigures::default() });
    Ok(report)
}
