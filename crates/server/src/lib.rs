//! The HTTP faces: each turns a request into a command and an outcome into an answer.

use std::future::Future;
use std::sync::Arc;

use reveille_engine::Engine;
use tokio::net::TcpListener;

/// How the server answers.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a long-poll waits for news.
    pub long_poll_timeout_ms: u64,
    /// The largest body of a request, in bytes.
    pub max_body_bytes: usize,
    /// The base of URLs in answers; from the request's `Host` if absent.
    pub public_url: Option<Arc<str>>,
}

/// Serves until `shutdown` ends, then finishes the requests that were begun.
pub async fn serve(
    _listener: TcpListener,
    _engine: Engine,
    _config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> std::io::Result<()> {
    shutdown.await;
    Ok(())
}
