//! The courier: the door through which every outbound request leaves.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::destination::Destination;

/// A request to somebody's endpoint, always a `POST`.
#[derive(Debug, Clone)]
pub struct Request {
    /// On whose behalf: those who wait for names take turns by this.
    pub tenant: Arc<str>,
    pub destination: Destination,
    /// Headers to send beside those that the courier writes itself.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What to send.
    pub body: Bytes,
    /// Where the status is put as soon as it has come.
    pub early: EarlyAnswer,
}

/// An answer whose body may still be on its way: for whoever does not wait for it.
#[derive(Debug, Clone, Default)]
pub struct EarlyAnswer(Arc<OnceLock<Answer>>);

impl EarlyAnswer {
    /// Says that an answer has come, all but its body.
    pub fn set(&self, status: u16, headers: &HeaderMap, retry_after_s: Option<u64>) {
        let (body, headers) =
            (Bytes::new(), if is_good(status) { HeaderMap::new() } else { headers.clone() });
        // It is said once.
        let _ = self.0.set(Answer { status, headers, body, truncated: true, retry_after_s });
    }

    /// The answer without its body, if it has come.
    pub fn take(&self) -> Option<Answer> {
        self.0.get().cloned()
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Of an answer that is no success; nobody asks for those of others.
    pub headers: HeaderMap,
    /// The body, cut at the limit, or where it did not come in time.
    pub body: Bytes,
    /// Whether the body was cut.
    pub truncated: bool,
    /// In how many seconds the endpoint asks to be tried again.
    pub retry_after_s: Option<u64>,
}

/// Whether a status is one of success.
pub(crate) fn is_good(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The address is one that must not be called. Which one it is, is not for whoever the endpoint
    /// belongs to: a name could be asked for what it leads to inside.
    #[error("the address is not allowed")]
    AddressRefused(IpAddr),
    /// The name has no address.
    #[error("the name cannot be resolved")]
    Unresolved,
    /// Nobody answers there.
    #[error("no connection")]
    NoConnection,
    /// Somebody answers there, but the two sides did not agree on TLS.
    #[error(
        "the TLS handshake failed: check that the certificate is valid for this name, comes from \
         a well-known authority with its intermediates, and that TLS 1.2 or 1.3 is on"
    )]
    TlsHandshake,
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// The connection broke off.
    #[error("the connection broke off")]
    Broken,
    /// What came back is not HTTP, or more than we are willing to read.
    #[error("the answer is not HTTP/1.1, or its headers are too many or too long")]
    BadAnswer,
    /// This machine has run short of something. The endpoint has nothing to do with it, and nothing
    /// was sent to it.
    #[error("the server has no descriptor, port or memory left for a connection")]
    Shortage,
}

impl SendError {
    /// What operators may know beside the sentence that everybody may read.
    pub fn detail(&self) -> Option<String> {
        match self {
            SendError::AddressRefused(address) => Some(format!("{self}: {address}")),
            _ => None,
        }
    }

    /// One word for metrics and records, without the address.
    pub fn kind(&self) -> &'static str {
        match self {
            SendError::AddressRefused(_) => "address_refused",
            SendError::Unresolved => "unresolved",
            SendError::NoConnection => "no_connection",
            SendError::TlsHandshake => "tls_handshake",
            SendError::TimedOut => "timed_out",
            SendError::Broken => "broken",
            SendError::BadAnswer => "bad_answer",
            SendError::Shortage => "shortage",
        }
    }
}

/// A request on its way. Dropping it takes the request back as far as that is possible: its
/// connection is closed.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send>>;

/// Sends requests; the simulator has one that lies.
pub trait Courier: Send + Sync + 'static {
    /// Sends one request and waits for its answer. Redirects are not followed, and there is no
    /// deadline: the caller has one and drops the future.
    fn post(&self, request: Request) -> ResponseFuture;
}
