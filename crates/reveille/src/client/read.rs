//! `reveille read`: what a stream holds, and with `--follow` what comes.
//!
//! News are awaited by long-poll, not by SSE: an event stream cannot carry a carriage return, and
//! here every byte is printed as it was written.

use std::io::{self, BufWriter, StdoutLock, Write as _};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use reveille_core::media::Framing;
use reveille_core::{ContentType, ReadFrom, StreamPath};

use super::messages::Printer;
use super::url::encode;
use super::{
    ApiRequest, Client, RetryPolicy, ServerArguments, Unavailable, is_true, parse_path, root_cause,
    text,
};

/// What `reveille read` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The stream: the path of its URL
    #[arg(value_name = "PATH", value_parser = parse_path)]
    path: StreamPath,
    /// Where to begin: an offset that an append printed, `-1` for the start, or `now`
    #[arg(
        long,
        value_name = "OFFSET",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = parse_offset
    )]
    offset: String,
    /// Goes on with what is appended later, until the stream is closed
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    server: ServerArguments,
}

fn parse_offset(text: &str) -> Result<String, String> {
    let known = text.parse::<ReadFrom>().map(|_| text.to_owned());
    known.map_err(|error| error.to_string())
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let mut reader = Reader {
        client,
        path: arguments.path,
        offset: arguments.offset,
        cursor: None,
        printed: 0,
        is_live: false,
        out: BufWriter::new(io::stdout().lock()),
    };
    super::block_on(reader.read(arguments.follow))
}

fn print_waiting(error: &Unavailable) {
    match error {
        // Nobody waits for a server that was never there, or that is not to be trusted.
        Unavailable::NoServer { .. } | Unavailable::Untrusted { .. } => {}
        Unavailable::Lost { url, cause } | Unavailable::Busy { url, cause, .. } => {
            eprintln!("waiting for {url} ({cause}); reading goes on as soon as it answers");
        }
    }
}

/// A reader and the place that it has come to.
struct Reader {
    client: Client,
    path: StreamPath,
    /// Everything before it is printed.
    offset: String,
    /// What a live read passes on, so that caches between us and the server work.
    cursor: Option<String>,
    /// Bytes or messages behind the offset that are printed as well: the answer broke off there.
    printed: u64,
    /// Everything that was there is printed; now for what comes.
    is_live: bool,
    out: BufWriter<StdoutLock<'static>>,
}

/// Where an answer leaves the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadOutcome {
    /// There is more.
    More,
    /// That is all for now.
    UpToDate,
    /// That is all for ever.
    Closed,
}

impl Reader {
    async fn read(&mut self, follow: bool) -> anyhow::Result<()> {
        let mut retry = if follow { RetryPolicy::unlimited() } else { RetryPolicy::limited() };
        let mut is_waiting = false;
        loop {
            match self.read_page().await {
                Ok(outcome) => {
                    retry.reset();
                    is_waiting = false;
                    self.is_live = follow && outcome == ReadOutcome::UpToDate;
                    match outcome {
                        ReadOutcome::Closed => return Ok(()),
                        ReadOutcome::UpToDate if !follow => return Ok(()),
                        ReadOutcome::UpToDate | ReadOutcome::More => {}
                    }
                }
                Err(error) => {
                    let error = error.downcast::<Unavailable>()?;
                    self.out.flush()?;
                    if follow && !is_waiting {
                        is_waiting = true;
                        print_waiting(&error);
                    }
                    retry.wait(error).await?;
                }
            }
        }
    }

    /// One request: prints what it brings and moves on. After [`Unavailable`] the reader is where it
    /// can go on.
    async fn read_page(&mut self) -> anyhow::Result<ReadOutcome> {
        let mut target = format!("{}?offset={}", self.path, encode(&self.offset));
        if self.is_live {
            target.push_str("&live=long-poll");
            if let Some(cursor) = &self.cursor {
                target.push_str(&format!("&cursor={}", encode(cursor)));
            }
        }
        let response = self.client.send_once(&ApiRequest::new(Method::GET, target)).await?;
        match response.status() {
            StatusCode::OK | StatusCode::NO_CONTENT => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(self.not_found()),
            _ => {
                let answer = self.client.read_response(response).await?;
                return Err(match self.client.busy(&answer) {
                    Some(busy) => busy.into(),
                    None => self.client.refusal(&answer),
                });
            }
        }
        let headers = response.headers();
        let next = text(headers, "stream-next-offset");
        let next = next.context("the server did not say where the answer ended")?.to_owned();
        let cursor = text(headers, "stream-cursor").map(str::to_owned);
        let outcome = if is_true(headers, "stream-closed") {
            ReadOutcome::Closed
        } else if is_true(headers, "stream-up-to-date") {
            ReadOutcome::UpToDate
        } else {
            ReadOutcome::More
        };
        self.print(response).await?;
        if outcome == ReadOutcome::More && next == self.offset {
            bail!("the server does not get beyond {next}; see its log");
        }
        self.offset = next;
        self.cursor = cursor;
        self.printed = 0;
        Ok(outcome)
    }

    /// Prints a body while it arrives, and remembers how much of it there was if it breaks off.
    async fn print(&mut self, response: Response<Incoming>) -> anyhow::Result<()> {
        let kind = text(response.headers(), CONTENT_TYPE.as_str()).and_then(ContentType::parse);
        let json = kind.is_some_and(|kind| kind.framing() == Framing::Json);
        let mut printer = Printer::new(json, self.printed);
        let mut body = response.into_body();
        let mut ready = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Err(self.client.lost(root_cause(&error)).into()),
            };
            if let Some(bytes) = frame.data_ref() {
                printer.push(bytes, &mut ready)?;
                self.out.write_all(&ready)?;
                ready.clear();
                self.printed = printer.printed();
            }
        }
        if !printer.is_complete() {
            return Err(self.client.lost("the answer broke off".to_owned()).into());
        }
        self.out.flush()?;
        Ok(())
    }

    fn not_found(&self) -> anyhow::Error {
        let path = &self.path;
        if self.is_live || self.printed > 0 {
            anyhow!("{path} was deleted or has expired")
        } else {
            anyhow!("there is no stream {path}; `reveille append {path} TEXT` makes one")
        }
    }
}
