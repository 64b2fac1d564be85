//! The end of a run: everything heals, and whatever was begun is finished.

use reveille_core::Millis;

use super::check::{CheckResult, violation};
use super::storage::StorageFault;
use super::world::World;
use super::{commit, crash, failover, operation, timers};

/// Nothing is broken any more, and from now on everybody behaves.
pub(crate) fn heal<W: World>(world: &mut W) -> CheckResult {
    let base = world.base_mut();
    base.note("finale");
    base.is_healing = true;
    for partition in &mut base.partitions {
        partition.is_full = false;
        partition.storage.inject(StorageFault::FreeEverything);
    }
    failover::heal(world)?;
    let base = world.base_mut();
    if base.partitions.iter().any(|partition| partition.is_faulty || partition.is_full_once) {
        crash::crash_cleanly(world)?;
    }
    Ok(())
}

/// Nobody comes any more: what was begun is finished, what is due is done.
pub(crate) fn settle<W: World>(world: &mut W) -> CheckResult {
    for _ in 0..W::TURNS_MAX {
        if !turn(world)? {
            return world.audit();
        }
    }
    Err(violation("the work has no end"))
}

/// One turn of everything that can go on without time passing; true if something did.
fn turn<W: World>(world: &mut W) -> CheckResult<bool> {
    world.base_mut().trace.step += 1;
    for at in 0..world.base().partitions.len() {
        world.base().partitions[at].engine().watch_disk();
        timers::work(world, at)?;
    }
    let mut has_moved = world.settle_turn()?;
    for index in (0..world.base().operations.len()).rev() {
        if !world.base().operations[index].is_waiting() {
            has_moved = true;
            operation::advance(world, index)?;
        }
    }
    for at in 0..world.base().partitions.len() {
        commit::take(world, at);
        has_moved |= world.base().partitions[at].taken.is_some();
        let result = commit::commit(world, at)?;
        crash::survive(world, at, result)?;
        if world.base_mut().random.one_in(8) {
            let result = world.base_mut().partitions[at].engine_mut().apply();
            crash::survive(world, at, result)?;
        }
    }
    let base = world.base();
    let is_asleep = base.timers_sleep_until().is_some_and(|at| at > base.now);
    Ok(has_moved || !is_asleep || !base.operations.is_empty() || !base.is_idle())
}

/// Lets time pass until the next of these is due. What is due already waits for timers that pause
/// after a failure.
pub(crate) fn pass_time_until<W: World>(world: &mut W, at: Millis) {
    let base = world.base_mut();
    if at > base.now {
        base.set_clock(at);
    } else {
        let resumes = base.timers_sleep_until().unwrap_or(base.now);
        base.set_clock(resumes.max(base.now + 1));
    }
}

/// Brings the whole state into the table. More than once, if a part was set aside already or the
/// table had stopped.
pub(crate) fn apply_all<W: World>(world: &mut W) -> CheckResult {
    for at in 0..world.base().partitions.len() {
        while !world.base().partitions[at].engine().is_applied() {
            let result = world.base_mut().partitions[at].engine_mut().apply();
            crash::survive(world, at, result)?;
        }
    }
    Ok(())
}
