//! What is measured: the arguments of the generator, and the figures taken from its report.

use std::time::Duration;

use serde_json::Value;

use crate::number::number;
use crate::options::Work;
use crate::setup::Setup;
use crate::subject::{STREAM_SERVERS, Subject};

mod delivery;
mod document;
mod fact;
mod wake;

/// One kind of run, made with every subject in every round.
pub(crate) struct Cell {
    pub(crate) key: &'static str,
    pub(crate) work: Work,
    /// Another work for which it is measured too, because that is compared with it.
    pub(crate) baseline_of: Option<Work>,
    subjects: &'static [&'static str],
    pub(crate) setup: Setup,
    pub(crate) title: String,
    /// The first is the one that is compared.
    pub(crate) figures: Vec<Figure>,
    /// After this the generator is killed.
    pub(crate) limit: Duration,
    arguments: String,
    /// What a slow subject gets instead; `None` leaves it out.
    slow_arguments: Option<String>,
}

/// A number in a report.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// Behind a value in the chart.
    pub(crate) unit: &'static str,
    /// JSON pointer into the report.
    pointer: &'static str,
    scale: f64,
    pub(crate) better: Direction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Higher,
    Lower,
}

impl Cell {
    /// The generator's arguments for a subject, if it takes part.
    pub(crate) fn arguments(&self, subject: &Subject) -> Option<Vec<String>> {
        if !self.includes(subject) {
            return None;
        }
        let arguments =
            if subject.fast { &self.arguments } else { self.slow_arguments.as_ref()? };
        Some(arguments.split_ascii_whitespace().map(str::to_owned).collect())
    }

    pub(crate) fn includes(&self, subject: &Subject) -> bool {
        self.subjects.contains(&subject.name)
    }

    pub(crate) fn main(&self) -> Option<&Figure> {
        self.figures.first()
    }

    pub(crate) fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

impl Figure {
    pub(crate) fn of(&self, report: &Value) -> Option<f64> {
        Some(report.pointer(self.pointer)?.as_f64()? * self.scale)
    }
}

pub(crate) const ERRORS: Figure = less("errors %", "%", "/error_rate", 100.0);
pub(crate) const OTHERS: Figure = less("others' cores", "cores", "/used/others_cores", 1.0);

const fn more(name: &'static str, unit: &'static str, pointer: &'static str, scale: f64) -> Figure {
    Figure { name, unit, pointer, scale, better: Direction::Higher }
}

const fn less(name: &'static str, unit: &'static str, pointer: &'static str, scale: f64) -> Figure {
    Figure { name, unit, pointer, scale, better: Direction::Lower }
}

/// The figures of every cell: after its own come cost and errors.
fn figures(own: impl IntoIterator<Item = Figure>) -> Vec<Figure> {
    let cost = [
        less("CPU µs each", "µs", "/used/server_cpu_us_per_operation", 1.0),
        less("cores", "cores", "/used/server_cores", 1.0),
        less("RSS MB", "MB", "/used/server_rss_bytes", 1e-6),
        ERRORS,
        OTHERS,
    ];
    own.into_iter().chain(cost).collect()
}

fn rate(name: &'static str) -> Vec<Figure> {
    figures([
        more(name, "/s", "/per_second", 1.0),
        less("p50 ms", "ms", "/latency_us/p50", 1e-3),
        less("p99 ms", "ms", "/latency_us/p99", 1e-3),
        less("p99.9 ms", "ms", "/latency_us/p999", 1e-3),
    ])
}

/// The cells, in the order in which they are run and reported.
pub(crate) fn all(quick: bool) -> Vec<Cell> {
    let seconds = if quick { 2 } else { 5 };
    let mut cells: Vec<Cell> = [1, 1000].map(|streams| append(streams, seconds)).into();
    cells.extend([read(100, seconds), read(1, seconds)]);
    cells.extend(["sse", "long-poll"].map(|mode| latency(mode, quick)));
    cells.extend([create(quick), idle(quick)]);
    cells.extend(wake::all(quick));
    cells.extend(delivery::all(quick));
    cells.extend(document::all(quick));
    cells.push(fact::write(quick));
    cells
}

fn append(streams: u32, seconds: u32) -> Cell {
    let arguments = format!("append --connections 64 --streams {streams} --seconds {seconds}");
    Cell {
        key: if streams == 1 { "append-1" } else { "append-1000" },
        work: Work::Append,
        baseline_of: None,
        subjects: STREAM_SERVERS,
        setup: Setup::Plain,
        title: match streams {
            1 => "Durable appends of 100 B to 1 stream, 64 connections".to_owned(),
            _ => "Durable appends of 100 B to 1,000 streams, 64 connections".to_owned(),
        },
        figures: rate("appends/s"),
        limit: Duration::from_secs(120),
        slow_arguments: Some(arguments.clone()),
        arguments,
    }
}

fn read(batch: u32, seconds: u32) -> Cell {
    let arguments = format!("read --bytes 10000000 --batch {batch} --seconds {seconds}");
    Cell {
        key: if batch == 1 { "read-small" } else { "read" },
        work: Work::Read,
        baseline_of: None,
        subjects: STREAM_SERVERS,
        setup: Setup::Plain,
        title: format!(
            "Catch-up read of 10 MB, one connection, appended in pieces of {}",
            if batch == 1 { "100 B" } else { "10 kB" }
        ),
        figures: figures([
            more("MB/s", "MB/s", "/megabytes_per_second", 1.0),
            less("p50 ms", "ms", "/latency_us/p50", 1e-3),
            less("p99 ms", "ms", "/latency_us/p99", 1e-3),
        ]),
        limit: Duration::from_secs(360),
        // A hundred thousand appends would take a slow subject minutes.
        slow_arguments: (batch > 1).then(|| arguments.clone()),
        arguments,
    }
}

fn latency(mode: &str, quick: bool) -> Cell {
    let count = if quick { 200 } else { 1000 };
    let arguments = format!("latency --mode {mode} --count {count} --seconds 20");
    let (key, name) = match mode {
        "sse" => ("latency-sse", "SSE"),
        _ => ("latency-long-poll", "long-poll"),
    };
    Cell {
        key,
        work: Work::Latency,
        baseline_of: None,
        subjects: STREAM_SERVERS,
        setup: Setup::Plain,
        title: format!("From sending an append to a live {name} reader holding it"),
        figures: figures([
            less("p50 ms", "ms", "/latency_us/p50", 1e-3),
            less("p99 ms", "ms", "/latency_us/p99", 1e-3),
            less("answer p50 ms", "ms", "/answer_us/p50", 1e-3),
        ]),
        limit: Duration::from_secs(60),
        slow_arguments: Some(arguments.clone()),
        arguments,
    }
}

/// At most 19,000: a server with an open file per stream stops at the usual limit of 20,000.
fn create(quick: bool) -> Cell {
    let count: u32 = if quick { 2_000 } else { 19_000 };
    let with_limit = |seconds| format!("create --count {count} --seconds {seconds}");
    Cell {
        key: "create",
        work: Work::Create,
        baseline_of: None,
        subjects: STREAM_SERVERS,
        setup: Setup::Plain,
        title: format!(
            "{} streams created with one message of 100 B, 64 connections",
            number(f64::from(count))
        ),
        figures: rate("streams/s"),
        limit: Duration::from_secs(180),
        arguments: with_limit(60),
        slow_arguments: Some(with_limit(20)),
    }
}

fn idle(quick: bool) -> Cell {
    let (readers, seconds): (u32, u32) = if quick { (200, 1) } else { (10_000, 5) };
    let arguments = format!("idle --readers {readers} --seconds {seconds}");
    Cell {
        key: "idle",
        work: Work::Idle,
        baseline_of: None,
        subjects: STREAM_SERVERS,
        setup: Setup::Plain,
        title: format!("{} idle SSE readers, then one message to all", number(f64::from(readers))),
        figures: vec![
            less("last reader ms", "ms", "/fanout/arrival_us/max", 1e-3),
            less("median reader ms", "ms", "/fanout/arrival_us/p50", 1e-3),
            more("up", "readers", "/fanout/up", 1.0),
            more("received", "readers", "/fanout/received", 1.0),
            less("RSS kB each", "kB", "/fanout/rss_per_reader_bytes", 1e-3),
            less("idle cores", "cores", "/used/server_cores", 1.0),
            less("RSS MB", "MB", "/fanout/rss_up_bytes", 1e-6),
            ERRORS,
            OTHERS,
        ],
        limit: Duration::from_secs(240),
        slow_arguments: Some(arguments.clone()),
        arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject;

    #[test]
    fn a_slow_subject_is_left_out_where_it_would_take_minutes() {
        let cells = all(false);
        for subject in &subject::ALL {
            let keys: Vec<&str> = cells
                .iter()
                .filter(|cell| cell.arguments(subject).is_some())
                .map(|cell| cell.key)
                .collect();
            let reads = ["reveille", "durable-streams"].contains(&subject.name);
            assert_eq!(keys.contains(&"read-small"), reads, "{}", subject.name);
            let expected = match subject.name {
                "reveille" => 27,
                "npm" => 9,
                "plain-loop" => 2,
                "postgres" => 5,
                _ => 8,
            };
            assert_eq!(keys.len(), expected, "{}", subject.name);
        }
    }

    #[test]
    fn a_figure_is_read_and_scaled() {
        let report = serde_json::json!({ "latency_us": { "p50": 1500 }, "error_rate": 0.25 });
        assert_eq!(less("p50 ms", "ms", "/latency_us/p50", 1e-3).of(&report), Some(1.5));
        assert_eq!(ERRORS.of(&report), Some(25.0));
        assert_eq!(OTHERS.of(&report), None);
    }
}
