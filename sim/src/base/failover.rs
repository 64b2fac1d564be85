//! Two machines share a log: one writes, the other follows, and takes over at any moment.
//!
//! ```text
//!            take over                     comes to itself
//! follows ─────────────▶ (writes)   paused ────────────────▶ down ──▶ follows
//!                            │ deposed: is told so at once, or pauses first, or dies
//!                            └────────────────▶ paused, or down
//! ```
//!
//! To a world this is a crash and a restart: whatever was acknowledged is there, and nothing else.
//! Beside that, no batch of a deposed writer is accepted, nobody is told of success whose batch was
//! refused, and what both sides know in memory is what a fresh load gives.

use super::check::{CheckResult, violation};
use super::engine::{
    AnswerState, Engine, EngineSettings, Fatal, FollowingEngine, OpenBatch, check_memory,
};
use super::mode::Mode;
use super::partition::Partition;
use super::random::Random;
use super::shared_storage::{CommitFault, Contest, ContestedWriter, SharedStorage};
use super::storage::{Storage, StorageFault};
use super::world::World;
use super::{commit, crash};

/// Both machines of a partition.
pub(crate) struct Failover {
    contest: Contest,
    machines: [SharedStorage; 2],
    /// Which of them writes.
    leader: usize,
    other: OtherMachine,
    /// Something was broken on purpose on the other machine.
    other_is_faulty: bool,
    /// A writer was opened that is not the partition's yet.
    is_deposing: bool,
}

/// What the machine does that does not write.
enum OtherMachine {
    Down,
    Follows(Box<FollowingEngine>),
    /// It was deposed and does not know yet.
    Paused(Box<PausedWriter>),
}

struct PausedWriter {
    engine: Engine,
    taken: Option<OpenBatch>,
    /// For each of those who wait for an answer: whether it was told of success, once it is told.
    waiting: Vec<Box<dyn FnMut() -> Option<bool>>>,
}

/// What becomes of a writer that is deposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeposedFate {
    /// It goes on at once, and is told.
    Hears,
    /// It goes on later; nobody waits for it any more.
    Pauses,
    /// It never goes on: that is why it was deposed.
    Dies,
}

#[derive(Debug, Clone, Copy)]
enum FailoverFault {
    TakeOver(DeposedFate),
    /// The log does not answer once.
    Lose,
    /// The log does not answer, and somebody else writes it when it is asked again.
    Depose,
    /// The other machine loses its power.
    CutOther,
    /// A disk operation of the other machine is interrupted.
    InterruptOther,
}

impl Failover {
    pub(super) fn new(random: &mut Random, mode: &Mode) -> Failover {
        let contest = Contest::default();
        let machines = [0, 1].map(|_| SharedStorage::new(&contest, random, mode));
        Failover {
            contest,
            machines,
            leader: 0,
            other: OtherMachine::Down,
            other_is_faulty: false,
            is_deposing: false,
        }
    }

    pub(super) fn storage_of_leader(&self) -> Box<dyn Storage> {
        Box::new(self.machines[self.leader].clone())
    }

    fn storage_of_other(&mut self) -> &mut SharedStorage {
        &mut self.machines[1 - self.leader]
    }
}

/// Whether somebody else is about to write.
pub(super) fn is_deposed(partition: &Partition) -> bool {
    partition.failover.as_ref().is_some_and(|it| it.is_deposing || it.contest.has_usurper())
}

fn failover<W: World>(world: &mut W, at: usize) -> &mut Failover {
    world.base_mut().partitions[at].failover.as_mut().expect("the log is shared")
}

/// Something goes wrong between the machines.
pub(super) fn fault<W: World>(world: &mut W, at: usize) -> CheckResult {
    let base = world.base_mut();
    let fault = base.random.weighted(&[
        (3, FailoverFault::TakeOver(DeposedFate::Hears)),
        (3, FailoverFault::TakeOver(DeposedFate::Pauses)),
        (2, FailoverFault::TakeOver(DeposedFate::Dies)),
        (2, FailoverFault::Lose),
        (4, FailoverFault::Depose),
        (1, FailoverFault::CutOther),
        (1, FailoverFault::InterruptOther),
    ]);
    let is_written = base.random.one_in(2);
    let operations = base.random.between(1, 16);
    base.note(&format!("failover: {fault:?} {is_written}"));
    let failover = failover(world, at);
    match fault {
        FailoverFault::TakeOver(fate) => {
            follow_at_last(world, at)?;
            let writer = self::failover(world, at).contest.writer();
            return take_over(world, at, writer, fate);
        }
        FailoverFault::Lose => failover.contest.lose_next(is_written),
        FailoverFault::Depose => {
            failover.contest.set_next(Some(CommitFault::Depose { is_written }));
        }
        FailoverFault::CutOther => end_other(world, at, true)?,
        FailoverFault::InterruptOther => {
            failover.other_is_faulty = true;
            failover.storage_of_other().inject(StorageFault::InterruptAfter(operations));
        }
    }
    Ok(())
}

/// The other machine does whatever it does.
pub(super) fn step<W: World>(world: &mut W, at: usize) -> CheckResult {
    let draw = world.base_mut().random.below(8);
    let failover = failover(world, at);
    failover.contest.check_order()?;
    match &mut failover.other {
        OtherMachine::Down => start_other(world, at),
        OtherMachine::Paused(_) if draw == 0 => come_to_itself(world, at),
        OtherMachine::Paused(_) => Ok(()),
        OtherMachine::Follows(following) => {
            let result = match draw {
                0 => following.checkpoint(),
                _ => following.catch_up().map(drop),
            };
            if draw == 1 && result.is_ok() {
                check_memory(following.shared(), "whoever follows")?;
            }
            survive_other(world, at, result)
        }
    }
}

/// The other machine must stop. That is right only if something was broken.
fn survive_other<W: World>(world: &mut W, at: usize, result: Result<(), Fatal>) -> CheckResult {
    let Err(fatal) = result else { return Ok(()) };
    if !failover(world, at).other_is_faulty {
        return Err(violation(format!("the other machine stops without a cause: {fatal}")));
    }
    end_other(world, at, true)
}

/// The other machine's process ends, perhaps with its power. A writer that had not noticed that it
/// was deposed never will.
fn end_other<W: World>(world: &mut W, at: usize, cuts_power: bool) -> CheckResult {
    let failover = failover(world, at);
    failover.other = OtherMachine::Down;
    if cuts_power {
        failover.storage_of_other().cut_power();
        failover.other_is_faulty = false;
    }
    // Not `end_process`: what is to happen to the leader's commits still does.
    failover.storage_of_other().restart_table();
    Ok(())
}

/// The other machine follows from where its table ends.
fn start_other<W: World>(world: &mut W, at: usize) -> CheckResult {
    let slice_bytes = world.base().mode.slice_bytes;
    let settings = EngineSettings { slice_bytes, ..world.engine_settings(at) };
    let now = world.base().now;
    let number = u8::try_from(at).expect("few partitions");
    let failover = failover(world, at);
    let started = FollowingEngine::start(failover.storage_of_other(), number, &settings, now);
    match started {
        Ok(following) => failover.other = OtherMachine::Follows(Box::new(following)),
        Err(_) if failover.other_is_faulty => return end_other(world, at, true),
        Err(error) => return Err(violation(format!("nobody can follow: {error}"))),
    }
    world.base_mut().note("the other machine follows");
    Ok(())
}

/// Has the other machine follow, whatever it did before.
fn follow_at_last<W: World>(world: &mut W, at: usize) -> CheckResult {
    loop {
        match &failover(world, at).other {
            OtherMachine::Follows(_) => return Ok(()),
            OtherMachine::Paused(_) => come_to_itself(world, at)?,
            OtherMachine::Down => start_other(world, at)?,
        }
    }
}

/// A writer that was deposed goes on with what it was about to do. Nothing of that is accepted, and
/// nobody is told that it was.
fn come_to_itself<W: World>(world: &mut W, at: usize) -> CheckResult {
    let other = std::mem::replace(&mut failover(world, at).other, OtherMachine::Down);
    let OtherMachine::Paused(mut paused) = other else { return Ok(()) };
    let before = paused.engine.sequence();
    for _ in 0..2 {
        let Some(taken) = paused.taken.take().or_else(|| paused.engine.take()) else { break };
        let is_empty = Engine::is_without_changes(&taken);
        let committed = paused.engine.commit(taken);
        committed.map_err(|fatal| violation(format!("a deposed writer breaks: {fatal}")))?;
        if is_empty {
            // What was durable before may still be told.
            paused.waiting.retain_mut(|told| told().is_none());
        } else if !paused.engine.is_deposed() {
            return Err(violation("a deposed writer does not know that it is"));
        }
    }
    let trimmed = paused.engine.trim();
    trimmed.map_err(|fatal| violation(format!("a deposed writer breaks: {fatal}")))?;
    if paused.engine.sequence() != before {
        return Err(violation("a batch of a deposed writer was accepted"));
    }
    if paused.waiting.iter_mut().any(|told| told() != Some(false)) {
        return Err(violation("a deposed writer does not say that nothing was done"));
    }
    if paused.engine.is_idle() {
        check_memory(paused.engine.shared(), "a deposed writer")?;
    }
    world.base_mut().note("the deposed writer comes to itself");
    drop(paused);
    let cuts_power = world.base_mut().random.one_in(2);
    end_other(world, at, cuts_power)
}

/// If the writer was deposed while it committed, whoever did that takes over now.
pub(super) fn complete<W: World>(world: &mut W, at: usize) -> CheckResult {
    let Some(failover) = &mut world.base_mut().partitions[at].failover else { return Ok(()) };
    let Some(writer) = failover.contest.take_usurper() else { return Ok(()) };
    follow_at_last(world, at)?;
    let fates = [DeposedFate::Hears, DeposedFate::Pauses, DeposedFate::Dies];
    let fate = *world.base_mut().random.pick(&fates);
    take_over(world, at, writer, fate)
}

/// The machine that follows becomes the writer.
fn take_over<W: World>(
    world: &mut W,
    at: usize,
    writer: ContestedWriter,
    fate: DeposedFate,
) -> CheckResult {
    world.base_mut().note(&format!("take over: {fate:?}"));
    world.base_mut().coverage.takeovers += 1;
    world.before_crash(at)?;
    let failover = failover(world, at);
    failover.is_deposing = true;
    // What was to happen to the next commit was meant for the writer that is deposed.
    failover.contest.set_next(None);
    if fate == DeposedFate::Hears {
        hear(world, at)?;
    }
    let deposed = depose(world, at, fate);
    self::failover(world, at).is_deposing = false;
    crash::set_clock_between_lives(world);
    let (now, number) = (world.base().now, world.base_mut().random.next());
    let other = std::mem::replace(&mut self::failover(world, at).other, OtherMachine::Down);
    let OtherMachine::Follows(following) = other else { unreachable!("it follows") };
    let engine = following.lead(Box::new(writer), number, now).map_err(violation)?;
    let partition = &mut world.base_mut().partitions[at];
    partition.engine = Some(engine);
    let failover = partition.failover.as_mut().expect("the log is shared");
    std::mem::swap(&mut partition.is_faulty, &mut failover.other_is_faulty);
    failover.leader = 1 - failover.leader;
    partition.storage = failover.storage_of_leader();
    failover.contest.check_order()?;
    match deposed {
        Some(paused) => failover.other = OtherMachine::Paused(Box::new(paused)),
        None => end_other(world, at, fate == DeposedFate::Dies)?,
    }
    check_memory(world.base().partitions[at].engine().shared(), "whoever took over")?;
    crash::recover(world, at)
}

/// The deposed writer commits what it has, and tells everybody that it could not.
fn hear<W: World>(world: &mut W, at: usize) -> CheckResult {
    for _ in 0..2 {
        commit::take(world, at);
        // Its process may break as well.
        if commit::commit(world, at)?.is_err() {
            return Ok(());
        }
    }
    let engine = world.base().partitions[at].engine();
    if engine.is_idle() { check_memory(engine.shared(), "whoever was deposed") } else { Ok(()) }
}

/// Takes the engine of the writer away; returns it if it is to go on later.
fn depose<W: World>(world: &mut W, at: usize, fate: DeposedFate) -> Option<PausedWriter> {
    let base = world.base_mut();
    let engine = base.partitions[at].engine.take()?;
    let taken = base.partitions[at].taken.take();
    if fate != DeposedFate::Pauses {
        return None;
    }
    let mut waiting: Vec<Box<dyn FnMut() -> Option<bool>>> = Vec::new();
    for operation in base.operations.iter_mut().filter(|operation| operation.partition == at) {
        if let Some(mut call) = operation.take_call() {
            waiting.push(Box::new(move || match call.poll() {
                AnswerState::Ready(outcome) => Some(outcome.is_ok()),
                _ => None,
            }));
        }
    }
    Some(PausedWriter { engine, taken: taken.map(|(batch, _)| batch), waiting })
}

/// Nothing is lost any more, whoever was deposed knows it, and the other machine has everything.
pub(super) fn heal<W: World>(world: &mut W) -> CheckResult {
    for at in 0..world.base().partitions.len() {
        if world.base().partitions[at].failover.is_none() {
            continue;
        }
        let failover = failover(world, at);
        failover.contest.set_next(None);
        failover.storage_of_other().inject(StorageFault::FreeEverything);
        if failover.other_is_faulty && matches!(failover.other, OtherMachine::Follows(_)) {
            end_other(world, at, true)?;
        }
        follow_at_last(world, at)?;
        let writer = self::failover(world, at).contest.writer();
        take_over(world, at, writer, DeposedFate::Hears)?;
    }
    Ok(())
}
