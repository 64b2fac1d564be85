//! A world of triggers: documents that are written, triggers that are changed, enabled, disabled,
//! rolled back and deleted at any moment, endpoints that fail and hang, and a server that crashes.
//!
//! Of every write a model says whom it is for, by conditions of its own and by the versions that are
//! in force where it is decided. What becomes durable is held against that: every change is delivered
//! to whom it is owed, by that version and to nobody else, however it was found out (by a look that
//! may be old, in the decision, or in slices); of a document nothing is sent before what came before
//! has its end; and the audit log hangs together.
//!
//! ```text
//! workload   what clients and operators ask for
//! action     one command, and what it may come to; request: what its outcome means
//! model      documents and their changes, each with whom it is owed
//! endpoint   attempts on their way, and how they are answered
//! audit      everything durable, against the model
//! finale     everything owed has its end, and what triggers leave is cleared up
//! ```

mod action;
mod audit;
mod endpoint;
mod finale;
mod model;
mod request;
mod workload;

use reveille_core::Tenant;
use reveille_core::delivery::policy::Poison;
use reveille_core::subscription::Timings;

use crate::base::engine::{EngineSettings, Settings, Timer};
use crate::base::{
    ActionTable, Base, BatchInfo, CheckResult, Mode, Origin, Request, Setup, Undurable, World,
};
use action::{Action, Refusal, Told};
use endpoint::OutboundAttempt;
use model::{ChangeModel, Model};
use request::TriggerRequest;

pub(crate) struct Triggers {
    base: Base<Triggers>,
    settings: EngineSettings,
    tenants: [Tenant; 2],
    /// After everything that was decided, and after everything that is durable.
    decided: Model,
    durable: Model,
    /// What was decided and is not durable, by batch.
    undurable: Undurable<ChangeModel>,
    attempts: Vec<OutboundAttempt>,
    number: u64,
    durable_batches: u64,
}

impl Triggers {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn ask(&mut self, action: Action) {
        self.base.run(Origin::Client, TriggerRequest::new(action, None));
    }
}

impl World for Triggers {
    type Answer = Told;
    type Error = Refusal;

    const ACTIONS: ActionTable<Triggers> = &[
        (120, |world| world.make_attempt().map(drop)),
        (20, |world| {
            world.refill();
            Ok(())
        }),
        (120, |world| world.answer_attempt().map(drop)),
        (2, |world| world.audit_all()),
    ];
    const TURNS_MAX: u32 = 20_000;

    fn new(mut setup: Setup) -> Triggers {
        let mode = Mode::of_attempts(&mut setup.random, setup.options);
        let random = &mut setup.random;
        let poison = random.percent(50).then_some(Poison { attempts: 3, within_ms: 250 });
        let timings =
            Timings { retry_scale_milli: *random.pick(&[100, 1_000]), ..Timings::default() };
        let app = Settings {
            timings,
            poison,
            fan_out: *random.pick(&[1, 2, 64]),
            match_steps: *random.pick(&[0, 1, 200, 4_096]),
            ..Settings::default()
        };
        let settings = EngineSettings {
            app,
            min_free_bytes: mode.min_free_bytes,
            slice_bytes: mode.slice_bytes,
            waiting_per_hook: Some(*random.pick(&[1, 3, 4_096])),
            ..EngineSettings::default()
        };
        setup.note(&mode, &format!("{settings:?}"));
        Triggers {
            base: setup.base(mode),
            settings,
            tenants: ["default", "other"].map(|name| Tenant::parse(name).expect("a tenant")),
            decided: Model::default(),
            durable: Model::default(),
            undurable: Undurable::default(),
            attempts: Vec::new(),
            number: 0,
            durable_batches: 0,
        }
    }

    fn base(&self) -> &Base<Triggers> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Triggers> {
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

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Triggers>> {
        Box::new(TriggerRequest::new(Action::Timer(Box::new(timer)), None))
    }

    fn batch_durable(&mut self, _partition: usize, batch: BatchInfo) -> CheckResult {
        for change in self.undurable.take_through(batch.number) {
            self.durable.apply(change);
        }
        self.durable_batches += 1;
        if self.durable_batches.is_multiple_of(8) { self.audit_all() } else { Ok(()) }
    }

    fn rolled_back(&mut self, _partition: usize) {
        self.decided = self.durable.clone();
        self.undurable.clear();
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        self.decided = self.durable.clone();
        self.undurable.clear();
        self.attempts.clear();
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
        self.finish_everything()
    }
}
