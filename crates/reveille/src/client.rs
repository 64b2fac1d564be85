//! The commands that talk to a server: finding it, asking it, and asking again when it is away.

pub(crate) mod append;
pub(crate) mod read;
pub(crate) mod streams;

pub(crate) mod consumers;
pub(crate) mod sub;

pub(crate) mod audit;
pub(crate) mod deliveries;
pub(crate) mod dlq;
pub(crate) mod hooks;
pub(crate) mod ingest;

pub(crate) mod doc;
pub(crate) mod secret;
pub(crate) mod trigger;

pub(crate) mod capability;
pub(crate) mod fact;
pub(crate) mod garden;

pub(crate) mod key;

mod connection;
mod human;
mod list;
mod messages;
mod stdin;
mod table;
mod tls;
mod url;
mod yaml;

use std::cell::Cell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use reveille_core::trigger::signature;
use reveille_core::{StreamPath, Tenant};
use serde_json::{Map, Value};

use crate::clock;
use crate::failure::usage_error;
use connection::{Connection, SendError};
use tls::TlsProblem;
use url::Url;

/// Names the tenant that a key of all tenants acts in.
const NAMESPACE: HeaderName = HeaderName::from_static("x-tenant-namespace");
/// Says that whoever has the key wants this very body.
const ADMIN_SIGNATURE: HeaderName = HeaderName::from_static("x-syntrix-admin-signature");
const BEARER: &str = "Bearer ";
/// An answer that does not wait for news comes within this time, or is asked for again.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Answers that are held in memory: pages of a listing and error messages.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Together about ten seconds: long enough for a server to be started again.
const WAITS_MAX: u32 = 8;
const MESSAGE_CHARS_MAX: usize = 300;

/// Where the server is.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArguments {
    /// The server, at http:// or https://
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
    /// PEM with the certificate of an authority to trust, beside those that browsers trust
    #[arg(long, value_name = "FILE", env = "REVEILLE_CA_FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,
}

/// Where the server is, and in which tenant to act.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The tenant to act in, for a key of all tenants [default: the key's own, or `default`]
    #[arg(long, value_name = "TENANT", value_parser = parse_tenant)]
    tenant: Option<Tenant>,
}

impl From<ConnectionArguments> for ServerArguments {
    fn from(connection: ConnectionArguments) -> ServerArguments {
        ServerArguments { connection, tenant: None }
    }
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
    connection: Connection,
    url: Url,
    /// What every request carries.
    headers: HeaderMap,
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
    /// It was reached and cannot be talked to in private; asking again does not help.
    #[error("{url} cannot be trusted ({cause}); {advice}")]
    Untrusted { url: Url, cause: String, advice: &'static str },
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
            Unavailable::NoServer { .. } | Unavailable::Untrusted { .. } => return Err(error),
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
    pub(crate) fn new(server: impl Into<ServerArguments>) -> anyhow::Result<Client> {
        let ServerArguments { connection: ConnectionArguments { url, key, ca_file }, tenant } =
            server.into();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(url.authority())?);
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("{BEARER}{key}")).map_err(|_| {
                usage_error("--key has characters that no key has; see how it was copied")
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(tenant) = tenant {
            headers.insert(NAMESPACE, HeaderValue::from_str(tenant.as_str())?);
        }
        let tls = url.is_secure().then(|| tls::connector(&url, ca_file.as_deref())).transpose()?;
        let connection = Connection::new(&url, tls);
        Ok(Client { connection, url, headers, has_answered: Cell::new(false) })
    }

    /// From now on it acts in this tenant, or in the key's own.
    pub(crate) fn act_in(&mut self, tenant: Option<&Tenant>) -> anyhow::Result<()> {
        match tenant {
            Some(tenant) => {
                self.headers.insert(NAMESPACE, HeaderValue::from_str(tenant.as_str())?);
            }
            None => {
                self.headers.remove(NAMESPACE);
            }
        }
        Ok(())
    }

    /// Signs a request with the key that goes with it: what decides where secrets and documents are
    /// sent is taken from nobody else (AUD-3).
    pub(crate) fn sign(&self, request: &mut ApiRequest) -> anyhow::Result<()> {
        let key = self.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(key) = key.and_then(|value| value.strip_prefix(BEARER)) {
            let now_s = clock::now().0 / 1_000;
            let signature = signature::header([key], now_s, &request.body);
            request.headers.insert(ADMIN_SIGNATURE, HeaderValue::try_from(signature)?);
        }
        Ok(())
    }

    /// Sends a request once and takes in the whole answer: what was begun is not begun again.
    pub(crate) async fn ask_once(&self, request: &ApiRequest) -> Result<ApiResponse, Unavailable> {
        let response = self.send_once(request).await?;
        self.read_response(response).await
    }

    /// Sends a request once; the answer's body is still to come.
    pub(crate) async fn send_once(
        &self,
        request: &ApiRequest,
    ) -> Result<Response<Incoming>, Unavailable> {
        let mut sent = Request::new(Full::new(request.body.clone()));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = self.url.target(&request.target);
        *sent.headers_mut() = request.headers.clone();
        sent.headers_mut().extend(self.headers.clone());
        match self.connection.send(sent).await {
            Ok(response) => {
                self.has_answered.set(true);
                Ok(response)
            }
            Err(SendError::NoConnection(cause)) if !self.has_answered.get() => {
                Err(Unavailable::NoServer { url: self.url.clone(), cause })
            }
            Err(SendError::NoConnection(cause) | SendError::Lost(cause)) => Err(self.lost(cause)),
            Err(SendError::Tls(TlsProblem { cause, advice })) => {
                Err(Unavailable::Untrusted { url: self.url.clone(), cause, advice })
            }
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
        let wait = answer.headers.get(RETRY_AFTER);
        let wait = wait.and_then(|value| value.to_str().ok()?.parse().ok());
        let is_busy = match answer.status {
            StatusCode::SERVICE_UNAVAILABLE => true,
            // What asks for more than it may have is told no time to come back at.
            StatusCode::TOO_MANY_REQUESTS => wait.is_some(),
            _ => false,
        };
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
            status @ StatusCode::FORBIDDEN if self.headers.contains_key(NAMESPACE) => anyhow!(
                "{} answered {status}: {message} (--tenant sends X-Tenant-Namespace)",
                self.url
            ),
            status => anyhow!("{} answered {status}: {message}", self.url),
        }
    }
}

/// What there is at a URL.
pub(crate) fn fetch(text: &str, ca_file: Option<&Path>) -> anyhow::Result<Bytes> {
    let url = text.parse().map_err(|error: String| usage_error(format!("{text}: {error}")))?;
    let ca_file = ca_file.map(Path::to_owned);
    let client = Client::new(ConnectionArguments { url, key: None, ca_file })?;
    let answer = block_on(async { Ok(client.send(&ApiRequest::new(Method::GET, "")).await?) })?;
    match answer.status {
        StatusCode::OK => Ok(answer.body),
        _ => Err(client.refusal(&answer)),
    }
}

/// The object that an answer is, about what was asked for.
fn parse_object(answer: &ApiResponse, about: &str) -> anyhow::Result<Map<String, Value>> {
    serde_json::from_slice(&answer.body).with_context(|| unexpected_answer(about))
}

fn unexpected_answer(about: &str) -> anyhow::Error {
    anyhow!("the answer is not about {about}; see whether --url is a reveille server")
}

/// The sentence in an error's body.
fn message(answer: &ApiResponse) -> String {
    let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let error = json.as_ref().and_then(|json| json.get("error"));
    // The events face says it in one word less, that of documents with no name around it.
    let written = match error {
        Some(error) => error.get("message").unwrap_or(error).as_str(),
        None => json.as_ref().and_then(|json| json.get("message")?.as_str()),
    };
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

fn parse_tenant(text: &str) -> Result<Tenant, String> {
    Tenant::parse(text).map_err(|error| error.to_string())
}

/// Runs a command to its end on this thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(work)
}
