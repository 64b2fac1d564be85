//! Every partition at one moment, for those who watch.

use std::sync::atomic::Ordering;

use crate::app::Shared;
use crate::deliveries::index::HookIndex;
use crate::engine::Engine;
use crate::metrics::{DeliveryMetrics, Population, Snapshot, WakeMetrics};
use crate::quota::TenantCounts;
use crate::streams::live::LiveReaders;
use crate::wakes::index::SubscriptionIndex;

impl Engine {
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
