//! What is counted of events and their deliveries, in the text format.

use std::fmt::Write;

use reveille_engine::metrics::{DeliveringSnapshot, Distribution, FAILURE_KINDS, Snapshot};

use super::wakes::{begin, histogram};

/// Adds the metrics of every partition.
pub(super) fn write(text: &mut String, snapshots: &[Snapshot]) {
    begin(text, "events_ingested", "counter", "Events taken in");
    each(snapshots, |partition, delivering| {
        let value = delivering.ingested;
        let _ =
            writeln!(text, "reveille_events_ingested_total{{partition=\"{partition}\"}} {value}");
    });
    begin(text, "hooks", "gauge", "Subscriptions to events");
    each(snapshots, |partition, delivering| {
        let value = delivering.hooks;
        let _ = writeln!(text, "reveille_hooks{{partition=\"{partition}\"}} {value}");
    });
    attempts(text, snapshots);
    let times: [Times; 2] = [
        ("delivery_delay_seconds", "From taking an event in until its first attempt", |s| s.delay),
        ("delivery_attempt_seconds", "Time until an attempt was answered or failed", |s| {
            s.duration
        }),
    ];
    for (name, help, read) in times {
        begin(text, name, "histogram", help);
        each(snapshots, |partition, delivering| {
            histogram(text, name, partition, &read(delivering));
        });
    }
}

/// A distribution of times: name, help, and how to read it.
type Times = (&'static str, &'static str, fn(&DeliveringSnapshot) -> Distribution);

fn each(snapshots: &[Snapshot], mut write: impl FnMut(usize, &DeliveringSnapshot)) {
    for (partition, snapshot) in snapshots.iter().enumerate() {
        write(partition, &snapshot.delivering);
    }
}

fn attempts(text: &mut String, snapshots: &[Snapshot]) {
    begin(text, "delivery_attempts", "counter", "Requests to workers, by result");
    each(snapshots, |partition, delivering| {
        let mut line = |result: &str, kind: &str, value: u64| {
            let labels = format!("partition=\"{partition}\",result=\"{result}\",kind=\"{kind}\"");
            let _ = writeln!(text, "reveille_delivery_attempts_total{{{labels}}} {value}");
        };
        line("delivered", "", delivering.delivered);
        for (kind, count) in FAILURE_KINDS.iter().zip(delivering.failed) {
            line("failed", kind, count);
        }
    });
}
