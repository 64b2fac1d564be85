//! Gauges of single hooks: of those that are worst off, and of all others together.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use reveille_core::Millis;
use reveille_engine::deliveries::gauges::LoadSum;
use reveille_engine::snapshot::HookGauge;

use super::seconds;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    /// `other` for all that have no gauge of their own.
    hook: String,
    tenant: String,
}

/// A gauge of a hook; `None` where there is nothing to say.
type Gauge = fn(&HookGauge, Millis) -> Option<f64>;

/// The same of all others.
type OthersGauge = fn(&LoadSum) -> Option<u64>;

const GAUGES: &[(&str, &str, Gauge, OthersGauge)] = &[
    (
        "hook_pending",
        "Deliveries of a hook that are not delivered yet.",
        |it, _| Some(count(it.load.open)),
        |others| Some(others.open),
    ),
    (
        "hook_oldest_seconds",
        "Age of the oldest of them.",
        |it, now| it.oldest.map(|oldest| seconds(now.since(oldest))),
        |_| None,
    ),
    (
        "hook_dead_letters",
        "Dead letters of a hook.",
        |it, _| Some(count(it.load.dead_letters)),
        |others| Some(others.dead_letters),
    ),
    (
        "hook_failing_seconds",
        "How long no attempt was accepted, if the last one was not.",
        |it, now| it.load.failing_since.map(|since| seconds(now.since(since))),
        |_| None,
    ),
];

/// Exact up to 2^53.
fn count(count: u64) -> f64 {
    count as f64
}

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    hooks: &[HookGauge],
    others: &LoadSum,
    now: Millis,
) -> fmt::Result {
    for (name, help, gauge, of_others) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for it in hooks {
            let (hook, tenant) = (it.hook.name.to_string(), it.hook.tenant.to_string());
            let labels = HookLabels { hook, tenant };
            if let Some(value) = gauge(it, now) {
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        if let Some(value) = of_others(others).filter(|_| others.hooks > 0) {
            let labels = HookLabels { hook: "other".into(), tenant: String::new() };
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
