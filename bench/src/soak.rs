//! Ten minutes of appends at full rate, on reveille alone: does everything stay level?

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::results::spread;
use crate::server::{self, DataDir};
use crate::setup::RunSettings;
use crate::subject::Subject;

pub(crate) fn run(environment: &Environment, subject: &Subject) -> anyhow::Result<Value> {
    let (seconds, every) = if environment.quick { (30, 2) } else { (600, 10) };
    eprintln!("soak          {seconds} s on {}", subject.name);
    let data = DataDir::new(&environment.target, "soak")?;
    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let arguments = format!("soak --seconds {seconds} --every {every} --data-dir");
    let mut arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    arguments.push(data.path().to_str().context("a path in UTF-8")?.to_owned());
    let report =
        environment.generator.run(&arguments, &server, Duration::from_secs(seconds + 120))?;
    let samples = report.get("samples").and_then(Value::as_array).context("no samples")?;
    ensure!(samples.len() >= 9, "only {} samples", samples.len());
    Ok(json!({ "level": levels(samples), "report": report }))
}

/// A quantity that must not drift, and how much it may differ between start and end.
struct Level {
    name: &'static str,
    of: fn(&Value) -> Option<f64>,
    /// The end may be this many times the start …
    times: f64,
    /// … and this much more.
    slack: f64,
    /// It is the fall that would be bad, not the rise.
    falling: bool,
}

const LEVELS: [Level; 4] = [
    Level { name: "rate", of: rate, times: 0.8, slack: 0.0, falling: true },
    Level { name: "p99", of: p99, times: 1.5, slack: 1_000.0, falling: false },
    // An allocator keeps a few megabytes here and there.
    Level { name: "rss", of: rss, times: 1.2, slack: 16e6, falling: false },
    // A log is cut segment by segment.
    Level { name: "log", of: log, times: 1.25, slack: 128e6, falling: false },
];

fn rate(sample: &Value) -> Option<f64> {
    sample.get("per_second")?.as_f64()
}

fn p99(sample: &Value) -> Option<f64> {
    sample.pointer("/latency_us/p99")?.as_f64()
}

fn rss(sample: &Value) -> Option<f64> {
    sample.get("rss_bytes")?.as_f64()
}

/// The log is whatever lies in a directory of that name; the table beside it may grow, for nothing
/// is ever deleted here.
fn log(sample: &Value) -> Option<f64> {
    let sizes = sample.get("disk_bytes")?.as_object()?;
    let mut logs = sizes
        .iter()
        .filter(|(path, _)| path.split('/').any(|name| matches!(name, "log" | "wal")))
        .filter_map(|(_, bytes)| bytes.as_f64())
        .peekable();
    logs.peek()?;
    Some(logs.sum())
}

/// Compares the median of the second quarter with that of the last: the first is the start-up.
fn levels(samples: &[Value]) -> Value {
    let quarter = samples.len() / 4;
    let median = |of: fn(&Value) -> Option<f64>, skip: usize| {
        let values = samples.iter().skip(skip).take(quarter).filter_map(of).collect();
        spread(values).map(|spread| spread.median)
    };
    let mut levels = serde_json::Map::new();
    for level in &LEVELS {
        let start = median(level.of, quarter);
        let end = median(level.of, samples.len() - quarter);
        let held = start.zip(end).map(|(start, end)| level.held(start, end));
        levels.insert(level.name.into(), json!({ "start": start, "end": end, "level": held }));
    }
    Value::Object(levels)
}

impl Level {
    fn held(&self, start: f64, end: f64) -> bool {
        let bound = start * self.times + self.slack;
        if self.falling { end >= bound } else { end <= bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, p99: f64, rss: f64, log: f64) -> Value {
        json!({
            "per_second": rate,
            "latency_us": { "p99": p99 },
            "rss_bytes": rss,
            "disk_bytes": { "0/log": log, "0/table": log * 9.0, ".": 5 },
        })
    }

    fn verdict(samples: &[Value]) -> [Option<bool>; 4] {
        let levels = levels(samples);
        ["rate", "p99", "rss", "log"].map(|name| levels[name]["level"].as_bool())
    }

    #[test]
    fn what_stays_is_level_and_a_rough_start_does_not_matter() {
        let mut samples = vec![sample(9e4, 9e4, 9e7, 1e9); 3];
        samples.extend(vec![sample(3e4, 4e3, 1e8, 6e8); 13]);
        assert_eq!(verdict(&samples), [Some(true); 4]);
    }

    #[test]
    fn what_grows_or_falls_is_not_level() {
        let samples: Vec<Value> = (0..16)
            .map(f64::from)
            .map(|i| sample(3e4 - i * 1e3, 4e3 + i * 1e3, 1e8 + i * 1e7, 5e8 + i * 1e8))
            .collect();
        assert_eq!(verdict(&samples), [Some(false); 4]);
    }

    #[test]
    fn what_was_not_measured_is_neither() {
        let samples = vec![json!({ "per_second": 1.0, "disk_bytes": { "table": 5 } }); 12];
        assert_eq!(verdict(&samples), [Some(true), None, None, None]);
    }
}
