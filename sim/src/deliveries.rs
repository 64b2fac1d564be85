//! The world of one run: the engine, its endpoints, and everything that was ever seen.

use std::collections::BTreeSet;

use reveille_core::delivery::Phase;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::subscription::Timings;
use reveille_core::{Millis, Tenant};
use reveille_engine::command::Command;
use reveille_engine::command::delivery::DeliveryOutcome;
use reveille_engine::command::ingest::Ingest;
use reveille_engine::due;
use reveille_engine::outbound::deliveries;
use reveille_engine::partition::Settings;

use super::endpoint::Post;
use super::errand::{Errand, Owner, Stage};
use super::history::History;
use super::model::Model;
use super::snapshot::Snapshot;
use crate::Options;
use crate::life::Life;
use crate::random::Random;
use crate::server::{BEGIN, Base, Opened, Server, mode};
use crate::trace::Trace;
use crate::world::{Checked, violated};

pub(crate) struct Deliveries {
    pub(crate) base: Base,
    settings: Settings,
    /// How many attempts may be under way, and how many of one hook may wait in memory.
    concurrency: usize,
    waiting_per_hook: usize,
    pub(crate) tenants: Vec<Tenant>,
    /// There are no more hooks, and no more events, than these.
    pub(crate) hooks_most: usize,
    pub(crate) events_most: usize,

    /// What is durable, as it was last seen.
    pub(crate) seen: Snapshot,
    pub(crate) history: History,
    /// After everything that was decided, and after everything that is durable.
    pub(crate) decided: Model,
    pub(crate) durable: Model,
    /// Commands that were decided and are not durable, with their batches.
    pub(crate) acts: Vec<(u64, Command)>,
    /// Nothing that is not durable was decided before this.
    pub(crate) settled_at: Millis,

    pub(crate) errands: Vec<Errand>,
    pub(crate) posts: Vec<Post>,
    /// Deliveries of which an attempt was made.
    pub(crate) posted: BTreeSet<DeliveryId>,
    /// Deliveries of which an attempt was not made, or of which the answer found no room on the disk:
    /// that they are to be tried again may be noticed only when the lease ends.
    pub(crate) delayed: BTreeSet<DeliveryId>,
    /// Answers that were heard, and will come again.
    pub(crate) echoes: Vec<DeliveryOutcome>,
    /// Tenants with a stream that takes no events.
    pub(crate) unfit: BTreeSet<Tenant>,
    /// Batches with a name.
    pub(crate) sent: Vec<Ingest>,
    /// From this place on nobody has asked to forget events.
    pub(crate) trims_asked: usize,
    /// Numbers for events, hooks and attempts.
    number: u64,
    absorbed: u64,
}

impl Deliveries {
    /// The world of a seed, with a server that has just begun.
    pub(crate) fn new(seed: u64, options: Options) -> Checked<Deliveries> {
        let mut random = Random::new(seed);
        let mut mode = mode(&mut random, options);
        mode.segment_bytes = *random.pick(&[128, 256]) << 10;
        mode.steps = random.between(800, 4_000);
        let mut trace = Trace::new(options.trace);
        let fan_out = *random.pick(&[1, 2, 3, 64]);
        let timings =
            Timings { retry_scale_milli: *random.pick(&[100, 1_000]), ..Timings::default() };
        let concurrency = *random.pick(&[2, 5, 4_096]);
        let waiting_per_hook = *random.pick(&[1, 2, 5, 4_096]);
        let hooks_most = *random.pick(&[3, 8, 14]);
        let events_most = *random.pick(&[30, 60, 120]);
        trace.note(&format!(
            "seed {seed}: {mode:?} fan_out={fan_out} concurrency={concurrency} \
             waiting_per_hook={waiting_per_hook} hooks={hooks_most} events={events_most}"
        ));
        let tenants = ["default", "other"].map(|name| Tenant::parse(name).expect("a tenant"));
        let mut world = Deliveries {
            base: Base::new(random, mode, trace),
            settings: Settings { timings, seed: 0, fan_out },
            concurrency,
            waiting_per_hook,
            tenants: tenants.to_vec(),
            hooks_most,
            events_most,
            seen: Snapshot::default(),
            history: History::default(),
            decided: Model::default(),
            durable: Model::default(),
            acts: Vec::new(),
            settled_at: BEGIN,
            errands: Vec::new(),
            posts: Vec::new(),
            posted: BTreeSet::new(),
            delayed: BTreeSet::new(),
            echoes: Vec::new(),
            unfit: BTreeSet::new(),
            sent: Vec::new(),
            trims_asked: 0,
            number: 0,
            absorbed: 0,
        };
        world.base.life = Some(world.begin_life().map_err(violated)?);
        Ok(world)
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

impl Deliveries {
    /// After a start, whatever was being tried is to be tried again, if there is room for it.
    fn all_is_taken_up(&self) -> Checked {
        let outbox = &self.life().shared.outbox;
        for (id, it) in &self.seen.deliveries {
            let leased = matches!(it.delivery.phase, Phase::Leased { .. });
            let lives = self.seen.hooks.contains_key(&id.hook);
            if leased && lives && self.waiting_per_hook > 1_000 && !outbox.has_delivery(*id) {
                return Err(violated(format!("{id:?} is not taken up again")));
            }
        }
        Ok(())
    }
}

impl Server for Deliveries {
    fn base(&self) -> &Base {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base {
        &mut self.base
    }

    fn begin_life(&mut self) -> Result<Life, String> {
        let settings = Settings { seed: self.base.random.next(), ..self.settings.clone() };
        let life = Life::again(&mut self.base, settings)?;
        life.shared.outbox.set_concurrency(self.concurrency);
        life.shared.outbox.set_waiting_per_hook(self.waiting_per_hook);
        due::recover(&life.shared, self.base.now);
        deliveries::recover(&life.shared);
        Ok(life)
    }

    fn absorb(&mut self, opened: Opened) -> Checked {
        let later = self.acts.iter().position(|(batch, _)| *batch > opened.number);
        let later = later.unwrap_or(self.acts.len());
        for (_, command) in self.acts.drain(..later) {
            self.durable.apply(&command);
            if matches!(command, Command::Trim { .. }) {
                self.durable.trimmed = self.trims_asked;
            }
        }
        self.settled_at = opened.at;
        let changed = self.seen.advance(&self.life().shared.state.reader())?;
        self.history.advance(&self.seen, &changed)?;
        self.absorbed += 1;
        if self.absorbed.is_multiple_of(4) { self.audit() } else { Ok(()) }
    }

    fn undone(&mut self) {
        self.decided = self.durable.clone();
        self.acts.clear();
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

    fn same_as_before(&self) -> Checked {
        self.seen.same_as(&self.life().shared.state.reader())
    }

    fn begin_again(&mut self) -> Checked {
        self.settled_at = self.settled_at.min(self.base.now);
        self.posts.clear();
        for errand in std::mem::take(&mut self.errands) {
            if errand.owner == Owner::Client {
                self.maybe_again(errand.command);
            }
        }
        self.all_is_taken_up()?;
        self.audit()
    }

    fn oblige(&mut self, command: Command) {
        self.send(Owner::Worker, command);
    }

    fn oblige_again(&mut self, command: Command) {
        self.send(Owner::Nobody, command);
    }
}
