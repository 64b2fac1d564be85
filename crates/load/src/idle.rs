//! `idle`: many SSE readers that wait, what they cost, and how fast one message reaches them all.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Client};
use crate::live::{SseReader, contains};
use crate::message::MessageWriter;
use crate::pool;
use crate::report::{Fanout, Report};
use crate::tally::Tally;
use crate::target::{Streams, Target};
use crate::usage::{self, Meter};

/// Opening every reader may not take longer.
const OPENING_MAX: Duration = Duration::from_secs(120);
/// A message that has not arrived by then is lost.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);
/// Readers that connect at the same time: fewer than the smallest usual listen queue.
const OPENING: usize = 64;
const MESSAGE: u64 = 1;
const MESSAGE_BYTES: usize = 100;

/// Idle SSE readers.
#[derive(Debug, Clone, Args)]
pub struct Idle {
    #[command(flatten)]
    pub target: Target,
    /// SSE readers of one stream, a connection each
    #[arg(long, default_value_t = 1000)]
    pub readers: u64,
    /// How long they wait before the message is sent
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

struct ReaderState {
    streams: Streams,
    opening: Semaphore,
    /// Readers that are up.
    up: Cell<u64>,
    /// Readers that failed while opening, waiting or receiving.
    failed: Cell<u64>,
    changed: Notify,
    sent: Cell<Option<Instant>>,
    arrivals: RefCell<Tally>,
}

pub(crate) async fn run(work: &Idle) -> anyhow::Result<Report> {
    let hold = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.readers > 0, "--readers must be at least 1");
    let streams = work.target.resolve().await?;
    pool::create_empty(&streams, 1, 1).await?;
    let shared = Rc::new(ReaderState {
        streams,
        opening: Semaphore::new(OPENING),
        up: Cell::new(0),
        failed: Cell::new(0),
        changed: Notify::new(),
        sent: Cell::new(None),
        arrivals: RefCell::default(),
    });
    let rss_before = work.target.pid.and_then(usage::resident_bytes);
    let mut readers = JoinSet::new();
    for _ in 0..work.readers {
        readers.spawn_local(run_reader(Rc::clone(&shared)));
    }
    let opened = async {
        while shared.up.get() + shared.failed.get() < work.readers {
            shared.changed.notified().await;
        }
    };
    // What is not up by then shows in the report.
    let _ = clock::within(OPENING_MAX, opened).await;
    let start = Meter::read(work.target.pid);
    clock::sleep(hold).await;
    let end = Meter::read(work.target.pid);
    let up = shared.up.get();
    let rss_up = work.target.pid.and_then(usage::resident_bytes);

    send_message(&shared).await?;
    let _ =
        clock::within(ARRIVAL_MAX, async { while readers.join_next().await.is_some() {} }).await;
    let mut arrivals = shared.arrivals.take();
    let accounted = arrivals.done + arrivals.errors.total();
    arrivals.errors.count("no message".to_owned(), work.readers.saturating_sub(accounted));

    let settings = format!("{} SSE readers waiting {} s", work.readers, work.seconds);
    let mut report = Report::new("idle", settings, &arrivals, &Tally::default(), (start, end));
    let per_reader = rss_before
        .zip(rss_up)
        .and_then(|(before, up_bytes)| up_bytes.saturating_sub(before).checked_div(up));
    report.fanout = Some(Fanout {
        readers: work.readers,
        up,
        received: arrivals.done,
        arrival_us: report.latency_us.take(),
        rss_before_bytes: rss_before,
        rss_up_bytes: rss_up,
        rss_per_reader_bytes: per_reader,
    });
    Ok(report)
}

async fn run_reader(shared: Rc<ReaderState>) {
    let mut sse = SseReader::new(shared.streams.clone());
    let opened = {
        let _permit = shared.opening.acquire().await;
        sse.connect().await
    };
    if let Err(error) = opened {
        shared.arrivals.borrow_mut().errors.exchange(error);
        shared.failed.set(shared.failed.get() + 1);
        shared.changed.notify_one();
        return;
    }
    shared.up.set(shared.up.get() + 1);
    shared.changed.notify_one();
    let marker = MessageWriter::marker(MESSAGE);
    loop {
        match sse.receive().await {
            Ok(data) if contains(&data, &marker) => break,
            Ok(_) => {}
            Err(failure) => {
                shared.arrivals.borrow_mut().errors.failure(failure);
                shared.up.set(shared.up.get() - 1);
                return;
            }
        }
    }
    if let Some(sent) = shared.sent.get() {
        let bytes = u64::try_from(MESSAGE_BYTES).unwrap_or(0);
        shared.arrivals.borrow_mut().done(sent.elapsed(), bytes);
    }
}

async fn send_message(shared: &ReaderState) -> anyhow::Result<()> {
    let (mut body, mut request) = (Vec::new(), Vec::new());
    MessageWriter::new(MESSAGE_BYTES)?.write(MESSAGE, &mut body);
    shared.streams.post(0, &body, &mut request);
    let mut writer = Client::new(shared.streams.address, BUFFER_SMALL);
    shared.sent.set(Some(clock::now()));
    let status = clock::within(ARRIVAL_MAX, writer.exchange(&request))
        .await
        .context("the message was not answered")?
        .map_err(|failure| anyhow::anyhow!("the message was not answered: {}", failure.label()))?;
    ensure!(status == 204, "the message was answered with {status}");
    Ok(())
}
