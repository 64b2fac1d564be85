//! Every partition at one moment, for those who watch.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::subscription::{Subscription, SubscriptionId};

use crate::app::Shared;
use crate::deliveries::gauges::{HookGauges, HookLoad, LoadSum};
use crate::deliveries::index::HookIndex;
use crate::engine::Engine;
use crate::metrics::{DeliveryMetrics, Population, Snapshot, WakeMetrics};
use crate::quota::TenantCounts;
use crate::streams::live::LiveReaders;
use crate::wakes::gauges::{SubscriptionGauges, SubscriptionLoad, SubscriptionLoadSum};
use crate::wakes::index::SubscriptionIndex;

/// A hook, how much of it is open or given up, and since when.
#[derive(Debug, Clone)]
pub struct HookGauge {
    pub hook: Arc<Hook>,
    pub load: HookLoad,
    /// When the oldest open delivery began, as far as it was found.
    pub oldest: Option<Millis>,
}

impl Engine {
    /// The hooks that are worst off, at most so many, and all others together.
    pub fn worst_hooks(&self, limit: usize) -> (Vec<HookGauge>, LoadSum) {
        let (mut all, mut others) = (Vec::new(), LoadSum::default());
        for shared in self.partitions() {
            let gauges = shared.domains.part::<HookGauges>();
            let worst = gauges.worst(limit / self.partitions().len().max(1));
            others.merge(&worst.others);
            let oldest = gauges.oldest(&shared.state.reader(), &worst.first);
            let oldest = oldest.unwrap_or_else(|error| {
                tracing::error!(%error, "deliveries cannot be read");
                HashMap::new()
            });
            let partition = shared.lock();
            let known = partition.index.of::<HookIndex>();
            for (id, load) in &worst.first {
                let oldest = oldest.get(id).copied();
                match known.get(*id).cloned() {
                    Some(hook) => all.push(HookGauge { hook, load: *load, oldest }),
                    // It has ended.
                    None => others.add(load),
                }
            }
        }
        (all, others)
    }

    /// The subscriptions to streams that are worst off, at most so many, and all others together.
    pub fn worst_subscriptions(
        &self,
        limit: usize,
    ) -> (Vec<(Arc<Subscription>, SubscriptionLoad)>, SubscriptionLoadSum) {
        let (mut all, mut others) = (Vec::new(), SubscriptionLoadSum::default());
        for shared in self.partitions() {
            let gauges = shared.domains.part::<SubscriptionGauges>();
            let worst = gauges.worst(limit / self.partitions().len().max(1));
            others.merge(&worst.others);
            let partition = shared.lock();
            let known = partition.index.of::<SubscriptionIndex>();
            // One that was ended leaves consumers behind for a moment.
            let of = |(id, load): &(SubscriptionId, SubscriptionLoad)| {
                Some((known.get(*id)?.clone(), *load))
            };
            all.extend(worst.first.iter().filter_map(of));
        }
        (all, others)
    }

    /// Every partition at this moment.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.partitions().iter().map(|shared| snapshot(shared)).collect()
    }
}

fn snapshot(shared: &Shared) -> Snapshot {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let (read_only, subscriptions, hooks) = {
        let partition = shared.lock();
        let subscriptions = partition.index.of::<SubscriptionIndex>();
        let hooks = partition.index.of::<HookIndex>();
        let population = |all: usize, counts: &TenantCounts| Population {
            all: count(all),
            largest_tenant: count(counts.largest()),
        };
        (
            partition.read_only,
            population(subscriptions.len(), subscriptions.counts()),
            population(hooks.len(), hooks.counts()),
        )
    };
    let (counters, domains) = (&shared.counters, &shared.domains);
    Snapshot {
        batches: counters.batches.load(Ordering::Relaxed),
        commands: counters.commands.load(Ordering::Relaxed),
        bytes: counters.bytes.load(Ordering::Relaxed),
        disk_free: counters.disk_free.load(Ordering::Relaxed),
        set_aside: counters.set_aside.load(Ordering::Relaxed),
        log_bytes: shared.log_bytes.load(Ordering::Relaxed),
        overlay_bytes: count(shared.state.overlay_bytes().total()),
        watched: count(domains.part::<LiveReaders>().len()),
        read_only,
        wakes: domains.part::<WakeMetrics>().snapshot(shared.outbox.traffic(), subscriptions),
        deliveries: domains.part::<DeliveryMetrics>().snapshot(hooks),
    }
}
