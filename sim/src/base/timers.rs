//! The due index at work: the engine's own loop, taken apart into steps.

use std::collections::VecDeque;

use bytes::Bytes;
use reveille_core::Millis;

use super::check::{CheckResult, violation};
use super::engine::{self, Lookahead, TIMER_PAUSE_MS};
use super::operation::Origin;
use super::world::World;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Entries before this are done.
    since: Millis,
    lookahead: Lookahead,
    /// What a look has found and nobody works on yet.
    queue: VecDeque<Bytes>,
    running: usize,
    /// When all that was found is done, there is nothing left before this.
    done_until: Millis,
    has_failed: bool,
    /// Nothing to do before this.
    wake_at: Option<Millis>,
    /// It sleeps because something failed, and not because nothing is due.
    is_paused: bool,
}

impl Timers {
    /// An entry's outcome is there.
    pub(crate) fn answered(&mut self, is_done: bool, now: Millis) {
        self.running -= 1;
        self.has_failed |= !is_done;
        if self.is_working() {
            return;
        }
        if std::mem::take(&mut self.has_failed) {
            self.lookahead.forget();
            self.wake_at = Some(now + TIMER_PAUSE_MS);
            self.is_paused = true;
        } else {
            self.since = self.done_until;
        }
    }

    /// When there will be work again if nothing becomes due sooner.
    pub(crate) fn sleeps_until(&self) -> Option<Millis> {
        self.wake_at.filter(|_| !self.is_working())
    }

    fn is_working(&self) -> bool {
        self.running > 0 || !self.queue.is_empty()
    }
}

/// One look at the due index, or the next of what the last one found.
pub(super) fn work<W: World>(world: &mut W, at: usize) -> CheckResult {
    let base = world.base_mut();
    let (now, at_once) = (base.now, base.mode.timers_at_once);
    let partition = &mut base.partitions[at];
    let engine = partition.engine.as_ref().expect("the server runs");
    let timers = &mut partition.timers;
    if !timers.is_working() {
        if let Some(wake_at) = timers.wake_at {
            if now < wake_at && !engine.was_notified_of_timers() {
                return nothing_is_due(world, at);
            }
            timers.wake_at = None;
            timers.is_paused = false;
        }
        let newly_due = engine.newly_due();
        timers.lookahead.note(newly_due);
        timers.since = timers.since.min(newly_due);
        let found = timers.lookahead.due(engine, timers.since, now)?;
        if found.is_empty() {
            timers.since = now;
            timers.wake_at = Some(timers.lookahead.next(engine, now)?);
            return Ok(());
        }
        timers.done_until = engine::done_until(&found, now);
        timers.queue = found.into();
    }
    while world.base().partitions[at].timers.running < at_once {
        let Some(key) = world.base_mut().partitions[at].timers.queue.pop_front() else { break };
        start(world, at, key)?;
    }
    Ok(())
}

fn start<W: World>(world: &mut W, at: usize, key: Bytes) -> CheckResult {
    let timer = world.base().partitions[at].engine().timer(key)?;
    if world.base_mut().random.one_in(16) {
        // Doing it twice must change nothing.
        let again = world.timer_request(timer.clone());
        world.base_mut().run_on(at, Origin::Background, again);
    }
    let request = world.timer_request(timer);
    let base = world.base_mut();
    base.run_on(at, Origin::Timer, request);
    base.partitions[at].timers.running += 1;
    Ok(())
}

/// Whoever sleeps on and was not told otherwise has indeed nothing to do.
fn nothing_is_due<W: World>(world: &W, at: usize) -> CheckResult {
    let partition = &world.base().partitions[at];
    match partition.engine().first_due(world.base().now)? {
        Some(timer) if !partition.timers.is_paused => {
            Err(violation(format!("nobody is woken for {timer:?}")))
        }
        Some(_) | None => Ok(()),
    }
}
