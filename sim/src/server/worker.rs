//! The due index at work, taken apart into steps.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use reveille_core::Millis;
use reveille_engine::due::{self, PAUSE_MS, TimerLookahead};
use reveille_schema::keys;

use super::Server;
use crate::world::{Checked, violated};

#[derive(Debug, Default)]
pub(crate) struct Worker {
    since: Millis,
    ahead: TimerLookahead,
    /// When all that was found is done, there is nothing left before this.
    done_until: Millis,
    /// Obligations that are being fulfilled, all at once.
    busy: usize,
    failed: bool,
    /// Nothing to do before this.
    wake_at: Option<Millis>,
    /// It sleeps because something failed, and not because nothing is due.
    paused: bool,
}

impl Worker {
    /// An obligation's outcome is there.
    pub(crate) fn told(&mut self, fulfilled: bool, now: Millis) {
        self.busy -= 1;
        self.failed |= !fulfilled;
        if self.busy > 0 {
            return;
        }
        if std::mem::take(&mut self.failed) {
            self.ahead.forget();
            self.wake_at = Some(now + PAUSE_MS);
            self.paused = true;
        } else {
            self.since = self.done_until;
        }
    }

    /// When it will work again if nobody wakes it.
    pub(crate) fn sleeps_until(&self) -> Option<Millis> {
        self.wake_at.filter(|_| self.busy == 0)
    }
}

pub(super) fn work<S: Server + ?Sized>(world: &mut S) -> Checked {
    let (now, busy, wake_at) =
        (world.base().now, world.base().worker.busy, world.base().worker.wake_at);
    if busy > 0 {
        return Ok(());
    }
    if let Some(wake_at) = wake_at {
        if now < wake_at && !was_notified(world) {
            return nothing_due(world);
        }
        let worker = &mut world.base_mut().worker;
        worker.wake_at = None;
        worker.paused = false;
    }
    let shared = world.life().shared.clone();
    let failed = |error: String| violated(format!("the due index cannot be read: {error}"));
    let worker = &mut world.base_mut().worker;
    let newly = due::newly_due(&shared);
    worker.ahead.note(newly);
    worker.since = worker.since.min(newly);
    let reader = shared.state.reader();
    let found = worker.ahead.look(&reader, &keys::due_from(worker.since), now);
    let found = found.map_err(|error| failed(error.to_string()))?;
    worker.done_until = due::done_until(&found, now);
    for key in found {
        let Some((_, due)) = keys::parse_due(&key) else {
            return Err(failed(format!("{key:?}")));
        };
        let command = due::command(&shared, key, due);
        let command = command.map_err(|error| failed(error.to_string()))?;
        if world.base_mut().random.one_in(16) {
            world.oblige_again(command.clone());
        }
        world.oblige(command);
        world.base_mut().worker.busy += 1;
    }
    let worker = &mut world.base_mut().worker;
    if worker.busy == 0 {
        worker.since = now;
        let next = worker.ahead.next(&reader, now).map_err(|error| failed(error.to_string()))?;
        worker.wake_at = Some(next);
    }
    Ok(())
}

/// Whoever sleeps on and was not told otherwise has indeed nothing to do.
fn nothing_due<S: Server + ?Sized>(world: &S) -> Checked {
    let (from, to) = keys::due_until(world.base().now);
    let due = world.life().shared.state.reader().keys(&from, &to, 1);
    match due.map_err(|error| violated(error.to_string()))?.first() {
        Some(key) if !world.base().worker.paused => {
            Err(violated(format!("nobody is woken for {:?}", keys::parse_due(key))))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a batch has told that something is due sooner.
fn was_notified<S: Server + ?Sized>(world: &S) -> bool {
    let notified = pin!(world.life().shared.due.notified());
    let mut context = Context::from_waker(Waker::noop());
    notified.poll(&mut context) == Poll::Ready(())
}
