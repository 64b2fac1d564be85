//! Gauges of single hooks and subscriptions: of those that are worst off, and of all others together.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use reveille_core::Millis;
use reveille_core::consumer::Dialect;
use reveille_core::subscription::Subscription;
use reveille_engine::Engine;
use reveille_engine::deliveries::gauges::LoadSum;
use reveille_engine::snapshot::HookGauge;
use reveille_engine::wakes::gauges::{SubscriptionLoad, SubscriptionLoadSum};

use super::seconds;

/// Hooks, and subscriptions, that have gauges of their own; the others share one of each.
const SERIES_MAX: usize = 100;
/// What all that have no gauge of their own are called.
const OTHER: &str = "other";

/// A gauge: its name, what it says, how it is read of one (`None` where there is nothing to say), and
/// of all others together.
type Gauge<T, S> =
    (&'static str, &'static str, fn(&T, Millis) -> Option<f64>, fn(&S) -> Option<u64>);

type Labels = Vec<(&'static str, String)>;

const HOOKS: &[Gauge<HookGauge, LoadSum>] = &[
    (
        "hook_pending",
        "Deliveries of a hook that are not delivered yet.",
        |it, _| Some(count(it.load.open)),
        |others| Some(others.open),
    ),
    ("hook_oldest_seconds", "Age of the oldest of them.", |it, now| age(it.oldest, now), |_| None),
    (
        "hook_dead_letters",
        "Dead letters of a hook.",
        |it, _| Some(count(it.load.dead_letters)),
        |others| Some(others.dead_letters),
    ),
    (
        "hook_failing_seconds",
        "How long no attempt was accepted, if the last one was not.",
        |it, now| age(it.load.failing_since, now),
        |_| None,
    ),
];

const SUBSCRIPTIONS: &[Gauge<SubscriptionLoad, SubscriptionLoadSum>] = &[
    (
        "subscription_pending",
        "Consumers of a subscription that have work which is not done.",
        |it, _| Some(count(it.pending)),
        |others| Some(others.pending),
    ),
    (
        "subscription_oldest_seconds",
        "How long the one has it that has had it for longest.",
        |it, now| age(it.pending_since, now),
        |_| None,
    ),
    (
        "subscription_failing",
        "Consumers of a subscription whose endpoint did not take the last wake.",
        |it, _| Some(count(it.failing)),
        |others| Some(others.failing),
    ),
    (
        "subscription_failing_seconds",
        "How long the endpoint of the first of these has taken none.",
        |it, now| age(it.failing_since, now),
        |_| None,
    ),
    (
        "subscription_given_up",
        "Consumers of a subscription that were given up and can be revived.",
        |it, _| Some(count(it.given_up)),
        |others| Some(others.given_up),
    ),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, engine: &Engine) -> fmt::Result {
    let now = engine.clock().now();
    let (hooks, others) = engine.worst_hooks(SERIES_MAX);
    let others = (others.hooks > 0).then_some((vec![("hook", OTHER.to_owned())], others));
    let labeled = hooks.into_iter().map(|it| {
        let labels =
            vec![("hook", it.hook.name.to_string()), tenant_label(it.hook.tenant.as_str())];
        (labels, it)
    });
    encode_all(encoder, HOOKS, &labeled.collect::<Vec<_>>(), others, now)?;
    let (subscriptions, others) = engine.worst_subscriptions(SERIES_MAX);
    let labels = vec![("subscription", OTHER.to_owned()), ("dialect", String::new())];
    let others = (others.subscriptions > 0).then_some((labels, others));
    let labeled = subscriptions.into_iter().map(|(it, load)| (labels_of(&it), load));
    encode_all(encoder, SUBSCRIPTIONS, &labeled.collect::<Vec<_>>(), others, now)
}

fn labels_of(subscription: &Subscription) -> Labels {
    let spec = &subscription.spec;
    let dialect = match spec.dialect {
        Dialect::Webhooks => "webhooks",
        Dialect::Leases => "leases",
    };
    let name = ("subscription", spec.name.to_string());
    vec![name, ("dialect", dialect.to_owned()), tenant_label(subscription.tenant.as_str())]
}

fn tenant_label(tenant: &str) -> (&'static str, String) {
    ("tenant", tenant.to_owned())
}

fn encode_all<T, S>(
    encoder: &mut DescriptorEncoder<'_>,
    gauges: &[Gauge<T, S>],
    all: &[(Labels, T)],
    others: Option<(Labels, S)>,
    now: Millis,
) -> fmt::Result {
    let others = others.map(|(mut labels, sum)| {
        labels.push(tenant_label(""));
        (labels, sum)
    });
    for (name, help, gauge, of_others) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, it) in all {
            if let Some(value) = gauge(it, now) {
                metric.encode_family(labels)?.encode_gauge(&value)?;
            }
        }
        if let Some((labels, sum)) = &others
            && let Some(value) = of_others(sum)
        {
            metric.encode_family(labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

/// Exact up to 2^53.
fn count(count: u64) -> f64 {
    count as f64
}

fn age(since: Option<Millis>, now: Millis) -> Option<f64> {
    since.map(|since| seconds(now.since(since)))
}
