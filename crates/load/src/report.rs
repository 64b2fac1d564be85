//! What a run found, for people and as JSON.

mod deliveries;
mod fanout;
mod soak;
mod wakes;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

pub use deliveries::DeliveryFigures;
pub use fanout::Fanout;
pub use soak::SoakSample;
pub use wakes::WakeFigures;

use crate::histogram::Latency;
use crate::tally::{Errors, Tally};
use crate::target::Output;
use crate::usage::{Meter, ResourceUsage};

/// More errors than this share of the requests, and the report opens with a warning.
pub const ERROR_RATE_MAX: f64 = 0.001;

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The kind of work.
    pub work: &'static str,
    /// The settings that shape the figures, in words.
    pub settings: String,
    /// Set when more than [`ERROR_RATE_MAX`] of the requests failed.
    pub warning: Option<String>,
    /// The measured time.
    pub seconds: f64,
    /// Requests that were answered as they should be in the measured time.
    pub operations: u64,
    /// Operations per second.
    pub per_second: f64,
    /// Bytes of the messages written or read by these operations.
    pub bytes: u64,
    /// Millions of bytes per second.
    pub megabytes_per_second: f64,
    /// The time from sending a request to its answer, in microseconds; for the work `latency` the
    /// time from sending an append to the reader holding it, for `wake` and `delivery` to the
    /// endpoint holding it.
    pub latency_us: Option<Latency>,
    /// For the works `latency`, `wake` and `delivery`: the time from sending an append, or an event,
    /// to its own answer.
    pub answer_us: Option<Latency>,
    /// For the work `wake`: the same for appends to a stream without a consumer.
    pub plain_us: Option<Latency>,
    /// Requests that were not answered as they should be, over the whole run, by status or by
    /// kind of failure.
    pub errors: BTreeMap<String, u64>,
    /// Their share of all requests of the run.
    pub error_rate: f64,
    /// CPU and memory.
    #[serde(rename = "used")]
    pub usage: ResourceUsage,
    /// For the work `idle`.
    pub fanout: Option<Fanout>,
    /// For the works `wake`, `wakes` and `consumers`.
    #[serde(rename = "woken")]
    pub wakes: Option<WakeFigures>,
    /// For the works `delivery` and `deliveries`.
    #[serde(rename = "delivered")]
    pub deliveries: Option<DeliveryFigures>,
    /// For the work `soak`: one per interval.
    pub samples: Vec<SoakSample>,
}

impl Report {
    /// `measured` is what counts for the rates; `elsewhere` holds the requests before and after it,
    /// whose errors are not to be lost.
    pub(crate) fn new(
        work: &'static str,
        settings: String,
        measured: &Tally,
        elsewhere: &Tally,
        (start, end): (Meter, Meter),
    ) -> Report {
        let mut errors = elsewhere.errors.clone();
        errors.absorb(&measured.errors);
        let requests = measured.done + elsewhere.done + errors.total();
        let seconds = start.seconds_until(&end);
        let error_rate = share(errors.total(), requests);
        Report {
            work,
            settings,
            warning: warning(&errors, requests, error_rate),
            seconds,
            operations: measured.done,
            per_second: rate(measured.done, seconds),
            bytes: measured.bytes,
            megabytes_per_second: rate(measured.bytes, seconds) / 1e6,
            latency_us: measured.latency.summary(),
            answer_us: None,
            plain_us: None,
            errors: errors.0,
            error_rate,
            usage: start.usage_until(&end, measured.done),
            fanout: None,
            wakes: None,
            deliveries: None,
            samples: Vec::new(),
        }
    }

    /// The report as the command line asked for it, with a line end.
    pub fn render(&self, output: Output) -> String {
        match output {
            Output::Human => self.to_string(),
            Output::Json => {
                let json = serde_json::to_string(self);
                json.expect("a report is plain data") + "\n"
            }
        }
    }
}

fn warning(errors: &Errors, requests: u64, error_rate: f64) -> Option<String> {
    (error_rate > ERROR_RATE_MAX).then(|| {
        let percent = error_rate * 100.0;
        let total = errors.total();
        format!("{percent:.2} % of the requests failed ({total} of {requests})")
    })
}

pub(crate) fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.work, self.settings)?;
        if let Some(warning) = &self.warning {
            writeln!(f, "  WARNING     {warning}")?;
        }
        let Report { operations, seconds, per_second, megabytes_per_second, .. } = self;
        writeln!(f, "  rate        {per_second:.1}/s   ({operations} in {seconds:.2} s)")?;
        writeln!(f, "  bytes       {megabytes_per_second:.2} MB/s   ({} bytes)", self.bytes)?;
        if let Some(latency) = &self.latency_us {
            writeln!(f, "  latency     {latency}")?;
        }
        if let Some(latency) = &self.answer_us {
            writeln!(f, "  answer      {latency}")?;
        }
        if let Some(latency) = &self.plain_us {
            writeln!(f, "  plain       {latency}")?;
        }
        if let Some(wakes) = &self.wakes {
            write!(f, "{wakes}")?;
        }
        if let Some(deliveries) = &self.deliveries {
            write!(f, "{deliveries}")?;
        }
        write!(f, "{}{}", ErrorList(&self.errors), self.usage)
    }
}

struct ErrorList<'a>(&'a BTreeMap<String, u64>);

impl fmt::Display for ErrorList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            writeln!(f, "  errors      none")?;
        }
        for (label, count) in self.0 {
            writeln!(f, "  error       {label}: {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(done: u64, failed: u64) -> Report {
        let mut measured = Tally::default();
        let mut elsewhere = Tally::default();
        for _ in 0..done {
            measured.done(Duration::from_millis(1), 100);
        }
        for _ in 0..failed {
            elsewhere.errors.status(404);
        }
        let meter = Meter::read(None);
        Report::new("append", "test".to_owned(), &measured, &elsewhere, (meter, meter))
    }

    #[test]
    fn one_error_in_a_thousand_is_counted_and_two_are_a_warning() {
        let fine = report(999, 1);
        assert_eq!(fine.errors, BTreeMap::from([("status 404".to_owned(), 1)]));
        assert_eq!(fine.warning, None);
        let bad = report(998, 2);
        assert_eq!(bad.warning.as_deref(), Some("0.20 % of the requests failed (2 of 1000)"));
        assert!(bad.to_string().contains("WARNING"), "{bad}");
    }

    #[test]
    fn a_report_without_time_or_requests_has_no_rates() {
        let empty = report(0, 0);
        assert_eq!((empty.per_second, empty.error_rate), (0.0, 0.0));
        assert!(empty.to_string().contains("errors      none"), "{empty}");
    }

    #[test]
    fn json_carries_the_percentiles() {
        let json: serde_json::Value =
            serde_json::from_str(&report(10, 0).render(Output::Json)).unwrap();
        assert_eq!(json["latency_us"]["p99"], 1000);
        assert_eq!(json["operations"], 10);
        assert_eq!(json["warning"], serde_json::Value::Null);
    }
}
