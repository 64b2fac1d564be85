//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::{AttemptRecord, Verdict};
use reveille_engine::deliveries::delivery::DeliveryOutcome;
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::send::{self, DeliveryReadiness};
use reveille_engine::documents::face::DocumentFace;
use reveille_engine::effect::{Attempt, AttemptSource, DeliveryAttempt};
use reveille_engine::triggers::hooks::TriggerHooks;
use reveille_schema::{keys, record};

use super::Triggers;
use super::action::Action;
use super::model::ChangeModel;
use super::request::TriggerRequest;
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, Origin, violation};

/// An attempt that is on its way.
pub(super) struct OutboundAttempt {
    id: u64,
    attempt: DeliveryAttempt,
    sent_at: Millis,
    timeout_ms: u64,
    behavior: EndpointBehavior,
    /// What came of it is being written down.
    is_answered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointBehavior {
    Accept,
    Fail,
    Hang,
}

impl Triggers {
    /// The next attempt is made.
    pub(super) fn make_attempt(&mut self) -> CheckResult<bool> {
        let shared = self.base.engine().shared().clone();
        let attempt = match shared.outbox.next(self.base.now) {
            Some(Attempt::Delivery(attempt)) => attempt,
            Some(Attempt::Wake(_)) | None => return Ok(false),
        };
        let hook = shared.lock().index.of::<HookIndex>().get(attempt.id.hook).cloned();
        let Some(hook) = hook else {
            shared.outbox.ended(&Attempt::Delivery(attempt));
            return Ok(true);
        };
        let (reader, face) = (self.base.reader(), DocumentFace::with_hooks(TriggerHooks));
        let ready = send::readiness(&reader, &face, &hook, &attempt, self.base.now);
        match ready.map_err(unreadable)? {
            DeliveryReadiness::Nothing => shared.outbox.ended(&Attempt::Delivery(attempt)),
            DeliveryReadiness::Dropped { .. } => {
                return Err(violation(format!("{:?} is dropped, and owed", attempt.id)));
            }
            DeliveryReadiness::Held => {
                let action = Action::Hold { id: attempt.id, attempt: attempt.attempt };
                let id = self.open_attempt(attempt, 0, EndpointBehavior::Hang, true);
                self.base.run(Origin::Background, TriggerRequest::new(action, Some(id)));
            }
            DeliveryReadiness::Send(event) => {
                self.base.note(&format!("attempt {} of {:?}", attempt.attempt, attempt.id));
                self.check_may_be_sent(&hook, &attempt, &event.id)?;
                self.base.coverage.attempts += 1;
                let behavior = self.draw_behavior();
                self.open_attempt(attempt, hook.policy.timeout_ms, behavior, false);
            }
        }
        Ok(true)
    }

    fn open_attempt(
        &mut self,
        attempt: DeliveryAttempt,
        timeout_ms: u64,
        behavior: EndpointBehavior,
        is_answered: bool,
    ) -> u64 {
        let (id, sent_at) = (self.next_number(), self.base.now);
        let open = OutboundAttempt { id, attempt, sent_at, timeout_ms, behavior, is_answered };
        self.attempts.push(open);
        id
    }

    fn draw_behavior(&mut self) -> EndpointBehavior {
        if self.base.is_healing {
            return EndpointBehavior::Accept;
        }
        self.base.random.weighted(&[
            (55, EndpointBehavior::Accept),
            (35, EndpointBehavior::Fail),
            (10, EndpointBehavior::Hang),
        ])
    }

    /// What is about to be sent is owed by the version that is followed, and it is its turn: whatever
    /// came before of the same document has its end.
    fn check_may_be_sent(
        &self,
        hook: &Arc<Hook>,
        attempt: &DeliveryAttempt,
        event: &str,
    ) -> CheckResult {
        let id = attempt.id;
        let wrong = |what: &str| Err(violation(format!("{id:?} (change {event}) {what}")));
        let seq: usize = event.parse().expect("the name of a change is its seq");
        let Some(known) = self.durable.tenants.get(&hook.tenant) else {
            return wrong("is of a tenant without changes");
        };
        let Some(change) = known.changes.get(seq - 1) else { return wrong("is not durable") };
        let Some(version) = change.owed.get(&hook.id) else { return wrong("is not owed") };
        let followed = send::followed(&self.base.reader(), hook.clone(), attempt);
        if followed.map_err(unreadable)?.version != *version {
            return wrong("is sent by another version than the one that has matched");
        }
        let is_before =
            |it: &&ChangeModel| it.path == change.path && it.owed.contains_key(&hook.id);
        for (at, earlier) in known.changes[..seq - 1].iter().enumerate() {
            if !is_before(&earlier) {
                continue;
            }
            let Some(earlier) = self.delivery_of(hook, at as u64 + 1)? else {
                return wrong(&format!("overtakes change {}", at + 1));
            };
            if earlier.delivery.ended_at().is_none() {
                return wrong(&format!("is sent before change {} has its end", at + 1));
            }
        }
        Ok(())
    }

    /// The delivery of a change to a hook, as it is durable.
    pub(super) fn delivery_of(
        &self,
        hook: &Hook,
        seq: u64,
    ) -> CheckResult<Option<record::DeliveryRecord>> {
        let reader = self.base.reader();
        let place = reader.get(&keys::change_place(&hook.tenant, seq)).map_err(unreadable)?;
        let Some(place) = place else { return Ok(None) };
        let event = EventNo(record::decode_u64(&place).map_err(unreadable)?);
        let id = DeliveryId { hook: hook.id, no: DeliveryNo { event, round: 0 } };
        let found = reader.get(&keys::delivery(id)).map_err(unreadable)?;
        found.map(|value| record::decode_delivery(&value)).transpose().map_err(unreadable)
    }

    /// Hooks with room in memory have more of their deliveries there.
    pub(super) fn refill(&mut self) -> bool {
        let shared = self.base.engine().shared().clone();
        let Some((AttemptSource::Hook(hook), from)) = shared.outbox.next_refill() else {
            return false;
        };
        send::refill(&shared, hook, from);
        self.base.coverage.reads += 1;
        true
    }

    /// An endpoint answers, or has taken too long.
    pub(super) fn answer_attempt(&mut self) -> CheckResult<bool> {
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|at| !self.attempts[*at].is_answered).collect();
        if open.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&open);
        let (now, is_healing) = (self.base.now, self.base.is_healing);
        let open = &mut self.attempts[index];
        let is_late = open.sent_at + open.timeout_ms <= now;
        let (verdict, status) = match open.behavior {
            EndpointBehavior::Hang if !is_late && !is_healing => return Ok(false),
            EndpointBehavior::Hang => (Verdict::Failed, None),
            EndpointBehavior::Fail => (Verdict::Failed, Some(500)),
            EndpointBehavior::Accept => (Verdict::Delivered, Some(200)),
        };
        open.is_answered = true;
        let error = (verdict == Verdict::Failed).then(|| "failed".into());
        let (number, took_ms) = (open.attempt.attempt, now.since(open.sent_at));
        let attempt = AttemptRecord { status, error, ..AttemptRecord::new(number, now, took_ms) };
        let (id, outcome) = (open.id, DeliveryOutcome { id: open.attempt.id, attempt, verdict });
        let request = TriggerRequest::new(Action::RecordOutcome(outcome), Some(id));
        self.base.run(Origin::Background, request);
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(super) fn end_attempt(&mut self, id: u64) {
        if let Some(index) = self.attempts.iter().position(|open| open.id == id) {
            let over = self.attempts.remove(index);
            self.base.engine().shared().outbox.ended(&Attempt::Delivery(over.attempt));
        }
    }
}
