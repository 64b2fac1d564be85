//! A world of streams: a model decides every command a second time; it knows what must be told,
//! what readers may see, and what must be there after a crash.
//!
//! ```text
//! workload   what clients come up with
//! request    one command, decided by the engine and by the model
//! model      what streams are, told once more
//! readers    reads, slow reads and live watchers
//! audit      the whole state against the model
//! finale     everything expires, is deleted, and leaves nothing
//! engine     what this world calls in the engine
//! ```

mod action;
mod audit;
mod engine;
mod finale;
mod model;
mod payload;
mod readers;
mod request;
mod workload;

use std::collections::BTreeMap;

use bytes::Bytes;
use reveille_core::{StreamPath, Tenant};

use crate::base::engine::{EngineSettings, ID_STRIDE, Timer};
use crate::base::{
    ActionTable, BEGIN, Base, BatchInfo, CheckResult, FaultWeights, Mode, Random, Request, Setup,
    World,
};
use action::{Action, StreamAnswer, StreamError};
use model::{Model, ServerMemory};
use readers::{SlowRead, Watcher};
use request::StreamRequest;

pub(crate) struct Streams {
    base: Base<Streams>,
    tenant: Tenant,
    paths: Vec<StreamPath>,
    /// The longest filler of a payload.
    filler: u64,
    memory: ServerMemory,

    /// After everything that was decided.
    decided: Model,
    /// After everything that is surely durable.
    durable: Model,
    /// The model after the batch that is being committed.
    taken: Model,
    /// The models that a power cut may fall back to, by batch, if commits are not synced.
    history: BTreeMap<u64, Model>,

    reads: Vec<SlowRead>,
    watchers: Vec<Watcher>,
    /// By incarnation: what producers were told is there, once and for all.
    acknowledged: BTreeMap<u64, Vec<Bytes>>,
    /// Makes every payload different.
    token: u64,
}

/// The knobs of a run, and the longest filler of a payload.
fn draw_mode(setup: &mut Setup) -> (Mode, u64) {
    let random = &mut setup.random;
    let lag = random.one_in(4) || setup.options.lag;
    let fills = random.one_in(4);
    // Streams of many chunks, and runs that the table takes in several portions.
    let large = random.one_in(12);
    let segment_bytes = if large { 512 << 10 } else { *random.pick(&[8, 12, 16, 32, 64]) << 10 };
    let sync = !setup.options.unsynced;
    let mode = Mode {
        segment_bytes,
        slice_bytes: 0,
        sync,
        replay_bytes: *random.pick(&[1, 2_000, 20_000, 1 << 20]),
        min_free_bytes: if fills { segment_bytes * random.below(3) } else { 0 },
        operations: 300,
        clients: 100,
        commits: *random.pick(&[20, 80, 160]),
        checkpoints: if lag { 1 } else { *random.pick(&[8, 20, 60]) },
        timers: 60,
        time: *random.pick(&[1, 4, 20]),
        faults: *random.pick(&[1, 2, 5, 12]),
        fault_weights: fault_weights(sync, fills),
        time_jumps: &[(10, 50), (7, 5_000), (2, 120_000), (1, 7_200_000)],
        timers_at_once: *random.pick(&[1, 1, 4, usize::MAX]),
        fetch_rounds_max: 60,
        clients_max: random.index(8) + 1,
        deletes: *random.pick(&[1, 4, 12]),
        steps: random.between(2_400, 11_700),
    };
    (mode, if large { 60_000 } else { *random.pick(&[8, 60, 300, 1_200]) })
}

fn fault_weights(sync: bool, fills: bool) -> FaultWeights {
    let roomy = FaultWeights {
        // Without syncs nobody writes again what a failed sync has dropped.
        fail_sync: if sync { 2 } else { 0 },
        ..FaultWeights::ROOMY
    };
    if fills {
        FaultWeights { fill_disk: 10, free_disk: 10, fill_write: 3, fill_table: 5, ..roomy }
    } else {
        roomy
    }
}

fn draw_paths(random: &mut Random) -> Vec<StreamPath> {
    let path = |n| StreamPath::parse(&format!("/s{n}")).expect("a path");
    (0..random.index(6) + 2).map(path).collect()
}

impl World for Streams {
    type Answer = StreamAnswer;
    type Error = StreamError;

    const ACTIONS: ActionTable<Streams> = &[
        (30, Streams::read),
        (20, Streams::read_slowly),
        (8, Streams::watch),
        (3, Streams::audit),
    ];
    const TURNS_MAX: u32 = 20_000;

    fn new(mut setup: Setup) -> Streams {
        let (mode, filler) = draw_mode(&mut setup);
        let paths = draw_paths(&mut setup.random);
        setup.note(&mode, &format!("paths={} filler={filler}", paths.len()));
        Streams {
            base: setup.base(mode),
            tenant: Tenant::default_tenant(),
            paths,
            filler,
            memory: ServerMemory { started: BEGIN, next_id: ID_STRIDE, ..ServerMemory::default() },
            decided: Model::default(),
            durable: Model::default(),
            taken: Model::default(),
            history: BTreeMap::from([(0, Model::default())]),
            reads: Vec::new(),
            watchers: Vec::new(),
            acknowledged: BTreeMap::new(),
            token: 0,
        }
    }

    fn base(&self) -> &Base<Streams> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Streams> {
        &mut self.base
    }

    fn engine_settings(&mut self, _partition: usize) -> EngineSettings {
        let min_free_bytes = self.base.mode.min_free_bytes;
        EngineSettings { min_free_bytes, ..EngineSettings::default() }
    }

    fn invent(&mut self) -> CheckResult {
        self.ask();
        Ok(())
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Streams>> {
        Box::new(StreamRequest::new(&self.tenant, Action::Timer(timer)))
    }

    fn batch_taken(&mut self, _partition: usize, _batch: BatchInfo) {
        self.taken = self.decided.clone();
    }

    fn batch_durable(&mut self, partition: usize, _batch: BatchInfo) -> CheckResult {
        self.durable = self.taken.clone();
        if !self.base.mode.sync {
            let seq = self.base.partitions[partition].durable_seq;
            self.history.insert(seq, self.durable.clone());
        }
        Ok(())
    }

    fn rolled_back(&mut self, _partition: usize) {
        self.decided = self.durable.clone();
    }

    /// Nobody may see anything of a batch that is not durable.
    fn commit_failed(&mut self, _partition: usize) -> CheckResult {
        self.audit_readers()
    }

    fn committed(&mut self, _partition: usize) -> CheckResult {
        self.notify_watchers()
    }

    fn before_crash(&mut self, _partition: usize) -> CheckResult {
        if self.base.random.one_in(2) { self.audit_readers() } else { Ok(()) }
    }

    /// Without syncs the newest batches may be gone, but only the newest.
    fn fall_back(&mut self, _partition: usize, seq: u64) -> bool {
        self.history.split_off(&(seq + 1));
        let Some(before) = self.history.get(&seq) else { return false };
        self.durable = before.clone();
        self.acknowledged.clear();
        true
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        self.memory = ServerMemory {
            started: self.base.now.max(self.base.engine().time()),
            next_id: self.durable.next_id.max(ID_STRIDE),
            ..ServerMemory::default()
        };
        self.reads.clear();
        self.watchers.clear();
        self.audit()
    }

    fn audit(&mut self) -> CheckResult {
        self.audit_all()
    }

    fn finale(&mut self) -> CheckResult {
        self.take_everything_down()
    }
}
