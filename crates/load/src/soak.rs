//! `soak`: appends for a long time, watching what must stay level.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use crate::append::append_requests;
use crate::clock;
use crate::pool::{self, ConnectionPool};
use crate::report::{Report, SoakSample, rate};
use crate::tally::Tally;
use crate::target::Target;
use crate::usage::{self, Meter};

/// Appends for a long time.
#[derive(Debug, Clone, Args)]
pub struct Soak {
    #[command(flatten)]
    pub target: Target,
    /// Connections, each with one append in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Streams that the appends go to, in turn
    #[arg(long, default_value_t = 1000)]
    pub streams: u64,
    /// How long
    #[arg(long, default_value_t = 600.0)]
    pub seconds: f64,
    /// Time between two samples
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub every: f64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// The server's data directory, to report its size (same machine)
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
}

pub(crate) async fn run(work: &Soak) -> anyhow::Result<Report> {
    let total = clock::parse_seconds("--seconds", work.seconds)?;
    let every = clock::parse_seconds("--every", work.every)?;
    ensure!(!every.is_zero(), "--every must be more than 0");
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?;
    let requests = append_requests(&streams, work.streams, work.body)?;
    pool::create_empty(&streams, work.connections, work.streams).await?;

    let pool = ConnectionPool::start(streams.address, work.connections, requests);
    let start = Meter::read(work.target.pid);
    let began = clock::now();
    let mut measured = Tally::default();
    let mut samples: Vec<SoakSample> = Vec::new();
    while began.elapsed() < total {
        clock::sleep(every.min(total - began.elapsed().min(total))).await;
        let tally = pool.take_tally();
        let seconds = began.elapsed().as_secs_f64();
        let since = seconds - samples.last().map_or(0.0, |last| last.seconds);
        let sample = SoakSample {
            seconds,
            per_second: rate(tally.done, since),
            latency_us: tally.latency.summary(),
            errors: tally.errors.total(),
            rss_bytes: work.target.pid.and_then(usage::resident_bytes),
            // A walk over a few dozen files: the requests in flight wait for less than 1 ms.
            disk_bytes: work.data_dir.as_deref().map(usage::disk_bytes).unwrap_or_default(),
        };
        eprintln!("{sample}");
        samples.push(sample);
        measured.absorb(&tally);
    }
    let end = Meter::read(work.target.pid);
    let elsewhere = pool.stop().await;

    let Soak { connections, streams, body, .. } = work;
    let settings = format!("{body} B over {connections} connections to {streams} streams");
    let mut report = Report::new("soak", settings, &measured, &elsewhere, (start, end));
    report.samples = samples;
    Ok(report)
}
