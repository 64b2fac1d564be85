//! The life of a delivery: one event on its way to one hook.
//!
//! ```text
//!              ┌───────── failed, attempts left ─────────┐
//!              ▼                                         │
//! queued ─▶ pending ──── its time has come ─────▶ leased ┼─▶ delivered
//!   (lane)     ▲                                    │    ├─▶ dead       attempts used up, or final
//!              └── held ◀── its hook is not active ─┘    └─▶ dropped    not owed any more
//! ```
//!
//! One [`Delivery::step`] for all faces; what differs between them is a [`Policy`]. Time and
//! randomness come in with the step. A leased delivery is being tried: its lease has an end, so
//! that an attempt which nobody made, because the process ended or there was no room, is made
//! again under the same number.

pub mod hook;
pub mod id;
pub mod lane;
pub mod outcome;
pub mod policy;
pub mod replay;

use crate::time::Millis;
pub use outcome::{AttemptRecord, DeadReason, DropReason, ErrorKind};
pub use policy::{
    Backoff, Jitter, Letters, Order, Poison, Policy, StatusSet, Transport, Verdict, Versions,
};

/// An attempt that is known to be under way, or to wait for its turn, is looked at this often at
/// least.
const EXTENSION_MS_MAX: u64 = 3_600_000;

/// A delivery, but for what is delivered and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Where it stands.
    pub phase: Phase,
    /// Attempts that were answered or failed, in order.
    pub attempts: Vec<AttemptRecord>,
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Others of its lane come first.
    Queued,
    /// It is to be tried at a time.
    Pending { at: Millis },
    /// It is being tried.
    Leased {
        /// Counted from 1.
        attempt: u32,
        /// An attempt that is not under way by then was never made.
        until: Millis,
    },
    /// Its hook is not active: it waits until that changes.
    Held,
    /// It was accepted.
    Delivered { at: Millis },
    /// It is tried no more.
    Dead { at: Millis, why: DeadReason },
    /// It is not owed any more.
    Dropped { at: Millis, why: DropReason },
}

/// Something happens to a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// An attempt was answered, or failed.
    Answered {
        /// What came of it.
        attempt: AttemptRecord,
        /// What that means.
        verdict: Verdict,
    },
    /// A time has come, perhaps.
    Timer {
        /// Whether an attempt is really under way, or is kept for its turn.
        in_flight: bool,
    },
    /// An attempt was not made, because its hook is not active.
    Unsent { attempt: u32 },
    /// It is the first of its lane now.
    Turn,
    /// Its hook is active again.
    Resumed,
    /// It is not owed any more.
    Drop(DropReason),
    /// It is tried no more, whatever came of its attempts.
    Bury(DeadReason),
}

/// What a step is given.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    pub now: Millis,
    pub random: u64,
    pub policy: &'a Policy,
    /// When it is given up because nothing will change: by its policy, where nobody else says so.
    pub poison: Option<Poison>,
    /// Multiplies the pauses between attempts, in thousandths.
    pub retry_scale_milli: u64,
    /// Whether the hook is active.
    pub active: bool,
    /// When the delivery began.
    pub began_at: Millis,
}

impl Given<'_> {
    /// The pause after failed attempt `number`.
    fn pause_ms(&self, number: u32) -> u64 {
        let pause = self.policy.backoff.delay_ms(number, self.random);
        pause.saturating_mul(self.retry_scale_milli) / 1_000
    }
}

/// A step that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The delivery after it.
    pub delivery: Delivery,
    /// The attempt to make now, if there is one.
    pub send: Option<u32>,
    /// Whether the hook itself is to end.
    pub ends_hook: bool,
}

impl Delivery {
    /// A delivery that begins: tried at once, unless others come first.
    pub fn begin(given: &Given<'_>, first_of_lane: bool) -> Transition {
        let delivery = Delivery { phase: Phase::Queued, attempts: Vec::new() };
        let mut step = Transition { delivery, send: None, ends_hook: false };
        if first_of_lane {
            step.lease(given);
        }
        step
    }

    /// What becomes of it.
    pub fn step(&self, given: &Given<'_>, input: Input) -> Transition {
        let mut step = Transition { delivery: self.clone(), send: None, ends_hook: false };
        match (self.phase, input) {
            // The end is the end, whatever comes late.
            (Phase::Delivered { .. } | Phase::Dead { .. } | Phase::Dropped { .. }, _) => {}
            (_, Input::Drop(why)) => step.delivery.phase = Phase::Dropped { at: given.now, why },
            (_, Input::Bury(why)) => step.delivery.phase = Phase::Dead { at: given.now, why },
            (Phase::Leased { attempt, .. }, Input::Answered { attempt: ended, verdict })
                if ended.number == attempt =>
            {
                step.answered(given, ended, verdict);
            }
            (Phase::Leased { attempt, .. }, Input::Unsent { attempt: unsent })
                if unsent == attempt =>
            {
                step.lease(given);
            }
            (_, Input::Answered { .. } | Input::Unsent { .. }) => {}
            (Phase::Pending { at }, Input::Timer { .. }) if at <= given.now => step.lease(given),
            (Phase::Leased { until, .. }, Input::Timer { in_flight }) if until <= given.now => {
                if in_flight {
                    step.extend(given);
                } else {
                    step.lease(given);
                }
            }
            (_, Input::Timer { .. }) => {}
            (Phase::Queued, Input::Turn) | (Phase::Held, Input::Resumed) => step.lease(given),
            (_, Input::Turn | Input::Resumed) => {}
        }
        step
    }

    /// When something must happen by itself.
    pub fn deadline(&self) -> Option<Millis> {
        match self.phase {
            Phase::Pending { at } | Phase::Leased { until: at, .. } => Some(at),
            Phase::Queued
            | Phase::Held
            | Phase::Delivered { .. }
            | Phase::Dead { .. }
            | Phase::Dropped { .. } => None,
        }
    }

    /// When it came to its end.
    pub fn ended_at(&self) -> Option<Millis> {
        match self.phase {
            Phase::Delivered { at } | Phase::Dead { at, .. } | Phase::Dropped { at, .. } => {
                Some(at)
            }
            Phase::Queued | Phase::Pending { .. } | Phase::Leased { .. } | Phase::Held => None,
        }
    }

    /// The number of the next attempt.
    fn next_attempt(&self) -> u32 {
        self.attempts.last().map_or(1, |last| last.number.saturating_add(1))
    }
}

impl Transition {
    /// The next attempt is to be made, if the hook wants any.
    fn lease(&mut self, given: &Given<'_>) {
        if !given.active {
            self.delivery.phase = Phase::Held;
            return;
        }
        let attempt = self.delivery.next_attempt();
        self.delivery.phase = Phase::Leased { attempt, until: given.now + given.policy.lease_ms() };
        self.send = Some(attempt);
    }

    /// The attempt is still under way, or waits for its turn: it has more time, and the more of it
    /// the longer it has waited, so that one that waits for hours costs few looks.
    fn extend(&mut self, given: &Given<'_>) {
        if let Phase::Leased { until, .. } = &mut self.delivery.phase {
            let waited = given.now.since(given.began_at).min(EXTENSION_MS_MAX);
            *until = given.now + given.policy.lease_ms().max(waited);
        }
    }

    fn answered(&mut self, given: &Given<'_>, attempt: AttemptRecord, verdict: Verdict) {
        let (now, policy) = (given.now, given.policy);
        let last = policy.last_attempt_at(given.began_at);
        let number = attempt.number;
        outcome::push(&mut self.delivery.attempts, attempt);
        let attempts = &self.delivery.attempts;
        self.delivery.phase = match verdict {
            Verdict::Delivered => Phase::Delivered { at: now },
            Verdict::Dead(why) => Phase::Dead { at: now, why },
            Verdict::Dropped(why) => Phase::Dropped { at: now, why },
            Verdict::Ends => {
                self.ends_hook = true;
                Phase::Dropped { at: now, why: DropReason::Cancelled }
            }
            Verdict::Failed | Verdict::FailedFor { .. }
                if given.poison.is_some_and(|poison| poison.is_in(attempts)) =>
            {
                Phase::Dead { at: now, why: DeadReason::Poison }
            }
            Verdict::Failed | Verdict::FailedFor { .. }
                if number >= policy.attempts || last.is_some_and(|last| last <= now) =>
            {
                Phase::Dead { at: now, why: Policy::reason_of_last(attempts.last()) }
            }
            Verdict::Failed | Verdict::FailedFor { .. } => {
                // Who asks for patience has at least that which it would have had anyway.
                let asked = if let Verdict::FailedFor { ms } = verdict { ms } else { 0 };
                let at = now + given.pause_ms(number).max(asked);
                // The time that there is for it is used to its end.
                Phase::Pending { at: last.map_or(at, |last| at.min(last)) }
            }
        };
    }
}

#[cfg(test)]
mod tests;
