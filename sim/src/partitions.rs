//! A world of two partitions in one process: tenants over both, each with streams, a subscription,
//! hooks and events, and endpoints that fail and hang.
//!
//! What one tenant is promised the other worlds check. Here it is that partitions keep their
//! promises side by side: whatever was acknowledged is in its tenant's partition and in no other, no
//! number is given out twice in the installation, and the wakes and deliveries of every tenant come,
//! although both partitions share the places for attempts that are under way.
//!
//! ```text
//! workload   what clients ask for
//! request    one command, and what its outcome means
//! endpoint   attempts on their way, and how they are answered
//! audit      what is durable, partition by partition, against what was acknowledged
//! finale     everything is told and delivered
//! engine     what this world calls in the engine
//! ```

mod audit;
mod endpoint;
mod engine;
mod finale;
mod request;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::subscription::Timings;
use reveille_core::{Offset, StreamPath, Tenant};

use crate::base::engine::{EngineSettings, PlacePool, Settings, Timer};
use crate::base::{
    ActionTable, Base, BatchInfo, CheckResult, LocalStorage, Mode, Origin, Request, Setup, World,
};
use audit::NumberedThing;
use endpoint::OutboundAttempt;
use request::{Action, Refusal, TenantRequest};

/// In one process: they crash together.
const PARTITIONS: usize = 2;
const TENANTS: usize = 6;

pub(crate) struct Partitions {
    base: Base<Partitions>,
    settings: EngineSettings,
    concurrency: usize,
    /// Some of each partition.
    tenants: Vec<Tenant>,
    /// What is durable in each partition, as it was last seen.
    seen: [BTreeMap<Bytes, Bytes>; PARTITIONS],
    /// Every number that was ever given out, and for what.
    numbers: BTreeMap<u64, NumberedThing>,

    /// What was acknowledged.
    appended: BTreeMap<(Tenant, StreamPath), BTreeSet<String>>,
    subscribed: BTreeSet<Tenant>,
    hooks: BTreeMap<Tenant, BTreeSet<Arc<str>>>,
    /// Streams whose tail somebody must be told.
    must_tell: BTreeSet<(Tenant, StreamPath)>,
    /// Events, and the hooks that must get them.
    must_deliver: BTreeMap<(Tenant, Arc<str>), BTreeSet<Arc<str>>>,

    attempts: Vec<OutboundAttempt>,
    /// The last tail that an endpoint was told and is done with.
    told: BTreeMap<(Tenant, StreamPath), Offset>,
    /// Events that endpoints have got, by hook.
    delivered: BTreeSet<(Arc<str>, Arc<str>)>,
    number: u64,
}

impl Partitions {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn ask(&mut self, tenant: &Tenant, action: Action) {
        let partition = engine::partition_of(tenant);
        let request = TenantRequest::new(self, tenant.clone(), action);
        self.base.run_on(partition, Origin::Client, Box::new(request));
    }
}

/// Tenants of every partition, as many of each.
fn tenants() -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for partition in 0..PARTITIONS {
        let all = (0..).map(|number| Tenant::parse(&format!("t{number}")).expect("a tenant"));
        let mine = all.filter(|tenant| engine::partition_of(tenant) == partition);
        tenants.extend(mine.take(TENANTS / PARTITIONS));
    }
    tenants
}

impl World for Partitions {
    type Answer = ();
    type Error = Refusal;

    const ACTIONS: ActionTable<Partitions> = &[
        (120, |world| {
            let at = world.base.pick_partition();
            world.make_attempt(at).map(drop)
        }),
        (120, |world| world.answer_attempt().map(drop)),
        (20, |world| {
            let at = world.base.pick_partition();
            engine::refill(world.base.partitions[at].engine());
            Ok(())
        }),
        (10, Partitions::slow_down),
        (2, |world| world.audit_content()),
    ];
    const TURNS_MAX: u32 = 20_000;

    fn new(mut setup: Setup) -> Partitions {
        let mode = Mode::of_large_commands(&mut setup.random, setup.options);
        let mode = Mode { segment_bytes: 256 << 10, clients_max: 6, ..mode };
        let random = &mut setup.random;
        let mode = Mode { steps: random.between(1_000, 4_000), ..mode };
        let fan_out = *random.pick(&[1, 2, 64]);
        let timings = Timings { retry_scale_milli: 100, ..Timings::default() };
        let concurrency = *random.pick(&[2, 5, 4_096]);
        let settings = EngineSettings {
            app: Settings { timings, fan_out, ..Settings::default() },
            min_free_bytes: mode.min_free_bytes,
            waiting_per_hook: Some(*random.pick(&[1, 3, 4_096])),
            ..EngineSettings::default()
        };
        let storages = [(); PARTITIONS].map(|()| LocalStorage::new(random, &mode));
        setup.note(&mode, &format!("{settings:?} places={concurrency}"));
        let mut base = setup.base_without_partitions(mode);
        for storage in storages {
            base.add_partition(Box::new(storage), 0);
        }
        Partitions {
            base,
            settings,
            concurrency,
            tenants: tenants(),
            seen: Default::default(),
            numbers: BTreeMap::new(),
            appended: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            hooks: BTreeMap::new(),
            must_tell: BTreeSet::new(),
            must_deliver: BTreeMap::new(),
            attempts: Vec::new(),
            told: BTreeMap::new(),
            delivered: BTreeSet::new(),
            number: 0,
        }
    }

    fn base(&self) -> &Base<Partitions> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Partitions> {
        &mut self.base
    }

    /// Partitions start in their order: with the first a process begins, and with it its places.
    fn engine_settings(&mut self, partition: usize) -> EngineSettings {
        if partition == 0 {
            self.settings.places = Some(PlacePool::new(self.concurrency, PARTITIONS));
        }
        self.settings.seed = self.base.random.next();
        self.settings.clone()
    }

    fn prepare(&mut self) {
        self.begin();
    }

    fn invent(&mut self) -> CheckResult {
        self.ask_for_something();
        Ok(())
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Partitions>> {
        // A timer belongs to a partition, not to a tenant.
        let nobody = Tenant::default_tenant();
        Box::new(TenantRequest::new(self, nobody, Action::Timer(timer)))
    }

    fn batch_durable(&mut self, partition: usize, _batch: BatchInfo) -> CheckResult {
        self.look_at(partition)
    }

    fn restarted(&mut self, partition: usize) -> CheckResult {
        self.attempts.retain(|open| open.partition != partition);
        self.check_unchanged(partition)
    }

    fn audit(&mut self) -> CheckResult {
        self.audit_content()
    }

    fn settle_turn(&mut self) -> CheckResult<bool> {
        let mut has_moved = false;
        for at in 0..PARTITIONS {
            while self.make_attempt(at)? || engine::refill(self.base.partitions[at].engine()) {
                has_moved = true;
            }
        }
        while self.answer_attempt()? {
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn finale(&mut self) -> CheckResult {
        self.bring_everything()
    }
}
