//! `consumers`: many consumers that were woken once and have nothing to do since.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::clock;
use crate::create::create_requests;
use crate::dialect::Dialect;
use crate::message::MessageWriter;
use crate::pool::ConnectionPool;
use crate::report::{Report, WakeFigures, rate};
use crate::sink::Sink;
use crate::target::Target;
use crate::usage::{self, Meter};

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Consumers that were woken once.
#[derive(Debug, Clone, Args)]
pub struct Consumers {
    #[command(flatten)]
    pub target: Target,
    /// How wakes are asked for
    #[arg(long, value_enum, default_value_t = Dialect::Webhooks)]
    pub dialect: Dialect,
    /// Streams to create, with a consumer each
    #[arg(long, default_value_t = 10_000)]
    pub count: u64,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Stop here even when some were not woken
    #[arg(long, default_value_t = 900.0)]
    pub seconds: f64,
    /// Time between the last wake and the look at memory and disk
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub settle: f64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// The server's data directory, to report its size (same machine)
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
}

pub(crate) async fn run(work: &Consumers) -> anyhow::Result<Report> {
    let limit = clock::parse_seconds("--seconds", work.seconds)?;
    let settle = clock::parse_seconds("--settle", work.settle)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?.group("live");
    let requests = create_requests(&streams, work.count, MessageWriter::new(work.body)?);
    let sink = Sink::open().await?;
    sink.track_consumers(work.dialect, work.count);
    work.dialect.subscribe(&streams, &sink.live_url(), work.count, work.connections).await?;

    let start = Meter::read(work.target.pid);
    let mut pool = ConnectionPool::start(streams.address, work.connections, requests);
    let all_woken = async {
        pool.finish(limit).await;
        while sink.consumers() < work.count {
            clock::sleep(ASK_AGAIN_AFTER).await;
        }
    };
    let finished = clock::within(limit, all_woken).await.is_some();
    let mut measured = pool.take_tally();
    let (wakes, consumers) = (sink.calls(), sink.consumers());
    let end = Meter::read(work.target.pid);
    let elsewhere = pool.stop().await;
    clock::sleep(settle).await;

    let appends = measured.done;
    let appends_per_second = rate(appends, start.seconds_until(&end));
    measured.done = consumers;
    measured.errors.count("not woken".to_owned(), work.count.saturating_sub(consumers));
    let Consumers { count, connections, body, .. } = work;
    let name = work.dialect.name();
    let mut settings =
        format!("{name}, {count} consumers with {body} B over {connections} connections");
    if !finished {
        settings += &format!(", stopped after {} s", work.seconds);
    }
    let mut report = Report::new("consumers", settings, &measured, &elsewhere, (start, end));
    let disk = work.data_dir.as_deref().map(usage::disk_bytes);
    report.wakes = Some(WakeFigures {
        wakes,
        appends,
        appends_per_second,
        consumers,
        hanging: 0,
        idle_rss_bytes: work.target.pid.and_then(usage::resident_bytes),
        disk_bytes: disk.map(|sizes| sizes.values().sum()),
    });
    Ok(report)
}
