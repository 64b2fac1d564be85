//! What happens next: one step after another, in an order that the seed chooses.

use std::collections::BTreeMap;

use reveille_core::{Millis, StreamPath, Tenant};
use reveille_engine::partition::Settings;
use reveille_store::disk::SimDisk;

use crate::Options;
use crate::errand::{Errand, Owner};
use crate::life::Life;
use crate::mode::Mode;
use crate::model::{Model, Volatile};
use crate::random::Random;
use crate::table::SimTable;
use crate::trace::Trace;
use crate::worker::Worker;
use crate::world::{Checked, Tally, World, violated};

/// A day in 2026.
const BEGIN: Millis = Millis(1_790_000_000_000);

#[derive(Debug, Clone, Copy)]
enum Step {
    Client,
    Take,
    Commit,
    Settle,
    Freeze,
    Apply,
    Checkpoint,
    Seal,
    FillSpares,
    WatchDisk,
    Work,
    Time,
    Read,
    ReadSlowly,
    Watch,
    Fault,
    Audit,
}

impl World {
    /// The world of a seed, with a server that has just begun.
    pub(crate) fn new(seed: u64, options: Options) -> Checked<World> {
        let mut random = Random::new(seed);
        let mode = Mode::of(&mut random, options);
        let mut trace = Trace::new(options.trace);
        trace.note(&format!("seed {seed}: {mode:?}"));
        let disk = SimDisk::new(random.next());
        let table = SimTable::new(random.next());
        let begun = Life::begin(&disk, &table, &mode, BEGIN, random.next(), Settings::default());
        let (life, _) = begun.map_err(violated)?;
        let path = |n| StreamPath::parse(&format!("/s{n}")).expect("a path");
        let memory = Volatile { started: BEGIN, next_id: 1, ..Volatile::default() };
        Ok(World {
            paths: (0..mode.paths).map(path).collect(),
            mode,
            random,
            trace,
            now: BEGIN,
            latest: BEGIN,
            tenant: Tenant::default_tenant(),
            disk,
            table,
            life: Some(life),
            memory,
            decided: Model::default(),
            durable: Model::default(),
            durable_seq: 0,
            history: BTreeMap::from([(0, Model::default())]),
            power_lost: false,
            taken: None,
            doubtful: None,
            open_batch: 1,
            open_weight: 0,
            errands: Vec::new(),
            worker: Worker::default(),
            reads: Vec::new(),
            watchers: Vec::new(),
            ledger: BTreeMap::new(),
            token: 0,
            faulty: false,
            full: false,
            full_once: false,
            tally: Tally::default(),
        })
    }

    /// Lives through the whole run.
    pub(crate) fn run(&mut self) -> Checked {
        for _ in 0..self.mode.steps {
            self.trace.step += 1;
            self.tally.steps += 1;
            self.step()?;
        }
        self.finale()
    }

    fn step(&mut self) -> Checked {
        let mode = &self.mode;
        let (commits, keeping) = (mode.commits, mode.keeping);
        let step = self.random.weighted(&[
            (300, Step::Client),
            (commits, Step::Take),
            (commits, Step::Commit),
            (keeping / 2, Step::Settle),
            (keeping / 2, Step::Freeze),
            (keeping, Step::Apply),
            (keeping.div_ceil(2), Step::Checkpoint),
            (10, Step::Seal),
            (5, Step::FillSpares),
            (10, Step::WatchDisk),
            (60, Step::Work),
            (mode.time, Step::Time),
            (30, Step::Read),
            (20, Step::ReadSlowly),
            (8, Step::Watch),
            (mode.faults, Step::Fault),
            (3, Step::Audit),
        ]);
        match step {
            Step::Client => return self.client(),
            Step::Take => self.take(),
            Step::Commit => {
                let result = self.commit()?;
                return self.survive(result);
            }
            // The table is brought up beside everything else: what is set aside now is written
            // later, with commits in between.
            Step::Settle => self.life().shared.state.settle(),
            Step::Freeze => drop(self.life().shared.state.freeze()),
            Step::Apply => {
                self.note("apply");
                let result = self.life_mut().checkpointer.apply();
                return self.survive(result);
            }
            Step::Checkpoint => {
                self.note("checkpoint");
                let result = self.life_mut().checkpointer.checkpoint();
                return self.survive(result);
            }
            Step::Seal => return self.seal(),
            Step::FillSpares => {
                // Failing is not the end: the committer tries again when it needs one.
                let filled = self.life().spares.fill(|| {}).is_ok();
                self.note(&format!("fill spares: {filled}"));
            }
            Step::WatchDisk => self.life().checkpointer.watch_disk(),
            Step::Work => return self.work(),
            Step::Time => self.pass_time(),
            Step::Read => return self.read(),
            Step::ReadSlowly => return self.read_slowly(),
            Step::Watch => return self.watch(),
            Step::Fault => return self.fault(),
            Step::Audit => return self.audit(),
        }
        Ok(())
    }

    /// Some errand goes one step further, or a client has a new idea.
    pub(crate) fn client(&mut self) -> Checked {
        let clients = self.errands.iter().filter(|errand| errand.owner == Owner::Client);
        if clients.count() < self.mode.clients && self.random.one_in(3) {
            let request = self.invent();
            self.errands.push(Errand::new(Owner::Client, request));
        }
        let movable = (0..self.errands.len()).filter(|index| !self.errands[*index].is_waiting());
        let movable: Vec<usize> = movable.collect();
        if movable.is_empty() {
            return Ok(());
        }
        let index = *self.random.pick(&movable);
        self.go_on(index)
    }

    pub(crate) fn go_on(&mut self, index: usize) -> Checked {
        let mut errand = self.errands.remove(index);
        if !self.advance(&mut errand)? {
            self.errands.insert(index, errand);
        }
        Ok(())
    }

    /// The committer has nothing to do.
    fn seal(&mut self) -> Checked {
        if self.taken.is_some() || !self.life().shared.lock().is_idle() {
            return Ok(());
        }
        self.note("seal");
        let result = self.life_mut().committer.seal();
        self.survive(result)
    }

    fn pass_time(&mut self) {
        let millis = match self.random.below(20) {
            0..10 => self.random.below(50),
            10..17 => self.random.below(5_000),
            17..19 => self.random.below(120_000),
            _ => self.random.below(7_200_000),
        };
        self.set_clock(self.now + millis);
        self.note(&format!("{millis} ms pass"));
    }
}
