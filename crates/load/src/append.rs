//! `append`: how many durable appends per second.

use std::cell::RefCell;

use anyhow::ensure;
use clap::Args;

use crate::clock;
use crate::message::MessageWriter;
use crate::pool::{self, ConnectionPool, RequestPlan};
use crate::report::Report;
use crate::target::{Streams, Target};

/// Durable appends per second.
#[derive(Debug, Clone, Args)]
pub struct Append {
    #[command(flatten)]
    pub target: Target,
    /// Connections, each with one append in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Streams that the appends go to, in turn
    #[arg(long, default_value_t = 1)]
    pub streams: u64,
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

pub(crate) async fn run(work: &Append) -> anyhow::Result<Report> {
    let warmup = clock::parse_seconds("--warmup", work.warmup)?;
    let measured_time = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?;
    let requests = append_requests(&streams, work.streams, work.body)?;
    pool::create_empty(&streams, work.connections, work.streams).await?;

    let pool = ConnectionPool::start(streams.address, work.connections, requests);
    let measured = pool.measure(warmup, measured_time, work.target.pid).await;

    let Append { connections, streams, body, .. } = work;
    let settings = format!("{body} B over {connections} connections to {streams} streams");
    Ok(measured.report("append", settings))
}

/// Appends without end, to the streams in turn.
pub(crate) fn append_requests(
    streams: &Streams,
    count: u64,
    bytes: usize,
) -> anyhow::Result<RequestPlan> {
    ensure!(count > 0, "--streams must be at least 1");
    let messages = MessageWriter::new(bytes)?;
    let streams = streams.clone();
    let body = RefCell::new(Vec::new());
    let write = Box::new(move |number, request: &mut Vec<u8>| {
        let mut body = body.borrow_mut();
        body.clear();
        messages.write(number, &mut body);
        streams.post(number % count, &body, request);
    });
    Ok(RequestPlan {
        limit: None,
        expect: 204,
        bytes: u64::try_from(bytes)?,
        write,
        ahead_limit: None,
    })
}
