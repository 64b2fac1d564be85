//! Whoever works off the due index: the engine's own loop, taken apart into steps.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use reveille_core::Millis;
use reveille_engine::command::Command;
use reveille_engine::due::{self, PAUSE_MS, TimerLookahead};
use reveille_schema::keys;

use crate::errand::{Errand, Owner};
use crate::request::Request;
use crate::world::{Checked, World, violated};

#[derive(Debug, Default)]
pub(crate) struct Worker {
    since: Millis,
    ahead: TimerLookahead,
    /// The look that is being worked off: when it was made, what it found, whether it was of use.
    round: Option<Round>,
    /// An obligation is being fulfilled.
    busy: bool,
    /// Nothing to do before this.
    wake_at: Option<Millis>,
    /// It sleeps because something failed, and not because nothing is due.
    paused: bool,
}

#[derive(Debug)]
struct Round {
    now: Millis,
    found: VecDeque<Bytes>,
    worked: bool,
}

impl Worker {
    /// The obligation's outcome is there.
    pub(crate) fn told(&mut self, fulfilled: bool, now: Millis) {
        self.busy = false;
        if !fulfilled {
            self.round = None;
            self.ahead.forget();
            self.wake_at = Some(now + PAUSE_MS);
            self.paused = true;
        }
    }

    /// When it will work again if nobody wakes it.
    pub(crate) fn sleeps_until(&self) -> Option<Millis> {
        self.wake_at.filter(|_| !self.busy)
    }

    fn sleep(&mut self, looked: Millis, next: Millis) {
        self.since = looked;
        self.wake_at = Some(next);
        self.round = None;
    }
}

impl World {
    /// One step of the work.
    pub(crate) fn work(&mut self) -> Checked {
        if self.worker.busy {
            return Ok(());
        }
        if let Some(wake_at) = self.worker.wake_at {
            if self.now < wake_at && !self.was_notified() {
                return self.nothing_due();
            }
            self.worker.wake_at = None;
            self.worker.paused = false;
        }
        let reader = self.life().shared.state.reader();
        let failed = |error| violated(format!("the due index cannot be read: {error}"));
        let Some(round) = &mut self.worker.round else {
            let newly_due = due::newly_due(&self.life.as_ref().expect("the server runs").shared);
            self.worker.ahead.note(newly_due);
            self.worker.since = self.worker.since.min(newly_due);
            let from = keys::due_from(self.worker.since);
            let found = self.worker.ahead.look(&reader, &from, self.now).map_err(failed)?;
            self.note(&format!("look at the due index: {} entries", found.len()));
            self.worker.round = Some(Round { now: self.now, found: found.into(), worked: false });
            return Ok(());
        };
        let looked = round.now;
        let Some(key) = round.found.pop_front() else {
            if round.worked {
                self.worker.round = None;
            } else {
                let next = self.worker.ahead.next(&reader, looked).map_err(failed)?;
                self.worker.sleep(looked, next);
            }
            return Ok(());
        };
        let Some((_, due)) = keys::parse_due(&key) else {
            return Err(violated(format!("an entry of the due index is {key:?}")));
        };
        round.worked = true;
        self.worker.busy = true;
        let found = due::remains(&reader, &due).map_err(failed)?;
        let command = Command::Obligation { key, due, found };
        if self.random.one_in(16) {
            // Doing it twice must change nothing.
            self.errands.push(Errand::new(Owner::Nobody, Request::plain(command.clone())));
        }
        self.errands.push(Errand::new(Owner::Worker, Request::plain(command)));
        Ok(())
    }

    /// Whoever sleeps on and was not told otherwise has indeed nothing to do.
    fn nothing_due(&self) -> Checked {
        let (from, to) = keys::due_until(self.now);
        let due = self.life().shared.state.reader().keys(&from, &to, 1);
        match due.map_err(|error| violated(error.to_string()))?.first() {
            Some(key) if !self.worker.paused => {
                let due = keys::parse_due(key);
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
