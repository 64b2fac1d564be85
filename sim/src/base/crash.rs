//! Faults and crashes; the next life must find what the last one had made durable.

use reveille_core::Millis;

use super::check::{CheckResult, violation};
use super::engine::{Engine, EngineSettings, Fatal};
use super::storage::StorageFault;
use super::world::World;
use super::{commit, failover};

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashKind {
    PowerCut,
    /// The process ends; what it wrote stays in the memory of the operating system.
    Kill,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    PowerCut,
    Kill,
    /// The server is stopped on purpose.
    Restart,
    /// A disk operation is interrupted, and nothing works after it.
    Interrupt,
    FailSync,
    FillDisk,
    FreeDisk,
    FillWrite,
    /// Only the table finds no room.
    FillTable,
}

/// Starts every server for the first time.
pub(super) fn start_all<W: World>(world: &mut W) -> CheckResult {
    for at in 0..world.base().partitions.len() {
        let engine = start(world, at).map_err(violation)?;
        world.base_mut().partitions[at].engine = Some(engine);
    }
    Ok(())
}

fn start<W: World>(world: &mut W, at: usize) -> Result<Engine, String> {
    let slice_bytes = world.base().mode.slice_bytes;
    let settings = EngineSettings { slice_bytes, ..world.engine_settings(at) };
    let base = world.base_mut();
    let salt = base.random.next();
    let storage = base.partitions[at].storage.as_mut();
    let number = u8::try_from(at).expect("few partitions");
    let (engine, recovered) = Engine::start(storage, number, settings, base.now, salt)?;
    base.note(&format!("recovered {recovered:?}"));
    Ok(engine)
}

/// Breaks something.
pub(super) fn fault<W: World>(world: &mut W) -> CheckResult {
    let base = world.base_mut();
    let at = base.pick_partition();
    if base.partitions[at].failover.is_some() && base.random.one_in(2) {
        return failover::fault(world, at);
    }
    let weights = &base.mode.fault_weights;
    let fault = base.random.weighted(&[
        (weights.power_cut, Fault::PowerCut),
        (weights.kill, Fault::Kill),
        (weights.restart, Fault::Restart),
        (weights.interrupt, Fault::Interrupt),
        (weights.fail_sync, Fault::FailSync),
        (weights.fill_disk, Fault::FillDisk),
        (weights.free_disk, Fault::FreeDisk),
        (weights.fill_write, Fault::FillWrite),
        (weights.fill_table, Fault::FillTable),
    ]);
    base.note(&format!("fault: {fault:?}"));
    let partition = &mut base.partitions[at];
    let machine = partition.machine;
    match fault {
        Fault::PowerCut => return crash(world, machine, CrashKind::PowerCut),
        Fault::Kill => return crash(world, machine, CrashKind::Kill),
        Fault::Restart => return restart(world, machine),
        Fault::Interrupt => {
            partition.is_faulty = true;
            let operations = base.random.between(1, 16);
            partition.storage.inject(StorageFault::InterruptAfter(operations));
        }
        Fault::FailSync => {
            partition.is_faulty = true;
            partition.storage.inject(StorageFault::FailNextSync);
        }
        Fault::FillDisk => {
            partition.is_full = true;
            let free = base.random.below(base.mode.segment_bytes * 2);
            partition.storage.inject(StorageFault::LeaveFree(free));
            partition.storage.inject(StorageFault::FillTable(base.random.one_in(2)));
        }
        Fault::FreeDisk => {
            partition.is_full = false;
            partition.storage.inject(StorageFault::FreeEverything);
        }
        Fault::FillTable => partition.storage.inject(StorageFault::FillTable(true)),
        Fault::FillWrite => {
            partition.is_full_once = true;
            partition.storage.inject(StorageFault::FillNextWrite);
        }
    }
    Ok(())
}

/// The server must stop. That is right only if something was broken.
pub(crate) fn survive<W: World>(
    world: &mut W,
    at: usize,
    result: Result<(), Fatal>,
) -> CheckResult {
    let Err(fatal) = result else { return Ok(()) };
    let base = world.base_mut();
    let partition = &base.partitions[at];
    if !partition.is_faulty {
        return Err(violation(format!("the server stops without a cause: {fatal}")));
    }
    let machine = partition.machine;
    let kind = if base.random.one_in(2) { CrashKind::PowerCut } else { CrashKind::Kill };
    crash(world, machine, kind)
}

/// The partitions of a machine.
fn partitions_of<W: World>(world: &W, machine: usize) -> Vec<usize> {
    let partitions = &world.base().partitions;
    (0..partitions.len()).filter(|at| partitions[*at].machine == machine).collect()
}

/// Ends this life of a machine and begins the next.
pub(crate) fn crash<W: World>(world: &mut W, machine: usize, kind: CrashKind) -> CheckResult {
    let crashed = partitions_of(world, machine);
    for at in &crashed {
        world.before_crash(*at)?;
    }
    for at in &crashed {
        world.base_mut().partitions[*at].engine = None;
    }
    let partitions = &world.base().partitions;
    // A disk that was interrupted works again only after the machine was off.
    let is_stopped = crashed.iter().any(|at| partitions[*at].storage.is_stopped());
    if kind == CrashKind::PowerCut || is_stopped {
        cut_power(world, &crashed);
    }
    recover_all(world, &crashed)
}

/// Stops as one does on purpose: everything is finished first.
fn restart<W: World>(world: &mut W, machine: usize) -> CheckResult {
    let stopped = partitions_of(world, machine);
    for at in &stopped {
        world.base().partitions[*at].engine().stop();
        for _ in 0..2 {
            commit::take(world, *at);
            let result = commit::commit(world, *at)?;
            if result.is_err() {
                return survive(world, *at, result);
            }
        }
        let engine = world.base_mut().partitions[*at].engine_mut();
        let result = engine.seal().and_then(|()| engine.apply()).and_then(|()| engine.checkpoint());
        if result.is_err() {
            return survive(world, *at, result);
        }
    }
    for at in &stopped {
        world.base_mut().partitions[*at].engine = None;
    }
    recover_all(world, &stopped)
}

fn cut_power<W: World>(world: &mut W, partitions: &[usize]) {
    let base = world.base_mut();
    base.note("power is lost");
    for at in partitions {
        let partition = &mut base.partitions[*at];
        partition.has_lost_power = true;
        partition.storage.cut_power();
        partition.is_faulty = false;
        partition.is_full_once = false;
    }
}

fn recover_all<W: World>(world: &mut W, partitions: &[usize]) -> CheckResult {
    let base = world.base_mut();
    for at in partitions {
        base.partitions[*at].storage.end_process();
    }
    base.coverage.crashes += 1;
    set_clock_between_lives(world);
    start_again(world, partitions)?;
    for at in partitions {
        recover(world, *at)?;
    }
    Ok(())
}

/// Compares what the new life has found with what must be there.
pub(super) fn recover<W: World>(world: &mut W, at: usize) -> CheckResult {
    let base = world.base_mut();
    let partition = &mut base.partitions[at];
    let seq = partition.engine().sequence();
    let has_lost_power = std::mem::take(&mut partition.has_lost_power);
    match partition.doubtful.take() {
        Some(batch) if seq == partition.durable_seq + 1 => {
            base.coverage.kept += 1;
            partition.durable_seq = seq;
            partition.durable_time = batch.time;
            world.batch_durable(at, batch)?;
        }
        Some(_) => base.coverage.lost += 1,
        None => {}
    }
    if has_lost_power && !world.base().mode.sync && world.fall_back(at, seq) {
        let partition = &mut world.base_mut().partitions[at];
        partition.durable_seq = seq;
        partition.durable_time = partition.engine().time();
    }
    let durable = world.base().partitions[at].durable_seq;
    if seq != durable {
        return Err(violation(format!("batches up to {durable} were durable, {seq} are there")));
    }
    let partition = &world.base().partitions[at];
    if partition.engine().time() != partition.durable_time {
        let (found, written) = (partition.engine().time(), partition.durable_time);
        return Err(violation(format!("it was {written:?}, and now it is {found:?}")));
    }
    world.rolled_back(at);
    let base = world.base_mut();
    base.partitions[at].forget();
    let operations = std::mem::take(&mut base.operations);
    for operation in operations {
        if operation.partition == at {
            operation.request.interrupted(world, operation.origin);
        } else {
            world.base_mut().operations.push(operation);
        }
    }
    world.restarted(at)
}

/// Starts the servers of a machine, perhaps in several attempts.
fn start_again<W: World>(world: &mut W, partitions: &[usize]) -> CheckResult {
    while !try_to_start(world, partitions)? {
        for at in partitions {
            world.base_mut().partitions[*at].engine = None;
        }
    }
    Ok(())
}

fn try_to_start<W: World>(world: &mut W, partitions: &[usize]) -> CheckResult<bool> {
    for at in partitions {
        let base = world.base_mut();
        let partition = &mut base.partitions[*at];
        if base.random.one_in(6) {
            partition.is_faulty = true;
            let operations = base.random.between(1, 8);
            partition.storage.inject(StorageFault::InterruptAfter(operations));
        }
        let started = start(world, *at);
        let partition = &mut world.base_mut().partitions[*at];
        match started {
            Ok(engine) => partition.engine = Some(engine),
            Err(error) if partition.is_faulty => {
                world.base_mut().note(&format!("recovery failed: {error}"));
                cut_power(world, partitions);
                return Ok(false);
            }
            Err(error) if partition.is_full_once => {
                partition.is_full_once = false;
                world.base_mut().note(&format!("recovery found the disk full: {error}"));
                return Ok(false);
            }
            Err(error) => return Err(violation(format!("the store cannot be opened: {error}"))),
        }
    }
    Ok(true)
}

/// Clocks may be set while the server is down.
pub(super) fn set_clock_between_lives<W: World>(world: &mut W) {
    let base = world.base_mut();
    let past = base.random.below(40_000);
    let now = match base.random.below(8) {
        0 => Millis(base.now.0.saturating_sub(past)),
        1 | 2 => base.now + past,
        _ => base.now + 1,
    };
    base.set_clock(now);
}

/// Cuts the power of every machine, until all come back without further trouble.
pub(crate) fn crash_cleanly<W: World>(world: &mut W) -> CheckResult {
    for at in 0..world.base().partitions.len() {
        let machine = world.base().partitions[at].machine;
        crash(world, machine, CrashKind::PowerCut)?;
        while world.base().partitions[at].is_faulty {
            crash(world, machine, CrashKind::PowerCut)?;
        }
    }
    Ok(())
}
