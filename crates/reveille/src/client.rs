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
use crate::failure::usage_error;
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
pub(crate) struct ServerArguments {
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
    has_answered: Cell<bool>,
}

/// A request that can be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ApiRequest {
    pub(crate) fn new(method: Method, target: impl Into<String>) -> ApiRequest {
        ApiRequest { method, target: target.into(), headers: HeaderMap::new(), body: Bytes::new() }
    }
}

/// An answer that has arrived as a whole.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// There was no answer; trying again may help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
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

/// How long to wait before the next attempt, and how often.
pub(crate) struct RetryPolicy {
    waits: u32,
    waits_max: Option<u32>,
}

impl RetryPolicy {
    /// Gives up after a while.
    pub(crate) fn limited() -> RetryPolicy {
        RetryPolicy { waits: 0, waits_max: Some(WAITS_MAX) }
    }

    /// Waits for as long as it takes.
    pub(crate) fn unlimited() -> RetryPolicy {
        RetryPolicy { waits: 0, waits_max: None }
    }

    /// Something went well: the next failure is a new one.
    pub(crate) fn reset(&mut self) {
        self.waits = 0;
    }

    /// Waits before the next attempt, or gives the error back when it is one too many.
    pub(crate) async fn wait(&mut self, error: Unavailable) -> Result<(), Unavailable> {
        let is_last = self.waits_max.is_some_and(|max| self.waits >= max);
        let retry_after = match &error {
            Unavailable::NoServer { .. } => return Err(error),
            Unavailable::Lost { .. } | Unavailable::Busy { .. } if is_last => return Err(error),
            Unavailable::Lost { .. } => None,
            Unavailable::Busy { wait, .. } => *wait,
        };
        let wait = WAIT_MIN.saturating_mul(2u32.saturating_pow(self.waits));
        self.waits += 1;
        clock::sleep(retry_after.unwrap_or(wait).min(WAIT_MAX)).await;
        Ok(())
    }
}

impl Client {
    pub(crate) fn new(server: ServerArguments) -> anyhow::Result<Client> {
        let authorization = server.key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
                usage_error("--key has characters that no key has; see how it was copied")
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
            has_answered: Cell::new(false),
        })
    }

    /// Sends a request once; the answer's body is still to come.
    pub(crate) async fn send_once(
        &self,
        request: &ApiRequest,
    ) -> Result<Response<Incoming>, Unavailable> {
        let mut sent = Request::new(Full::new(request.body.clone()));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = self.url.to(&request.target);
        *sent.headers_mut() = request.headers.clone();
        if let Some(authorization) = &self.authorization {
            sent.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        match self.http.request(sent).await {
            Ok(response) => {
                self.has_answered.set(true);
                Ok(response)
            }
            Err(error) if error.is_connect() && !self.has_answered.get() => {
                Err(Unavailable::NoServer { url: self.url.clone(), cause: root_cause(&error) })
            }
            Err(error) => Err(self.lost(root_cause(&error))),
        }
    }

    /// Sends a request until it is answered, and takes in the whole answer.
    pub(crate) async fn send(&self, request: &ApiRequest) -> Result<ApiResponse, Unavailable> {
        let mut retry = RetryPolicy::limited();
        loop {
            let attempt = clock::within(ANSWER_WITHIN, self.attempt(request)).await;
            let error = match attempt {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => error,
                None => self.lost(format!("no answer in {} s", ANSWER_WITHIN.as_secs())),
            };
            retry.wait(error).await?;
        }
    }

    async fn attempt(&self, request: &ApiRequest) -> Result<ApiResponse, Unavailable> {
        let answer = self.read_response(self.send_once(request).await?).await?;
        match self.busy(&answer) {
            Some(busy) => Err(busy),
            None => Ok(answer),
        }
    }

    /// Takes in the rest of an answer.
    pub(crate) async fn read_response(
        &self,
        response: Response<Incoming>,
    ) -> Result<ApiResponse, Unavailable> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.lost(root_cause(error.as_ref())))?;
        Ok(ApiResponse { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// The server's wish that we come back later, if that is what the answer says.
    pub(crate) fn busy(&self, answer: &ApiResponse) -> Option<Unavailable> {
        let is_busy = matches!(
            answer.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        );
        let wait = answer.headers.get(RETRY_AFTER);
        let wait = wait.and_then(|value| value.to_str().ok()?.parse().ok());
        is_busy.then(|| Unavailable::Busy {
            url: self.url.clone(),
            cause: message(answer),
            wait: wait.map(Duration::from_secs),
        })
    }

    /// A connection that broke, or was silent for too long.
    pub(crate) fn lost(&self, cause: String) -> Unavailable {
        let url = self.url.clone();
        Unavailable::Lost { url, cause }
    }

    /// An answer that no command expects, or that means the same for all of them.
    pub(crate) fn refusal(&self, answer: &ApiResponse) -> anyhow::Error {
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
    let url = text.parse().map_err(|error: String| usage_error(format!("{text}: {error}")))?;
    let client = Client::new(ServerArguments { url, key: None })?;
    let answer = block_on(async { Ok(client.send(&ApiRequest::new(Method::GET, "")).await?) })?;
    match answer.status {
        StatusCode::OK => Ok(answer.body),
        _ => Err(client.refusal(&answer)),
    }
}

/// The sentence in an error's body.
fn message(answer: &ApiResponse) -> String {
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
