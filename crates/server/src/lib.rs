//! The HTTP faces: each turns a request into a command and an outcome into an answer.
//!
//! [`http::listen`] owns sockets, [`http::route`] decides which face a request is for, [`http::auth`] who asks.
//! [`streams`] is the Durable Streams face, [`wakes`] that of subscriptions and callbacks,
//! [`ds_subscriptions`] that of the subscriptions which the Durable Streams protocol has itself,
//! [`events`] that of typed events and their deliveries. Only this crate knows status codes and
//! JSON field names; no face reaches into the state, spawns work or holds a lock.

mod admin;

mod ds_subscriptions;

mod events;

mod health;
mod http;

mod metrics;

mod streams;

mod wakes;

use std::sync::Arc;

use reveille_engine::Engine;
use tokio::sync::watch;

pub use crate::http::auth::Auth;
pub use crate::http::listen::serve;
pub use events::Workers;
pub use wakes::Words;

/// How the server answers.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a long-poll waits for news.
    pub long_poll_timeout_ms: u64,
    /// The largest body of a request, in bytes.
    pub max_body_bytes: usize,
    /// The base of URLs in answers; from the request's `Host` if absent.
    pub public_url: Option<Arc<str>>,
    /// Who may use the server.
    pub auth: Auth,
    /// Where the workers are that events are delivered to.
    pub workers: Workers,
}

/// What every request has at hand.
struct Server {
    engine: Engine,
    config: Config,
    metrics: metrics::Metrics,
    readiness: health::Readiness,
    /// True once the server is going down: whoever waits for news stops waiting.
    stopping: watch::Receiver<bool>,
}
