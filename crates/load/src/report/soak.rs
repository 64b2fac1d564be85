//! What a report says of an interval of a soak.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::histogram::Latency;

/// One interval of a soak.
#[derive(Debug, Clone, Serialize)]
pub struct SoakSample {
    /// Time since the start, at the end of the interval.
    pub seconds: f64,
    /// Appends per second in the interval.
    pub per_second: f64,
    /// Latencies of the interval.
    pub latency_us: Option<Latency>,
    /// Errors in the interval.
    pub errors: u64,
    /// Resident memory of the server.
    pub rss_bytes: Option<u64>,
    /// Size on disk of each directory in the data directory, two levels deep; `.` is its own files.
    pub disk_bytes: BTreeMap<String, u64>,
}

impl fmt::Display for SoakSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7.1} s  {:9.1}/s", self.seconds, self.per_second)?;
        if let Some(latency) = &self.latency_us {
            write!(
                f,
                "  p50 {:6} µs  p99 {:7} µs  max {:8} µs",
                latency.p50, latency.p99, latency.max
            )?;
        }
        if let Some(bytes) = self.rss_bytes {
            write!(f, "  rss {:5} MB", bytes / 1_000_000)?;
        }
        for (name, bytes) in &self.disk_bytes {
            write!(f, "  {name} {} MB", bytes / 1_000_000)?;
        }
        if self.errors > 0 {
            write!(f, "  ERRORS {}", self.errors)?;
        }
        Ok(())
    }
}
