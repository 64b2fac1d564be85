//! A world of facts: people who join gardens and leave them, tokens and keys that are revoked, and
//! subscribers whose endpoints fail, while the server crashes.
//!
//! A model decides every command a second time and reads the rules plainly. Every look at an attempt
//! is held against it at the very place of the log that was looked at: nothing of a garden leaves to
//! whoever does not belong to it there, and whoever is never cancelled is sent everything that they
//! might read. Nothing but facts themselves holds what was said in a garden.
//!
//! ```text
//! workload   what clients ask for
//! action     what can be asked, and what it may come to
//! request    one command, and what its outcome means
//! model      who belongs where, who is told what, by a plain reading of the rules
//! endpoint   attempts on their way, looked at and answered
//! audit      what must be true of everything durable
//! finale     everything owed is delivered
//! engine     what this world calls in the engine
//! ```

mod action;
mod audit;
mod endpoint;
mod engine;
mod finale;
mod model;
mod request;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::subscription::Timings;

use crate::base::engine::{EngineSettings, Settings, Timer};
use crate::base::{
    ActionTable, Base, BatchInfo, CheckResult, Mode, Origin, Request, Setup, Undurable, World,
};
use action::{Action, Answer, Refusal};
use endpoint::OutboundAttempt;
use model::Model;
use request::FactRequest;

pub(crate) struct Facts {
    base: Base<Facts>,
    settings: EngineSettings,
    events_max: usize,
    /// After everything that was decided, and after everything that is durable.
    decided: Model,
    durable: Model,
    /// What was decided and is not durable, by batch.
    undurable: Undurable<Action>,
    /// The hooks that there were, with their names.
    hooks: BTreeMap<HookId, String>,
    /// Hooks that a look has found to be cancelled.
    may_end: BTreeSet<HookId>,
    attempts: Vec<OutboundAttempt>,
    /// Deliveries of which a look said that they may leave, and those of which one said not.
    sent: BTreeSet<DeliveryId>,
    withheld: BTreeSet<DeliveryId>,
    /// Deliveries of which an attempt was not made, or whose answer found no room.
    delayed: BTreeSet<DeliveryId>,
    /// Everything as it was durable last.
    raw: BTreeMap<Bytes, Bytes>,
    number: u64,
}

impl Facts {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn ask(&mut self, action: Action) {
        self.base.run(Origin::Client, FactRequest::new(action, None));
    }
}

impl World for Facts {
    type Answer = Answer;
    type Error = Refusal;

    const ACTIONS: ActionTable<Facts> = &[
        (120, |world| world.make_attempt().map(drop)),
        (20, |world| {
            world.refill();
            Ok(())
        }),
        (100, |world| world.answer_attempt().map(drop)),
    ];
    const TURNS_MAX: u32 = 20_000;

    fn branches() -> Vec<String> {
        endpoint::BRANCHES.map(str::to_owned).to_vec()
    }

    fn new(mut setup: Setup) -> Facts {
        let mode = Mode { clients: 140, ..Mode::of_attempts(&mut setup.random, setup.options) };
        let random = &mut setup.random;
        let timings =
            Timings { retry_scale_milli: *random.pick(&[100, 1_000]), ..Timings::default() };
        let settings = EngineSettings {
            app: Settings {
                timings,
                fan_out: *random.pick(&[1, 2, 64]),
                match_steps: *random.pick(&[1, 8, 4_096]),
                ..Settings::default()
            },
            min_free_bytes: mode.min_free_bytes,
            concurrency: Some(*random.pick(&[2, 5, 4_096])),
            waiting_per_hook: Some(*random.pick(&[1, 2, 4_096])),
            ..EngineSettings::default()
        };
        let events_max = *random.pick(&[30, 70, 140]);
        setup.note(&mode, &format!("{settings:?} events={events_max}"));
        Facts {
            base: setup.base(mode),
            settings,
            events_max,
            decided: Model::default(),
            durable: Model::default(),
            undurable: Undurable::default(),
            hooks: BTreeMap::new(),
            may_end: BTreeSet::new(),
            attempts: Vec::new(),
            sent: BTreeSet::new(),
            withheld: BTreeSet::new(),
            delayed: BTreeSet::new(),
            raw: BTreeMap::new(),
            number: 0,
        }
    }

    fn base(&self) -> &Base<Facts> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Facts> {
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
        self.ask_for_something();
        Ok(())
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Facts>> {
        Box::new(FactRequest::new(Action::Timer(Box::new(timer)), None))
    }

    fn batch_durable(&mut self, _partition: usize, batch: BatchInfo) -> CheckResult {
        for action in self.undurable.take_through(batch.number) {
            // What it was told was checked when it was decided.
            drop(self.durable.apply(&action));
        }
        self.audit_all()
    }

    fn rolled_back(&mut self, _partition: usize) {
        self.decided = self.durable.clone();
        self.undurable.clear();
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        self.decided = self.durable.clone();
        self.undurable.clear();
        self.attempts.clear();
        self.check_same()?;
        self.check_all_recovered()?;
        self.audit_all()
    }

    fn audit(&mut self) -> CheckResult {
        self.audit_all()
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
