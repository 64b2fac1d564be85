//! What reveille has to reach, and whether it did.

use serde_json::Value;

use super::cell::Cell;
use super::results::Results;
use super::subject;
use super::table::number;

pub(super) struct Goal {
    text: &'static str,
    measure: Measure,
    bound: Bound,
}

enum Measure {
    /// Ours over the peer's, of the cell's main figure.
    Ratio { cell: &'static str, peer: &'static str },
    /// The cell's main figure of ours alone.
    Ours { cell: &'static str },
    /// A number in the result of `million`.
    Million { pointer: &'static str },
    /// A truth in the result of `soak`.
    Soak { pointer: &'static str },
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

pub(super) struct Verdict {
    pub(super) text: &'static str,
    pub(super) found: String,
    pub(super) met: bool,
}

use Bound::{AtLeast, AtMost};
use Measure::{Million, Ours, Ratio, Soak};

const fn goal(text: &'static str, measure: Measure, bound: Bound) -> Goal {
    Goal { text, measure, bound }
}

pub(super) const ALL: [Goal; 16] = [
    goal(
        "appends to 1 stream: at least 1.0 x durable-streams",
        Ratio { cell: "append-1", peer: "durable-streams" },
        AtLeast(1.0),
    ),
    goal(
        "appends to 1,000 streams: at least 1.0 x durable-streams",
        Ratio { cell: "append-1000", peer: "durable-streams" },
        AtLeast(1.0),
    ),
    goal(
        "appends to 1 stream: at least 50 x npm",
        Ratio { cell: "append-1", peer: "npm" },
        AtLeast(50.0),
    ),
    goal(
        "appends to 1,000 streams: at least 50 x npm",
        Ratio { cell: "append-1000", peer: "npm" },
        AtLeast(50.0),
    ),
    goal("catch-up read: at least 500 MB/s", Ours { cell: "read" }, AtLeast(500.0)),
    goal(
        "catch-up read: at least 0.5 x durable-streams",
        Ratio { cell: "read", peer: "durable-streams" },
        AtLeast(0.5),
    ),
    goal(
        "catch-up read of small appends: at least 500 MB/s",
        Ours { cell: "read-small" },
        AtLeast(500.0),
    ),
    goal(
        "catch-up read of small appends: at least 0.5 x durable-streams",
        Ratio { cell: "read-small", peer: "durable-streams" },
        AtLeast(0.5),
    ),
    goal(
        "SSE latency p50: at most 1.2 x durable-streams",
        Ratio { cell: "latency-sse", peer: "durable-streams" },
        AtMost(1.2),
    ),
    goal(
        "long-poll latency p50: at most 1.2 x durable-streams",
        Ratio { cell: "latency-long-poll", peer: "durable-streams" },
        AtMost(1.2),
    ),
    goal("1,000,000 streams: RSS under 400 MB", Million { pointer: "/rss_mb" }, AtMost(400.0)),
    goal(
        "1,000,000 streams: ready in under 5 s after kill -9",
        Million { pointer: "/ready_seconds" },
        AtMost(5.0),
    ),
    goal("soak: rate level", Soak { pointer: "/level/rate/level" }, AtLeast(1.0)),
    goal("soak: p99 level", Soak { pointer: "/level/p99/level" }, AtLeast(1.0)),
    goal("soak: RSS level", Soak { pointer: "/level/rss/level" }, AtLeast(1.0)),
    goal("soak: log size level", Soak { pointer: "/level/log/level" }, AtLeast(1.0)),
];

impl Goal {
    /// `None` when this run did not measure it.
    pub(super) fn judge(&self, cells: &[Cell], results: &Results) -> Option<Verdict> {
        let cell = |key| cells.iter().find(|cell| cell.key == key);
        let (value, found) = match self.measure {
            Ratio { cell: key, peer } => {
                let ratio = results.ratio(cell(key)?, peer)?;
                (ratio, format!("{} x", number(ratio)))
            }
            Ours { cell: key } => {
                let cell = cell(key)?;
                let figure = cell.main()?;
                let median = results.spread(key, subject::OURS, figure)?.median;
                (median, format!("{} {}", number(median), figure.name))
            }
            Million { pointer } => {
                let million = results.million.as_ref()?;
                if million.get("streams")?.as_u64()? < 1_000_000 {
                    return None;
                }
                let value = million.pointer(pointer)?.as_f64()?;
                (value, number(value))
            }
            Soak { pointer } => {
                let level = results.soak.as_ref()?.pointer(pointer).and_then(Value::as_bool)?;
                (f64::from(u8::from(level)), if level { "level" } else { "not level" }.to_owned())
            }
        };
        let met = match self.bound {
            AtLeast(bound) => value >= bound,
            AtMost(bound) => value <= bound,
        };
        Some(Verdict { text: self.text, found, met })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::results::tests::results;

    #[test]
    fn goals_are_judged_by_what_was_measured() {
        let (cells, nothing) = results(&[]);
        assert!(nothing.verdicts(&cells).is_empty());
        let rates = [("reveille", 90.0, 0.0), ("durable-streams", 100.0, 0.0), ("npm", 1.0, 0.0)];
        let (cells, mut results) = results(&rates);
        results.soak = Some(json!({ "level": { "rss": { "level": false } } }));
        results.million = Some(json!({ "streams": 1_000_000, "rss_mb": 380.0 }));
        let found = |results: &Results| -> Vec<(bool, String)> {
            results.verdicts(&cells).into_iter().map(|v| (v.met, v.found)).collect()
        };
        let expected = [(false, "0.90 x"), (true, "90.0 x"), (true, "380"), (false, "not level")];
        assert_eq!(found(&results), expected.map(|(met, text)| (met, text.to_owned())));
        // A short run says nothing about a million.
        results.million = Some(json!({ "streams": 50_000, "rss_mb": 380.0 }));
        assert_eq!(found(&results).len(), 3);
    }
}
