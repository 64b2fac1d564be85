//! A world of documents: transactions of two tenants, over and over on a few paths, with keys by
//! which repetitions are known, with guards and with rules that looked a while ago; indexes come and
//! go, tombstones are purged, changes and outcomes forgotten; the server crashes.
//!
//! A model decides every transaction a second time. After every batch everything durable is held
//! against it: so a transaction is there whole or not at all, its changes are there once, in order
//! and numbered without a gap, what is remembered of it is in the same batch, and indexes are what a
//! fresh look at the documents gives.
//!
//! ```text
//! workload   what clients ask for
//! action     one command; request: what its outcome means
//! model      documents, changes and outcomes, told once more
//! audit      everything durable, against the model
//! live       those who follow a collection, step by step
//! finale     everything is taken down, and nothing is left
//! ```

mod action;
mod audit;
mod finale;
mod live;
mod model;
mod request;
mod workload;

use std::collections::BTreeMap;

use reveille_core::document::settings::DocumentSettings;
use reveille_core::{Millis, Tenant};

use crate::base::engine::{EngineSettings, Settings, Timer};
use crate::base::{
    ActionTable, Base, BatchInfo, CheckResult, FaultWeights, Mode, Origin, Request, Setup,
    Undurable, World,
};
use action::{Action, Refusal, Told};
use live::Follower;
use model::Model;
use request::DocumentRequest;

pub(crate) struct Documents {
    base: Base<Documents>,
    settings: EngineSettings,
    tenants: [Tenant; 2],
    /// After everything that was decided, and after everything that is durable.
    decided: Model,
    durable: Model,
    /// What was decided and is not durable, by batch, with the time of its decision.
    undurable: Undurable<(Action, Millis)>,
    /// What a power cut may fall back to, by batch, if commits are not synced.
    history: BTreeMap<u64, Model>,
    /// Changes from before these times may have been forgotten.
    cutoffs: BTreeMap<Tenant, Millis>,
    number: u64,
    followers: Vec<Follower>,
}

impl Documents {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn ask(&mut self, action: Action) {
        self.base.run(Origin::Client, DocumentRequest::new(action));
    }

    fn ttls(&self) -> DocumentSettings {
        self.settings.app.documents
    }
}

impl World for Documents {
    type Answer = Told;
    type Error = Refusal;

    const ACTIONS: ActionTable<Documents> =
        &[(2, |world| world.audit_all()), (12, Documents::follow)];
    const TURNS_MAX: u32 = 20_000;

    fn new(mut setup: Setup) -> Documents {
        let mode = Mode::of_large_commands(&mut setup.random, setup.options);
        let sync = !setup.options.unsynced;
        let unsynced = FaultWeights { fail_sync: 0, ..mode.fault_weights };
        let random = &mut setup.random;
        let mode = Mode {
            sync,
            // Without syncs nobody writes again what a failed sync has dropped.
            fault_weights: if sync { mode.fault_weights } else { unsynced },
            segment_bytes: *random.pick(&[128, 256]) << 10,
            operations: 600,
            steps: random.between(600, 3_000),
            ..mode
        };
        let documents = DocumentSettings {
            idempotency_ttl_ms: *random.pick(&[1_000, 30_000]),
            tombstone_ttl_ms: *random.pick(&[500, 60_000]),
            ..DocumentSettings::default()
        };
        let settings = EngineSettings {
            app: Settings { documents, ..Settings::default() },
            min_free_bytes: mode.min_free_bytes,
            slice_bytes: mode.slice_bytes,
            ..EngineSettings::default()
        };
        setup.note(&mode, &format!("{documents:?}"));
        Documents {
            base: setup.base(mode),
            settings,
            tenants: ["default", "other"].map(|name| Tenant::parse(name).expect("a tenant")),
            decided: Model::default(),
            durable: Model::default(),
            undurable: Undurable::default(),
            history: BTreeMap::from([(0, Model::default())]),
            cutoffs: BTreeMap::new(),
            number: 0,
            followers: Vec::new(),
        }
    }

    fn base(&self) -> &Base<Documents> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Documents> {
        &mut self.base
    }

    fn engine_settings(&mut self, _partition: usize) -> EngineSettings {
        self.settings.seed = self.base.random.next();
        self.settings.clone()
    }

    fn invent(&mut self) -> CheckResult {
        self.ask_for_something()
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Documents>> {
        Box::new(DocumentRequest::new(Action::Timer(Box::new(timer))))
    }

    fn batch_durable(&mut self, partition: usize, batch: BatchInfo) -> CheckResult {
        let ttls = self.ttls();
        for (action, now) in self.undurable.take_through(batch.number) {
            // What it was told was checked when it was decided.
            drop(self.durable.apply(&action, now, &ttls));
        }
        if !self.base.mode.sync {
            let seq = self.base.partitions[partition].durable_seq;
            self.history.insert(seq, self.durable.clone());
        }
        self.audit_all()
    }

    fn rolled_back(&mut self, _partition: usize) {
        self.decided = self.durable.clone();
        self.undurable.clear();
    }

    /// Without syncs the newest batches may be gone, but only the newest.
    fn fall_back(&mut self, _partition: usize, seq: u64) -> bool {
        self.history.split_off(&(seq + 1));
        let Some(before) = self.history.get(&seq) else { return false };
        self.durable = before.clone();
        // Numbers are given out once more: who has seen the others cannot know.
        self.followers.clear();
        true
    }

    fn restarted(&mut self, _partition: usize) -> CheckResult {
        self.decided = self.durable.clone();
        self.undurable.clear();
        self.audit_all()
    }

    fn audit(&mut self) -> CheckResult {
        self.audit_all()
    }

    fn finale(&mut self) -> CheckResult {
        self.take_everything_down()
    }
}
