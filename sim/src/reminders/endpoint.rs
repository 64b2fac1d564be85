//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::DeliveryNo;
use reveille_core::delivery::policy::{Outcome, Refusal};
use reveille_core::delivery::{AttemptRecord, ErrorKind, Transport, Verdict};
use reveille_engine::deliveries::append::AppendDelivery;
use reveille_engine::deliveries::delivery::{DeliveryOutcome, DropDelivery, HoldDelivery};
use reveille_engine::deliveries::face::DeliveryFaces;
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::send::{self, DeliveryReadiness};
use reveille_engine::effect::{Attempt, AttemptSource, DeliveryAttempt, EventPayload};
use reveille_kernel::error::Damaged;
use reveille_schema::record::DeliveryRecord;

use super::action::Action;
use super::request::ReminderRequest;
use super::{Reminders, branches};
use crate::base::engine::Shared;
use crate::base::{CheckResult, Origin, Violation, violation};

/// An attempt that is on its way.
pub(super) struct OutboundAttempt {
    number: u64,
    pub(super) attempt: DeliveryAttempt,
    hook: Arc<Hook>,
    sent_at: Millis,
    behavior: EndpointBehavior,
    /// It is a command.
    append: Option<AppendDelivery>,
    /// The answer is being written down.
    pub(super) is_answered: bool,
}

/// What an endpoint makes of a reminder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointBehavior {
    Answer(u16),
    /// It is busy, and asks for patience.
    Busy {
        status: u16,
        retry_after_s: u64,
    },
    Hang,
    /// It has moved to where nobody may be called.
    Blocked,
    /// It is not told: what is to be said cannot be read.
    Unreadable,
    /// It is not told: the face does not put it into words.
    Unsaid(Refusal),
}

fn unreadable(error: Damaged) -> Violation {
    violation(format!("nothing can be sent: {error}"))
}

impl Reminders {
    fn shared(&self) -> Arc<Shared> {
        self.base.engine().shared().clone()
    }

    /// The next attempt is made, as a sender makes it.
    pub(super) fn make_attempt(&mut self) -> CheckResult<bool> {
        let shared = self.shared();
        self.pace.pass(self.base.now);
        let next = shared.outbox.next(self.base.now);
        let Some(Attempt::Delivery(attempt)) = next else { return Ok(false) };
        let hook = shared.lock().index.of::<HookIndex>().get(attempt.id.hook).cloned();
        let Some(hook) = hook else {
            shared.outbox.ended(&Attempt::Delivery(attempt));
            return Ok(true);
        };
        let face = shared.domains.part::<DeliveryFaces>().get(hook.face).map_err(unreadable)?;
        let reader = self.base.reader();
        let current = hook.clone();
        let hook = send::followed(&reader, hook, &attempt).map_err(unreadable)?;
        self.take_version(&current, &hook);
        let ready = send::readiness(&reader, face, &hook, &attempt, self.base.now);
        let (id, number) = (attempt.id, attempt.attempt);
        match ready.map_err(unreadable)? {
            DeliveryReadiness::Nothing => {
                shared.outbox.ended(&Attempt::Delivery(attempt));
            }
            DeliveryReadiness::Held => {
                let hold = Action::Hold(HoldDelivery { id, attempt: number });
                self.leave_out(attempt, hook, hold);
            }
            DeliveryReadiness::Dropped { why, ends_hook } => {
                self.check_is_dropped(&hook, &attempt, ends_hook)?;
                self.take_gate(ends_hook);
                let drop = Action::Drop(DropDelivery { id, attempt: number, why, ends_hook });
                self.leave_out(attempt, hook, drop);
            }
            DeliveryReadiness::Send(event) => {
                self.base.note(&format!("attempt {number} of {id:?}"));
                self.check_may_be_sent(&hook, &attempt)?;
                self.base.branches.take(branches::GATE_OPEN);
                self.check_limits(id.hook)?;
                self.base.coverage.attempts += 1;
                self.sent.insert(id);
                self.put_into_words(attempt, hook, event)?;
            }
        }
        Ok(true)
    }

    /// The face's encoder says what is sent, or appended.
    fn put_into_words(
        &mut self,
        attempt: DeliveryAttempt,
        hook: Arc<Hook>,
        event: EventPayload,
    ) -> CheckResult {
        if attempt.transport != hook.policy.transport {
            return Err(violation(format!("{attempt:?} is made in another way than its hook's")));
        }
        if !self.base.is_healing && self.base.random.one_in(40) {
            self.open_attempt(attempt, hook, EndpointBehavior::Unreadable);
            return Ok(());
        }
        if hook.policy.transport == Transport::Append {
            match self.encode_append(&hook, &attempt, event)? {
                Err(why) => drop(self.open_attempt(attempt, hook, EndpointBehavior::Unsaid(why))),
                Ok(append) => {
                    let open = self.open_attempt(attempt, hook, EndpointBehavior::Hang);
                    open.append = Some(append);
                }
            }
            return Ok(());
        }
        let behavior = match self.check_request(&hook, &attempt, event)? {
            Some(refusal) => EndpointBehavior::Unsaid(refusal),
            None => self.draw_behavior(),
        };
        self.open_attempt(attempt, hook, behavior);
        Ok(())
    }

    fn open_attempt(
        &mut self,
        attempt: DeliveryAttempt,
        hook: Arc<Hook>,
        behavior: EndpointBehavior,
    ) -> &mut OutboundAttempt {
        let (number, sent_at) = (self.next_number(), self.base.now);
        let (append, is_answered) = (None, false);
        let open =
            OutboundAttempt { number, attempt, hook, sent_at, behavior, append, is_answered };
        self.attempts.push(open);
        self.attempts.last_mut().expect("it was just opened")
    }

    /// An attempt is not made, which is written down.
    fn leave_out(&mut self, attempt: DeliveryAttempt, hook: Arc<Hook>, action: Action) {
        self.delayed.insert(attempt.id);
        let open = self.open_attempt(attempt, hook, EndpointBehavior::Hang);
        open.is_answered = true;
        let number = open.number;
        self.base.run(Origin::Background, ReminderRequest::new(action, Some(number)));
    }

    fn draw_behavior(&mut self) -> EndpointBehavior {
        if self.base.is_healing {
            return EndpointBehavior::Answer(200);
        }
        self.base.random.weighted(&[
            (60, EndpointBehavior::Answer(200)),
            (35, EndpointBehavior::Answer(500)),
            (5, EndpointBehavior::Answer(429)),
            (6, EndpointBehavior::Answer(404)),
            (1, EndpointBehavior::Answer(410)),
            (1, EndpointBehavior::Answer(451)),
            (4, EndpointBehavior::Answer(403)),
            (4, EndpointBehavior::Answer(302)),
            (6, EndpointBehavior::Busy { status: 503, retry_after_s: 1 }),
            (4, EndpointBehavior::Busy { status: 429, retry_after_s: 3_600 }),
            (12, EndpointBehavior::Hang),
            (3, EndpointBehavior::Blocked),
        ])
    }

    /// Whoever closes the gate has a reason.
    fn check_is_dropped(
        &self,
        hook: &Hook,
        attempt: &DeliveryAttempt,
        ends_hook: bool,
    ) -> CheckResult {
        let is_revoked = self.durable.revoked.contains(&(hook.tenant.clone(), hook.name.clone()));
        if is_revoked || ends_hook {
            let is_right = is_revoked && ends_hook;
            let wrong = || violation(format!("{:?} is cancelled, or is not", attempt.id));
            return if is_right { Ok(()) } else { Err(wrong()) };
        }
        let came = self.seen.came.get(&attempt.id.no.event);
        let subject = came.map(|it| (attempt.tenant.clone(), it.subject.clone()));
        if subject.is_some_and(|subject| self.durable.muted.contains(&subject)) {
            return Ok(());
        }
        Err(violation(format!("{:?} is dropped, and nobody is muted", attempt.id)))
    }

    /// What is about to be sent is owed, may be sent, and it is its turn.
    fn check_may_be_sent(&self, hook: &Hook, attempt: &DeliveryAttempt) -> CheckResult {
        let id = attempt.id;
        let wrong = |what: &str| Err(violation(format!("{attempt:?} {what}")));
        let known = self.durable.hooks.get(&hook.name);
        let came = self.seen.came.get(&id.no.event);
        let (Some(known), Some(came)) = (known, came) else {
            return wrong("is of a hook or a reminder that there is not");
        };
        if !known.owed.contains(&came.name) {
            return wrong("is not owed");
        }
        if self.durable.muted.contains(&(hook.tenant.clone(), came.subject.clone())) {
            return wrong("is of a muted subject");
        }
        if self.durable.revoked.contains(&(hook.tenant.clone(), hook.name.clone())) {
            return wrong("is of a hook that was revoked");
        }
        // Whether it is active may be decided and not durable.
        if !known.is_active && !self.decided.hooks.get(&hook.name).is_some_and(|it| it.is_active) {
            return wrong("is of a hook that is not active");
        }
        let is_ended = |it: &DeliveryRecord| it.delivery.ended_at().is_some();
        let Some(record) = self.seen.deliveries.get(&id) else { return wrong("is not kept") };
        if is_ended(record) {
            return wrong("is sent after its end");
        }
        if self.attempts.iter().any(|open| open.attempt.id == id && !open.is_answered) {
            return wrong("is on its way twice");
        }
        if !known.spec().style.is_ordered() {
            return Ok(());
        }
        let is_earlier =
            |no: DeliveryNo| no.event < id.no.event && no.round == 0 && id.no.round == 0;
        let lane = self.seen.of(id.hook).filter(|(_, it)| it.lane == record.lane);
        match lane.filter(|(it, _)| is_earlier(it.no)).find(|(_, it)| !is_ended(it)) {
            Some((earlier, _)) => wrong(&format!("overtakes {earlier:?}")),
            None => Ok(()),
        }
    }

    /// Hooks with room in memory have more of their deliveries there.
    pub(super) fn refill(&mut self) -> bool {
        let shared = self.shared();
        let Some((AttemptSource::Hook(hook), from)) = shared.outbox.next_refill() else {
            return false;
        };
        send::refill(&shared, hook, from);
        self.base.note(&format!("refill {hook:?}"));
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
        let twice = !self.base.is_healing && self.base.random.one_in(10);
        let now = self.base.now;
        let open = &mut self.attempts[index];
        if let Some(append) = open.append.take() {
            open.is_answered = true;
            let (number, answered) = (open.number, Attempt::Delivery(open.attempt.clone()));
            self.pace.pass(now);
            self.base.engine().shared().outbox.answered(&answered, None, now, |_| false);
            self.submit_append(append, number);
            return Ok(true);
        }
        let (id, policy) = (open.attempt.id, &open.hook.policy);
        let is_late = open.sent_at + policy.timeout_ms <= now || self.base.is_healing;
        let outcome = match open.behavior {
            EndpointBehavior::Hang if !is_late => return Ok(false),
            EndpointBehavior::Hang => Outcome::Failed(ErrorKind::Timeout),
            EndpointBehavior::Blocked => Outcome::Failed(ErrorKind::Blocked),
            EndpointBehavior::Unreadable => Outcome::Unreadable,
            EndpointBehavior::Unsaid(refusal) => Outcome::Refused(refusal),
            EndpointBehavior::Answer(status) => Outcome::Answered { status, retry_after_s: None },
            EndpointBehavior::Busy { status, retry_after_s } => {
                Outcome::Answered { status, retry_after_s: Some(retry_after_s) }
            }
        };
        let (status, retry_after_s) = match outcome {
            Outcome::Answered { status, retry_after_s } => (Some(status), retry_after_s),
            _ => (None, None),
        };
        let verdict = policy.judge(outcome);
        open.is_answered = true;
        let error = (verdict != Verdict::Delivered).then(|| "failed".into());
        let (attempt, took_ms) = (open.attempt.attempt, now.since(open.sent_at));
        let attempt = AttemptRecord {
            status,
            error,
            kind: outcome.kind(),
            retry_after_s,
            ..AttemptRecord::new(attempt, now, took_ms)
        };
        let number = open.number;
        let answered = Attempt::Delivery(open.attempt.clone());
        self.take_outcome(outcome, verdict);
        self.pace.pass(now);
        self.base.engine().shared().outbox.answered(&answered, Some(took_ms), now, |_| false);
        match verdict {
            Verdict::Delivered => drop(self.accepted.insert(id)),
            Verdict::Ends => drop(self.rejecting.insert(id.hook)),
            _ => {}
        }
        let action = Action::RecordOutcome(DeliveryOutcome { id, attempt, verdict });
        if twice {
            self.base.run(Origin::Background, ReminderRequest::new(action.clone(), None));
        }
        self.base.run(Origin::Background, ReminderRequest::new(action, Some(number)));
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(super) fn end_attempt(&mut self, number: u64, was_heard: bool) {
        if let Some(index) = self.attempts.iter().position(|open| open.number == number) {
            let over = self.attempts.remove(index);
            if !was_heard {
                self.delayed.insert(over.attempt.id);
            }
            self.shared().outbox.ended(&Attempt::Delivery(over.attempt));
        }
    }
}
