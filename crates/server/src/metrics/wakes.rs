//! What is counted of wakes, in the text format: results, times, and who is busy.

use std::fmt::Write;

use reveille_engine::metrics::{BOUNDS_MS, Distribution, FAILURE_KINDS, Snapshot, TellingSnapshot};

/// Adds the metrics of every partition.
pub(super) fn write(text: &mut String, snapshots: &[Snapshot]) {
    attempts(text, snapshots);
    let by_state: [Gauge; 2] = [
        ("consumers", "Consumers that are busy", |s| {
            [("collecting", s.collecting), ("waking", s.waking), ("live", s.live)]
        }),
        (
            "outbox",
            "Attempts of wakes and deliveries that wait for their turn, or are on their way",
            |s| {
                let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
                let traffic = s.traffic;
                [
                    ("queued", count(traffic.queued)),
                    ("quick", count(traffic.quick)),
                    ("slow", count(traffic.slow)),
                ]
            },
        ),
    ];
    for (name, help, read) in by_state {
        begin(text, name, "gauge", help);
        each(snapshots, |partition, telling| {
            for (state, value) in read(telling) {
                let labels = format!("partition=\"{partition}\",state=\"{state}\"");
                let _ = writeln!(text, "reveille_{name}{{{labels}}} {value}");
            }
        });
    }
    let times: [Times; 2] = [
        ("wake_delay_seconds", "From a wake's decision until it is sent", |s| s.delay),
        ("wake_attempt_seconds", "Time until an attempt was answered or failed", |s| s.duration),
    ];
    for (name, help, read) in times {
        begin(text, name, "histogram", help);
        each(snapshots, |partition, telling| histogram(text, name, partition, &read(telling)));
    }
}

/// A gauge by state: name, help, and how to read it.
type Gauge = (&'static str, &'static str, fn(&TellingSnapshot) -> [(&'static str, u64); 3]);
/// A distribution of times: name, help, and how to read it.
type Times = (&'static str, &'static str, fn(&TellingSnapshot) -> Distribution);

pub(super) fn begin(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP reveille_{name} {help}.");
    let _ = writeln!(text, "# TYPE reveille_{name} {kind}");
}

fn each(snapshots: &[Snapshot], mut write: impl FnMut(usize, &TellingSnapshot)) {
    for (partition, snapshot) in snapshots.iter().enumerate() {
        write(partition, &snapshot.telling);
    }
}

fn attempts(text: &mut String, snapshots: &[Snapshot]) {
    begin(text, "wake_attempts", "counter", "Requests to endpoints, by result");
    each(snapshots, |partition, telling| {
        let mut line = |result: &str, kind: &str, value: u64| {
            let labels = format!("partition=\"{partition}\",result=\"{result}\",kind=\"{kind}\"");
            let _ = writeln!(text, "reveille_wake_attempts_total{{{labels}}} {value}");
        };
        line("accepted", "", telling.accepted);
        line("done", "", telling.done);
        for (kind, count) in FAILURE_KINDS.iter().zip(telling.failed) {
            line("failed", kind, count);
        }
    });
}

pub(super) fn histogram(text: &mut String, name: &str, partition: usize, times: &Distribution) {
    let mut below = 0;
    let bounds = BOUNDS_MS.iter().map(|ms| seconds(*ms)).chain([String::from("+Inf")]);
    for (bound, count) in bounds.zip(times.buckets) {
        below += count;
        let labels = format!("partition=\"{partition}\",le=\"{bound}\"");
        let _ = writeln!(text, "reveille_{name}_bucket{{{labels}}} {below}");
    }
    let sum = seconds(times.sum_ms);
    let _ = writeln!(text, "reveille_{name}_sum{{partition=\"{partition}\"}} {sum}");
    let _ = writeln!(text, "reveille_{name}_count{{partition=\"{partition}\"}} {below}");
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_everything_below_them() {
        let mut times = Distribution::default();
        times.buckets[0] = 2;
        times.buckets[3] = 1;
        times.buckets[14] = 4;
        times.sum_ms = 12_345;
        let mut text = String::new();
        histogram(&mut text, "x", 0, &times);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "reveille_x_bucket{partition=\"0\",le=\"0.001\"} 2");
        assert_eq!(lines[3], "reveille_x_bucket{partition=\"0\",le=\"0.010\"} 3");
        assert_eq!(lines[13], "reveille_x_bucket{partition=\"0\",le=\"30.000\"} 3");
        assert_eq!(lines[14], "reveille_x_bucket{partition=\"0\",le=\"+Inf\"} 7");
        assert_eq!(lines[15], "reveille_x_sum{partition=\"0\"} 12.345");
        assert_eq!(lines[16], "reveille_x_count{partition=\"0\"} 7");
    }
}
