//! Traces: which one a request belongs to, and the span that it becomes.

use std::fmt::Display;

use http::HeaderMap;
use http::header::HeaderName;
use reveille_core::trace::Trace;
use reveille_core::{Millis, StreamPath};
use reveille_engine::spans::OpenSpan;

use crate::Server;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The trace that a request says it belongs to.
pub(crate) fn parent(headers: &HeaderMap) -> Option<Trace> {
    headers.get(TRACEPARENT)?.to_str().ok().and_then(Trace::parse)
}

/// Begins a span for a request; most requests have none, and this costs them a look at a header.
pub(crate) fn begin(server: &Server, name: &'static str, headers: &HeaderMap) -> Option<OpenSpan> {
    let parent = parent(headers);
    if parent.is_none() && !server.engine.collects_spans() {
        return None;
    }
    server.engine.begin_span(name, parent, server.engine.clock().now())
}

/// Ends it with what came of it.
pub(crate) fn end<T, E: Display>(
    server: &Server,
    begun: Option<OpenSpan>,
    path: &StreamPath,
    result: &Result<T, E>,
) {
    if let Some(begun) = begun {
        let attributes = || vec![("reveille.stream", path.to_string())];
        let error = result.as_ref().err().map(ToString::to_string);
        server.engine.end_span(begun, attributes, error);
    }
}

/// Ends the span of a callback: a part of the trace that it names, or else of that of its wake.
pub(crate) fn end_callback(
    server: &Server,
    begun: Option<OpenSpan>,
    wake: Option<Trace>,
    started: Option<Millis>,
    consumer: &str,
    error: Option<String>,
) {
    let late = |wake| server.engine.begin_span("callback", Some(wake), started?);
    if let Some(begun) = begun.or_else(|| wake.and_then(late)) {
        let attributes = || vec![("reveille.consumer", consumer.to_owned())];
        server.engine.end_span(begun, attributes, error);
    }
}
