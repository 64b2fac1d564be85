//! A world of a face that no server has, on the delivery engine as it is: its source of events, its
//! matcher, its policy, its gate and its encoder are in [`face`], and nothing else knows of it.
//!
//! A model decides a second time what has come and who is owed it. Endpoints fail, refuse, hang and
//! end their hooks; the server crashes. Whatever is sent is held against the model: that it is owed,
//! that nothing of its lane is overtaken, that no gate was closed, that the encoder's words are right.
//!
//! ```text
//! face       the face
//! workload   what clients ask for
//! action     one command; request: what its outcome means
//! model      reminders and hooks, told once more
//! snapshot   everything durable; audit: what must be true of it
//! endpoint   attempts on their way, and how they are answered; appends: those that are commands
//! limits     how many, and how soon; words: what is said, as it must be
//! branches   what must be seen of all that over many seeds
//! finale     everybody is told, and in the end nothing is left
//! ```

mod action;
mod appends;
mod audit;
mod branches;
mod endpoint;
mod face;
mod finale;
mod limits;
mod model;
mod request;
mod snapshot;
mod words;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::subscription::Timings;
use reveille_engine::effect::AttemptKey;
use reveille_engine::encoder::DeliveryEncoders;

use crate::base::engine::{EngineSettings, Settings, Timer};
use crate::base::{
    ActionTable, Base, BatchInfo, CheckResult, Mode, Origin, Request, Setup, Undurable, World,
    violation,
};
use action::{Action, ReminderError};
use appends::{Appends, DecidedAppends};
use endpoint::OutboundAttempt;
use face::SigningKeys;
use limits::Pace;
use model::Model;
use request::ReminderRequest;
use snapshot::Snapshot;

/// Endpoints and streams of a tenant.
const ENDPOINTS: u8 = 4;
/// Explanations are asked for at one look out of so many: of each event for each hook.
const EXPLAINED_EVERY: u64 = 32;

pub(crate) struct Reminders {
    base: Base<Reminders>,
    settings: EngineSettings,
    encoders: DeliveryEncoders,
    signing_keys: Arc<SigningKeys>,
    tenants: Vec<Tenant>,
    hooks_max: usize,
    reminders_max: u64,

    /// What is durable, as it was last seen.
    seen: Snapshot,
    /// After everything that was decided, and after everything that is durable.
    decided: Model,
    durable: Model,
    /// What was decided and is not durable, by batch.
    undurable: Undurable<Action>,

    attempts: Vec<OutboundAttempt>,
    pace: Pace,
    sent: BTreeSet<DeliveryId>,
    /// Deliveries that an endpoint has accepted.
    accepted: BTreeSet<DeliveryId>,
    /// Deliveries that may be tried again only when their lease ends.
    delayed: BTreeSet<DeliveryId>,
    /// Hooks whose endpoint has answered that it wants nothing more.
    rejecting: BTreeSet<HookId>,
    appends: Appends,
    /// Whether clients have closed streams.
    closes_streams: bool,
    /// Hooks of which deliveries were given up that had waited.
    ever_expired: BTreeSet<HookId>,
    /// Hooks that were ended otherwise than by their owner.
    ended: BTreeSet<Arc<str>>,
    ever_muted: BTreeSet<(Tenant, Arc<str>)>,
    ever_revoked: BTreeSet<Arc<str>>,
    /// The numbers of all hooks that ever were.
    ids: BTreeMap<Arc<str>, HookId>,
    reminders: u64,
    hooks: usize,
    number: u64,
    /// Dead letters are older than they are kept.
    is_forgetting: bool,
    /// How often everything was looked at.
    audits: u64,
}

impl Reminders {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn ask(&mut self, action: Action) {
        self.base.run(Origin::Client, ReminderRequest::new(action, None));
    }

    fn retry_scale_milli(&self) -> u64 {
        self.settings.app.timings.retry_scale_milli
    }

    /// Whether an endpoint or a gate may have ended a hook.
    fn may_be_ended(&self, name: &Arc<str>) -> bool {
        let is_rejected = self.ids.get(name).is_some_and(|id| self.rejecting.contains(id));
        let ends_when_closed = |model: &Model| {
            model.hooks.get(name).is_some_and(|it| it.spec().style.ends_when_closed())
        };
        let is_closed = ends_when_closed(&self.durable) || ends_when_closed(&self.decided);
        is_rejected
            || self.ever_revoked.contains(name)
            || self.ended.contains(name)
            || (is_closed && self.closes_streams)
    }

    /// Hooks that their endpoints have ended are no more.
    fn forget_ended_hooks(&mut self) -> CheckResult {
        let known: BTreeSet<_> = self.seen.hooks.values().map(|hook| hook.name.clone()).collect();
        let names: Vec<_> = self.durable.hooks.keys().cloned().collect();
        for name in names.into_iter().filter(|name| !known.contains(name)) {
            if !self.may_be_ended(&name) {
                return Err(violation(format!("{name} is gone, and nobody has ended it")));
            }
            self.durable.hooks.remove(&name);
            self.decided.hooks.remove(&name);
            self.ended.insert(name);
        }
        Ok(())
    }

    /// After a start, whatever was being tried is to be tried again, if there is room for it.
    fn check_all_recovered(&self) -> CheckResult {
        let outbox = &self.base.engine().shared().outbox;
        let has_room = self.settings.waiting_per_hook.is_some_and(|room| room > 1_000);
        for (id, it) in self.seen.deliveries.iter().filter(|_| has_room) {
            let is_leased = matches!(it.delivery.phase, Phase::Leased { .. });
            let has_hook = self.seen.hooks.contains_key(&id.hook);
            if is_leased && has_hook && !outbox.knows(&AttemptKey::Delivery(*id)) {
                return Err(violation(format!("{id:?} is not taken up again")));
            }
        }
        Ok(())
    }
}

impl World for Reminders {
    type Answer = ();
    type Error = ReminderError;

    const ACTIONS: ActionTable<Reminders> = &[
        (120, |world| world.make_attempt().map(drop)),
        (20, |world| {
            world.refill();
            Ok(())
        }),
        (120, |world| world.answer_attempt().map(drop)),
        (2, |world| {
            world.signing_keys.replace();
            Ok(())
        }),
    ];
    const TURNS_MAX: u32 = 20_000;

    fn branches() -> Vec<String> {
        branches::all()
    }

    fn new(mut setup: Setup) -> Reminders {
        let mode = Mode::of_large_commands(&mut setup.random, setup.options);
        let mode = Mode {
            operations: 600,
            clients: 70,
            timers: 80,
            segment_bytes: *setup.random.pick(&[128, 256]) << 10,
            steps: setup.random.between(600, 3_000),
            ..mode
        };
        let random = &mut setup.random;
        let retry_scale_milli = *random.pick(&[100, 1_000]);
        let timings = Timings { retry_scale_milli, ..Timings::default() };
        let settings = EngineSettings {
            app: Settings { timings, fan_out: *random.pick(&[1, 3, 64]), ..Settings::default() },
            min_free_bytes: mode.min_free_bytes,
            concurrency: Some(*random.pick(&[2, 5, 4_096])),
            waiting_per_hook: Some(*random.pick(&[1, 2, 5, 4_096])),
            tenant_concurrency: Some(*random.pick(&[1, 2, 64])),
            faces: Some(face::register),
            ..EngineSettings::default()
        };
        let hooks_max = *random.pick(&[2, 5, 9]);
        let reminders_max = *random.pick(&[20, 50, 90]);
        setup.note(&mode, &format!("hooks={hooks_max} reminders={reminders_max}"));
        let tenants = ["default", "other"].map(|name| Tenant::parse(name).expect("a tenant"));
        Reminders {
            base: setup.base(mode),
            settings,
            encoders: face::encoders(),
            signing_keys: Arc::default(),
            tenants: tenants.to_vec(),
            hooks_max,
            reminders_max,
            seen: Snapshot::default(),
            decided: Model::default(),
            durable: Model::default(),
            undurable: Undurable::default(),
            attempts: Vec::new(),
            pace: Pace::default(),
            sent: BTreeSet::new(),
            accepted: BTreeSet::new(),
            delayed: BTreeSet::new(),
            rejecting: BTreeSet::new(),
            appends: Appends::default(),
            closes_streams: false,
            ever_expired: BTreeSet::new(),
            ended: BTreeSet::new(),
            ever_muted: BTreeSet::new(),
            ever_revoked: BTreeSet::new(),
            ids: BTreeMap::new(),
            reminders: 0,
            hooks: 0,
            number: 0,
            is_forgetting: false,
            audits: 0,
        }
    }

    fn base(&self) -> &Base<Reminders> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Reminders> {
        &mut self.base
    }

    fn engine_settings(&mut self, _partition: usize) -> EngineSettings {
        self.settings.seed = self.base.random.next();
        self.settings.clone()
    }

    fn prepare(&mut self) {
        for _ in 0..self.hooks_max {
            self.create_hook();
        }
    }

    fn invent(&mut self) -> CheckResult {
        self.ask_for_something();
        Ok(())
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Reminders>> {
        self.take_timer(&timer);
        Box::new(ReminderRequest::new(Action::Timer(Box::new(timer)), None))
    }

    fn batch_durable(&mut self, _partition: usize, batch: BatchInfo) -> CheckResult {
        let mut appends = DecidedAppends::default();
        for action in self.undurable.take_through(batch.number) {
            appends.note(&self.durable, &self.seen, &action);
            self.durable.apply(&action);
        }
        let now = Snapshot::read(&self.base.reader())?;
        self.check_changes(&now)?;
        self.check_appends(&now, &appends)?;
        self.take_changes(&now, &appends);
        self.seen = now;
        self.ids.extend(self.seen.hooks.values().map(|hook| (hook.name.clone(), hook.id)));
        self.forget_ended_hooks()?;
        self.audit()
    }

    fn rolled_back(&mut self, _partition: usize) {
        self.decided = self.durable.clone();
        self.undurable.clear();
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        self.seen.check_same(&self.base.reader())?;
        self.check_same_streams()?;
        self.attempts.clear();
        self.pace = Pace::default();
        self.check_all_recovered()?;
        self.audit_explanations()?;
        self.audit()
    }

    fn audit(&mut self) -> CheckResult {
        self.audits += 1;
        if self.audits.is_multiple_of(EXPLAINED_EVERY) {
            self.audit_explanations()?;
        }
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
        self.tell_everybody()
    }
}
