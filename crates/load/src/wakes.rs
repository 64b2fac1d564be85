//! `wakes`: how many wakes per second, with appends at full rate.

use std::fmt;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::append::{appends, seconds};
use crate::clock;
use crate::crew::{self, Crew};
use crate::dialect::Dialect;
use crate::report::{Report, rate};
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

/// What is known of wakes beside the operations of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Woken {
    /// Wakes that the endpoint answered in the measured time.
    pub wakes: u64,
    /// Appends that were answered in it.
    pub appends: u64,
    /// Appends per second.
    pub appends_per_second: f64,
    /// For the work `consumers`: different consumers that were woken.
    pub consumers: u64,
    /// Wakes that the endpoint took and never answered, over the whole run.
    pub hanging: u64,
    /// For the work `consumers`: resident memory of the server when all of them were idle.
    pub idle_rss_bytes: Option<u64>,
    /// For the work `consumers`: the size of the data directory then.
    pub disk_bytes: Option<u64>,
}

pub(crate) async fn run(work: &Wakes) -> anyhow::Result<Report> {
    let warmup = seconds("--warmup", work.warmup)?;
    let measured_time = seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?.group("live");
    let requests = appends(&streams, work.streams, work.body)?;
    let sink = Sink::open().await?;
    let url = sink.live_url();
    work.dialect.subscribe(&streams, &url, work.streams, work.connections).await?;
    crew::create_empty(&streams, work.connections, work.streams).await?;

    let crew = Crew::start(streams.address, work.connections, requests);
    clock::sleep(warmup).await;
    let mut elsewhere = crew.take();
    let before = sink.calls();
    let start = Meter::read(work.target.pid);
    clock::sleep(measured_time).await;
    let mut measured = crew.take();
    let wakes = sink.calls() - before;
    let end = Meter::read(work.target.pid);
    elsewhere.absorb(&crew.stop().await);

    let appends = measured.done;
    let appends_per_second = rate(appends, start.seconds_until(&end));
    // The operations of this work are the wakes; the latencies are those of the appends.
    measured.done = wakes;
    let Wakes { connections, streams, body, .. } = work;
    let name = work.dialect.name();
    let settings =
        format!("{name}, {body} B over {connections} connections to {streams} consumers");
    let mut report = Report::new("wakes", settings, &measured, &elsewhere, (start, end));
    report.woken = Some(Woken { wakes, appends, appends_per_second, ..Woken::default() });
    Ok(report)
}

impl fmt::Display for Woken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.appends > 0 {
            let rate = self.appends_per_second;
            writeln!(f, "  appends     {rate:.1}/s   ({} in all)", self.appends)?;
        }
        if self.consumers > 0 {
            writeln!(f, "  consumers   {} woken", self.consumers)?;
        }
        if self.hanging > 0 {
            writeln!(f, "  hanging     {} wakes taken and never answered", self.hanging)?;
        }
        if let Some(rss) = self.idle_rss_bytes {
            writeln!(f, "  idle        {} MB RSS", rss / 1_000_000)?;
        }
        if let Some(disk) = self.disk_bytes {
            writeln!(f, "  disk        {} MB", disk / 1_000_000)?;
        }
        Ok(())
    }
}
