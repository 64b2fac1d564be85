//! The one place where the program waits for time to pass outside of the engine.
#![allow(clippy::disallowed_methods, reason = "this file implements the door")]

use std::future::Future;
use std::time::Duration;

pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// `None` when the future did not finish in time.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}
