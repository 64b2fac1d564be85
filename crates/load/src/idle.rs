//! `idle`: many SSE readers that wait, what they cost, and how fast one message reaches them all.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::append::seconds;
use crate::clock;
use crate::connection::{BUFFER_SMALL, Link};
use crate::crew;
use crate::histogram::Latency;
use crate::latency::count;
use crate::live::{Sse, holds};
use crate::message::Messages;
use crate::report::Report;
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

/// What became of the idle readers.
#[derive(Debug, Clone, Serialize)]
pub struct Fanout {
    /// Readers that were to be opened.
    pub readers: u64,
    /// Readers that were up at once.
    pub up: u64,
    /// Readers that got the message.
    pub received: u64,
    /// The time from sending the message to each reader holding it, in microseconds; `max` is the
    /// last reader.
    pub arrival_us: Option<Latency>,
    /// Resident memory of the server before the first reader.
    pub rss_before_bytes: Option<u64>,
    /// Resident memory of the server with all of them waiting.
    pub rss_up_bytes: Option<u64>,
    /// The difference, per reader.
    pub rss_per_reader_bytes: Option<u64>,
}

struct Shared {
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
    let hold = seconds("--seconds", work.seconds)?;
    ensure!(work.readers > 0, "--readers must be at least 1");
    let streams = work.target.resolve().await?;
    crew::create_empty(&streams, 1, 1).await?;
    let shared = Rc::new(Shared {
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
        readers.spawn_local(reader(Rc::clone(&shared)));
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

    send(&shared).await?;
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

async fn reader(shared: Rc<Shared>) {
    let mut sse = Sse::new(shared.streams.clone());
    let opened = {
        let _turn = shared.opening.acquire().await;
        sse.connect().await
    };
    if let Err(refused) = opened {
        count(&mut shared.arrivals.borrow_mut().errors, refused);
        shared.failed.set(shared.failed.get() + 1);
        shared.changed.notify_one();
        return;
    }
    shared.up.set(shared.up.get() + 1);
    shared.changed.notify_one();
    let mark = Messages::mark(MESSAGE);
    loop {
        match sse.receive().await {
            Ok(data) if holds(&data, &mark) => break,
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

async fn send(shared: &Shared) -> anyhow::Result<()> {
    let (mut body, mut request) = (Vec::new(), Vec::new());
    Messages::new(MESSAGE_BYTES)?.write(MESSAGE, &mut body);
    shared.streams.post(0, &body, &mut request);
    let mut writer = Link::new(shared.streams.address, BUFFER_SMALL);
    shared.sent.set(Some(clock::now()));
    let status = clock::within(ARRIVAL_MAX, writer.exchange(&request))
        .await
        .context("the message was not answered")?
        .map_err(|failure| anyhow::anyhow!("the message was not answered: {}", failure.label()))?;
    ensure!(status == 204, "the message was answered with {status}");
    Ok(())
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fanout { readers, up, received, .. } = self;
        writeln!(f, "  readers     {up} of {readers} up, {received} received the message")?;
        if let Some(arrival) = &self.arrival_us {
            writeln!(f, "  arrival     {arrival}")?;
        }
        if let Some(bytes) = self.rss_per_reader_bytes {
            writeln!(f, "  memory      {:.1} KB RSS per reader", bytes as f64 / 1000.0)?;
        }
        Ok(())
    }
}
