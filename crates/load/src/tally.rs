//! What happened to the requests: answers, latencies, errors by status.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connection::{ExchangeError, Failure};
use crate::histogram::Histogram;

#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Requests answered as they should be.
    pub(crate) done: u64,
    /// Bytes of the messages that were written or read by them.
    pub(crate) bytes: u64,
    pub(crate) latency: Histogram,
    pub(crate) errors: Errors,
}

/// Requests that were not answered as they should be, by status or kind of failure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors(pub(crate) BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn done(&mut self, latency: Duration, bytes: u64) {
        self.done += 1;
        self.bytes += bytes;
        self.latency.record(latency);
    }

    pub(crate) fn absorb(&mut self, other: &Tally) {
        self.done += other.done;
        self.bytes += other.bytes;
        self.latency.absorb(&other.latency);
        self.errors.absorb(&other.errors);
    }
}

impl Errors {
    pub(crate) fn status(&mut self, status: u16) {
        self.count(format!("status {status}"), 1);
    }

    pub(crate) fn failure(&mut self, failure: Failure) {
        self.count(failure.label(), 1);
    }

    pub(crate) fn exchange(&mut self, error: ExchangeError) {
        match error {
            ExchangeError::Status(status) => self.status(status),
            ExchangeError::Failure(failure) => self.failure(failure),
        }
    }

    pub(crate) fn count(&mut self, label: String, count: u64) {
        if count > 0 {
            *self.0.entry(label).or_default() += count;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn absorb(&mut self, other: &Errors) {
        for (label, count) in &other.0 {
            self.count(label.clone(), *count);
        }
    }
}
