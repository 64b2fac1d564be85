//! The world of one run: the engine, those it tells, and everything that was ever seen.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::stream::StreamId;
use reveille_core::subscription::Timings;
use reveille_core::{StreamPath, Tenant};
use reveille_engine::command::Command;
use reveille_engine::due;
use reveille_engine::partition::Settings;

use super::agent::Agent;
use super::beginnings::Beginnings;
use super::endpoint::Post;
use super::errand::{Errand, Owner, Stage};
use super::history::History;
use super::snapshot::Snapshot;
use crate::Options;
use crate::life::Life;
use crate::random::Random;
use crate::server::{Base, Opened, Server, mode};
use crate::trace::Trace;
use crate::world::{Checked, violated};

pub(crate) struct Wakes {
    pub(crate) base: Base,
    pub(crate) timings: Timings,
    /// How many consumers are told at once.
    pub(crate) fan_out: usize,
    /// How many names there are for subscriptions.
    pub(crate) names: usize,
    pub(crate) tenant: Tenant,
    pub(crate) paths: Vec<StreamPath>,

    /// What is durable, as it was last seen.
    pub(crate) seen: Snapshot,
    pub(crate) history: History,
    pub(crate) beginnings: Beginnings,

    pub(crate) errands: Vec<Errand>,
    pub(crate) posts: Vec<Post>,
    pub(crate) agents: Vec<Agent>,
    /// By incarnation: appends that somebody was told of.
    pub(crate) ledger: BTreeMap<StreamId, BTreeSet<String>>,
    /// Numbers for appends, agents, attempts and reports.
    pub(crate) number: u64,
}

impl Wakes {
    /// The world of a seed, with a server that has just begun.
    pub(crate) fn new(seed: u64, options: Options) -> Checked<Wakes> {
        let mut random = Random::new(seed);
        let mode = mode(&mut random, options);
        let timings = Timings {
            webhook_timeout_ms: 8_000,
            waking_timeout_ms: *random.pick(&[5_000, 10_000]),
            liveness_timeout_ms: *random.pick(&[5_000, 45_000]),
            token_ttl_ms: *random.pick(&[20_000, 120_000, 3_600_000]),
            give_up_after_ms: *random.pick(&[60_000, 3 * 86_400_000, 3 * 86_400_000]),
            retry_scale_milli: *random.pick(&[100, 1_000]),
        };
        let mut trace = Trace::new(options.trace);
        let fan_out = *random.pick(&[1, 2, 3, 64]);
        let names = *random.pick(&[3, 6, 8]);
        trace.note(&format!("seed {seed}: {mode:?} {timings:?} fan_out={fan_out} names={names}"));
        let base = Base::new(random, mode, trace);
        let places = ["/a/0", "/a/1", "/a/2", "/b/0", "/b/1", "/wake/0"];
        let paths = places.map(|name| StreamPath::parse(name).expect("a path"));
        let mut wakes = Wakes {
            base,
            timings,
            fan_out,
            names,
            tenant: Tenant::default_tenant(),
            paths: paths.to_vec(),
            seen: Snapshot::default(),
            history: History::default(),
            beginnings: Beginnings::default(),
            errands: Vec::new(),
            posts: Vec::new(),
            agents: Vec::new(),
            ledger: BTreeMap::new(),
            number: 0,
        };
        wakes.base.life = Some(wakes.begin_life().map_err(violated)?);
        Ok(wakes)
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

impl Server for Wakes {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn begin_life(&mut self) -> Result<Life, String> {
        let settings = Settings {
            timings: self.timings.clone(),
            seed: self.base.random.next(),
            fan_out: self.fan_out,
        };
        let life = Life::again(&mut self.base, settings)?;
        due::recover(&life.shared, self.base.now);
        Ok(life)
    }

    fn absorb(&mut self, opened: Opened) -> Checked {
        let after = Snapshot::read(&self.life().shared.state.reader())?;
        let ttl = self.timings.token_ttl_ms;
        // A clock that was set back in the crash says nothing about when this was decided.
        self.history.advance(&self.seen, &after, opened.at, self.base.latest, ttl)?;
        self.beginnings.advance(&self.seen, &after)?;
        self.seen = after;
        self.audit()
    }

    fn undone(&mut self) {}

    fn same_as_before(&self) -> Checked {
        let found = Snapshot::read(&self.life().shared.state.reader())?;
        found.same_as(&self.seen.raw)
    }

    fn begin_again(&mut self) -> Checked {
        self.posts.clear();
        self.agents_lose_touch();
        for errand in std::mem::take(&mut self.errands) {
            if matches!(errand.owner, Owner::Agent(_)) && self.base.random.percent(70) {
                self.send_with(Owner::Nobody, errand.command, errand.tokens);
            }
        }
        self.audit()?;
        self.audit_content()
    }

    fn oblige(&mut self, command: Command) {
        self.send(Owner::Worker, command);
    }

    fn oblige_again(&mut self, command: Command) {
        self.send(Owner::Nobody, command);
    }

    fn collect_answers(&mut self, through: u64) -> Checked {
        for mut errand in std::mem::take(&mut self.errands) {
            let Stage::Waiting { answer, batch } = &mut errand.stage else {
                self.errands.push(errand);
                continue;
            };
            let told = answer.try_recv();
            match told {
                Ok(_) if *batch > through => {
                    let what = format!("{:?} was answered before it was durable", errand.command);
                    return Err(violated(what));
                }
                Ok(outcome) => self.told(errand, outcome)?,
                Err(_) if *batch > through => self.errands.push(errand),
                Err(_) => {
                    return Err(violated(format!("{:?} was not answered", errand.command)));
                }
            }
        }
        Ok(())
    }

    fn nothing_got_out(&mut self) -> Checked {
        for errand in &mut self.errands {
            if let Stage::Waiting { answer, .. } = &mut errand.stage
                && answer.try_recv().is_ok()
            {
                let what = format!("{:?} was answered and is not durable", errand.command);
                return Err(violated(what));
            }
        }
        Ok(())
    }
}
