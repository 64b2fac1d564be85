//! Attempts on their way: each is looked at as a sender does, and held against the rules at the very
//! place of the log that was looked at.

use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::policy::Outcome;
use reveille_core::delivery::{AttemptRecord, ErrorKind, Transport};
use reveille_core::{ContentType, Millis, StreamPath};
use reveille_engine::deliveries::append::AppendDelivery;
use reveille_engine::deliveries::delivery::{DeliveryOutcome, DropDelivery};
use reveille_engine::deliveries::send::DeliveryReadiness;
use reveille_engine::effect::DeliveryAttempt;
use reveille_engine::encoder::EncodedAppend;

use super::Facts;
use super::action::Action;
use super::engine;
use super::model::{Expected, Model};
use super::request::FactRequest;
use crate::base::{CheckResult, Origin, violation};

const DELIVER: &str = "look: it may leave";
const WITHHOLD: &str = "look: it is withheld";
const CANCEL: &str = "look: it cancels";
pub(super) const APPENDED: &str = "append: made";
pub(super) const CANCELLED_MEANWHILE: &str = "append: cancelled in its own step";

/// The branches that runs of this world must take.
pub(super) const BRANCHES: [&str; 5] = [DELIVER, WITHHOLD, CANCEL, APPENDED, CANCELLED_MEANWHILE];

/// An attempt that is on its way.
pub(super) struct OutboundAttempt {
    number: u64,
    attempt: DeliveryAttempt,
    sent_at: Millis,
    behavior: Behavior,
    /// What came of it is being written down.
    is_answered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Accept,
    Fail,
    Hang,
}

impl Facts {
    /// What the rules say of a delivery; `None` if its hook or its event is not known.
    pub(super) fn ruling_of(&self, model: &Model, id: DeliveryId) -> Option<Expected> {
        let of = model.asked.get(self.hooks.get(&id.hook)?)?;
        let event = model.events.get(self.place_of(id.no.event)?)?;
        Some(model.expected(of, event.garden))
    }

    /// The next attempt is looked at, and made or not.
    pub(super) fn make_attempt(&mut self) -> CheckResult<bool> {
        let engine = self.base.engine();
        let Some(attempt) = engine::next_attempt(engine, self.base.now) else { return Ok(false) };
        let Some(hook) = engine::hook(engine, attempt.id.hook) else {
            engine::end_attempt(engine, attempt);
            return Ok(true);
        };
        let seen = engine::readiness(engine, &hook, &attempt, self.base.now)?;
        let expected = self.ruling_of(&self.durable, attempt.id);
        let (id, number) = (attempt.id, attempt.attempt);
        match (seen, expected) {
            (DeliveryReadiness::Nothing, _) => engine::end_attempt(engine, attempt),
            (DeliveryReadiness::Send(event), Some(Expected::Deliver)) => {
                self.base.note(&format!("attempt {number} of {id:?}"));
                self.base.coverage.attempts += 1;
                self.base.branches.take(DELIVER);
                self.check_bytes(id, &event.payload)?;
                self.sent.insert(id);
                self.send(attempt, hook);
            }
            (DeliveryReadiness::Dropped { why, ends_hook }, Some(expected))
                if expected == if ends_hook { Expected::Cancel } else { Expected::Withhold } =>
            {
                self.base.branches.take(if ends_hook { CANCEL } else { WITHHOLD });
                let kept = if ends_hook { None } else { Some(id) };
                self.withheld.extend(kept);
                self.may_end.extend(ends_hook.then_some(id.hook));
                self.delayed.insert(id);
                let drop = Action::Drop(DropDelivery { id, attempt: number, why, ends_hook });
                let open = self.open(attempt, Behavior::Hang);
                self.base.run(Origin::Background, FactRequest::new(drop, Some(open)));
            }
            (seen, expected) => {
                let what = format!("a look at {id:?} is {seen:?} and not {expected:?}");
                return Err(violation(what));
            }
        }
        Ok(true)
    }

    fn open(&mut self, attempt: DeliveryAttempt, behavior: Behavior) -> u64 {
        let (number, sent_at) = (self.next_number(), self.base.now);
        let is_answered = behavior == Behavior::Hang;
        self.attempts.push(OutboundAttempt { number, attempt, sent_at, behavior, is_answered });
        number
    }

    fn send(
        &mut self,
        attempt: DeliveryAttempt,
        hook: std::sync::Arc<reveille_core::delivery::hook::Hook>,
    ) {
        if hook.policy.transport == Transport::Append {
            let path = StreamPath::parse("/agents/a").expect("a path");
            let body = format!("{{\"event\":{}}},", attempt.id.no.event.0).into();
            let append = EncodedAppend { path, content_type: ContentType::json(), body };
            let (id, number, began_at) = (attempt.id, attempt.attempt, self.base.now);
            let command = AppendDelivery { id, attempt: number, hook, append, began_at };
            let open = self.open(attempt, Behavior::Hang);
            let action = Action::Append(Box::new(command));
            self.base.run(Origin::Background, FactRequest::new(action, Some(open)));
            return;
        }
        let accepts = self.base.is_healing || self.base.random.percent(65);
        self.open(attempt, if accepts { Behavior::Accept } else { Behavior::Fail });
    }

    /// Nothing of a garden is in what leaves to whoever does not belong to it.
    fn check_bytes(&self, id: DeliveryId, payload: &[u8]) -> CheckResult {
        let name = self.hooks.get(&id.hook).and_then(|name| self.durable.asked.get(name));
        let Some(of) = name else { return Err(violation(format!("nobody asked for {id:?}"))) };
        let text = String::from_utf8_lossy(payload);
        for event in &self.durable.events {
            if let (Some(garden), Some(mark)) = (event.garden, event.mark.as_deref())
                && !mark.is_empty()
                && !self.durable.gardens[garden].members[of.person]
                && text.contains(mark)
            {
                return Err(violation(format!("{mark} leaves by {id:?}: {text}")));
            }
        }
        let place = self.place_of(id.no.event).and_then(|at| self.durable.events.get(at));
        let mark = place.and_then(|event| event.mark.as_deref()).unwrap_or_default();
        if !text.contains(mark) {
            return Err(violation(format!("{id:?} says something else: {text}")));
        }
        Ok(())
    }

    /// Hooks with room in memory have more of their deliveries there.
    pub(super) fn refill(&mut self) -> bool {
        let is_done = engine::refill(self.base.engine());
        self.base.coverage.reads += u64::from(is_done);
        is_done
    }

    /// An endpoint answers.
    pub(super) fn answer_attempt(&mut self) -> CheckResult<bool> {
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|at| !self.attempts[*at].is_answered).collect();
        if open.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&open);
        let now = self.base.now;
        let open = &mut self.attempts[index];
        open.is_answered = true;
        let accepts = open.behavior == Behavior::Accept;
        let (number, took_ms) = (open.attempt.attempt, now.since(open.sent_at));
        let status = if accepts { 200 } else { 503 };
        let attempt = AttemptRecord {
            status: Some(status),
            error: (!accepts).then(|| "no".into()),
            kind: (!accepts).then_some(ErrorKind::Http),
            ..AttemptRecord::new(number, now, took_ms)
        };
        let (id, open) = (open.attempt.id, open.number);
        let Some(hook) = engine::hook(self.base.engine(), id.hook) else {
            self.end_attempt(open, true);
            return Ok(true);
        };
        let verdict = hook.policy.judge(Outcome::Answered { status, retry_after_s: None });
        let action = Action::RecordOutcome(DeliveryOutcome { id, attempt, verdict });
        self.base.run(Origin::Background, FactRequest::new(action, Some(open)));
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(super) fn end_attempt(&mut self, number: u64, was_heard: bool) {
        if let Some(index) = self.attempts.iter().position(|open| open.number == number) {
            let over = self.attempts.remove(index);
            if !was_heard {
                self.delayed.insert(over.attempt.id);
            }
            engine::end_attempt(self.base.engine(), over.attempt);
        }
    }
}
