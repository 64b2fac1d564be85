//! What a world says of itself, and what it gets from the base.

use reveille_core::Millis;
use reveille_store::state::Reader;

use super::branches::Branches;
use super::check::CheckResult;
use super::coverage::Coverage;
use super::engine::{Call, Engine, EngineSettings, Timer};
use super::failover::Failover;
use super::mode::Mode;
use super::operation::{Operation, Origin, Request};
use super::partition::{BatchInfo, Partition};
use super::random::Random;
use super::storage::{LocalStorage, Storage};
use super::trace::Trace;
use crate::Options;

/// A day in 2026.
pub(crate) const BEGIN: Millis = Millis(1_790_000_000_000);

/// Steps, each as likely as its weight says.
pub(crate) type ActionTable<W> = &'static [(u64, fn(&mut W) -> CheckResult)];

/// What a command comes to, in the words of a world.
pub(crate) type Outcome<W> = Result<<W as World>::Answer, <W as World>::Error>;

pub(crate) type WorldCall<W> = Box<dyn Call<Outcome<W>>>;

/// A world around a server: its clients, its model and its audit.
pub(crate) trait World: Sized + 'static {
    type Answer: std::fmt::Debug;
    type Error: std::fmt::Debug;

    /// What happens in this world beside what the base does.
    const ACTIONS: ActionTable<Self>;
    /// More turns than any work takes.
    const TURNS_MAX: u32;

    /// The branches that runs of this world must take.
    fn branches() -> Vec<String> {
        Vec::new()
    }

    /// The world of a seed; no server is running yet.
    fn new(setup: Setup) -> Self;
    fn base(&self) -> &Base<Self>;
    fn base_mut(&mut self) -> &mut Base<Self>;
    /// How a partition's engine is started; called before every start.
    fn engine_settings(&mut self, partition: usize) -> EngineSettings;

    // Clients.

    /// What clients ask for before anything else happens.
    fn prepare(&mut self) {}
    /// A client has an idea, and there are not too many already.
    fn invent(&mut self) -> CheckResult;
    /// The request for an entry of the due index.
    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Self>>;

    // Batches.

    /// A batch is closed: whatever is decided next belongs to another.
    fn batch_taken(&mut self, _partition: usize, _batch: BatchInfo) {}
    /// A batch has become durable: what is there must be right, and follow from what was before.
    fn batch_durable(&mut self, partition: usize, batch: BatchInfo) -> CheckResult;
    /// Whatever was decided and is not durable never happened.
    fn rolled_back(&mut self, _partition: usize) {}
    /// A commit has failed, and nobody was answered.
    fn commit_failed(&mut self, _partition: usize) -> CheckResult {
        Ok(())
    }
    /// A commit is over, and everybody who waited for it was answered.
    fn committed(&mut self, _partition: usize) -> CheckResult {
        Ok(())
    }

    // Crashes.

    /// The server is about to crash.
    fn before_crash(&mut self, _partition: usize) -> CheckResult {
        Ok(())
    }
    /// Without syncs, a power cut left the log at this batch: the world goes back to it. True if
    /// the batch is one that the log may have fallen back to.
    fn fall_back(&mut self, _partition: usize, _seq: u64) -> bool {
        false
    }
    /// The server runs again, and its operations were interrupted: everything is as it was.
    fn restarted(&mut self, partition: usize) -> CheckResult;

    // Checks.

    fn audit(&mut self) -> CheckResult;
    /// In the finale, whatever can go on without time passing; true if something did.
    fn settle_turn(&mut self) -> CheckResult<bool> {
        Ok(false)
    }
    /// The end of the run: everything heals, and in the end nothing is left.
    fn finale(&mut self) -> CheckResult;
}

/// What a world is made of.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
}

impl Setup {
    pub(crate) fn new(seed: u64, options: Options) -> Setup {
        Setup { seed, options, random: Random::new(seed), trace: Trace::new(options.trace) }
    }

    pub(crate) fn note(&mut self, mode: &Mode, what: &str) {
        self.trace.note(&format!("seed {}: {mode:?} {what}", self.seed));
    }

    /// The base of a world with one partition, on a disk of its own.
    pub(crate) fn base<W: World>(mut self, mode: Mode) -> Base<W> {
        if self.options.failover {
            return self.base_on_shared_log(mode);
        }
        let storage = LocalStorage::new(&mut self.random, &mode);
        let mut base = self.base_without_partitions(mode);
        base.add_partition(Box::new(storage), 0);
        base
    }

    /// The same on two machines that share a log, one of which writes it.
    fn base_on_shared_log<W: World>(mut self, mode: Mode) -> Base<W> {
        let failover = Failover::new(&mut self.random, &mode);
        let mut base = self.base_without_partitions(mode);
        base.add_partition(failover.storage_of_leader(), 0);
        base.partitions[0].failover = Some(failover);
        base
    }

    /// For a world that brings its own storage.
    pub(crate) fn base_without_partitions<W: World>(self, mode: Mode) -> Base<W> {
        Base {
            mode,
            random: self.random,
            trace: self.trace,
            coverage: Coverage::default(),
            branches: Branches::of(W::branches()),
            now: BEGIN,
            latest: BEGIN,
            partitions: Vec::new(),
            operations: Vec::new(),
            is_healing: false,
        }
    }
}

/// The server of a world, and what surrounds it.
pub(crate) struct Base<W: World> {
    pub(crate) mode: Mode,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    pub(crate) branches: Branches,
    pub(crate) now: Millis,
    /// The latest that a clock has shown; it may have been set back since.
    pub(crate) latest: Millis,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) operations: Vec<Operation<W>>,
    /// From now on everybody behaves.
    pub(crate) is_healing: bool,
}

impl<W: World> Base<W> {
    pub(crate) fn add_partition(&mut self, storage: Box<dyn Storage>, machine: usize) {
        self.partitions.push(Partition::new(storage, machine));
    }

    /// Runs a request on the only partition.
    pub(crate) fn run(&mut self, origin: Origin, request: impl Request<W> + 'static) {
        self.run_on(0, origin, Box::new(request));
    }

    pub(crate) fn run_on(
        &mut self,
        partition: usize,
        origin: Origin,
        request: Box<dyn Request<W>>,
    ) {
        self.operations.push(Operation::new(partition, origin, request));
    }

    /// The engine of the only partition.
    pub(crate) fn engine(&self) -> &Engine {
        self.partitions[0].engine()
    }

    pub(crate) fn reader(&self) -> Reader {
        self.engine().reader()
    }

    pub(crate) fn set_clock(&mut self, now: Millis) {
        self.now = now;
        self.latest = self.latest.max(now);
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.trace.note(what);
    }

    /// When timers will be worked off if nothing becomes due sooner; `None` while they are.
    pub(crate) fn timers_sleep_until(&self) -> Option<Millis> {
        let each = self.partitions.iter().map(|partition| partition.timers.sleeps_until());
        each.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// Whether everything that was decided is durable.
    pub(crate) fn is_idle(&self) -> bool {
        self.partitions.iter().all(|partition| partition.engine().is_idle())
    }

    /// Any of the partitions.
    pub(crate) fn pick_partition(&mut self) -> usize {
        if self.partitions.len() == 1 { 0 } else { self.random.index(self.partitions.len()) }
    }
}
