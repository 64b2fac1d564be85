//! What happens when nothing else does.

use super::{Dialect, Given, Phase, Stage, Transition};

impl Transition {
    /// A time has come. One that is early changes nothing: timers are hints.
    pub(super) fn timer(&mut self, given: &Given<'_>, in_flight: bool) {
        let now = given.now;
        match self.consumer.phase.clone() {
            Phase::Idle { wake_at: Some(at) } if at <= now => {
                self.consumer.phase = Phase::Idle { wake_at: None };
                if given.policy.is_paused {
                    self.look(given);
                } else if self.consumer.is_pending(given) {
                    self.wake(given);
                } else {
                    self.consumer.pending_since = None;
                }
            }
            Phase::Waking { stage: Stage::Sent { until } | Stage::Paused { until }, .. }
                if until <= now && given.policy.is_paused =>
            {
                self.put_off(given);
            }
            // Whatever there was to do has gone with its stream.
            Phase::Waking { stage: Stage::Paused { until }, .. }
                if until <= now
                    && given.policy.dialect == Dialect::Leases
                    && !self.consumer.is_pending(given) =>
            {
                self.consumer.failing_since = None;
                self.rest(given);
            }
            Phase::Waking { attempt, stage: Stage::Paused { until } } if until <= now => {
                self.tell(given, attempt.saturating_add(1));
            }
            // The attempt was never made: that is nobody's failure.
            Phase::Waking { attempt, stage: Stage::Sent { until } }
                if until <= now && !in_flight =>
            {
                self.tell(given, attempt);
            }
            Phase::Waking { attempt, stage: Stage::Sent { until } } if until <= now => {
                match given.policy.dialect {
                    // It stays open: an answer that comes late still counts.
                    Dialect::Webhooks => self.failed(given, attempt),
                    Dialect::Leases => self.rest(given),
                }
            }
            Phase::Live { until } if until <= now => self.rest(given),
            Phase::Gone(_) if self.consumer.deadline().is_some_and(|at| at <= now) => {
                self.forget_given_up(given);
            }
            Phase::Idle { .. } | Phase::Waking { .. } | Phase::Live { .. } | Phase::Gone(_) => {}
        }
    }
}
