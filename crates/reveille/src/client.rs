//! The commands that talk to a server: finding it, asking it, and asking again when it is away.

pub(crate) mod append;
pub(crate) mod key;
pub(crate) mod read;
pub(crate) mod streams;
pub(crate) mod sub;

mod lines;
mod messages;
mod url;

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use reveille_core::StreamPath;

use crate::clock;
use crate::failure::usage;
use url::Url;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// An answer that does not wait for news comes within this time, or is asked for again.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Silent connections are probed, so that a machine that vanished is noticed.
const PROBE_AFTER: Duration = Duration::from_secs(20);
/// Answers that are held in memory: pages of a listing and error messages.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Together about ten seconds: long enough for a server to be started again.
const WAITS_MAX: u32 = 8;
const MESSAGE_CHARS_MAX: usize = 300;

/// Where the server is.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// The server
    #[arg(
        long,
        value_name = "URL",
        env = "REVEILLE_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:4437"
    )]
    url: Url,
    /// The key to show to the server, if it wants one
    #[arg(long, value_name = "KEY", env = "REVEILLE_KEY", hide_env_values = true)]
    key: Option<String>,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table for people
    Human,
    /// JSON
    Json,
}

/// A server, as one command sees it.
pub(crate) struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    url: Url,
    authorization: Option<HeaderValue>,
    /// Whether it ever answered. If not, it is not waited for: most likely there is none.
    answered: Cell<bool>,
}

/// A request that can be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn new(method: Method, target: impl Into<String>) -> Ask {
        Ask { method, target: target.into(), headers: HeaderMap::new(), body: Bytes::new() }
    }
}

/// An answer that has arrived as a whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// There was no answer; asking again may help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silence {
    /// Nobody has ever answered at this address, and it cannot be reached now.
    #[error("no server answers at {url} ({cause}); start one with `reveille serve` or pass --url")]
    NoServer { url: Url, cause: String },
    /// It was reached, now or before.
    #[error("the connection to {url} is lost ({cause}); see whether the server runs and try again")]
    Lost { url: Url, cause: String },
    /// It has no room for the request.
    #[error("the server at {url} is busy ({cause}); try again later")]
    Busy { url: Url, cause: String, wait: Option<Duration> },
}

/// How long to wait before asking again, and how often.
pub(crate) struct Patience {
    waits: u32,
    waits_max: Option<u32>,
}

impl Patience {
    /// For a while.
    pub(crate) fn some() -> Patience {
        Patience { waits: 0, waits_max: Some(WAITS_MAX) }
    }

    /// For as long as it takes.
    pub(crate) fn endless() -> Patience {
        Patience { waits: 0, waits_max: None }
    }

    /// Something went well: the next trouble is a new one.
    pub(crate) fn renew(&mut self) {
        self.waits = 0;
    }

    /// Waits before the next attempt, or gives the trouble back when it is one too many.
    pub(crate) async fn bear(&mut self, trouble: Silence) -> Result<(), Silence> {
        let last = self.waits_max.is_some_and(|max| self.waits >= max);
        let asked = match &trouble {
            Silence::NoServer { .. } => return Err(trouble),
            Silence::Lost { .. } | Silence::Busy { .. } if last => return Err(trouble),
            Silence::Lost { .. } => None,
            Silence::Busy { wait, .. } => *wait,
        };
        let wait = WAIT_MIN.saturating_mul(2u32.saturating_pow(self.waits));
        self.waits += 1;
        clock::sleep(asked.unwrap_or(wait).min(WAIT_MAX)).await;
        Ok(())
    }
}

impl Client {
    pub(crate) fn new(server: Server) -> anyhow::Result<Client> {
        let authorization = server.key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
                usage("--key has characters that no key has; see how it was copied")
            })?;
            value.set_sensitive(true);
            anyhow::Ok(value)
        });
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        connector.set_keepalive(Some(PROBE_AFTER));
        connector.set_nodelay(true);
        Ok(Client {
            http: legacy::Client::builder(TokioExecutor::new()).build(connector),
            url: server.url,
            authorization: authorization.transpose()?,
            answered: Cell::new(false),
        })
    }

    /// Sends a request once; the answer's body is still to come.
    pub(crate) async fn begin(&self, ask: &Ask) -> Result<Response<Incoming>, Silence> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = self.url.to(&ask.target);
        *request.headers_mut() = ask.headers.clone();
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        match self.http.request(request).await {
            Ok(response) => {
                self.answered.set(true);
                Ok(response)
            }
            Err(error) if error.is_connect() && !self.answered.get() => {
                Err(Silence::NoServer { url: self.url.clone(), cause: root_cause(&error) })
            }
            Err(error) => Err(self.lost(root_cause(&error))),
        }
    }

    /// Sends a request until it is answered, and takes in the whole answer.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Answer, Silence> {
        let mut patience = Patience::some();
        loop {
            let attempt = clock::within(ANSWER_WITHIN, self.attempt(ask)).await;
            let trouble = match attempt {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(trouble)) => trouble,
                None => self.lost(format!("no answer in {} s", ANSWER_WITHIN.as_secs())),
            };
            patience.bear(trouble).await?;
        }
    }

    async fn attempt(&self, ask: &Ask) -> Result<Answer, Silence> {
        let answer = self.finish(self.begin(ask).await?).await?;
        match self.busy(&answer) {
            Some(busy) => Err(busy),
            None => Ok(answer),
        }
    }

    /// Takes in the rest of an answer.
    pub(crate) async fn finish(&self, response: Response<Incoming>) -> Result<Answer, Silence> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.lost(root_cause(error.as_ref())))?;
        Ok(Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// The server's wish that we come back later, if that is what the answer says.
    pub(crate) fn busy(&self, answer: &Answer) -> Option<Silence> {
        let later = matches!(
            answer.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        );
        let wait = answer.headers.get(RETRY_AFTER);
        let wait = wait.and_then(|value| value.to_str().ok()?.parse().ok());
        later.then(|| Silence::Busy {
            url: self.url.clone(),
            cause: message(answer),
            wait: wait.map(Duration::from_secs),
        })
    }

    /// A connection that broke, or was silent for too long.
    pub(crate) fn lost(&self, cause: String) -> Silence {
        let url = self.url.clone();
        Silence::Lost { url, cause }
    }

    /// An answer that no command expects, or that means the same for all of them.
    pub(crate) fn refused(&self, answer: &Answer) -> anyhow::Error {
        let message = message(answer);
        match answer.status {
            StatusCode::UNAUTHORIZED => {
                anyhow!("{} wants a key ({message}); pass --key or set REVEILLE_KEY", self.url)
            }
            status => anyhow!("{} answered {status}: {message}", self.url),
        }
    }
}

/// What there is at a URL.
pub(crate) fn fetch(text: &str) -> anyhow::Result<Bytes> {
    let url = text.parse().map_err(|error: String| usage(format!("{text}: {error}")))?;
    let client = Client::new(Server { url, key: None })?;
    let answer = block_on(async { Ok(client.ask(&Ask::new(Method::GET, "")).await?) })?;
    match answer.status {
        StatusCode::OK => Ok(answer.body),
        _ => Err(client.refused(&answer)),
    }
}

/// The sentence in an error's body.
fn message(answer: &Answer) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(&answer.body).ok();
    let written = json.as_ref().and_then(|json| json.pointer("/error/message")?.as_str());
    let text = match written {
        Some(text) => text.to_owned(),
        None => String::from_utf8_lossy(&answer.body).trim().to_owned(),
    };
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let text: String = printable.take(MESSAGE_CHARS_MAX).collect();
    if text.is_empty() { "without an explanation".to_owned() } else { text }
}

/// What is at the bottom of an error: "connection refused", and not that a request failed.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// A header's value as text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a header says `true`.
pub(crate) fn is_true(headers: &HeaderMap, name: &str) -> bool {
    text(headers, name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// A stream's path, from the command line.
fn parse_path(raw: &str) -> Result<StreamPath, String> {
    StreamPath::parse(raw).map_err(|error| error.to_string())
}

/// Runs a command to its end on this thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(work)
}
