//! The one place where the generator reads a clock or waits for time to pass.
//!
//! A load generator measures real time, so nothing here is simulated.
#![allow(clippy::disallowed_methods)]

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// `None` when the future did not finish in time.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit, future).await.ok()
}

/// A duration given on the command line.
pub(crate) fn parse_seconds(flag: &str, seconds: f64) -> anyhow::Result<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|error| anyhow::anyhow!("{flag} {seconds}: {error}"))
}

/// A name for this run that no earlier run had, so that its streams are new ones.
pub(crate) fn run_name() -> String {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    format!("{micros:x}")
}
