//! Spans: what was done when, as a part of which trace. They are collected here and sent elsewhere.
//!
//! Nobody waits for a span: when too many are collected they are dropped and counted. Without
//! somebody who collects them, traces are passed on as they came, and nothing else happens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use reveille_core::Millis;
use reveille_core::trace::Trace;
use tokio::sync::mpsc;

use reveille_kernel::doors::Entropy;

use crate::app::Part;
use crate::engine::Engine;

/// Spans that wait to be sent.
pub const SPANS_MAX: usize = 8_192;

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub name: &'static str,
    /// The trace, and the span itself.
    pub trace: Trace,
    /// The span that it is a part of.
    pub parent: Option<[u8; 8]>,
    /// When it began.
    pub start: Millis,
    /// When it ended.
    pub end: Millis,
    /// What there is to say about it.
    pub attributes: Vec<(&'static str, String)>,
    /// What went wrong.
    pub error: Option<String>,
}

/// A span that has begun.
#[derive(Debug, Clone, Copy)]
pub struct OpenSpan {
    name: &'static str,
    /// What follows from it belongs there.
    pub trace: Trace,
    parent: Option<[u8; 8]>,
    start: Millis,
    collected: bool,
}

/// Where spans are collected.
pub struct Spans {
    queue: mpsc::Sender<Span>,
    dropped: AtomicU64,
}

impl Spans {
    /// A collection, and where what is collected comes out.
    pub fn new() -> (Spans, mpsc::Receiver<Span>) {
        let (queue, collected) = mpsc::channel(SPANS_MAX);
        (Spans { queue, dropped: AtomicU64::new(0) }, collected)
    }

    /// Spans for which there was no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn collect(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where spans of a partition are collected, if they are.
#[derive(Default)]
pub(crate) struct SpanCollector(OnceLock<Arc<Spans>>);

impl Part for SpanCollector {}

impl SpanCollector {
    pub(crate) fn get(&self) -> Option<&Spans> {
        self.0.get().map(|spans| &**spans)
    }
}

/// Begins a span; `None` if there is neither a trace to go on with nor anybody to begin one for.
pub(crate) fn begin(
    spans: Option<&Spans>,
    entropy: &dyn Entropy,
    name: &'static str,
    parent: Option<Trace>,
    start: Millis,
) -> Option<OpenSpan> {
    if spans.is_none() {
        // The caller's own span is what follows belongs to.
        return parent.map(|trace| OpenSpan { name, trace, parent: None, start, collected: false });
    }
    let mut trace = Trace { trace_id: [0; 16], span_id: [0; 8] };
    match parent {
        Some(parent) => trace.trace_id = parent.trace_id,
        None => entropy.fill(&mut trace.trace_id),
    }
    entropy.fill(&mut trace.span_id);
    let parent = parent.map(|parent| parent.span_id);
    Some(OpenSpan { name, trace, parent, start, collected: true })
}

/// Ends a span.
pub(crate) fn end(
    spans: Option<&Spans>,
    begun: OpenSpan,
    end: Millis,
    attributes: Vec<(&'static str, String)>,
    error: Option<String>,
) {
    if let Some(spans) = spans.filter(|_| begun.collected) {
        let OpenSpan { name, trace, parent, start, .. } = begun;
        spans.collect(Span { name, trace, parent, start, end, attributes, error });
    }
}

impl Engine {
    /// Has spans collected from now on. The first to ask has them.
    pub fn collect_spans(&self, spans: Spans) {
        let spans = Arc::new(spans);
        for shared in self.partitions() {
            shared.domains.part::<SpanCollector>().0.get_or_init(|| spans.clone());
        }
    }

    /// Whether spans are collected.
    pub fn collects_spans(&self) -> bool {
        self.spans().is_some()
    }

    /// Spans that were dropped.
    pub fn dropped_spans(&self) -> u64 {
        self.spans().map_or(0, Spans::dropped)
    }

    /// Begins a span; `None` if nobody would ever know.
    pub fn begin_span(
        &self,
        name: &'static str,
        parent: Option<Trace>,
        start: Millis,
    ) -> Option<OpenSpan> {
        begin(self.spans(), self.entropy().as_ref(), name, parent, start)
    }

    /// Ends a span.
    pub fn end_span(
        &self,
        begun: OpenSpan,
        attributes: impl FnOnce() -> Vec<(&'static str, String)>,
        error: Option<String>,
    ) {
        if begun.collected {
            end(self.spans(), begun, self.clock().now(), attributes(), error);
        }
    }

    fn spans(&self) -> Option<&Spans> {
        self.first_partition().domains.part::<SpanCollector>().get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reveille_kernel::doors::SystemEntropy;

    const PARENT: Trace = Trace { trace_id: [1; 16], span_id: [2; 8] };

    fn begun(spans: Option<&Spans>, parent: Option<Trace>) -> Option<OpenSpan> {
        begin(spans, &SystemEntropy::default(), "x", parent, Millis(1))
    }

    #[test]
    fn without_a_collection_traces_pass_through() {
        assert!(begun(None, None).is_none());
        assert_eq!(begun(None, Some(PARENT)).unwrap().trace, PARENT);
    }

    #[test]
    fn a_span_is_a_part_of_its_parent_or_begins_a_trace() {
        let (spans, mut collected) = Spans::new();
        for parent in [None, Some(PARENT)] {
            let begun = begun(Some(&spans), parent).unwrap();
            end(Some(&spans), begun, Millis(2), Vec::new(), None);
            let span = collected.try_recv().unwrap();
            assert_eq!(span.trace, begun.trace);
            assert_eq!(span.parent, parent.map(|it| it.span_id));
            assert_eq!(span.trace.trace_id == PARENT.trace_id, parent.is_some());
            assert_ne!(span.trace.span_id, PARENT.span_id);
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_dropped_and_counted() {
        let (spans, collected) = Spans::new();
        for _ in 0..SPANS_MAX + 3 {
            let begun = begun(Some(&spans), None).unwrap();
            end(Some(&spans), begun, Millis(2), Vec::new(), None);
        }
        assert_eq!(spans.dropped(), 3);
        drop(collected);
    }
}
