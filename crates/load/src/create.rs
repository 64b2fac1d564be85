//! `create`: how many streams per second, each with its first message.

use std::cell::RefCell;

use anyhow::ensure;
use clap::Args;

use crate::clock;
use crate::message::MessageWriter;
use crate::pool::{ConnectionPool, RequestPlan};
use crate::report::Report;
use crate::target::{Streams, Target};
use crate::usage::Meter;

/// Streams created per second, each with its first message.
#[derive(Debug, Clone, Args)]
pub struct Create {
    #[command(flatten)]
    pub target: Target,
    /// Streams to create
    #[arg(long, default_value_t = 10_000)]
    pub count: u64,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Stop here even when some are missing
    #[arg(long, default_value_t = 600.0)]
    pub seconds: f64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
}

pub(crate) async fn run(work: &Create) -> anyhow::Result<Report> {
    let limit = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    let streams = work.target.resolve().await?;
    let requests = create_requests(&streams, work.count, MessageWriter::new(work.body)?);

    let start = Meter::read(work.target.pid);
    let mut pool = ConnectionPool::start(streams.address, work.connections, requests);
    let finished = pool.finish(limit).await;
    let measured = pool.take_tally();
    let end = Meter::read(work.target.pid);
    let elsewhere = pool.stop().await;

    let Create { count, connections, body, .. } = work;
    let mut settings = format!("{count} streams with {body} B over {connections} connections");
    if !finished {
        settings += &format!(", stopped after {} s", work.seconds);
    }
    Ok(Report::new("create", settings, &measured, &elsewhere, (start, end)))
}

/// Creates `count` streams with a message each.
pub(crate) fn create_requests(
    streams: &Streams,
    count: u64,
    messages: MessageWriter,
) -> RequestPlan {
    let bytes = messages.bytes();
    let streams = streams.clone();
    let body = RefCell::new(Vec::new());
    let write = Box::new(move |number, request: &mut Vec<u8>| {
        let mut body = body.borrow_mut();
        body.clear();
        messages.write(number, &mut body);
        streams.put(number, &body, request);
    });
    RequestPlan { limit: Some(count), expect: 201, bytes, write, ahead_limit: None }
}
