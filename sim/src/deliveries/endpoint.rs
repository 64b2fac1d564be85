//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::{AttemptRecord, Verdict};

use super::Deliveries;
use super::action::Action;
use super::engine::{self, DeliveryAttempt, DeliveryOutcome, DeliveryReadiness};
use super::history::ECHO;
use super::model::HookModel;
use super::request::DeliveryRequest;
use crate::base::{CheckResult, Origin, violation};

/// An attempt that is on its way.
pub(super) struct OutboundAttempt {
    id: u64,
    attempt: DeliveryAttempt,
    sent_at: Millis,
    timeout_ms: u64,
    behavior: EndpointBehavior,
    is_slow: bool,
    /// The answer is being written down.
    is_answered: bool,
}

/// What an endpoint makes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointBehavior {
    Accept,
    Fail,
    Hang,
}

impl Deliveries {
    /// The next attempt is made.
    pub(super) fn make_attempt(&mut self) -> CheckResult<bool> {
        let engine = self.base.engine();
        let Some(attempt) = engine::next_attempt(engine, self.base.now) else { return Ok(false) };
        let Some(hook) = engine::hook(engine, attempt.id.hook) else {
            engine::end_attempt(engine, attempt);
            return Ok(true);
        };
        match engine::readiness(engine, &hook, &attempt, self.base.now)? {
            DeliveryReadiness::Nothing => engine::end_attempt(engine, attempt),
            DeliveryReadiness::Held => self.hold(attempt),
            DeliveryReadiness::Dropped { .. } => {
                return Err(violation(format!("{:?} is dropped, and owed", attempt.id)));
            }
            DeliveryReadiness::Send(event) => {
                self.base.note(&format!("attempt {} of {:?}", attempt.attempt, attempt.id));
                self.check_may_be_sent(&hook, &attempt, &event.id, &event.payload)?;
                self.base.coverage.attempts += 1;
                let behavior = self.draw_behavior();
                self.open_attempt(attempt, hook.policy.timeout_ms, behavior);
            }
        }
        Ok(true)
    }

    fn open_attempt(
        &mut self,
        attempt: DeliveryAttempt,
        timeout_ms: u64,
        behavior: EndpointBehavior,
    ) -> &mut OutboundAttempt {
        self.attempts.push(OutboundAttempt {
            id: self.number + 1,
            attempt,
            sent_at: self.base.now,
            timeout_ms,
            behavior,
            is_slow: false,
            is_answered: false,
        });
        self.number += 1;
        self.attempts.last_mut().expect("it was just opened")
    }

    /// An attempt is not made, because its hook is not active.
    fn hold(&mut self, attempt: DeliveryAttempt) {
        self.delayed.insert(attempt.id);
        let action = Action::Hold { id: attempt.id, attempt: attempt.attempt };
        let open = self.open_attempt(attempt, 0, EndpointBehavior::Hang);
        open.is_answered = true;
        let id = open.id;
        self.base.run(Origin::Background, DeliveryRequest::new(action, Some(id)));
    }

    fn draw_behavior(&mut self) -> EndpointBehavior {
        if self.base.is_healing {
            return EndpointBehavior::Accept;
        }
        self.base.random.weighted(&[
            (50, EndpointBehavior::Accept),
            (35, EndpointBehavior::Fail),
            (15, EndpointBehavior::Hang),
        ])
    }

    /// What is about to be sent is owed, is what its sender said, and it is its turn.
    fn check_may_be_sent(
        &mut self,
        hook: &Arc<Hook>,
        attempt: &DeliveryAttempt,
        event: &str,
        payload: &[u8],
    ) -> CheckResult {
        let DeliveryAttempt { id, attempt: number, .. } = attempt;
        let wrong =
            |what: &str| Err(violation(format!("{id:?} ({event}, attempt {number}) {what}")));
        let known = self.durable.hooks.get(&hook.name);
        let place = self.place_of(&hook.tenant, event);
        let (Some(known), Some(place)) = (known, place) else {
            return wrong("is of a hook or an event that there is not");
        };
        if !known.owed.contains(&place) && !known.maybe.contains(&place) {
            return wrong("is not owed");
        }
        if self.durable.events[place].payload != *payload {
            return wrong("has another payload than its sender's");
        }
        // Whether it is active and not paused may be decided and not durable.
        let decided = self.decided.hooks.get(&hook.name);
        if !known.is_sending() && !decided.is_some_and(HookModel::is_sending) {
            return wrong("is of a hook to which nothing is sent");
        }
        if self.history.ended.contains(id) {
            return wrong("is sent after its end");
        }
        if self.attempts.iter().any(|open| open.attempt.id == *id && !open.is_answered) {
            return wrong("is on its way twice");
        }
        if known.spec.ordered && id.no.round == 0 && !self.attempted.contains(id) {
            let events: Vec<_> = self.seen.all_events().map(|(no, _)| *no).collect();
            let id_at = |place: &usize| {
                let no = DeliveryNo { event: events[*place], round: 0 };
                DeliveryId { no, ..*id }
            };
            let begun = |place: &&usize| self.history.begun.contains(&id_at(place));
            let maybe = known.maybe.range(..place).filter(begun);
            for earlier in known.owed.range(..place).chain(maybe) {
                if !self.history.ended.contains(&id_at(earlier)) {
                    let event = &self.durable.events[*earlier].id;
                    return wrong(&format!("overtakes {event}"));
                }
            }
        }
        self.attempted.insert(*id);
        Ok(())
    }

    /// Hooks with room in memory have more of their deliveries there.
    pub(super) fn refill(&mut self) -> bool {
        let Some(hook) = engine::refill(self.base.engine()) else { return false };
        self.base.note(&format!("refill {hook:?}"));
        self.base.coverage.reads += 1;
        true
    }

    /// An attempt has been open for a while.
    pub(super) fn slow_down(&mut self) -> CheckResult {
        let is_quick = |open: &OutboundAttempt| !open.is_slow && !open.is_answered;
        if let Some(index) = self.attempts.iter().position(is_quick) {
            let open = &mut self.attempts[index];
            open.is_slow = engine::slow_down(self.base.engine(), &open.attempt);
            if !open.is_slow {
                self.attempts.remove(index);
            }
        }
        Ok(())
    }

    /// An endpoint answers, or has taken too long.
    pub(super) fn answer_attempt(&mut self) -> CheckResult<bool> {
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|at| !self.attempts[*at].is_answered).collect();
        if open.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&open);
        let twice = !self.base.is_healing && self.base.random.one_in(10);
        let now = self.base.now;
        let open = &mut self.attempts[index];
        let is_late = open.sent_at + open.timeout_ms <= now;
        let (verdict, status) = match open.behavior {
            EndpointBehavior::Hang if !is_late && !self.base.is_healing => return Ok(false),
            EndpointBehavior::Hang => (Verdict::Failed, None),
            EndpointBehavior::Fail => (Verdict::Failed, Some(500)),
            EndpointBehavior::Accept => (Verdict::Delivered, Some(200)),
        };
        open.is_answered = true;
        let error = (verdict == Verdict::Failed).then(|| "failed".into());
        let (number, took_ms) = (open.attempt.attempt, now.since(open.sent_at));
        let attempt = AttemptRecord { status, error, ..AttemptRecord::new(number, now, took_ms) };
        let outcome = DeliveryOutcome { id: open.attempt.id, attempt, verdict };
        let (id, action) = (open.id, Action::RecordOutcome(outcome));
        if twice {
            self.send(Origin::Background, action.clone());
        }
        self.base.run(Origin::Background, DeliveryRequest::new(action, Some(id)));
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(super) fn end_attempt(&mut self, id: u64, action: &Action, was_heard: bool) {
        if let Some(index) = self.attempts.iter().position(|open| open.id == id) {
            let over = self.attempts.remove(index);
            if !was_heard {
                self.delayed.insert(over.attempt.id);
            }
            engine::end_attempt(self.base.engine(), over.attempt);
        }
        if let Action::RecordOutcome(outcome) = action
            && was_heard
            && self.is_recorded(outcome)
        {
            let mut echo = outcome.clone();
            echo.attempt.status = Some(ECHO);
            echo.verdict = *self.base.random.pick(&[Verdict::Delivered, Verdict::Failed]);
            self.echoes.push(echo);
        }
    }

    /// Whether an answer was written down. One that came while its delivery was held was not; it
    /// may be, if it comes once more when the same attempt is made again.
    fn is_recorded(&self, outcome: &DeliveryOutcome) -> bool {
        let record = self.seen.deliveries.get(&outcome.id);
        let number = outcome.attempt.number;
        record.is_none_or(|it| it.delivery.attempts.iter().any(|it| it.number == number))
    }

    /// An answer comes once more, long after it was heard.
    pub(super) fn echo(&mut self) -> CheckResult {
        if !self.echoes.is_empty() {
            let index = self.base.random.index(self.echoes.len());
            let echo = self.echoes.swap_remove(index);
            self.send(Origin::Background, Action::RecordOutcome(echo));
        }
        Ok(())
    }
}
