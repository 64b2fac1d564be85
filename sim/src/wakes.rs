//! A world of subscriptions and their consumers, with endpoints that lie and a server that
//! crashes.
//!
//! There is no model that foretells every step of a consumer; the promises themselves are held
//! against everything that becomes durable, everything that is told, and everything that is said
//! to a consumer.
//!
//! ```text
//! workload       what clients ask for
//! request        one command, and what its outcome means
//! snapshot       everything durable about streams, subscriptions and consumers, read at once
//! audit          what must be true of one snapshot
//! history        what must be true from one snapshot to the next: epochs, wake ids, acks
//! start_offsets  who is told of a stream for the first time, and from where on
//! endpoint       attempts on their way, and how they are answered
//! agent          whoever was woken, and what it reports
//! oracle         whether a report must be heard
//! finale         everybody is told of everything, and in the end nothing is left
//! engine         what this world calls in the engine
//! ```

mod action;
mod agent;
mod audit;
mod endpoint;
mod engine;
mod finale;
mod history;
mod oracle;
mod request;
mod snapshot;
mod start_offsets;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::stream::StreamId;
use reveille_core::subscription::Timings;
use reveille_core::{StreamPath, Tenant};

use crate::base::engine::{EngineSettings, Settings, Timer};
use crate::base::{
    ActionTable, Base, BatchInfo, CheckResult, Mode, Origin, Request, Setup, World, raw_state,
};
use action::{Action, TokenAction, WakeAnswer, WakeError};
use agent::Agent;
use endpoint::OutboundAttempt;
use history::History;
use request::{Sender, WakeRequest};
use snapshot::Snapshot;
use start_offsets::StartOffsets;

pub(crate) struct Wakes {
    base: Base<Wakes>,
    timings: Timings,
    /// How many consumers are told at once.
    fan_out: usize,
    /// What finding them may take.
    match_steps: usize,
    /// How many names there are for subscriptions.
    names: usize,
    tenant: Tenant,
    paths: Vec<StreamPath>,

    /// What is durable, as it was last seen.
    seen: Snapshot,
    history: History,
    start_offsets: StartOffsets,

    attempts: Vec<OutboundAttempt>,
    agents: Vec<Agent>,
    /// By incarnation: appends that somebody was told of.
    acknowledged: BTreeMap<StreamId, BTreeSet<String>>,
    /// Numbers for appends, agents, attempts and reports.
    number: u64,
}

impl Wakes {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn send(&mut self, origin: Origin, sender: Sender, action: Action) {
        let asked = TokenAction { tenant: self.tenant.clone(), action, tokens: Vec::new() };
        self.send_tokens(origin, sender, asked);
    }

    /// Sends something that appends.
    fn send_tokens(&mut self, origin: Origin, sender: Sender, asked: TokenAction) {
        self.base.run(origin, WakeRequest::new(asked, sender));
    }

    fn ask(&mut self, action: Action) {
        self.send(Origin::Client, Sender::Anybody, action);
    }
}

impl World for Wakes {
    type Answer = WakeAnswer;
    type Error = WakeError;

    const ACTIONS: ActionTable<Wakes> = &[
        (60, |world| world.make_attempt().map(drop)),
        (60, |world| world.answer_attempts().map(drop)),
        (80, |world| world.act().map(drop)),
        (2, |world| world.audit_content()),
    ];
    const TURNS_MAX: u32 = 5_000;

    fn new(mut setup: Setup) -> Wakes {
        let mode = Mode::of_large_commands(&mut setup.random, setup.options);
        let random = &mut setup.random;
        let timings = Timings {
            webhook_timeout_ms: 8_000,
            waking_timeout_ms: *random.pick(&[5_000, 10_000]),
            liveness_timeout_ms: *random.pick(&[5_000, 45_000]),
            token_ttl_ms: *random.pick(&[20_000, 120_000, 3_600_000]),
            give_up_after_ms: *random.pick(&[60_000, 3 * 86_400_000, 3 * 86_400_000]),
            keep_given_up_ms: 7_200_000,
            retry_scale_milli: *random.pick(&[100, 1_000]),
        };
        let fan_out = *random.pick(&[1, 2, 3, 64]);
        let match_steps = *random.pick(&[1, 8, 4_096]);
        let names = *random.pick(&[3, 6, 8]);
        let note = format!("{timings:?} fan_out={fan_out} match_steps={match_steps} names={names}");
        setup.note(&mode, &note);
        let paths = ["/a/0", "/a/1", "/a/2", "/b/0", "/b/1", "/wake/0"];
        let paths = paths.map(|name| StreamPath::parse(name).expect("a path"));
        Wakes {
            base: setup.base(mode),
            timings,
            fan_out,
            match_steps,
            names,
            tenant: Tenant::default_tenant(),
            paths: paths.to_vec(),
            seen: Snapshot::default(),
            history: History::default(),
            start_offsets: StartOffsets::default(),
            attempts: Vec::new(),
            agents: Vec::new(),
            acknowledged: BTreeMap::new(),
            number: 0,
        }
    }

    fn base(&self) -> &Base<Wakes> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Wakes> {
        &mut self.base
    }

    fn engine_settings(&mut self, _partition: usize) -> EngineSettings {
        let seed = self.base.random.next();
        let app = Settings {
            timings: self.timings.clone(),
            fan_out: self.fan_out,
            match_steps: self.match_steps,
            hash_seed: seed,
            ..Settings::default()
        };
        let min_free_bytes = self.base.mode.min_free_bytes;
        EngineSettings { app, seed, min_free_bytes, ..EngineSettings::default() }
    }

    fn prepare(&mut self) {
        self.begin();
    }

    fn invent(&mut self) -> CheckResult {
        self.ask_for_something();
        Ok(())
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Wakes>> {
        let (tenant, action) = (self.tenant.clone(), Action::Timer(timer));
        let asked = TokenAction { tenant, action, tokens: Vec::new() };
        Box::new(WakeRequest::new(asked, Sender::Anybody))
    }

    fn batch_durable(&mut self, _partition: usize, batch: BatchInfo) -> CheckResult {
        let after = Snapshot::read(&self.base.reader())?;
        let ttl = self.timings.token_ttl_ms;
        // A clock that was set back in the crash says nothing about when this was decided.
        self.history.advance(&self.seen, &after, batch.opened_at, self.base.latest, ttl)?;
        self.start_offsets.advance(&self.seen, &after)?;
        self.seen = after;
        self.audit()
    }

    fn committed(&mut self, _partition: usize) -> CheckResult {
        self.audit_gauges()
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        let found = Snapshot::read(&self.base.reader())?;
        raw_state::compare(&self.seen.raw, &found.raw)?;
        self.attempts.clear();
        self.disconnect_agents();
        self.audit_gauges()?;
        self.audit()?;
        self.audit_content()
    }

    fn audit(&mut self) -> CheckResult {
        self.audit_state()
    }

    fn settle_turn(&mut self) -> CheckResult<bool> {
        let mut has_moved = false;
        while self.make_attempt()? || self.answer_attempts()? || self.act()? {
            has_moved = true;
        }
        self.agents.retain(|agent| !agent.is_retired);
        Ok(has_moved)
    }

    fn finale(&mut self) -> CheckResult {
        self.tell_everything()
    }
}
