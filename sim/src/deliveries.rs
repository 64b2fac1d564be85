//! A world of events, hooks and their deliveries, with endpoints that fail, hang and repeat
//! themselves, and a server that crashes.
//!
//! A model decides a second time what is taken in and whom it is for. Every delivery that becomes
//! durable and every attempt that is made is held against it, and against the promises.
//!
//! ```text
//! workload   what clients ask for
//! request    one command, and what its outcome means
//! model      events and hooks, told once more: who is owed what
//! snapshot   everything durable about hooks, events and deliveries
//! history    what must be true from one snapshot to the next
//! audit      what must be true of one snapshot
//! endpoint   attempts on their way, and how they are answered
//! finale     everything owed is delivered, and in the end nothing is left
//! engine     what this world calls in the engine
//! ```

mod action;
mod audit;
mod endpoint;
mod engine;
mod finale;
mod history;
mod model;
mod request;
mod snapshot;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_core::delivery::Phase;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::subscription::Timings;
use reveille_core::{Millis, Tenant};

use crate::base::engine::{EngineSettings, Settings, Timer};
use crate::base::{
    ActionTable, BEGIN, Base, BatchInfo, CheckResult, Mode, Origin, Request, Setup, Undurable,
    World, violation,
};
use action::{Action, DeliveryAnswer, DeliveryError};
use endpoint::OutboundAttempt;
use engine::{DeliveryOutcome, IngestEvents};
use history::History;
use model::Model;
use request::DeliveryRequest;
use snapshot::Snapshot;

pub(crate) struct Deliveries {
    base: Base<Deliveries>,
    settings: EngineSettings,
    /// Deliveries of one hook that may wait in memory.
    waiting_per_hook: usize,
    tenants: Vec<Tenant>,
    hooks_max: usize,
    events_max: usize,

    /// What is durable, as it was last seen.
    seen: Snapshot,
    history: History,
    /// After everything that was decided, and after everything that is durable.
    decided: Model,
    durable: Model,
    /// What was decided and is not durable, by batch.
    undurable: Undurable<Action>,
    /// Nothing that is not durable was decided before this.
    settled_at: Millis,

    attempts: Vec<OutboundAttempt>,
    /// Deliveries of which an attempt was made.
    attempted: BTreeSet<DeliveryId>,
    /// Deliveries of which an attempt was not made, or of which the answer found no room on the
    /// disk: that they are to be tried again may be noticed only when the lease ends.
    delayed: BTreeSet<DeliveryId>,
    /// Answers that were heard, and will come again.
    echoes: Vec<DeliveryOutcome>,
    /// Tenants with a stream that takes no events.
    unfit: BTreeSet<Tenant>,
    /// Batches with a name.
    named: Vec<IngestEvents>,
    /// How many of all events somebody has asked to forget.
    trims_asked: usize,
    /// Hooks that were asked for and are not there yet.
    hooks_asked: usize,
    /// How often each hook was asked for another pattern.
    repatterned: BTreeMap<Arc<str>, usize>,
    /// Numbers for events, hooks and attempts.
    number: u64,
    durable_batches: u64,
}

impl Deliveries {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn send(&mut self, origin: Origin, action: Action) {
        self.base.run(origin, DeliveryRequest::new(action, None));
    }

    fn ask(&mut self, action: Action) {
        self.send(Origin::Client, action);
    }

    /// After a start, whatever was being tried is to be tried again, if there is room for it.
    fn check_all_recovered(&self) -> CheckResult {
        for (id, it) in &self.seen.deliveries {
            let is_leased = matches!(it.delivery.phase, Phase::Leased { .. });
            let has_hook = self.seen.hooks.contains_key(&id.hook);
            let has_room = self.waiting_per_hook > 1_000;
            if is_leased && has_hook && has_room && !engine::has_delivery(self.base.engine(), *id) {
                return Err(violation(format!("{id:?} is not taken up again")));
            }
        }
        Ok(())
    }
}

impl World for Deliveries {
    type Answer = DeliveryAnswer;
    type Error = DeliveryError;

    const ACTIONS: ActionTable<Deliveries> = &[
        (120, |world| world.make_attempt().map(drop)),
        (20, |world| {
            world.refill();
            Ok(())
        }),
        (120, |world| world.answer_attempt().map(drop)),
        (10, Deliveries::echo),
        (10, Deliveries::slow_down),
    ];
    const TURNS_MAX: u32 = 20_000;

    fn new(mut setup: Setup) -> Deliveries {
        let mode = Mode::of_attempts(&mut setup.random, setup.options);
        let random = &mut setup.random;
        let fan_out = *random.pick(&[1, 2, 3, 64]);
        let match_steps = *random.pick(&[1, 8, 4_096]);
        let timings =
            Timings { retry_scale_milli: *random.pick(&[100, 1_000]), ..Timings::default() };
        let concurrency = *random.pick(&[2, 5, 4_096]);
        let waiting_per_hook = *random.pick(&[1, 2, 5, 4_096]);
        let hooks_max = *random.pick(&[3, 8, 14]);
        let events_max = *random.pick(&[30, 60, 120]);
        let settings = EngineSettings {
            app: Settings {
                timings,
                fan_out,
                match_steps,
                hash_seed: random.next(),
                ..Settings::default()
            },
            seed: 0,
            min_free_bytes: mode.min_free_bytes,
            concurrency: Some(concurrency),
            waiting_per_hook: Some(waiting_per_hook),
            ..EngineSettings::default()
        };
        setup.note(&mode, &format!("{settings:?} hooks={hooks_max} events={events_max}"));
        let tenants = ["default", "other"].map(|name| Tenant::parse(name).expect("a tenant"));
        Deliveries {
            base: setup.base(mode),
            settings,
            waiting_per_hook,
            tenants: tenants.to_vec(),
            hooks_max,
            events_max,
            seen: Snapshot::default(),
            history: History::default(),
            decided: Model::default(),
            durable: Model::default(),
            undurable: Undurable::default(),
            settled_at: BEGIN,
            attempts: Vec::new(),
            attempted: BTreeSet::new(),
            delayed: BTreeSet::new(),
            echoes: Vec::new(),
            unfit: BTreeSet::new(),
            named: Vec::new(),
            trims_asked: 0,
            hooks_asked: 0,
            repatterned: BTreeMap::new(),
            number: 0,
            durable_batches: 0,
        }
    }

    fn base(&self) -> &Base<Deliveries> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Deliveries> {
        &mut self.base
    }

    fn engine_settings(&mut self, _partition: usize) -> EngineSettings {
        self.settings.seed = self.base.random.next();
        self.settings.clone()
    }

    fn prepare(&mut self) {
        self.begin();
    }

    fn invent(&mut self) -> CheckResult {
        self.ask_for_something()
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Deliveries>> {
        Box::new(DeliveryRequest::new(Action::Timer(timer), None))
    }

    fn batch_durable(&mut self, _partition: usize, batch: BatchInfo) -> CheckResult {
        for action in self.undurable.take_through(batch.number) {
            self.durable.apply(&action);
            if matches!(action, Action::Trim { .. }) {
                self.durable.trimmed = self.trims_asked;
            }
        }
        self.settled_at = batch.opened_at;
        let changes = self.seen.advance(&self.base.reader())?;
        self.history.advance(&self.seen, &changes)?;
        self.durable_batches += 1;
        if self.durable_batches.is_multiple_of(4) { self.audit() } else { Ok(()) }
    }

    fn rolled_back(&mut self, _partition: usize) {
        self.decided = self.durable.clone();
        self.undurable.clear();
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        self.seen.check_same(&self.base.reader())?;
        self.settled_at = self.settled_at.min(self.base.now);
        self.attempts.clear();
        self.check_all_recovered()?;
        self.audit()
    }

    fn audit(&mut self) -> CheckResult {
        self.audit_state()
    }

    fn settle_turn(&mut self) -> CheckResult<bool> {
        let mut has_moved = false;
        while self.make_attempt()? || self.refill() || self.answer_attempt()? {
            has_moved = true;
        }
        Ok(has_moved)
    }

    fn finale(&mut self) -> CheckResult {
        self.deliver_everything()
    }
}
