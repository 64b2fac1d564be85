//! What the server counts, in Prometheus' text format.

mod deliveries;
mod wakes;

use std::fmt::Write;
use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use reveille_engine::Engine;
use reveille_engine::metrics::Snapshot;

use crate::http::reply::{self, Reply, ReplyBody};

/// The registry, and the metrics that requests touch.
pub(crate) struct Metrics {
    registry: Registry,
    /// By method; looked up without the registry's locks.
    methods: Vec<PerMethod>,
    /// Callbacks, by what they were answered.
    callbacks: Vec<(&'static str, Counter)>,
    live_readers: Arc<std::sync::atomic::AtomicI64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCode {
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
struct Answered {
    method: &'static str,
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMethod {
    method: &'static str,
}

/// What is counted of one method.
struct PerMethod {
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
pub(crate) struct LiveReader(Arc<std::sync::atomic::AtomicI64>);

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn buckets() -> Histogram {
    Histogram::new([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0])
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("reveille");
        let requests: Family<Answered, Counter> = Family::default();
        let seconds: Family<ByMethod, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(buckets);
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register(
            "http_request_seconds",
            "Time until the answer's headers were ready",
            seconds.clone(),
        );
        let counter = |method, status| requests.get_or_create_owned(&Answered { method, status });
        let per_method = |(method, name): &(Method, &'static str)| PerMethod {
            method: method.clone(),
            seconds: seconds.get_or_create_owned(&ByMethod { method: name }),
            by_status: STATUSES.iter().map(|s| (*s, counter(name, s.to_string()))).collect(),
            others: counter(name, "other".into()),
        };
        let methods = METHODS.iter().map(per_method).collect();
        let called: Family<ByCode, Counter> = Family::default();
        registry.register("callbacks", "Callbacks of consumers, by result", called.clone());
        let code = |code: &&'static str| (*code, called.get_or_create_owned(&ByCode { code }));
        let callbacks = CALLBACK_CODES.iter().map(code).collect();
        Metrics { registry, methods, callbacks, live_readers: Arc::default() }
    }

    /// A callback was answered with this code.
    pub(crate) fn count_callback(&self, code: &str) {
        let known = self.callbacks.iter().find(|(known, _)| *known == code);
        if let Some((_, counter)) = known.or(self.callbacks.last()) {
            counter.inc();
        }
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
        self.live_readers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        LiveReader(self.live_readers.clone())
    }

    pub(crate) fn render(&self, engine: &Engine) -> Reply {
        let mut text = String::new();
        let readers = self.live_readers.load(std::sync::atomic::Ordering::Relaxed);
        let _ = writeln!(text, "# HELP reveille_live_readers SSE and long-poll readers connected.");
        let _ = writeln!(text, "# TYPE reveille_live_readers gauge");
        let _ = writeln!(text, "reveille_live_readers {readers}");
        let dropped = engine.dropped_spans();
        let _ = writeln!(text, "# HELP reveille_spans_dropped Spans that there was no room for.");
        let _ = writeln!(text, "# TYPE reveille_spans_dropped counter");
        let _ = writeln!(text, "reveille_spans_dropped_total {dropped}");
        let snapshots = engine.snapshots();
        engine_metrics(&mut text, &snapshots);
        wakes::write(&mut text, &snapshots);
        deliveries::write(&mut text, &snapshots);
        // The registry ends the text with its end mark, so it comes last.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        let mut reply = reply::status(StatusCode::OK);
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        *reply.body_mut() = ReplyBody::Whole(text.into());
        reply
    }
}

/// A metric of every partition: name, type, help, and how to read it.
type EngineMetric = (&'static str, &'static str, &'static str, fn(&Snapshot) -> u64);

const ENGINE: &[EngineMetric] = &[
    ("log_batches", "counter", "Batches made durable", |s| s.batches),
    ("log_commands", "counter", "Commands answered with them", |s| s.commands),
    ("log_written_bytes", "counter", "Bytes of their records", |s| s.bytes),
    ("log_bytes", "gauge", "Bytes of log segments in use", |s| s.log_bytes),
    ("overlay_bytes", "gauge", "Bytes that the table does not hold yet", |s| s.overlay_bytes),
    ("watched_streams", "gauge", "Streams with a live reader", |s| s.watched),
    ("disk_free_bytes", "gauge", "Room on the disk of the data directory", |s| s.disk_free),
    ("subscriptions", "gauge", "Subscriptions of both dialects", |s| s.telling.subscriptions),
    ("wakes", "counter", "Wakes begun", |s| s.telling.wakes),
    ("outbox_dropped", "counter", "Attempts put off for want of room", |s| {
        s.telling.traffic.dropped
    }),
    ("read_only", "gauge", "1 while writes are refused for want of room", |s| s.read_only.into()),
];

fn engine_metrics(text: &mut String, snapshots: &[Snapshot]) {
    for (name, kind, help, read) in ENGINE {
        let suffix = if *kind == "counter" { "_total" } else { "" };
        let _ = writeln!(text, "# HELP reveille_{name} {help}.");
        let _ = writeln!(text, "# TYPE reveille_{name} {kind}");
        for (partition, snapshot) in snapshots.iter().enumerate() {
            let value = read(snapshot);
            let _ = writeln!(text, "reveille_{name}{suffix}{{partition=\"{partition}\"}} {value}");
        }
    }
}
