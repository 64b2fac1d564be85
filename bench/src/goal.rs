//! What reveille has to reach, and whether it did.

use serde_json::Value;

use crate::cell::Cell;
use crate::number::number;
use crate::options::Work;
use crate::results::Results;
use crate::subject;

struct Goal {
    text: &'static str,
    measure: Measure,
    bound: Bound,
}

enum Measure {
    /// Median over the peer's, of the cell's main figure.
    Ratio { cell: &'static str, peer: &'static str },
    /// The cell's main figure of ours alone.
    Median { cell: &'static str },
    /// Median over the peer's, of another figure of the cell.
    FigureRatio { cell: &'static str, peer: &'static str, figure: &'static str },
    /// Median alone: one figure of a cell over one of the same or of another cell.
    OwnRatio { over: (&'static str, &'static str), under: (&'static str, &'static str) },
    /// A number in the result of a work of ours alone.
    Alone { work: Work, pointer: &'static str },
    /// One number in such a result over another.
    AloneRatio { work: Work, over: &'static str, under: &'static str },
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

pub(crate) struct Verdict {
    pub(crate) text: &'static str,
    pub(crate) found: String,
    pub(crate) is_met: bool,
}

use Bound::{AtLeast, AtMost};
use Measure::{Alone, AloneRatio, FigureRatio, Median, OwnRatio, Ratio};
use Work::{Consumers, Facts, Lanes, Million, MillionDocuments, Soak, Triggers};

const fn goal(text: &'static str, measure: Measure, bound: Bound) -> Goal {
    Goal { text, measure, bound }
}

const ALL: [Goal; 39] = [
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
    goal("catch-up read: at least 500 MB/s", Median { cell: "read" }, AtLeast(500.0)),
    goal(
        "catch-up read: at least 0.5 x durable-streams",
        Ratio { cell: "read", peer: "durable-streams" },
        AtLeast(0.5),
    ),
    goal(
        "catch-up read of small appends: at least 500 MB/s",
        Median { cell: "read-small" },
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
    goal(
        "1,000,000 streams: RSS under 400 MB",
        Alone { work: Million, pointer: "/rss_mb" },
        AtMost(400.0),
    ),
    goal(
        "1,000,000 streams: ready in under 5 s after kill -9",
        Alone { work: Million, pointer: "/ready_seconds" },
        AtMost(5.0),
    ),
    goal(
        "append to wake p50, ds: at most 2 x the append p50 of the same run",
        OwnRatio { over: ("wake", "p50 ms"), under: ("wake", "plain append p50 ms") },
        AtMost(2.0),
    ),
    goal(
        "append to wake p50, webhooks: at most 2 x the append p50 of the same run",
        OwnRatio {
            over: ("wake-webhooks", "p50 ms"),
            under: ("wake-webhooks", "plain append p50 ms"),
        },
        AtMost(2.0),
    ),
    goal(
        "append to wake p99: at most 0.2 x npm",
        FigureRatio { cell: "wake", peer: "npm", figure: "p99 ms" },
        AtMost(0.2),
    ),
    goal("wakes/s: at least 20 x npm", Ratio { cell: "wakes", peer: "npm" }, AtLeast(20.0)),
    goal(
        "1,000,000 idle consumers: RSS under 600 MB",
        Alone { work: Consumers, pointer: "/rss_mb" },
        AtMost(600.0),
    ),
    goal(
        "1,000,000 idle consumers: ready in under 5 s after kill -9",
        Alone { work: Consumers, pointer: "/ready_seconds" },
        AtMost(5.0),
    ),
    goal(
        "wake p99 beside 10,000 dead and 1,000 hanging consumers: at most 2 x the quiet one",
        OwnRatio { over: ("noisy", "p99 ms"), under: ("wake-webhooks", "p99 ms") },
        AtMost(2.0),
    ),
    goal(
        "deliveries/s to 1 hook: at least 0.5 x the plain loop",
        Ratio { cell: "deliveries-1", peer: "plain-loop" },
        AtLeast(0.5),
    ),
    goal(
        "deliveries/s to 1,000 hooks: at least 0.5 x the plain loop",
        Ratio { cell: "deliveries-1000", peer: "plain-loop" },
        AtLeast(0.5),
    ),
    goal(
        "answer to an event p99 beside a hook that hangs: at most 1.5 x the quiet one",
        OwnRatio {
            over: ("delivery-hanging", "answer p99 ms"),
            under: ("delivery", "answer p99 ms"),
        },
        AtMost(1.5),
    ),
    goal(
        "delivery p50 beside another tenant's flood: at most 2 x the quiet one",
        OwnRatio { over: ("delivery-flood", "p50 ms"), under: ("delivery-keys", "p50 ms") },
        AtMost(2.0),
    ),
    goal(
        "delivery p99 beside another tenant's flood: at most 2 x the quiet one",
        OwnRatio { over: ("delivery-flood", "p99 ms"), under: ("delivery-keys", "p99 ms") },
        AtMost(2.0),
    ),
    goal(
        "deliveries/s in order over 1,000 lanes: at least 0.8 x those in no order",
        AloneRatio { work: Lanes, over: "/ordered_per_second", under: "/unordered_per_second" },
        AtLeast(0.8),
    ),
    goal(
        "deliveries/s in order beside a lane that is stuck: at least 0.9 x those without one",
        AloneRatio {
            work: Lanes,
            over: "/beside_a_stuck_lane_per_second",
            under: "/ordered_per_second",
        },
        AtLeast(0.9),
    ),
    goal(
        "a change to its POST, p50: at most 2 x the write's own",
        AloneRatio { work: Triggers, over: "/change_to_post_p50_ms", under: "/write_p50_ms" },
        AtMost(2.0),
    ),
    goal(
        "the same beside a document that was updated 10,000 times, p50: at most 2 x without it",
        AloneRatio {
            work: Triggers,
            over: "/beside_a_hot_document_p50_ms",
            under: "/change_to_post_p50_ms",
        },
        AtMost(2.0),
    ),
    goal(
        "deliveries/s of facts, behind their gate: at least 0.8 x those of events",
        AloneRatio {
            work: Facts,
            over: "/gated_deliveries_per_second",
            under: "/event_deliveries_per_second",
        },
        AtLeast(0.8),
    ),
    goal(
        "facts/s: at least 0.7 x our own appends of the same rounds",
        OwnRatio { over: ("facts-write", "facts/s"), under: ("documents-append", "appends/s") },
        AtLeast(0.7),
    ),
    goal(
        "writes/s of one document: at least 0.7 x our own appends of the same rounds",
        OwnRatio {
            over: ("documents-write", "writes/s"),
            under: ("documents-append", "appends/s"),
        },
        AtLeast(0.7),
    ),
    goal(
        "transactions/s of one write under a key: at least 0.7 x our own appends",
        OwnRatio {
            over: ("documents-batch", "transactions/s"),
            under: ("documents-append", "appends/s"),
        },
        AtLeast(0.7),
    ),
    goal(
        "writes/s without indexes: at most 3 x those with ten",
        OwnRatio {
            over: ("documents-plain", "writes/s"),
            under: ("documents-indexed", "writes/s"),
        },
        AtMost(3.0),
    ),
    goal(
        "1,000,000 documents: RSS under 400 MB",
        Alone { work: MillionDocuments, pointer: "/rss_mb" },
        AtMost(400.0),
    ),
    goal(
        "1,000,000 documents: ready in under 5 s after kill -9",
        Alone { work: MillionDocuments, pointer: "/ready_seconds" },
        AtMost(5.0),
    ),
    goal("soak: rate level", Alone { work: Soak, pointer: "/level/rate/level" }, AtLeast(1.0)),
    goal("soak: p99 level", Alone { work: Soak, pointer: "/level/p99/level" }, AtLeast(1.0)),
    goal("soak: RSS level", Alone { work: Soak, pointer: "/level/rss/level" }, AtLeast(1.0)),
    goal("soak: log size level", Alone { work: Soak, pointer: "/level/log/level" }, AtLeast(1.0)),
];

/// Of the goals that this run can judge.
pub(crate) fn verdicts(cells: &[Cell], results: &Results) -> Vec<Verdict> {
    ALL.iter().filter_map(|goal| goal.judge(cells, results)).collect()
}

impl Goal {
    /// `None` when this run did not measure it.
    fn judge(&self, cells: &[Cell], results: &Results) -> Option<Verdict> {
        let cell = |key| cells.iter().find(|cell| cell.key == key);
        let (value, found) = match self.measure {
            Ratio { cell: key, peer } => {
                let ratio = results.ratio(cell(key)?, peer)?;
                (ratio, format!("{} x", number(ratio)))
            }
            Median { cell: key } => {
                let cell = cell(key)?;
                let figure = cell.main()?;
                let median = results.spread(key, subject::REVEILLE, figure)?.median;
                (median, format!("{} {}", number(median), figure.name))
            }
            FigureRatio { cell: key, peer, figure } => {
                let cell = cell(key)?;
                let ratio = results.ratio_of(cell, peer, cell.figure(figure)?)?;
                (ratio, format!("{} x", number(ratio)))
            }
            OwnRatio { over, under } => {
                let ours = |(key, figure)| {
                    let cell = cell(key)?;
                    results.ours(cell, cell.figure(figure)?)
                };
                let (over, under) = (ours(over)?, ours(under)?);
                let ratio = (under > 0.0).then_some(over / under)?;
                (ratio, format!("{} x: {} over {}", number(ratio), number(over), number(under)))
            }
            Alone { work, pointer } => of_one(results.alone.get(&work)?, pointer)?,
            AloneRatio { work, over, under } => of_two(results.alone.get(&work)?, over, under)?,
        };
        let is_met = match self.bound {
            AtLeast(bound) => value >= bound,
            AtMost(bound) => value <= bound,
        };
        Some(Verdict { text: self.text, found, is_met })
    }
}

/// A number of one result, or whether something is level. A run over fewer than a million says
/// nothing about a million.
fn of_one(result: &Value, pointer: &str) -> Option<(f64, String)> {
    let counts = ["streams", "consumers", "documents"].map(|it| result.get(it));
    if counts.into_iter().flatten().filter_map(Value::as_u64).any(|count| count < 1_000_000) {
        return None;
    }
    let value = result.pointer(pointer)?;
    if let Some(level) = value.as_bool() {
        let text = if level { "level" } else { "not level" };
        return Some((f64::from(u8::from(level)), text.to_owned()));
    }
    let value = value.as_f64()?;
    Some((value, number(value)))
}

/// How two numbers of one result stand to each other.
fn of_two(result: &Value, over: &str, under: &str) -> Option<(f64, String)> {
    let figure = |pointer| result.pointer(pointer).and_then(Value::as_f64);
    let (over, under) = (figure(over)?, figure(under)?);
    let ratio = (under > 0.0).then_some(over / under)?;
    Some((ratio, format!("{} x: {} over {}", number(ratio), number(over), number(under))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::results::tests::results;

    #[test]
    fn goals_are_judged_by_what_was_measured() {
        let (cells, nothing) = results(&[]);
        assert!(verdicts(&cells, &nothing).is_empty());
        let rates = [("reveille", 90.0, 0.0), ("durable-streams", 100.0, 0.0), ("npm", 1.0, 0.0)];
        let (cells, mut results) = results(&rates);
        results.alone.insert(Soak, json!({ "level": { "rss": { "level": false } } }));
        results.alone.insert(Million, json!({ "streams": 1_000_000, "rss_mb": 380.0 }));
        let found = |results: &Results| -> Vec<(bool, String)> {
            verdicts(&cells, results).into_iter().map(|v| (v.is_met, v.found)).collect()
        };
        let expected = [(false, "0.90 x"), (true, "90.0 x"), (true, "380"), (false, "not level")];
        assert_eq!(found(&results), expected.map(|(met, text)| (met, text.to_owned())));
        results.alone.insert(Million, json!({ "streams": 50_000, "rss_mb": 380.0 }));
        assert_eq!(found(&results).len(), 3);
    }

    #[test]
    fn goals_about_wakes_compare_figures_by_name() {
        let (_, mut results) = results(&[]);
        let cells = crate::cell::all(false);
        let report = |p99: u64| json!({ "latency_us": { "p50": 900, "p99": p99 }, "plain_us": { "p50": 600 } });
        let mut add = |key: &str, subject: &str, p99| {
            let cell = cells.iter().find(|cell| cell.key == key).unwrap();
            let subject = subject::ALL.iter().find(|it| it.name == subject).unwrap();
            results.add(cell, subject, report(p99));
        };
        add("wake", "reveille", 2_000);
        add("wake", "npm", 5_000);
        add("wake-webhooks", "reveille", 2_000);
        add("noisy", "reveille", 3_000);
        let found: Vec<(bool, String)> =
            verdicts(&cells, &results).into_iter().map(|it| (it.is_met, it.found)).collect();
        let expected = [
            (true, "1.50 x: 0.90 over 0.60"),
            (true, "1.50 x: 0.90 over 0.60"),
            (false, "0.40 x"),
            (true, "1.50 x: 3.00 over 2.00"),
        ];
        assert_eq!(found, expected.map(|(met, text)| (met, text.to_owned())));
    }

    #[test]
    fn every_figure_that_a_goal_names_exists() {
        let cells = crate::cell::all(false);
        let check = |key: &str, figure: &str| {
            let cell = cells.iter().find(|cell| cell.key == key);
            assert!(cell.is_some_and(|cell| cell.figure(figure).is_some()), "{key}: {figure}");
        };
        for goal in &ALL {
            match goal.measure {
                FigureRatio { cell, figure, .. } => check(cell, figure),
                OwnRatio { over, under } => {
                    check(over.0, over.1);
                    check(under.0, under.1);
                }
                Ratio { cell, .. } | Median { cell } => {
                    assert!(cells.iter().any(|it| it.key == cell), "{cell}");
                }
                Alone { .. } | AloneRatio { .. } => {}
            }
        }
    }
}
