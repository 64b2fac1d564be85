//! `soak`: appends for a long time, watching what must stay level.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::append::{appends, seconds};
use crate::clock;
use crate::crew::{self, Crew};
use crate::histogram::Latency;
use crate::report::{Report, rate};
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

/// One interval of a soak.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Time since the start, at the end of the interval.
    pub seconds: f64,
    /// Appends per second in the interval.
    pub per_second: f64,
    /// Latencies of the interval.
    pub latency_us: Option<Latency>,
    /// Errors in the interval.
    pub errors: u64,
    /// Resident memory of the server.
    pub rss_bytes: Option<u64>,
    /// Size on disk of each directory in the data directory, two levels deep; `.` is its own files.
    pub disk_bytes: BTreeMap<String, u64>,
}

pub(crate) async fn run(work: &Soak) -> anyhow::Result<Report> {
    let total = seconds("--seconds", work.seconds)?;
    let every = seconds("--every", work.every)?;
    ensure!(!every.is_zero(), "--every must be more than 0");
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?;
    let requests = appends(&streams, work.streams, work.body)?;
    crew::create_empty(&streams, work.connections, work.streams).await?;

    let crew = Crew::start(streams.address, work.connections, requests);
    let start = Meter::read(work.target.pid);
    let began = clock::now();
    let mut measured = Tally::default();
    let mut samples: Vec<Sample> = Vec::new();
    while began.elapsed() < total {
        clock::sleep(every.min(total - began.elapsed().min(total))).await;
        let tally = crew.take();
        let seconds = began.elapsed().as_secs_f64();
        let since = seconds - samples.last().map_or(0.0, |last| last.seconds);
        let sample = Sample {
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
    let elsewhere = crew.stop().await;

    let Soak { connections, streams, body, .. } = work;
    let settings = format!("{body} B over {connections} connections to {streams} streams");
    let mut report = Report::new("soak", settings, &measured, &elsewhere, (start, end));
    report.samples = samples;
    Ok(report)
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7.1} s  {:9.1}/s", self.seconds, self.per_second)?;
        if let Some(latency) = &self.latency_us {
            write!(
                f,
                "  p50 {:6} µs  p99 {:7} µs  max {:8} µs",
                latency.p50, latency.p99, latency.max
            )?;
        }
        if let Some(bytes) = self.rss_bytes {
            write!(f, "  rss {:5} MB", bytes / 1_000_000)?;
        }
        for (name, bytes) in &self.disk_bytes {
            write!(f, "  {name} {} MB", bytes / 1_000_000)?;
        }
        if self.errors > 0 {
            write!(f, "  ERRORS {}", self.errors)?;
        }
        Ok(())
    }
}
