//! What happens next: one step after another, in an order that the seed chooses.

use super::check::{CheckResult, Violation};
use super::engine::{Engine, Fatal};
use super::operation::Origin;
use super::world::{Setup, World};
use super::{commit, crash, failover, operation, timers};
use crate::{Failure, Options, Report};

/// Runs one seed of a world.
pub(crate) fn run<W: World>(seed: u64, options: Options) -> Result<Report, Failure> {
    let mut world = W::new(Setup::new(seed, options));
    match live(&mut world) {
        Ok(()) => {
            let base = world.base();
            let hashes = base.partitions.iter().map(|partition| partition.storage.trace_hash());
            let storage = hashes.fold(0, |all: u64, one| all.rotate_left(1) ^ one);
            let (hash, branches) = ((base.trace.hash(), storage), base.branches.clone());
            Ok(Report { hash, coverage: base.coverage, branches })
        }
        Err(Violation(what)) => Err(Failure { seed, step: world.base().trace.step, what }),
    }
}

fn live<W: World>(world: &mut W) -> CheckResult {
    crash::start_all(world)?;
    world.prepare();
    for _ in 0..world.base().mode.steps {
        let base = world.base_mut();
        base.trace.step += 1;
        base.coverage.steps += 1;
        step(world)?;
    }
    world.finale()
}

type Step<W> = fn(&mut W) -> CheckResult;

fn step<W: World>(world: &mut W) -> CheckResult {
    let base = world.base_mut();
    let mode = &base.mode;
    let checkpoints = mode.checkpoints;
    let follows = if base.partitions.iter().any(|it| it.failover.is_some()) { 60 } else { 0 };
    let own: [(u64, Step<W>); 15] = [
        (mode.operations, advance_one),
        (mode.clients, client),
        (mode.commits, take),
        (mode.commits, commit_taken),
        // The table is brought up beside everything else: what is set aside now is written later,
        // with commits in between.
        (checkpoints / 2, |world| with_engine(world, Engine::settle)),
        (checkpoints / 2, |world| with_engine(world, Engine::freeze)),
        (checkpoints, |world| keep(world, "apply", Engine::apply)),
        (checkpoints.div_ceil(2), |world| keep(world, "checkpoint", Engine::checkpoint)),
        (10, seal),
        (5, |world| with_engine(world, Engine::fill_spares)),
        (10, |world| with_engine(world, Engine::watch_disk)),
        (mode.timers, work_off_timers),
        (mode.time, pass_time),
        (mode.faults, crash::fault),
        (follows, follow),
    ];
    let steps = [&own, W::ACTIONS].concat();
    let step = base.random.weighted(&steps);
    step(world)
}

fn with_engine<W: World>(world: &mut W, act: fn(&Engine)) -> CheckResult {
    let base = world.base_mut();
    let at = base.pick_partition();
    act(base.partitions[at].engine());
    Ok(())
}

/// Something that the server may die of.
fn keep<W: World>(
    world: &mut W,
    what: &str,
    act: fn(&mut Engine) -> Result<(), Fatal>,
) -> CheckResult {
    let base = world.base_mut();
    base.note(what);
    let at = base.pick_partition();
    let result = act(base.partitions[at].engine_mut());
    crash::survive(world, at, result)
}

/// Some operation goes one step further.
fn advance_one<W: World>(world: &mut W) -> CheckResult {
    let base = world.base_mut();
    let movable = (0..base.operations.len()).filter(|index| !base.operations[*index].is_waiting());
    let movable: Vec<usize> = movable.collect();
    if movable.is_empty() {
        return Ok(());
    }
    let index = *base.random.pick(&movable);
    operation::advance(world, index)
}

/// A client has an idea, if not too many are on their way.
fn client<W: World>(world: &mut W) -> CheckResult {
    let base = world.base();
    let clients = base.operations.iter().filter(|operation| operation.origin == Origin::Client);
    if clients.count() < base.mode.clients_max { world.invent() } else { Ok(()) }
}

fn take<W: World>(world: &mut W) -> CheckResult {
    let at = world.base_mut().pick_partition();
    commit::take(world, at);
    Ok(())
}

fn commit_taken<W: World>(world: &mut W) -> CheckResult {
    let at = world.base_mut().pick_partition();
    let result = commit::commit(world, at)?;
    crash::survive(world, at, result)?;
    failover::complete(world, at)
}

/// The other machine of a partition does something, if there is one.
fn follow<W: World>(world: &mut W) -> CheckResult {
    let at = world.base_mut().pick_partition();
    failover::step(world, at)
}

/// The committer has nothing to do.
fn seal<W: World>(world: &mut W) -> CheckResult {
    let base = world.base_mut();
    let at = base.pick_partition();
    let partition = &mut base.partitions[at];
    if partition.taken.is_some() || !partition.engine().is_idle() {
        return Ok(());
    }
    let result = partition.engine_mut().seal();
    base.note("seal");
    crash::survive(world, at, result)
}

fn work_off_timers<W: World>(world: &mut W) -> CheckResult {
    let at = world.base_mut().pick_partition();
    timers::work(world, at)
}

fn pass_time<W: World>(world: &mut W) -> CheckResult {
    let base = world.base_mut();
    let below = base.random.weighted(base.mode.time_jumps);
    let millis = base.random.below(below);
    base.set_clock(base.now + millis);
    base.note(&format!("{millis} ms pass"));
    Ok(())
}
