//! `wake`: how long from sending an append until the consumer's endpoint holds the wake.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Client, ExchangeError, Failure};
use crate::dialect::Dialect;
use crate::histogram::Histogram;
use crate::live::timed;
use crate::message::MessageWriter;
use crate::pool;
use crate::report::{Report, WakeFigures};
use crate::sink::Sink;
use crate::tally::Tally;
use crate::target::Target;
use crate::unresponsive::UnresponsiveConsumers;
use crate::usage::Meter;

/// A wake that has not arrived by then is lost.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);
/// A consumer that was not woken for this long is idle.
const QUIET: Duration = Duration::from_millis(200);

/// Time from sending an append to the endpoint holding the wake.
#[derive(Debug, Clone, Args)]
pub struct Wake {
    #[command(flatten)]
    pub target: Target,
    /// How wakes are asked for
    #[arg(long, value_enum, default_value_t = Dialect::Webhooks)]
    pub dialect: Dialect,
    /// Wakes to time, one after another
    #[arg(long, default_value_t = 1000)]
    pub count: u64,
    /// Stop here even when some are missing
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Pause before each append, so that the consumer is idle when it is sent
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5)]
    pub pause: u64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// Consumers beside it whose endpoint refuses every connection
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dead: u64,
    /// Consumers beside it whose endpoint never answers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub hanging: u64,
    /// Time between waking those and the first measured append
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub settle: f64,
}

/// The times of one wake.
struct WakeSample {
    /// Until an append to a stream that nobody is woken for was answered.
    plain: Duration,
    /// Until an append to the consumer's stream was answered.
    answer: Duration,
    /// Until its endpoint held the wake.
    wake: Duration,
}

pub(crate) async fn run(work: &Wake) -> anyhow::Result<Report> {
    let limit = clock::parse_seconds("--seconds", work.seconds)?;
    let settle = clock::parse_seconds("--settle", work.settle)?;
    ensure!(work.count > 0, "--count must be at least 1");
    let messages = MessageWriter::new(work.body)?;
    let streams = work.target.resolve().await?;
    let (live, plain) = (streams.group("live"), streams.group("plain"));
    let sink = Sink::open().await?;
    pool::create_empty(&plain, 1, 1).await?;
    work.dialect.subscribe(&live, &sink.live_url(), 1, 1).await?;
    pool::create_empty(&live, 1, 1).await?;
    let unresponsive = UnresponsiveConsumers { dead: work.dead, hanging: work.hanging };
    unresponsive.start(work.dialect, &streams, &sink, &messages, settle).await?;
    ensure!(
        sink.wait_until_quiet(QUIET, ARRIVAL_MAX).await,
        "the consumer is woken without an append"
    );

    let before = sink.calls();
    let (mut measured, mut answers, mut plains) =
        (Tally::default(), Histogram::default(), Histogram::default());
    let mut writer = Client::new(streams.address, BUFFER_SMALL);
    let (mut body, mut requests) = (Vec::new(), (Vec::new(), Vec::new()));
    let pause = Duration::from_millis(work.pause);
    let start = Meter::read(work.target.pid);
    let began = clock::now();
    for number in 0..work.count {
        if began.elapsed() >= limit {
            break;
        }
        body.clear();
        messages.write(number, &mut body);
        plain.post(0, &body, &mut requests.0);
        live.post(0, &body, &mut requests.1);
        let sample = measure(&sink, &mut writer, &requests, pause);
        match clock::within(ARRIVAL_MAX, sample).await {
            Some(Ok(sample)) => {
                measured.done(sample.wake, u64::try_from(work.body)?);
                answers.record(sample.answer);
                plains.record(sample.plain);
            }
            Some(Err(error)) => measured.errors.exchange(error),
            None => measured.errors.failure(Failure::TimedOut),
        }
    }
    let end = Meter::read(work.target.pid);
    // One append to an idle consumer is one wake, not more.
    let sent = measured.done + measured.errors.total();
    let unexpected = (sink.calls() - before).saturating_sub(sent);
    measured.errors.count("wake without an append".to_owned(), unexpected);

    let Wake { body, pause, .. } = work;
    let name = work.dialect.name();
    let settings = format!("{name}, {body} B, {pause} ms before each append{unresponsive}");
    let mut report = Report::new("wake", settings, &measured, &Tally::default(), (start, end));
    report.answer_us = answers.summary();
    report.plain_us = plains.summary();
    let hanging = sink.hanging();
    report.wakes = Some(WakeFigures { wakes: measured.done, hanging, ..WakeFigures::default() });
    Ok(report)
}

/// One append to each stream, the plain one first.
async fn measure(
    sink: &Sink,
    writer: &mut Client,
    (plain, live): &(Vec<u8>, Vec<u8>),
    pause: Duration,
) -> Result<WakeSample, ExchangeError> {
    clock::sleep(pause).await;
    let sent = clock::now();
    append(writer, plain).await?;
    let plain = sent.elapsed();
    clock::sleep(pause).await;
    sink.expect_call(b"");
    let sent = clock::now();
    // One task polls both: whichever the server does first is seen first.
    let (woken_at, answered_at) =
        tokio::try_join!(async { Ok(sink.wait_for_call().await) }, async {
            let (answer, at) = timed(append(writer, live)).await;
            answer.map(|()| at)
        })?;
    Ok(WakeSample { plain, answer: answered_at - sent, wake: woken_at - sent })
}

async fn append(writer: &mut Client, request: &[u8]) -> Result<(), ExchangeError> {
    match writer.exchange(request).await? {
        204 => Ok(()),
        status => Err(ExchangeError::Status(status)),
    }
}
