//! Deaths of the server; the next life must find what the last one had made durable.

use reveille_core::Millis;
use reveille_engine::committer::Fatal;
use reveille_store::disk::Disk;

use super::{Server, Worker};
use crate::crash::Death;
use crate::life::Life;
use crate::world::{Checked, violated};

#[derive(Debug, Clone, Copy)]
enum Fault {
    Power,
    Kill,
    /// A disk operation is interrupted, and nothing works after it.
    Interrupt,
    FailSync,
    FillWrite,
}

pub(super) fn fault<S: Server + ?Sized>(world: &mut S) -> Checked {
    let base = world.base_mut();
    let fill = if base.mode.fills { 6 } else { 0 };
    let fault = base.random.weighted(&[
        (3, Fault::Power),
        (3, Fault::Kill),
        (6, Fault::Interrupt),
        (2, Fault::FailSync),
        (fill, Fault::FillWrite),
    ]);
    base.trace.note(&format!("fault: {fault:?}"));
    match fault {
        Fault::Power => return die(world, Death::Power),
        Fault::Kill => return die(world, Death::Kill),
        Fault::Interrupt => {
            base.faulty = true;
            base.disk.fail_after(base.random.between(1, 16));
        }
        Fault::FailSync => {
            base.faulty = true;
            base.disk.fail_next_sync();
        }
        Fault::FillWrite => {
            base.full_once = true;
            base.disk.fill_next_write();
        }
    }
    Ok(())
}

pub(super) fn survive<S: Server + ?Sized>(world: &mut S, result: Result<(), Fatal>) -> Checked {
    let Err(fatal) = result else { return Ok(()) };
    let base = world.base_mut();
    if !base.faulty {
        return Err(violated(format!("the server stops without a cause: {fatal}")));
    }
    let death = if base.random.one_in(2) { Death::Power } else { Death::Kill };
    die(world, death)
}

pub(super) fn die<S: Server + ?Sized>(world: &mut S, death: Death) -> Checked {
    let base = world.base_mut();
    base.life = None;
    // A disk that was interrupted works again only after the machine was off.
    if death == Death::Power || base.disk.free_bytes().is_err() {
        lose_power(world);
    }
    let base = world.base_mut();
    base.table.restart();
    base.tally.crashes += 1;
    recover(world)
}

fn lose_power<S: Server + ?Sized>(world: &mut S) {
    let base = world.base_mut();
    base.trace.note("power is lost");
    base.disk.crash();
    base.table.restart();
    base.faulty = false;
    base.full_once = false;
}

fn recover<S: Server + ?Sized>(world: &mut S) -> Checked {
    time_between_lives(world);
    let life = open_again(world)?;
    let seq = life.shared.state.reader().seq();
    let base = world.base_mut();
    base.life = Some(life);
    match base.doubtful.take() {
        Some(opened) if seq == base.durable_seq + 1 => {
            base.tally.kept += 1;
            base.durable_seq = seq;
            world.absorb(opened)?;
        }
        Some(_) => base.tally.lost += 1,
        None => {}
    }
    let durable = world.base().durable_seq;
    if seq != durable {
        return Err(violated(format!("batches up to {durable} were durable, {seq} are there")));
    }
    world.undone();
    world.same_as_before()?;
    let base = world.base_mut();
    base.taken = None;
    base.new_batches(1);
    base.worker = Worker::default();
    world.begin_again()
}

/// Opens the store, perhaps in several attempts.
fn open_again<S: Server + ?Sized>(world: &mut S) -> Checked<Life> {
    loop {
        let base = world.base_mut();
        if !base.honest && base.random.one_in(6) {
            base.faulty = true;
            base.disk.fail_after(base.random.between(1, 8));
        }
        match world.begin_life() {
            Ok(life) => return Ok(life),
            Err(error) if world.base().faulty => {
                world.note(&format!("recovery failed: {error}"));
                lose_power(world);
            }
            Err(error) if world.base().full_once => {
                world.note(&format!("recovery found the disk full: {error}"));
                world.base_mut().full_once = false;
            }
            Err(error) => return Err(violated(format!("the store cannot be opened: {error}"))),
        }
    }
}

/// Clocks may be set while the server is down.
fn time_between_lives<S: Server + ?Sized>(world: &mut S) {
    let base = world.base_mut();
    let past = base.random.below(40_000);
    let now = match base.random.below(8) {
        0 => Millis(base.now.0.saturating_sub(past)),
        1 | 2 => base.now + past,
        _ => base.now + 1,
    };
    world.set_clock(now);
}
