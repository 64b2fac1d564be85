//! Sends spans to a collector: OTLP over HTTP, encoded as JSON.
//!
//! Whatever happens here, nobody waits for it: spans come out of a queue with a limit, and a batch
//! that cannot be delivered is dropped.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use reveille_core::Millis;
use reveille_deliver::client::HttpCourier;
use reveille_deliver::courier::{Courier, EarlyAnswer, Request};
use reveille_deliver::destination::{Destination, DestinationError, Rules};
use reveille_deliver::resolve::{NameResolver, NameServers};
use reveille_engine::doors::Clock;
use reveille_engine::spans::Span;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to go with it.
const BATCH_WAIT_MS: u64 = 1_000;
/// A collector that takes longer has failed.
const ANSWER_WITHIN_MS: u64 = 10_000;
/// When the server stops, the last batch has this long.
const LAST_WITHIN_MS: u64 = 2_000;
/// From one warning to the next.
const WARNING_INTERVAL_MS: u64 = 60_000;
/// OTLP: something that was done for a client.
const KIND_SERVER: u8 = 2;
/// OTLP: a call to somebody else.
const KIND_CLIENT: u8 = 3;
/// OTLP: the status of a span that went wrong.
const STATUS_ERROR: u8 = 2;

/// Where spans are sent.
pub(crate) fn destination(endpoint: &str) -> Result<Destination, DestinationError> {
    Destination::parse(&format!("{endpoint}/v1/traces"), &rules())
}

/// The operator named this one address: it may be anywhere, and on this machine without TLS.
fn rules() -> Rules {
    let everywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|text| text.parse().ok());
    Rules { allow_http_loopback: true, private_networks: everywhere.collect() }
}

/// Sends batches.
pub(crate) struct Exporter {
    clock: Arc<dyn Clock>,
    courier: HttpCourier,
    destination: Destination,
    last_warning_at: Option<Millis>,
    /// Spans that were lost since then.
    lost_spans: usize,
}

impl Exporter {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        servers: NameServers,
        destination: Destination,
    ) -> Exporter {
        let time = clock.clone();
        let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || time.now().0);
        let resolver = Arc::new(NameResolver::new(now.clone(), servers));
        let courier = HttpCourier::new(rules(), resolver, now);
        Exporter { clock, courier, destination, last_warning_at: None, lost_spans: 0 }
    }

    /// Works until it is told to stop, and then sends what is left.
    pub(crate) async fn run(
        mut self,
        mut spans: mpsc::Receiver<Span>,
        mut stop: oneshot::Receiver<()>,
    ) {
        loop {
            let first = tokio::select! {
                biased;
                first = spans.recv() => first,
                _ = &mut stop => None,
            };
            let Some(first) = first else { break };
            let mut batch = vec![first];
            let until = self.clock.now() + BATCH_WAIT_MS;
            while batch.len() < BATCH_MAX {
                tokio::select! {
                    biased;
                    next = spans.recv() => match next {
                        Some(span) => batch.push(span),
                        None => break,
                    },
                    _ = &mut stop => {
                        self.flush(batch, spans).await;
                        return;
                    }
                    () = self.clock.sleep_until(until) => break,
                }
            }
            self.send(&batch, ANSWER_WITHIN_MS).await;
        }
        self.flush(Vec::new(), spans).await;
    }

    async fn flush(&mut self, mut batch: Vec<Span>, mut spans: mpsc::Receiver<Span>) {
        while batch.len() < BATCH_MAX
            && let Ok(span) = spans.try_recv()
        {
            batch.push(span);
        }
        if !batch.is_empty() {
            self.send(&batch, LAST_WITHIN_MS).await;
        }
    }

    async fn send(&mut self, batch: &[Span], within_ms: u64) {
        let body = Bytes::from(encode(batch).to_string());
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let destination = self.destination.clone();
        // The collector is the operator's, and waits for nobody's names.
        let (tenant, early) = ("".into(), EarlyAnswer::default());
        let request = Request { tenant, destination, headers, body, early };
        let posting = self.courier.post(request);
        let deadline = self.clock.now() + within_ms;
        let problem = tokio::select! {
            biased;
            answer = posting => match answer {
                Ok(answer) if (200..300).contains(&answer.status) => return,
                Ok(answer) => format!("it answered {}", answer.status),
                Err(error) => error.to_string(),
            },
            () = self.clock.sleep_until(deadline) => "no answer in time".to_owned(),
        };
        self.warn(&problem, batch.len());
    }

    fn warn(&mut self, problem: &str, lost: usize) {
        self.lost_spans += lost;
        let now = self.clock.now();
        if self.last_warning_at.is_none_or(|at| now.since(at) >= WARNING_INTERVAL_MS) {
            let lost = std::mem::take(&mut self.lost_spans);
            tracing::warn!(problem, lost, "spans cannot be delivered to --otlp-endpoint");
            self.last_warning_at = Some(now);
        }
    }
}

fn encode(batch: &[Span]) -> Value {
    let attribute =
        |name: &str, value: &str| json!({ "key": name, "value": { "stringValue": value } });
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "resourceSpans": [{
            "resource": {
                "attributes": [
                    attribute("service.name", "reveille"),
                    attribute("service.version", version),
                ],
            },
            "scopeSpans": [{
                "scope": { "name": "reveille", "version": version },
                "spans": batch.iter().map(|span| encode_span(span, attribute)).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn encode_span(span: &Span, attribute: impl Fn(&str, &str) -> Value) -> Value {
    let nanoseconds = |at: Millis| (u128::from(at.0) * 1_000_000).to_string();
    let kind = if matches!(span.name, "wake" | "delivery") { KIND_CLIENT } else { KIND_SERVER };
    let attributes = span.attributes.iter().map(|(name, value)| attribute(name, value));
    let mut encoded = json!({
        "traceId": hex(&span.trace.trace_id),
        "spanId": hex(&span.trace.span_id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes.collect::<Vec<_>>(),
        "status": {},
    });
    if let Some(object) = encoded.as_object_mut() {
        if let Some(parent) = &span.parent {
            object.insert("parentSpanId".into(), hex(parent).into());
        }
        if let Some(error) = &span.error {
            object.insert("status".into(), json!({ "code": STATUS_ERROR, "message": error }));
        }
    }
    encoded
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use reveille_core::trace::Trace;

    use super::*;

    #[test]
    fn spans_are_written_as_the_specification_has_them() {
        let trace = Trace { trace_id: [0xab; 16], span_id: [0x0c; 8] };
        let span = Span {
            name: "wake",
            trace,
            parent: Some([1; 8]),
            start: Millis(1_700_000_000_123),
            end: Millis(1_700_000_000_456),
            attributes: vec![("reveille.stream", "/a".to_owned())],
            error: Some("answered 500".to_owned()),
        };
        let root = Span { name: "append", parent: None, error: None, ..span.clone() };
        let encoded = encode(&[span, root]);
        let spans = &encoded["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let expected = json!({
            "traceId": "abababababababababababababababab",
            "spanId": "0c0c0c0c0c0c0c0c",
            "parentSpanId": "0101010101010101",
            "name": "wake",
            "kind": 3,
            "startTimeUnixNano": "1700000000123000000",
            "endTimeUnixNano": "1700000000456000000",
            "attributes": [{ "key": "reveille.stream", "value": { "stringValue": "/a" } }],
            "status": { "code": 2, "message": "answered 500" },
        });
        assert_eq!(spans[0], expected);
        assert_eq!(spans[1].get("parentSpanId"), None);
        assert_eq!((&spans[1]["kind"], &spans[1]["status"]), (&json!(2), &json!({})));
    }

    #[test]
    fn a_collector_may_be_anywhere_the_operator_says() {
        for good in ["http://127.0.0.1:4318", "http://10.1.2.3:4318", "https://otel.example"] {
            assert!(destination(good).is_ok(), "{good}");
        }
        // Whoever answers to a name on the network would read along.
        assert!(destination("http://otel.example:4318").is_err());
    }
}
