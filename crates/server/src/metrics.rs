//! What the server counts, in Prometheus' text format.

mod engine;
mod trigger_calls;

use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use reveille_engine::Engine;
use reveille_kernel::task;

use self::engine::EngineCollector;
use self::trigger_calls::TriggerCalls;
use crate::http::reply::{self, Reply, ReplyBody};

/// The registry, and the metrics that requests touch.
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    /// Whose turn it is to write them down.
    turn: tokio::sync::Mutex<()>,
    /// By method; looked up without the registry's locks.
    methods: Vec<MethodMetrics>,
    /// Callbacks, by what they were answered.
    callbacks: Vec<(&'static str, Counter)>,
    live_readers: Gauge,
    trigger_calls: TriggerCalls,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

/// What callbacks are answered; the rest share `other`.
const CALLBACK_CODES: &[&str] = &[
    "OK",
    "INVALID_REQUEST",
    "TOKEN_INVALID",
    "TOKEN_EXPIRED",
    "STALE_EPOCH",
    "ALREADY_CLAIMED",
    "INVALID_OFFSET",
    "APPEND_REJECTED",
    "CONSUMER_GONE",
    "FENCED",
    "other",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

/// What is counted of one method.
struct MethodMetrics {
    method: Method,
    seconds: Histogram,
    by_status: Vec<(u16, Counter)>,
    others: Counter,
}

/// Statuses that have a counter of their own; the rest share `other`.
const STATUSES: &[u16] =
    &[200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 410, 413, 414, 500, 503, 507];
const METHODS: &[(Method, &str)] = &[
    (Method::POST, "POST"),
    (Method::GET, "GET"),
    (Method::PUT, "PUT"),
    (Method::HEAD, "HEAD"),
    (Method::DELETE, "DELETE"),
    (Method::OPTIONS, "OPTIONS"),
    (Method::PATCH, "other"),
];

/// Counts a live reader for as long as it lives.
pub(crate) struct LiveReader(Gauge);

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn request_histogram() -> Histogram {
    Histogram::new([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0])
}

impl Metrics {
    pub(crate) fn new(engine: Engine) -> Metrics {
        let mut registry = Registry::with_prefix("reveille");
        let requests: Family<RequestLabels, Counter> = Family::default();
        let seconds: Family<MethodLabels, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(request_histogram);
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register(
            "http_request_seconds",
            "Time until the answer's headers were ready",
            seconds.clone(),
        );
        let counter =
            |method, status| requests.get_or_create_owned(&RequestLabels { method, status });
        let per_method = |(method, name): &(Method, &'static str)| MethodMetrics {
            method: method.clone(),
            seconds: seconds.get_or_create_owned(&MethodLabels { method: name }),
            by_status: STATUSES.iter().map(|s| (*s, counter(name, s.to_string()))).collect(),
            others: counter(name, "other".into()),
        };
        let methods = METHODS.iter().map(per_method).collect();
        let results: Family<CodeLabels, Counter> = Family::default();
        registry.register("callbacks", "Callbacks of consumers, by result", results.clone());
        let code = |code: &&'static str| (*code, results.get_or_create_owned(&CodeLabels { code }));
        let callbacks = CALLBACK_CODES.iter().map(code).collect();
        let live_readers = Gauge::default();
        let help = "SSE and long-poll readers connected";
        registry.register("live_readers", help, live_readers.clone());
        let trigger_calls = TriggerCalls::default();
        trigger_calls.register(&mut registry);
        registry.register_collector(Box::new(EngineCollector { engine }));
        let (registry, turn) = (Arc::new(registry), tokio::sync::Mutex::default());
        Metrics { registry, turn, methods, callbacks, live_readers, trigger_calls }
    }

    /// Counts a callback that was answered with this code.
    pub(crate) fn count_callback(&self, code: &str) {
        let known = self.callbacks.iter().find(|(known, _)| *known == code);
        if let Some((_, counter)) = known.or(self.callbacks.last()) {
            counter.inc();
        }
    }

    /// Counts a call with a token that ended like this; of a stranger there is no name.
    pub(crate) fn count_trigger_call(
        &self,
        tenant: &str,
        trigger: &str,
        scope: &'static str,
        result: &'static str,
    ) {
        self.trigger_calls.count(tenant, trigger, scope, result);
    }

    pub(crate) fn count_request(&self, method: &Method, status: StatusCode, elapsed_ms: u64) {
        let known = self.methods.iter().find(|known| known.method == *method);
        let Some(known) = known.or(self.methods.last()) else { return };
        let counter = known.by_status.iter().find(|(code, _)| *code == status.as_u16());
        counter.map_or(&known.others, |(_, counter)| counter).inc();
        let millis = u32::try_from(elapsed_ms).unwrap_or(u32::MAX);
        known.seconds.observe(f64::from(millis) / 1_000.0);
    }

    pub(crate) fn live_reader(&self) -> LiveReader {
        self.live_readers.inc();
        LiveReader(self.live_readers.clone())
    }

    /// All of them as text. With thousands of triggers that takes a while, in which requests go on.
    pub(crate) async fn render(&self) -> Reply {
        let _turn = self.turn.lock().await;
        let registry = self.registry.clone();
        let text = task::blocking(move || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry)
                .expect("writing to memory cannot fail");
            text
        });
        let text = text.await;
        let mut reply = reply::status(StatusCode::OK);
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        *reply.body_mut() = ReplyBody::Full(text.into());
        reply
    }
}
