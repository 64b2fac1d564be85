//! Work that is done elsewhere: where it may block, or whether or not somebody waits for it.

#![allow(clippy::disallowed_methods, reason = "the one place that may spawn blocking work")]

use tokio::task::JoinError;

/// Runs a closure where it may block, with the caller's tracing span kept.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let span = tracing::Span::current();
    finished(tokio::task::spawn_blocking(move || span.in_scope(work)).await)
}

/// Does something to its end, also if nobody waits for it any more.
pub async fn spawned<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    finished(tokio::spawn(work).await)
}

fn finished<T>(outcome: Result<T, JoinError>) -> T {
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
