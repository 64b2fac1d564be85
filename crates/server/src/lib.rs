//! The HTTP faces: each turns a request into a command and an outcome into an answer.
//!
//! [`http`] is what all of them stand on: sockets, routes, callers, bodies, replies, refusals.
//! [`dispatch`] hands a request to its face: [`streams`] is the Durable Streams face, [`wakes`]
//! that of subscriptions on patterns and their callbacks, [`ds_subscriptions`] that of the
//! subscriptions which the Durable Streams protocol has itself, [`events`] that of typed events and
//! their deliveries, [`documents`] that of documents, [`triggers`] that of triggers on them,
//! [`facts`] that of facts, [`admin`] that of operators. [`encoder`]
//! makes the payloads that are sent. Only this crate knows status codes and JSON field names; no face reaches into the state, spawns
//! work or holds a lock, and none knows another.

mod dispatch;
mod http;

mod admin;
mod documents;
mod ds_subscriptions;
mod events;
mod facts;
mod health;
mod metrics;
mod streams;
mod triggers;
mod wakes;

mod encoder;

use std::future::Future;
use std::sync::Arc;

use reveille_engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

pub use crate::encoder::{PayloadEncoder, delivery_encoders};
pub use crate::events::Workers;
pub use crate::facts::FactSettings;
pub use crate::http::auth::Auth;

/// More connections than this are not worth the memory of one process.
pub const CONNECTIONS_MAX: usize = 16_384;
use crate::http::origin::BrowserRules;

/// How the server answers.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a long-poll waits for news.
    pub long_poll_timeout_ms: u64,
    /// A client that takes nothing of what there is for it for so long is let go.
    pub reader_timeout_ms: u64,
    /// Connections that may be open at once; idle ones make room for others.
    pub connections_max: usize,
    /// The longest time that a trigger may give an attempt.
    pub max_trigger_timeout_ms: u64,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// The base of URLs in answers; from the request's `Host` if absent.
    pub public_url: Option<Arc<str>>,
    pub auth: Auth,
    /// Where the workers are that events are delivered to.
    pub workers: Workers,
    /// What subscriptions to facts may do.
    pub facts: FactSettings,
}

/// What every request has at hand.
struct Server {
    engine: Engine,
    config: Config,
    metrics: metrics::Metrics,
    /// How often holders of tokens ask.
    call_rates: http::call_rates::CallRates,
    readiness: health::Readiness,
    /// Which web pages may use it.
    browsers: BrowserRules,
    /// Requests to endpoints that are no deliveries.
    probes: triggers::Permits,
    backtests: triggers::Permits,
    /// Bodies that may be compressed at once.
    compressors: Arc<Semaphore>,
    /// True once the server is going down: whoever waits for news stops waiting.
    stopping: watch::Receiver<bool>,
}

/// Serves until `shutdown` ends, then finishes the requests that were begun.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> std::io::Result<()> {
    let clock = engine.clock().clone();
    let reader_timeout_ms = config.reader_timeout_ms;
    let connections_max = config.connections_max;
    let (stop, stopping) = watch::channel(false);
    let browsers =
        BrowserRules::new(listener.local_addr()?, &config.auth, config.public_url.as_deref());
    let server = Server {
        browsers,
        metrics: metrics::Metrics::new(engine.clone()),
        call_rates: http::call_rates::CallRates::default(),
        readiness: health::Readiness::default(),
        probes: triggers::Permits::of_probes(),
        backtests: triggers::Permits::of_backtests(),
        compressors: Arc::new(Semaphore::new(streams::COMPRESSORS_MAX)),
        engine,
        config,
        stopping,
    };
    let server = Arc::new(server);
    let settings = http::listen::Settings { connections_max, reader_timeout_ms };
    http::listen::serve(listener, settings, clock, server, stop, shutdown).await
}
