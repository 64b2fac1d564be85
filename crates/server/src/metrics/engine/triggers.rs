//! What is counted of single triggers (OBS-1): of the first of each tenant, and of its others together.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use reveille_core::delivery::replay::ReplayResult;
use reveille_engine::Engine;
use reveille_engine::metrics::ATTEMPT_STATUSES;
use reveille_engine::triggers::status::TriggerGauge;

use super::{encode_counter, encode_histogram};

/// Triggers of a tenant that are counted by themselves.
const PER_TENANT_MAX: usize = 1_000;
/// Triggers of all tenants that are: each is two dozen lines.
const SERIES_MAX: usize = 10_000;
/// What all are called that are not.
const OTHER: &str = "other";

type Labels = Vec<(&'static str, String)>;

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, engine: &Engine) -> fmt::Result {
    let gauges = engine.trigger_gauges(PER_TENANT_MAX, SERIES_MAX).unwrap_or_else(|damaged| {
        tracing::error!(cause = damaged.0, "the counts of triggers could not be read");
        Vec::new()
    });
    let mut counter = |name: &str, help: &str, of: &dyn Fn(&TriggerGauge) -> Vec<(Labels, u64)>| {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        let all = gauges.iter().flat_map(of);
        all.into_iter().try_for_each(|(labels, count)| {
            encode_counter(&mut metric.encode_family(&labels)?, count)
        })
    };
    counter("trigger_delivery", "Attempts of a trigger, by what they were answered.", &|it| {
        let counts = ATTEMPT_STATUSES.into_iter().zip(it.totals.attempts);
        counts.map(|(status, count)| (labels_with(it, "status", status), count)).collect()
    })?;
    counter(
        "trigger_delivery_retries",
        "Those of them that were not the first of their delivery.",
        &|it| vec![(labels(it), it.totals.retries)],
    )?;
    counter(
        "trigger_eval",
        "Changes that a trigger was held against and that matched, of which its condition was \
         false, or of which it came to nothing.",
        &|it| {
            let counts = [
                ("match", it.matched),
                ("no_match", it.missed),
                ("error", it.totals.evaluation_errors),
            ];
            counts.map(|(result, count)| (labels_with(it, "result", result), count)).to_vec()
        },
    )?;
    counter(
        "trigger_replay",
        "Deliveries of a trigger that replays have made, by what they have come to.",
        &|it| {
            let counts = ReplayResult::ALL.into_iter().zip(it.totals.replays);
            // Those that were not made again are none of a trigger's deliveries.
            let made = counts.filter(|(result, _)| *result != ReplayResult::Skipped);
            made.map(|(result, count)| (labels_with(it, "result", result.code()), count)).collect()
        },
    )?;
    counter(
        "trigger_rollbacks",
        "Versions of a trigger that were rolled back because they missed their objective.",
        &|it| vec![(labels(it), it.totals.rollbacks)],
    )?;
    let help = "Dead letters of a trigger.";
    let mut metric =
        encoder.encode_descriptor("trigger_dlq_size", help, None, MetricType::Gauge)?;
    for it in &gauges {
        metric.encode_family(&labels(it))?.encode_gauge(&it.dead_letters)?;
    }
    let (name, help) =
        ("trigger_delivery_duration_seconds", "How long attempts of a trigger took.");
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for it in &gauges {
        encode_histogram(&mut metric.encode_family(&labels(it))?, &it.totals.duration)?;
    }
    Ok(())
}

fn labels(gauge: &TriggerGauge) -> Labels {
    let id = gauge.id.as_deref().unwrap_or(OTHER);
    vec![("tenant", gauge.tenant.to_string()), ("triggerId", id.to_owned())]
}

fn labels_with(gauge: &TriggerGauge, name: &'static str, value: &str) -> Labels {
    let mut labels = labels(gauge);
    labels.push((name, value.to_owned()));
    labels
}
