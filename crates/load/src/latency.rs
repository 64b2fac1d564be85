//! `latency`: how long from sending an append until a live reader holds it.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::clock;
use crate::connection::{BUFFER_SMALL, Client, ExchangeError, Failure};
use crate::histogram::Histogram;
use crate::live::{LongPollReader, SseReader, timed};
use crate::message::MessageWriter;
use crate::pool;
use crate::report::Report;
use crate::tally::Tally;
use crate::target::Target;
use crate::usage::Meter;

/// A message that has not arrived by then is lost.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);

/// Time from sending an append to a live reader holding it.
#[derive(Debug, Clone, Args)]
pub struct LiveLatency {
    #[command(flatten)]
    pub target: Target,
    /// How the reader follows the stream
    #[arg(long, value_enum, default_value_t = Mode::Sse)]
    pub mode: Mode,
    /// Messages to time, one after another
    #[arg(long, default_value_t = 1000)]
    pub count: u64,
    /// Stop here even when some are missing
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Pause before each message, so that a poll has reached the server when it is sent
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 2)]
    pub pause: u64,
    /// Bytes of each message, one JSON object
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
}

/// How a reader follows a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Server-sent events.
    Sse,
    /// One request per message.
    LongPoll,
}

enum Reader {
    Sse(SseReader),
    LongPoll(LongPollReader),
}

impl Reader {
    /// The reader waits at the server, as far as it can know.
    async fn ready(&mut self) -> Result<(), ExchangeError> {
        match self {
            Reader::Sse(reader) => reader.connect().await,
            Reader::LongPoll(reader) => reader.poll().await,
        }
    }

    async fn wait_for(&mut self, marker: &[u8]) -> Result<(), ExchangeError> {
        match self {
            Reader::Sse(reader) => reader.wait_for(marker).await,
            Reader::LongPoll(reader) => reader.wait_for(marker).await,
        }
    }
}

pub(crate) async fn run(work: &LiveLatency) -> anyhow::Result<Report> {
    let limit = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.count > 0, "--count must be at least 1");
    let messages = MessageWriter::new(work.body)?;
    let streams = work.target.resolve().await?;
    pool::create_empty(&streams, 1, 1).await?;

    let new_reader = || match work.mode {
        Mode::Sse => Reader::Sse(SseReader::new(streams.clone())),
        Mode::LongPoll => Reader::LongPoll(LongPollReader::new(streams.clone())),
    };
    let mut reader = new_reader();
    let mut writer = Client::new(streams.address, BUFFER_SMALL);
    let mut measured = Tally::default();
    let mut answers = Histogram::default();
    let (mut body, mut request) = (Vec::new(), Vec::new());
    let pause = Duration::from_millis(work.pause);
    let start = Meter::read(work.target.pid);
    let began = clock::now();
    for number in 0..work.count {
        if began.elapsed() >= limit {
            break;
        }
        body.clear();
        messages.write(number, &mut body);
        streams.post(0, &body, &mut request);
        let sample = measure(&mut reader, &mut writer, &request, number, pause);
        let error = match clock::within(ARRIVAL_MAX, sample).await {
            Some(Ok((arrival, answer))) => {
                measured.done(arrival, u64::try_from(work.body)?);
                answers.record(answer);
                continue;
            }
            Some(Err(error)) => error,
            None => Failure::TimedOut.into(),
        };
        measured.errors.exchange(error);
        // It may still get the lost message later: the next one is for a reader that cannot.
        reader = new_reader();
    }
    let end = Meter::read(work.target.pid);

    let mode = work.mode.to_possible_value().map_or(String::new(), |mode| mode.get_name().into());
    let settings = format!("{mode}, {} B, {} ms between messages", work.body, work.pause);
    let mut report = Report::new("latency", settings, &measured, &Tally::default(), (start, end));
    report.answer_us = answers.summary();
    Ok(report)
}

/// Sends one message; the time until the reader holds it, and until the writer has its answer.
async fn measure(
    reader: &mut Reader,
    writer: &mut Client,
    request: &[u8],
    number: u64,
    pause: Duration,
) -> Result<(Duration, Duration), ExchangeError> {
    reader.ready().await?;
    clock::sleep(pause).await;
    let marker = MessageWriter::marker(number);
    let sent = clock::now();
    // One task polls both: whichever the server does first is seen first.
    let ((arrived, arrived_at), (answer, answered_at)) =
        tokio::join!(timed(reader.wait_for(&marker)), timed(writer.exchange(request)));
    arrived?;
    match answer? {
        204 => Ok((arrived_at - sent, answered_at - sent)),
        status => Err(ExchangeError::Status(status)),
    }
}
