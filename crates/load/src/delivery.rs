//! `delivery`: how long from sending an event until the hook's endpoint holds the delivery.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use tokio::sync::Semaphore;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Client, ExchangeError, Failure};
use crate::events::{EventTarget, Worker, Workers};
use crate::histogram::Histogram;
use crate::live::timed;
use crate::message::MessageWriter;
use crate::neighbors::{FLOODED, Flood, HANGING, Neighbors};
use crate::report::{DeliveryFigures, Report, rate};
use crate::sink::Sink;
use crate::tally::Tally;
use crate::target::Target;
use crate::usage::Meter;

const LIVE: Worker = Worker { id: "live", binding: None };
const CALM: &str = "calm";
const FLOODING: &str = "flood";
/// An answer, or quiet before the measurement, does not take longer.
const WAITING_MAX: Duration = Duration::from_secs(10);
/// Nothing that came for this long will come.
const QUIET: Duration = Duration::from_millis(200);
/// Until then as many deliveries hang as the server lets hang.
const FILLING_MAX: Duration = Duration::from_secs(10);
/// The numbers of events that are not measured begin here.
const UNMEASURED: u64 = 1 << 40;

/// Time from sending an event to the endpoint holding its delivery.
#[derive(Debug, Clone, Args)]
pub struct Delivery {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub workers: Workers,
    /// Where this process answers as the workers of everybody else
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4439")]
    pub beside: SocketAddr,
    /// Events to time, one after another
    #[arg(long, default_value_t = 1000)]
    pub count: u64,
    /// Stop here even when some are missing
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Time after which a delivery is lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub patience: f64,
    /// Pause before each event
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5)]
    pub pause: u64,
    /// Bytes of each event, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// Hooks for the same events that never answer; with --flood they are the other tenant's
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub hanging: u64,
    /// Another tenant sends events as fast as it can; needs --key
    #[arg(long, requires = "key")]
    pub flood: bool,
    /// Time between the start of the flood and the first measured event
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub settle: f64,
}

/// The times of one event.
struct DeliverySample {
    /// Until it was answered.
    answer: Duration,
    /// Until the endpoint held its delivery, if it ever did.
    delivery: Option<Duration>,
}

/// One event after another.
struct EventSender {
    events: EventTarget,
    messages: MessageWriter,
    client: Client,
    body: Vec<u8>,
    request: Vec<u8>,
}

pub(crate) async fn run(work: &Delivery) -> anyhow::Result<Report> {
    let limit = clock::parse_seconds("--seconds", work.seconds)?;
    let patience = clock::parse_seconds("--patience", work.patience)?;
    ensure!(work.count > 0, "--count must be at least 1");
    // The same name for both tenants, whatever the clock says.
    let target = Target { run: Some(work.target.run_name()), ..work.target.clone() };
    let events = EventTarget::resolve(&target, &work.workers, CALM).await?;
    let mut sender = EventSender::new(events, work.body)?;
    let no_limit = Rc::new(Semaphore::new(0));
    let sink = Sink::open_at(work.workers.sink, no_limit, Arc::default()).await?;
    let neighbors = start_neighbors(work, &target, &mut sender, &sink).await?;
    ensure!(
        sink.wait_until_quiet(QUIET, WAITING_MAX).await,
        "there are deliveries without an event"
    );

    let before = sink.calls();
    let (mut measured, mut answers) = (Tally::default(), Histogram::default());
    let pause = Duration::from_millis(work.pause);
    let start = Meter::read(work.target.pid);
    let began = clock::now();
    for number in 0..work.count {
        if began.elapsed() >= limit {
            break;
        }
        clock::sleep(pause).await;
        match sender.measure(&sink, number, patience).await {
            Ok(DeliverySample { answer, delivery }) => {
                answers.record(answer);
                match delivery {
                    Some(delivery) => measured.done(delivery, u64::try_from(work.body)?),
                    None => measured.errors.count("not delivered".to_owned(), 1),
                }
            }
            Err(error) => measured.errors.exchange(error),
        }
    }
    let end = Meter::read(work.target.pid);
    // One event for one hook is one delivery, not more.
    let sent = measured.done + measured.errors.total();
    let unexpected = (sink.calls() - before).saturating_sub(sent);
    measured.errors.count("delivered twice".to_owned(), unexpected);

    let mut figures = DeliveryFigures { deliveries: measured.done, ..DeliveryFigures::default() };
    figures.hanging = sink.hanging();
    if let Some(neighbors) = neighbors {
        figures.hanging += neighbors.hanging();
        let flood = neighbors.stop()?;
        measured.errors.absorb(&flood.errors);
        figures.flood_events_per_second = work.flood.then_some(flood.events_per_second);
        figures.flood_deliveries = work.flood.then_some(flood.deliveries);
    }
    let ((events, time), meters) = ((measured.done, start.seconds_until(&end)), (start, end));
    (figures.events, figures.events_per_second) = (events, rate(events, time));
    let mut report =
        Report::new("delivery", work.to_string(), &measured, &Tally::default(), meters);
    report.answer_us = answers.summary();
    report.deliveries = Some(figures);
    Ok(report)
}

/// Makes the hook that is measured and everything that is beside it. It is the last hook of its
/// tenant, so that it is told after those that hang.
async fn start_neighbors(
    work: &Delivery,
    target: &Target,
    sender: &mut EventSender,
    sink: &Sink,
) -> anyhow::Result<Option<Neighbors>> {
    if work.flood {
        let settle = clock::parse_seconds("--settle", work.settle)?;
        let events = EventTarget::resolve(target, &work.workers, FLOODING).await?;
        let messages = events.messages(work.body)?;
        events.hook(HANGING, work.hanging).await?;
        events.hook(FLOODED, 1).await?;
        sender.events.hook(LIVE, 1).await?;
        let neighbors = Neighbors::start(work.beside, Some(Flood { events, messages }))?;
        clock::sleep(settle).await;
        return Ok(Some(neighbors));
    }
    if work.hanging == 0 {
        sender.events.hook(LIVE, 1).await?;
        return Ok(None);
    }
    let neighbors = Neighbors::start(work.beside, None)?;
    sender.events.hook(HANGING, work.hanging).await?;
    let hanging = || sink.hanging() + neighbors.hanging();
    sender.fill(hanging).await?;
    ensure!(
        hanging() >= work.hanging,
        "{} of {} hanging hooks were called: does the server know the address {}?",
        hanging(),
        work.hanging,
        work.beside
    );
    sender.events.hook(LIVE, 1).await?;
    Ok(Some(neighbors))
}

impl EventSender {
    fn new(events: EventTarget, bytes: usize) -> anyhow::Result<EventSender> {
        let messages = events.messages(bytes)?;
        let client = Client::new(events.address, BUFFER_SMALL);
        Ok(EventSender { events, messages, client, body: Vec::new(), request: Vec::new() })
    }

    /// Sends events until no more deliveries hang: the server has reached its limits.
    async fn fill(&mut self, hanging: impl Fn() -> u64) -> anyhow::Result<()> {
        let began = clock::now();
        let (mut most, mut since) = (0, began);
        for number in UNMEASURED.. {
            self.write(number);
            let answer = self.client.exchange(&self.request).await;
            let status = answer.map_err(|failure| anyhow::anyhow!(failure.label()));
            ensure!(status.context("cannot send events")? == 200, "an event was refused");
            clock::sleep(Duration::from_millis(1)).await;
            if hanging() > most {
                (most, since) = (hanging(), clock::now());
            } else if since.elapsed() > QUIET {
                break;
            }
            if began.elapsed() > FILLING_MAX {
                break;
            }
        }
        Ok(())
    }

    /// One event, until it is answered, and delivered or lost.
    async fn measure(
        &mut self,
        sink: &Sink,
        number: u64,
        patience: Duration,
    ) -> Result<DeliverySample, ExchangeError> {
        self.write(number);
        sink.expect_call(&MessageWriter::marker(number));
        let sent = clock::now();
        // One task polls both: whichever the server does first is seen first.
        let called = async { Ok(clock::within(patience, sink.wait_for_call()).await) };
        let (called_at, answered_at) = tokio::try_join!(called, async {
            let exchange = clock::within(WAITING_MAX, self.client.exchange(&self.request));
            let (answer, at) = timed(exchange).await;
            match answer.ok_or(Failure::TimedOut)?? {
                200 => Ok(at),
                status => Err(ExchangeError::Status(status)),
            }
        })?;
        let delivery = called_at.map(|at| at - sent);
        Ok(DeliverySample { answer: answered_at - sent, delivery })
    }

    fn write(&mut self, number: u64) {
        self.events.ingest(&self.messages, number, 1, &mut self.body, &mut self.request);
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delivery { body, pause, hanging, .. } = self;
        write!(f, "{body} B, {pause} ms before each event")?;
        match (self.flood, hanging) {
            (false, 0) => Ok(()),
            (false, _) => write!(f, ", beside {hanging} hooks that hang"),
            (true, _) => {
                write!(f, ", beside a tenant that floods and has {hanging} hooks that hang")
            }
        }
    }
}
