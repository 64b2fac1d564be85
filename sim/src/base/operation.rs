//! A request on its way: it is decided, told what to fetch, and decided again, with anything
//! happening in between; then it waits for its batch and is answered.
//!
//! ```text
//! prepare → decide → (at once) ─────────────→ answered
//!            ↑  ↓ ↘ wait for the batch ─────→ answered
//!          read ← fetch        ↘ the batch was refused: rolled back, answered
//!                              ↘ the server crashed: interrupted
//! ```

use reveille_core::Millis;
use reveille_store::state::Reader;

use super::check::{CheckResult, violation};
use super::engine::{AnswerState, Lookups, SubmitResult};
use super::world::{Outcome, World, WorldCall};

/// What a world asks of the server: a command, and what its decision and its outcome mean.
pub(crate) trait Request<W: World>: std::fmt::Debug {
    /// The command that it is; asked for once, after the preparation.
    fn call(&self) -> WorldCall<W>;

    /// More than it adds to a batch.
    fn weight(&self) -> u64;

    /// Looks something up before the first decision, as the engine does; true if it did, so that
    /// others may come in between.
    fn prepare(&mut self, _world: &mut W) -> CheckResult<bool> {
        Ok(false)
    }

    /// The partition has decided.
    fn decided(&mut self, _world: &mut W, _decision: &Decision<'_, W>) -> CheckResult {
        Ok(())
    }

    /// The log had no room for its batch: it never happened, and is about to be told so.
    fn rolled_back(&mut self) {}

    /// Whoever asked has the outcome.
    fn answered(self: Box<Self>, world: &mut W, origin: Origin, outcome: Outcome<W>)
    -> CheckResult;

    /// The server crashed before the outcome was told.
    fn interrupted(self: Box<Self>, _world: &mut W, _origin: Origin) {}
}

/// A decision that was just made.
pub(crate) struct Decision<'a, W: World> {
    /// The outcome, if it was told at once.
    pub(crate) outcome: Option<&'a Outcome<W>>,
    /// The batch that it belongs to otherwise.
    pub(crate) batch: u64,
    /// Whether everything decided before was durable.
    pub(crate) was_idle: bool,
    pub(crate) was_read_only: bool,
    /// When it was made: the partition's time never goes back, whatever becomes of the clock.
    pub(crate) now: Millis,
}

/// Who is waiting for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Client,
    Timer,
    /// Nobody who counts as a client: repetitions, reports, whatever the server writes down itself.
    Background,
}

pub(crate) struct Operation<W: World> {
    pub(crate) partition: usize,
    pub(crate) origin: Origin,
    pub(crate) request: Box<dyn Request<W>>,
    call: Option<WorldCall<W>>,
    stage: OperationStage,
    lookups: Lookups,
    rounds: u32,
}

enum OperationStage {
    Prepare,
    Decide,
    /// Keys are missing: a reader is taken,
    Fetch,
    /// and only later read from.
    Read(Reader),
    Wait {
        batch: u64,
    },
}

impl<W: World> Operation<W> {
    pub(crate) fn new(
        partition: usize,
        origin: Origin,
        request: Box<dyn Request<W>>,
    ) -> Operation<W> {
        Operation {
            partition,
            origin,
            request,
            call: None,
            stage: OperationStage::Prepare,
            lookups: Lookups::default(),
            rounds: 0,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, OperationStage::Wait { .. })
    }

    /// Gives away where its answer would arrive, if it waits for one.
    pub(crate) fn take_call(&mut self) -> Option<WorldCall<W>> {
        self.call.take_if(|_| matches!(self.stage, OperationStage::Wait { .. }))
    }

    /// The answer that it waits for, with its batch.
    pub(crate) fn poll(&mut self) -> Option<(AnswerState<Outcome<W>>, u64)> {
        match self.stage {
            OperationStage::Wait { batch } => Some((self.call.as_mut()?.poll(), batch)),
            _ => None,
        }
    }

    /// One step further; the outcome if it is there at once.
    fn step(&mut self, world: &mut W) -> CheckResult<Option<Outcome<W>>> {
        match std::mem::replace(&mut self.stage, OperationStage::Decide) {
            OperationStage::Prepare => {
                if !self.request.prepare(world)? {
                    return self.decide(world);
                }
            }
            OperationStage::Decide => return self.decide(world),
            OperationStage::Fetch => {
                let reader = world.base().partitions[self.partition].engine().reader();
                self.stage = OperationStage::Read(reader);
            }
            OperationStage::Read(reader) => self.lookups.fetch(&reader)?,
            waiting @ OperationStage::Wait { .. } => self.stage = waiting,
        }
        Ok(None)
    }

    /// Asks the partition.
    fn decide(&mut self, world: &mut W) -> CheckResult<Option<Outcome<W>>> {
        let weight = self.request.weight();
        let base = world.base_mut();
        let partition = &base.partitions[self.partition];
        if !partition.has_room(weight, base.mode.batch_weight_max()) {
            base.trace.note("no room in the batch");
            return Ok(None);
        }
        self.rounds += 1;
        if self.rounds > base.mode.fetch_rounds_max {
            let what = &self.request;
            return Err(violation(format!("a decision asks for keys without end: {what:?}")));
        }
        let engine = partition.engine();
        let (was_idle, was_read_only) = (engine.is_idle(), engine.is_read_only());
        let earliest = engine.time().max(base.now);
        let call = self.call.get_or_insert_with(|| self.request.call());
        match call.submit(engine, &self.lookups, base.now) {
            SubmitResult::NoRoom => return Err(violation("no room for so little")),
            SubmitResult::Missing(missing) => {
                base.trace.note(&format!("missing {missing:?}"));
                base.coverage.fetches += 1;
                base.coverage.stale += self.lookups.add(missing);
                self.stage = OperationStage::Fetch;
                return Ok(None);
            }
            SubmitResult::Decided => {}
        }
        let now = engine.time();
        // A server that accepts nothing does not look at the clock.
        if now > earliest || (now < earliest && !was_read_only) {
            return Err(violation(format!(
                "it is {earliest:?}, and a decision was made at {now:?}"
            )));
        }
        base.trace.note(&format!("decided {:?}", self.request));
        let batch = partition.open_batch;
        let outcome = match call.poll() {
            AnswerState::Ready(outcome) => Some(outcome),
            AnswerState::Pending => None,
            AnswerState::Dropped => {
                return Err(violation("a command was decided and forgotten"));
            }
            AnswerState::Damaged(what) => return Err(violation(format!("damaged: {what}"))),
        };
        let decision = Decision { outcome: outcome.as_ref(), batch, was_idle, was_read_only, now };
        self.request.decided(world, &decision)?;
        if outcome.is_none() {
            self.stage = OperationStage::Wait { batch };
            world.base_mut().partitions[self.partition].add_to_batch(weight, now);
        }
        Ok(outcome)
    }
}

/// Takes an operation one step further.
pub(crate) fn advance<W: World>(world: &mut W, index: usize) -> CheckResult {
    let mut operation = world.base_mut().operations.remove(index);
    match operation.step(world)? {
        Some(outcome) => finish(world, operation, outcome),
        None => {
            world.base_mut().operations.insert(index, operation);
            Ok(())
        }
    }
}

/// An operation has its outcome.
pub(crate) fn finish<W: World>(
    world: &mut W,
    operation: Operation<W>,
    outcome: Outcome<W>,
) -> CheckResult {
    let Operation { partition, origin, request, .. } = operation;
    let base = world.base_mut();
    base.coverage.answers += 1;
    base.trace.note(&format!("answered {origin:?}: {outcome:?}"));
    if origin == Origin::Timer {
        base.coverage.timers += u64::from(outcome.is_ok());
        base.partitions[partition].timers.answered(outcome.is_ok(), base.now);
    }
    request.answered(world, origin, outcome)
}
