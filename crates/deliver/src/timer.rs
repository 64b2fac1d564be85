//! The timer of outbound calls: what it bounds is the network, so it runs on real time.
//!
//! How long a call may take as a whole is the caller's to say, on the caller's clock.

#![allow(clippy::disallowed_methods, reason = "it is the door")]

use std::future::Future;
use std::time::Duration;

pub(crate) async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// What a future comes to within this time.
pub(crate) async fn within_ms<T>(ms: u64, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_millis(ms), future).await.ok()
}
