//! Blocking work off the async threads, with the caller's tracing span kept.

#![allow(clippy::disallowed_methods, reason = "the one place that may spawn blocking work")]

/// Runs a closure where it may block.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
