//! The world of one run: the engine, those it tells, and everything that was ever seen.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::stream::StreamId;
use reveille_core::subscription::Timings;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_engine::committer::Fatal;
use reveille_engine::due;
use reveille_engine::partition::{Settings, Taken};
use reveille_store::disk::SimDisk;

use super::agent::Agent;
use super::beginnings::Beginnings;
use super::endpoint::Post;
use super::errand::{Errand, Stage};
use super::history::History;
use super::snapshot::Snapshot;
use super::worker::Worker;
use crate::Options;
use crate::life::Life;
use crate::mode::Mode;
use crate::random::Random;
use crate::table::SimTable;
use crate::trace::Trace;
use crate::world::{Checked, Tally, violated};

/// A day in 2026.
const BEGIN: Millis = Millis(1_790_000_000_000);

pub(crate) struct Wakes {
    pub(crate) mode: Mode,
    pub(crate) timings: Timings,
    /// How many consumers are told at once.
    pub(crate) fan_out: usize,
    /// How many names there are for subscriptions.
    pub(crate) names: usize,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) now: Millis,
    pub(crate) latest: Millis,
    pub(crate) tenant: Tenant,
    pub(crate) paths: Vec<StreamPath>,

    pub(crate) disk: SimDisk,
    pub(crate) table: SimTable,
    pub(crate) life: Option<Life>,

    /// What is durable, as it was last seen, and the log's number for it.
    pub(crate) seen: Snapshot,
    pub(crate) durable_seq: u64,
    pub(crate) history: History,
    pub(crate) beginnings: Beginnings,
    /// The batch that is being committed, its number, and when it was begun.
    pub(crate) taken: Option<(Taken, u64, Millis)>,
    /// When the batch was begun whose commit failed: only recovery can tell whether it is.
    pub(crate) doubtful: Option<Millis>,
    pub(crate) open_batch: u64,
    pub(crate) open_weight: u64,
    pub(crate) opened_at: Option<Millis>,

    pub(crate) errands: Vec<Errand>,
    pub(crate) worker: Worker,
    pub(crate) posts: Vec<Post>,
    pub(crate) agents: Vec<Agent>,
    /// By incarnation: appends that somebody was told of.
    pub(crate) ledger: BTreeMap<StreamId, BTreeSet<String>>,
    /// Numbers for appends, agents, attempts and reports.
    pub(crate) number: u64,

    /// Everybody behaves from now on.
    pub(crate) honest: bool,
    pub(crate) faulty: bool,
    pub(crate) full_once: bool,
    pub(crate) tally: Tally,
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
        let disk = SimDisk::new(random.next());
        let table = SimTable::new(random.next());
        let settings = Settings { timings: timings.clone(), seed: random.next(), fan_out };
        let begun = Life::begin(&disk, &table, &mode, BEGIN, random.next(), settings);
        let (life, _) = begun.map_err(violated)?;
        let places = ["/a/0", "/a/1", "/a/2", "/b/0", "/b/1", "/wake/0"];
        let paths = places.map(|name| StreamPath::parse(name).expect("a path"));
        Ok(Wakes {
            mode,
            timings,
            fan_out,
            names,
            random,
            trace,
            now: BEGIN,
            latest: BEGIN,
            tenant: Tenant::default_tenant(),
            paths: paths.to_vec(),
            disk,
            table,
            life: Some(life),
            seen: Snapshot::default(),
            durable_seq: 0,
            history: History::default(),
            beginnings: Beginnings::default(),
            taken: None,
            doubtful: None,
            open_batch: 1,
            open_weight: 0,
            opened_at: None,
            errands: Vec::new(),
            worker: Worker::default(),
            posts: Vec::new(),
            agents: Vec::new(),
            ledger: BTreeMap::new(),
            number: 0,
            honest: false,
            faulty: false,
            full_once: false,
            tally: Tally::default(),
        })
    }

    pub(crate) fn life(&self) -> &Life {
        self.life.as_ref().expect("the server runs")
    }

    pub(crate) fn life_mut(&mut self) -> &mut Life {
        self.life.as_mut().expect("the server runs")
    }

    /// Opens the store as it is on the disk, and tells again what was on its way.
    pub(crate) fn begin_life(&mut self) -> Result<Life, String> {
        let settings = Settings {
            timings: self.timings.clone(),
            seed: self.random.next(),
            fan_out: self.fan_out,
        };
        let salt = self.random.next();
        let begun = Life::begin(&self.disk, &self.table, &self.mode, self.now, salt, settings);
        let (life, recovered) = begun?;
        self.note(&format!("recovered {recovered:?}"));
        due::take_up(&life.shared, self.now);
        Ok(life)
    }

    pub(crate) fn set_clock(&mut self, now: Millis) {
        self.now = now;
        self.latest = self.latest.max(now);
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.trace.note(what);
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Takes the open batch, if there is one and none is on its way.
    pub(crate) fn take(&mut self) {
        if self.taken.is_some() {
            return;
        }
        let taken = self.life().shared.lock().take();
        if let Some(taken) = taken {
            self.note(&format!("take batch {}", self.open_batch));
            let opened = self.opened_at.take().unwrap_or(self.now);
            self.taken = Some((taken, self.open_batch, opened));
            self.open_batch += 1;
            self.open_weight = 0;
        }
    }

    /// Commits the batch that was taken, looks at what became of it, and hears its answers.
    pub(crate) fn commit(&mut self) -> Checked<Result<(), Fatal>> {
        let Some((taken, number, opened)) = self.taken.take() else {
            return Ok(Ok(()));
        };
        let empty = taken.batch.is_empty();
        let life = self.life_mut();
        let result = life.committer.commit(taken);
        let seq = life.shared.state.reader().seq();
        if let Err(fatal) = result {
            self.note(&format!("commit {number}: {fatal}"));
            self.nothing_got_out()?;
            self.doubtful = Some(opened);
            return Ok(Err(fatal));
        }
        let refused = !empty && seq == self.durable_seq;
        self.note(&format!("commit {number}: seq {seq} refused={refused}"));
        if refused {
            if !std::mem::take(&mut self.full_once) {
                return Err(violated("a batch was refused although there is room".into()));
            }
            self.tally.refused += 1;
            self.open_weight = 0;
            self.opened_at = None;
            self.open_batch = number + 2;
            self.collect_answers(u64::MAX)?;
        } else {
            if !empty {
                self.durable_seq = seq;
                self.tally.batches += 1;
                self.absorb(opened)?;
            }
            self.collect_answers(number)?;
        }
        Ok(self.life_mut().committer.trim())
    }

    /// What is durable has changed: it must be right, and follow from what was before.
    pub(crate) fn absorb(&mut self, opened: Millis) -> Checked {
        let after = Snapshot::read(&self.life().shared.state.reader())?;
        let ttl = self.timings.token_ttl_ms;
        // A clock that was set back in the crash says nothing about when this was decided.
        self.history.advance(&self.seen, &after, opened, self.latest, ttl)?;
        self.beginnings.advance(&self.seen, &after)?;
        self.seen = after;
        self.audit()
    }

    /// After a batch is durable everybody who waited for it has been answered, and nobody else.
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

    /// A commit has failed: nobody may have been answered.
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

/// The character of a run: small batches, and segments that take the largest of them.
fn mode(random: &mut Random, options: Options) -> Mode {
    let lag = random.one_in(4) || options.lag;
    Mode {
        segment_bytes: *random.pick(&[64, 128, 256]) << 10,
        sync: true,
        replay_bytes: *random.pick(&[1, 2_000, 20_000, 1 << 20]),
        keeping: if lag { 1 } else { *random.pick(&[8, 20, 60]) },
        faults: *random.pick(&[1, 2, 6]),
        fills: random.one_in(4),
        min_free: 0,
        commits: *random.pick(&[40, 120, 300]),
        time: *random.pick(&[4, 20, 50]),
        deletes: *random.pick(&[1, 3, 8]),
        clients: random.index(8) + 2,
        paths: 6,
        filler: 0,
        steps: random.between(1_000, 6_000),
    }
}
