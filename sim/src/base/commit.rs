//! Batches become durable; whoever waited for them is answered, and nobody else.

use super::check::{CheckResult, violation};
use super::engine::{AnswerState, Engine, Fatal};
use super::world::World;
use super::{failover, operation};

/// Takes the open batch, if there is one and none is on its way.
pub(super) fn take<W: World>(world: &mut W, at: usize) {
    let base = world.base_mut();
    let now = base.now;
    if let Some(batch) = base.partitions[at].take(now) {
        base.note(&format!("take batch {}", batch.number));
        world.batch_taken(at, batch);
    }
}

/// Commits the batch that was taken, and checks everything that must follow.
pub(super) fn commit<W: World>(world: &mut W, at: usize) -> CheckResult<Result<(), Fatal>> {
    let partition = &mut world.base_mut().partitions[at];
    let Some((taken, batch)) = partition.taken.take() else {
        return Ok(Ok(()));
    };
    let number = batch.number;
    let is_empty = Engine::is_without_changes(&taken);
    let engine = partition.engine_mut();
    let result = engine.commit(taken);
    let seq = engine.sequence();
    if let Err(fatal) = result {
        partition.doubtful = Some(batch);
        world.base_mut().note(&format!("commit {number}: {fatal}"));
        nobody_is_answered(world, at, number)?;
        world.commit_failed(at)?;
        return Ok(Err(fatal));
    }
    let durable = partition.durable_seq;
    let is_refused = !is_empty && seq == durable;
    world.base_mut().note(&format!("commit {number}: seq {seq} refused={is_refused}"));
    if is_refused {
        refuse(world, at, number)?;
    } else {
        if seq != durable + u64::from(!is_empty) {
            return Err(violation(format!("the log jumps from {durable} to {seq}")));
        }
        let base = world.base_mut();
        let partition = &mut base.partitions[at];
        partition.durable_seq = seq;
        if !is_empty {
            partition.durable_time = batch.time;
        }
        base.coverage.batches += 1;
        world.batch_durable(at, batch)?;
        collect_answers(world, at, number)?;
    }
    world.committed(at)?;
    Ok(world.base_mut().partitions[at].engine_mut().trim())
}

/// The log had no room, or has another writer: the batch and whatever was decided on top of it never happened.
fn refuse<W: World>(world: &mut W, at: usize, number: u64) -> CheckResult {
    let base = world.base_mut();
    let partition = &mut base.partitions[at];
    let is_deposed = partition.engine().is_deposed();
    if !is_deposed && !partition.is_full && !std::mem::take(&mut partition.is_full_once) {
        return Err(violation("a batch was refused although there is room"));
    }
    if is_deposed && !failover::is_deposed(partition) {
        return Err(violation("a writer was deposed, and nobody took over"));
    }
    base.coverage.refused += 1;
    partition.open_batch(number + 2);
    let waiting = base.operations.iter_mut().filter(|it| it.partition == at && it.is_waiting());
    waiting.for_each(|operation| operation.request.rolled_back());
    world.rolled_back(at);
    collect_answers(world, at, u64::MAX)?;
    world.base().partitions[at].engine().recover_attempts()
}

/// Everybody who waited for a batch up to this has been answered, and nobody else.
fn collect_answers<W: World>(world: &mut W, at: usize, through: u64) -> CheckResult {
    for mut operation in std::mem::take(&mut world.base_mut().operations) {
        let polled = operation.poll().filter(|_| operation.partition == at);
        let Some((answer, batch)) = polled else {
            world.base_mut().operations.push(operation);
            continue;
        };
        let what = &operation.request;
        match answer {
            AnswerState::Ready(_) if batch > through => {
                return Err(violation(format!("{what:?} was answered before it was durable")));
            }
            AnswerState::Ready(outcome) => operation::finish(world, operation, outcome)?,
            AnswerState::Damaged(what) => return Err(violation(format!("damaged: {what}"))),
            AnswerState::Pending if batch > through => world.base_mut().operations.push(operation),
            AnswerState::Pending | AnswerState::Dropped => {
                return Err(violation(format!("{what:?} was not answered")));
            }
        }
    }
    Ok(())
}

/// A commit has failed: nobody may have been answered.
fn nobody_is_answered<W: World>(world: &mut W, at: usize, number: u64) -> CheckResult {
    let operations = world.base_mut().operations.iter_mut();
    for operation in operations.filter(|operation| operation.partition == at) {
        if let Some((AnswerState::Ready(_) | AnswerState::Damaged(_), batch)) = operation.poll() {
            let what = &operation.request;
            return Err(violation(format!(
                "{what:?} of batch {batch} was answered although batch {number} is not durable"
            )));
        }
    }
    Ok(())
}
