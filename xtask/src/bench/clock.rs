//! The one place of the benchmark that reads a clock: it measures real time.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

pub(super) fn now() -> Instant {
    Instant::now()
}
