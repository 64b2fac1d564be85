//! `read`: how many megabytes per second a reader catches up with.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::de::IgnoredAny;
use tokio::task::JoinSet;

use crate::clock;
use crate::connection::{BUFFER_LARGE, Client, Failure};
use crate::message::MessageWriter;
use crate::pool::{self, RequestPlan};
use crate::report::Report;
use crate::tally::Tally;
use crate::target::{Streams, Target};
use crate::usage::Meter;

/// One catch-up read may not take longer.
const READ_MAX: Duration = Duration::from_secs(60);
/// Connections that fill the stream.
const WRITERS: usize = 64;

/// Catch-up reads of one stream.
#[derive(Debug, Clone, Args)]
pub struct Read {
    #[command(flatten)]
    pub target: Target,
    /// Size of the stream
    #[arg(long, default_value_t = 10_000_000)]
    pub bytes: u64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// Messages per append while the stream is filled
    #[arg(long, value_name = "MESSAGES", default_value_t = 100)]
    pub batch: u64,
    /// Readers, each reading the whole stream again and again
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// Measured time
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

pub(crate) async fn run(work: &Read) -> anyhow::Result<Report> {
    let measured_time = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    ensure!(work.batch > 0, "--batch must be at least 1");
    let streams = work.target.resolve().await?;
    let message_bytes = u64::try_from(work.body)?;
    let appends = work.bytes.div_ceil(message_bytes * work.batch).max(1);
    fill(&streams, work, appends).await?;
    check(&streams, appends * work.batch).await?;

    let shared = Rc::new(ReadState {
        streams: streams.clone(),
        expect: appends * work.batch * message_bytes,
        stopped: Cell::new(false),
        tally: RefCell::default(),
    });
    let start = Meter::read(work.target.pid);
    let mut readers = JoinSet::new();
    for _ in 0..work.connections {
        readers.spawn_local(reader(Rc::clone(&shared)));
    }
    clock::sleep(measured_time).await;
    // A read that is under way when the time is up counts whole, and so does its time.
    shared.stopped.set(true);
    while readers.join_next().await.is_some() {}
    let end = Meter::read(work.target.pid);

    let Read { body, batch, connections, .. } = work;
    let settings = format!(
        "{} bytes as {appends} appends of {batch} messages of {body} B, {connections} readers",
        shared.expect
    );
    let measured = shared.tally.take();
    Ok(Report::new("read", settings, &measured, &Tally::default(), (start, end)))
}

struct ReadState {
    streams: Streams,
    /// Bytes of the messages alone; brackets and commas come on top.
    expect: u64,
    stopped: Cell<bool>,
    tally: RefCell<Tally>,
}

async fn reader(shared: Rc<ReadState>) {
    let mut client = Client::new(shared.streams.address, BUFFER_LARGE);
    while !shared.stopped.get() {
        let began = clock::now();
        let mut bytes = 0u64;
        let count = |piece: &[u8]| bytes += u64::try_from(piece.len()).unwrap_or(0);
        let caught_up =
            clock::within(READ_MAX, catch_up(&mut client, &shared.streams, count)).await;
        let mut tally = shared.tally.borrow_mut();
        match caught_up {
            Some(Ok(200)) if bytes >= shared.expect => tally.done(began.elapsed(), bytes),
            Some(Ok(200)) => tally.errors.count("short read".to_owned(), 1),
            Some(Ok(status)) => tally.errors.status(status),
            Some(Err(failure)) => tally.errors.failure(failure),
            None => tally.errors.failure(Failure::TimedOut),
        }
    }
}

/// Reads the stream from its start to its tail, page by page if the server cuts it into pages.
/// The status that ended it: 200 at the tail.
async fn catch_up(
    client: &mut Client,
    streams: &Streams,
    mut sink: impl FnMut(&[u8]),
) -> Result<u16, Failure> {
    let mut request = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        streams.get(0, &format!("?offset={offset}"), &mut request);
        let answer = client.fetch(&request, &mut sink).await?;
        match answer.next_offset {
            _ if answer.status != 200 || answer.is_up_to_date => return Ok(answer.status),
            Some(next) if next != offset => offset = next,
            // Neither at the tail nor any further: a reader would turn in circles.
            Some(_) | None => return Err(Failure::Malformed),
        }
    }
}

async fn fill(streams: &Streams, work: &Read, appends: u64) -> anyhow::Result<()> {
    pool::create_empty(streams, 1, 1).await?;
    let messages = MessageWriter::new(work.body)?;
    let target = streams.clone();
    let batch = work.batch;
    let body = RefCell::new(Vec::new());
    let write = Box::new(move |number, request: &mut Vec<u8>| {
        let mut body = body.borrow_mut();
        body.clear();
        messages.write_array(number * batch, batch, &mut body);
        target.post(0, &body, request);
    });
    let requests =
        RequestPlan { limit: Some(appends), expect: 204, bytes: 0, write, ahead_limit: None };
    pool::prepare(streams.address, WRITERS, requests).await
}

/// One read whose every message is counted: the measured ones only count bytes.
async fn check(streams: &Streams, messages: u64) -> anyhow::Result<()> {
    let mut client = Client::new(streams.address, BUFFER_LARGE);
    let mut body = Vec::new();
    let read = catch_up(&mut client, streams, |piece| body.extend_from_slice(piece));
    let status = clock::within(READ_MAX, read)
        .await
        .context("a read took too long")?
        .map_err(|failure| anyhow::anyhow!("cannot read: {}", failure.label()))?;
    ensure!(status == 200, "a read was answered with {status}");
    let mut found = 0;
    // One array per page.
    for page in serde_json::Deserializer::from_slice(&body).into_iter::<Vec<IgnoredAny>>() {
        found += u64::try_from(page.context("a page is not a JSON array")?.len())?;
    }
    ensure!(found == messages, "the stream holds {found} messages instead of {messages}");
    Ok(())
}
