//! The due index at work, taken apart into steps.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use reveille_core::Millis;
use reveille_engine::due::{self, LOOK_EVERY_MS, PAUSE_MS};
use reveille_store::keys;

use super::errand::Owner;
use super::world::Wakes;
use crate::world::{Checked, violated};

#[derive(Debug, Default)]
pub(crate) struct Worker {
    since: Millis,
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
        if self.busy == 0 && std::mem::take(&mut self.failed) {
            self.wake_at = Some(now + PAUSE_MS);
            self.paused = true;
        }
    }

    /// When it will work again if nobody wakes it.
    pub(crate) fn sleeps_until(&self) -> Option<Millis> {
        self.wake_at.filter(|_| self.busy == 0)
    }
}

impl Wakes {
    /// One look at the index, and whatever it asks for.
    pub(crate) fn work(&mut self) -> Checked {
        if self.worker.busy > 0 {
            return Ok(());
        }
        if let Some(wake_at) = self.worker.wake_at {
            if self.now < wake_at && !self.was_notified() {
                return self.nothing_due();
            }
            self.worker.wake_at = None;
            self.worker.paused = false;
        }
        let shared = self.life().shared.clone();
        let failed = |error: String| violated(format!("the due index cannot be read: {error}"));
        self.worker.since = self.worker.since.min(due::newly_due(&shared));
        let found = due::look(&shared.state.reader(), self.worker.since, self.now);
        let found = found.map_err(|error| failed(error.to_string()))?;
        let mut next = Millis::NEVER;
        for (key, _) in found {
            let Some((at, due)) = keys::parse_due(&key) else {
                return Err(failed(format!("{key:?}")));
            };
            if at > self.now {
                next = at;
                break;
            }
            let command = due::command(&shared, key, due);
            let command = command.map_err(|error| failed(error.to_string()))?;
            if self.random.one_in(16) {
                // Doing it twice must change nothing.
                self.send(Owner::Nobody, command.clone());
            }
            self.send(Owner::Worker, command);
            self.worker.busy += 1;
        }
        if self.worker.busy == 0 {
            self.worker.since = self.now;
            self.worker.wake_at = Some(next.min(self.now + LOOK_EVERY_MS));
        }
        Ok(())
    }

    /// Whoever sleeps on and was not told otherwise has indeed nothing to do.
    fn nothing_due(&self) -> Checked {
        let first = self.seen.due.iter().find(|(at, _)| *at <= self.now);
        match first {
            Some((_, due)) if !self.worker.paused => {
                Err(violated(format!("nobody is woken for {due:?}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a batch has told that something is due sooner.
    fn was_notified(&self) -> bool {
        let notified = pin!(self.life().shared.due.notified());
        let mut context = Context::from_waker(Waker::noop());
        notified.poll(&mut context) == Poll::Ready(())
    }
}
