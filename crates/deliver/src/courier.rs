//! The courier: the door through which every outbound request leaves.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use bytes::Bytes;

/// A request to somebody's endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub url: String,
    /// Headers, as they are to be sent.
    pub headers: Vec<(String, String)>,
    /// What to send.
    pub body: Bytes,
    /// How long the whole exchange may take.
    pub timeout_ms: u64,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, cut at the limit.
    pub body: Bytes,
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The address is one that must not be called.
    #[error("the address {0} is not allowed")]
    AddressRefused(IpAddr),
    /// The name has no address.
    #[error("the name cannot be resolved")]
    Unresolved,
    /// Nobody answers there.
    #[error("no connection")]
    NoConnection,
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// The connection broke off.
    #[error("the connection broke off")]
    Broken,
}

/// A request on its way.
pub type Posting = Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send>>;

/// Sends requests; the simulator has one that lies.
pub trait Courier: Send + Sync + 'static {
    /// Sends one request and waits for its answer. Redirects are not followed.
    fn post(&self, request: Request) -> Posting;
}
