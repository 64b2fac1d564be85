//! What every partition of the engine counts, collected when somebody asks for it.

mod triggers;
mod worst;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use reveille_core::delivery::DeadReason;
use reveille_core::delivery::replay::ReplayResult;
use reveille_engine::Engine;
use reveille_engine::metrics::{BOUNDS_MS, Distribution, FAILURE_KINDS, Snapshot};

/// Reads the metrics of all partitions at one moment.
pub(super) struct EngineCollector {
    pub(super) engine: Engine,
}

impl fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineCollector").finish_non_exhaustive()
    }
}

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, kind, read) in PROCESS {
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            match kind {
                MetricType::Counter => encode_counter(&mut metric, read(&self.engine))?,
                _ => metric.encode_gauge(&read(&self.engine))?,
            }
        }
        encode_snapshots(&mut encoder, &self.engine.snapshots())?;
        worst::encode(&mut encoder, &self.engine)?;
        triggers::encode(&mut encoder, &self.engine)
    }
}

/// A metric of all partitions together: name, help, what it is, and how to read it.
type ProcessMetric = (&'static str, &'static str, MetricType, fn(&Engine) -> u64);

const PROCESS: &[ProcessMetric] = &[
    (
        "spans_dropped",
        "Spans that there was no room for.",
        MetricType::Counter,
        Engine::dropped_spans,
    ),
    ("page_bytes", "Bytes of lists that are made or on their way.", MetricType::Gauge, |engine| {
        count(engine.page_bytes())
    }),
    ("reply_bytes", "Bytes of answers that wait for their clients.", MetricType::Gauge, |engine| {
        count(engine.reply_bytes())
    }),
];

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A metric of every partition: name, help, and how to read it.
type EngineMetric = (&'static str, &'static str, Source);

/// How a metric is read from what a partition counts.
enum Source {
    Counter(fn(&Snapshot) -> u64),
    Gauge(fn(&Snapshot) -> u64),
    /// A gauge for each value of the label `state`.
    States(fn(&Snapshot) -> [(&'static str, u64); 3]),
    /// A counter for each value of the labels `result` and `kind`.
    Attempts(fn(&Snapshot) -> AttemptCounts),
    Histogram(fn(&Snapshot) -> Distribution),
    /// A counter for each value of the label `reason`.
    Reasons(fn(&Snapshot) -> Vec<(&'static str, u64)>),
    /// A counter for each value of the label `result`.
    Results(fn(&Snapshot) -> Vec<(&'static str, u64)>),
}

/// How attempts ended.
struct AttemptCounts {
    /// By result.
    succeeded: Vec<(&'static str, u64)>,
    /// By [`FAILURE_KINDS`].
    failed: [u64; FAILURE_KINDS.len()],
}

const ENGINE: &[EngineMetric] = &[
    ("log_batches", "Batches made durable.", Source::Counter(|s| s.batches)),
    ("log_commands", "Commands answered with them.", Source::Counter(|s| s.commands)),
    ("log_written_bytes", "Bytes of their records.", Source::Counter(|s| s.bytes)),
    ("log_bytes", "Bytes of log segments in use.", Source::Gauge(|s| s.log_bytes)),
    (
        "overlay_bytes",
        "Bytes that the table does not hold yet.",
        Source::Gauge(|s| s.overlay_bytes),
    ),
    ("watched_streams", "Streams with a live reader.", Source::Gauge(|s| s.watched)),
    ("disk_free_bytes", "Room on the disk of the data directory.", Source::Gauge(|s| s.disk_free)),
    (
        "read_only",
        "1 while writes are refused for want of room.",
        Source::Gauge(|s| s.read_only.into()),
    ),
    (
        "timers_set_aside",
        "Obligations that could not be fulfilled and were set aside; `/admin/v1/timers` lists them.",
        Source::Gauge(|s| s.set_aside),
    ),
    (
        "subscriptions",
        "Subscriptions of both dialects.",
        Source::Gauge(|s| s.wakes.subscriptions.all),
    ),
    (
        "subscriptions_largest_tenant",
        "Subscriptions of the tenant that has the most; see --max-subscriptions.",
        Source::Gauge(|s| s.wakes.subscriptions.largest_tenant),
    ),
    ("wakes", "Wakes begun.", Source::Counter(|s| s.wakes.wakes)),
    (
        "wake_attempts",
        "Requests to endpoints, by result.",
        Source::Attempts(|s| {
            let succeeded = vec![("accepted", s.wakes.accepted), ("done", s.wakes.done)];
            AttemptCounts { succeeded, failed: s.wakes.failed }
        }),
    ),
    (
        "wake_delay_seconds",
        "From a wake's decision until it is sent.",
        Source::Histogram(|s| s.wakes.delay),
    ),
    (
        "wake_attempt_seconds",
        "Time until an attempt was answered or failed.",
        Source::Histogram(|s| s.wakes.duration),
    ),
    (
        "consumers",
        "Consumers that are busy.",
        Source::States(|s| {
            let wakes = &s.wakes;
            [("collecting", wakes.collecting), ("waking", wakes.waking), ("live", wakes.live)]
        }),
    ),
    (
        "consumers_fruitless",
        "Times that a consumer was held back because it said again and again that it was done and \
         acknowledged nothing.",
        Source::Counter(|s| s.wakes.fruitless),
    ),
    (
        "consumers_silent",
        "Wakes that were taken on by somebody who was not heard of again in time.",
        Source::Counter(|s| s.wakes.silent),
    ),
    (
        "consumers_given_up",
        "Consumers that were given up because their endpoint failed for too long.",
        Source::Counter(|s| s.wakes.given_up),
    ),
    ("events_ingested", "Events taken in.", Source::Counter(|s| s.deliveries.ingested)),
    ("hooks", "Subscriptions to events.", Source::Gauge(|s| s.deliveries.hooks.all)),
    (
        "hooks_largest_tenant",
        "Subscriptions to events and facts, and triggers, of the tenant that has the most; see --max-hooks.",
        Source::Gauge(|s| s.deliveries.hooks.largest_tenant),
    ),
    (
        "delivery_attempts",
        "Requests to workers, by result.",
        Source::Attempts(|s| AttemptCounts {
            succeeded: vec![("delivered", s.deliveries.delivered)],
            failed: s.deliveries.failed,
        }),
    ),
    (
        "delivery_delay_seconds",
        "From taking an event in until its first attempt.",
        Source::Histogram(|s| s.deliveries.delay),
    ),
    (
        "delivery_attempt_seconds",
        "Time until an attempt was answered or failed.",
        Source::Histogram(|s| s.deliveries.duration),
    ),
    (
        "dead_letters",
        "Deliveries that have become dead letters, by reason.",
        Source::Reasons(|s| {
            DeadReason::ALL.map(DeadReason::code).into_iter().zip(s.deliveries.died).collect()
        }),
    ),
    (
        "replays",
        "Dead letters that replays were to make again, by what became of them.",
        Source::Results(|s| {
            let results = ReplayResult::ALL.map(ReplayResult::code);
            results.into_iter().zip(s.deliveries.replayed).collect()
        }),
    ),
    (
        "outbox",
        "Attempts of wakes and deliveries that wait for their turn, or are on their way.",
        Source::States(|s| {
            let traffic = s.wakes.traffic;
            [
                ("queued", count(traffic.queued)),
                ("quick", count(traffic.quick)),
                ("slow", count(traffic.slow)),
            ]
        }),
    ),
    (
        "outbox_held",
        "Attempts in memory that wait for a limit of their hook or tenant.",
        Source::States(|s| {
            let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
            let held = s.wakes.traffic.held;
            [
                ("rate", count(held.rate)),
                ("concurrency", count(held.concurrency)),
                ("tenant", count(held.tenant)),
            ]
        }),
    ),
    (
        "outbox_dropped",
        "Attempts put off for want of room.",
        Source::Counter(|s| s.wakes.traffic.dropped),
    ),
];

fn encode_snapshots(encoder: &mut DescriptorEncoder<'_>, snapshots: &[Snapshot]) -> fmt::Result {
    for (name, help, source) in ENGINE {
        let kind = match source {
            Source::Counter(_) | Source::Attempts(_) | Source::Reasons(_) | Source::Results(_) => {
                MetricType::Counter
            }
            Source::Gauge(_) | Source::States(_) => MetricType::Gauge,
            Source::Histogram(_) => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for (partition, snapshot) in snapshots.iter().enumerate() {
            encode_metric(&mut metric, source, partition, snapshot)?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabels {
    partition: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    partition: usize,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    partition: usize,
    result: &'static str,
    /// Why it failed; empty if it did not.
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    partition: usize,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    partition: usize,
    result: &'static str,
}

fn encode_metric(
    metric: &mut MetricEncoder<'_>,
    source: &Source,
    partition: usize,
    snapshot: &Snapshot,
) -> fmt::Result {
    let labels = PartitionLabels { partition };
    match source {
        Source::Counter(read) => {
            encode_counter(&mut metric.encode_family(&labels)?, read(snapshot))
        }
        Source::Gauge(read) => metric.encode_family(&labels)?.encode_gauge(&read(snapshot)),
        Source::States(read) => {
            for (state, value) in read(snapshot) {
                let labels = StateLabels { partition, state };
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        }
        Source::Attempts(read) => {
            let AttemptCounts { succeeded, failed } = read(snapshot);
            let succeeded = succeeded.into_iter().map(|(result, count)| (result, "", count));
            let failed = FAILURE_KINDS.into_iter().zip(failed);
            let failed = failed.map(|(kind, count)| ("failed", kind, count));
            for (result, kind, count) in succeeded.chain(failed) {
                let labels = AttemptLabels { partition, result, kind };
                encode_counter(&mut metric.encode_family(&labels)?, count)?;
            }
            Ok(())
        }
        Source::Reasons(read) => read(snapshot).into_iter().try_for_each(|(reason, count)| {
            let labels = ReasonLabels { partition, reason };
            encode_counter(&mut metric.encode_family(&labels)?, count)
        }),
        Source::Results(read) => read(snapshot).into_iter().try_for_each(|(result, count)| {
            let labels = ResultLabels { partition, result };
            encode_counter(&mut metric.encode_family(&labels)?, count)
        }),
        Source::Histogram(read) => {
            encode_histogram(&mut metric.encode_family(&labels)?, &read(snapshot))
        }
    }
}

fn encode_counter(metric: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn encode_histogram(metric: &mut MetricEncoder<'_>, times: &Distribution) -> fmt::Result {
    let bounds = BOUNDS_MS.iter().map(|ms| seconds(*ms)).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
    let count = times.buckets.iter().sum();
    metric.encode_histogram::<NoLabelSet>(seconds(times.sum_ms), count, &buckets, None)
}

/// As floating-point numbers milliseconds are exact up to 2^53.
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct SnapshotCollector(Snapshot);

    impl Collector for SnapshotCollector {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            encode_snapshots(&mut encoder, &[self.0])
        }
    }

    #[test]
    fn buckets_count_everything_below_them() {
        let mut snapshot = Snapshot::default();
        let times = &mut snapshot.wakes.delay;
        times.buckets[0] = 2;
        times.buckets[3] = 1;
        times.buckets[14] = 4;
        times.sum_ms = 12_345;
        let mut registry = Registry::with_prefix("x");
        registry.register_collector(Box::new(SnapshotCollector(snapshot)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines: Vec<&str> =
            text.lines().filter(|line| line.starts_with("x_wake_delay_seconds")).collect();
        assert_eq!(lines[0], "x_wake_delay_seconds_sum{partition=\"0\"} 12.345");
        assert_eq!(lines[1], "x_wake_delay_seconds_count{partition=\"0\"} 7");
        assert_eq!(lines[2], "x_wake_delay_seconds_bucket{le=\"0.001\",partition=\"0\"} 2");
        assert_eq!(lines[5], "x_wake_delay_seconds_bucket{le=\"0.01\",partition=\"0\"} 3");
        assert_eq!(lines[15], "x_wake_delay_seconds_bucket{le=\"30.0\",partition=\"0\"} 3");
        assert_eq!(lines[16], "x_wake_delay_seconds_bucket{le=\"+Inf\",partition=\"0\"} 7");
    }
}
