//! The one place where the program asks for the time, and waits for it to pass, outside of the
//! engine.
#![allow(clippy::disallowed_methods, reason = "this file implements the door")]

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reveille_core::Millis;

/// What time this machine says it is.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// `None` when the future did not finish in time.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}
