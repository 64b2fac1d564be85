//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::consumer::Answer as WakeResponse;
use reveille_core::delivery::{AttemptRecord, Verdict};
use reveille_core::{Millis, Offset, Tenant};

use super::Partitions;
use super::engine::{
    self, Attempt, DeliveryAttempt, DeliveryOutcome, NotifiedStream, WakeAttempt, WakeOutcome,
};
use super::request::{Action, TenantRequest};
use crate::base::{CheckResult, Origin, violation};

/// Longer than any attempt may take.
const TIMEOUT_MS: u64 = 5_000;

/// An attempt that is on its way.
pub(super) struct OutboundAttempt {
    id: u64,
    pub(super) partition: usize,
    attempt: Attempt,
    tenant: Tenant,
    content: AttemptContent,
    sent_at: Millis,
    behavior: EndpointBehavior,
    is_slow: bool,
    /// The answer is being written down.
    is_answered: bool,
}

/// What an endpoint learns by it.
#[derive(Debug, Clone)]
enum AttemptContent {
    Wake(Vec<NotifiedStream>),
    Delivery { hook: Arc<str>, event: Arc<str> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointBehavior {
    Accept,
    Fail,
    Hang,
}

impl Partitions {
    /// The next attempt of a partition is made.
    pub(super) fn make_attempt(&mut self, at: usize) -> CheckResult<bool> {
        let engine = self.base.partitions[at].engine();
        let Some(attempt) = engine::next_attempt(engine, self.base.now) else { return Ok(false) };
        let found = match &attempt {
            Attempt::Wake(wake) => self.notice(at, wake)?,
            Attempt::Delivery(delivery) => self.event(at, delivery)?,
        };
        let Some((tenant, content)) = found else {
            engine::end_attempt(self.base.partitions[at].engine(), &attempt);
            return Ok(true);
        };
        if engine::partition_of(&tenant) != at {
            return Err(violation(format!("partition {at} calls for {tenant}: {content:?}")));
        }
        self.base.note(&format!("partition {at} calls for {tenant}: {content:?}"));
        self.base.coverage.attempts += 1;
        let behavior = if self.base.is_healing {
            EndpointBehavior::Accept
        } else {
            self.base.random.weighted(&[
                (60, EndpointBehavior::Accept),
                (20, EndpointBehavior::Fail),
                (20, EndpointBehavior::Hang),
            ])
        };
        self.attempts.push(OutboundAttempt {
            id: self.number + 1,
            partition: at,
            attempt,
            tenant,
            content,
            sent_at: self.base.now,
            behavior,
            is_slow: false,
            is_answered: false,
        });
        self.number += 1;
        Ok(true)
    }

    fn notice(
        &self,
        at: usize,
        attempt: &WakeAttempt,
    ) -> CheckResult<Option<(Tenant, AttemptContent)>> {
        let notice = engine::notice(self.base.partitions[at].engine(), attempt, self.base.now)?;
        Ok(notice.map(|(subscription, streams)| {
            (subscription.tenant.clone(), AttemptContent::Wake(streams))
        }))
    }

    fn event(
        &self,
        at: usize,
        attempt: &DeliveryAttempt,
    ) -> CheckResult<Option<(Tenant, AttemptContent)>> {
        let ready = engine::event(self.base.partitions[at].engine(), attempt, self.base.now)?;
        let Some((hook, event)) = ready else { return Ok(None) };
        if event.payload != engine::said(&hook.tenant, &event.id) {
            return Err(violation(format!("{} of {} gets {event:?}", hook.name, hook.tenant)));
        }
        let content = AttemptContent::Delivery { hook: hook.name.clone(), event: event.id };
        Ok(Some((hook.tenant.clone(), content)))
    }

    /// An attempt has been open for a while.
    pub(super) fn slow_down(&mut self) -> CheckResult {
        let is_quick = |open: &OutboundAttempt| !open.is_slow && !open.is_answered;
        if let Some(index) = self.attempts.iter().position(is_quick) {
            let open = &mut self.attempts[index];
            let engine = self.base.partitions[open.partition].engine();
            open.is_slow = engine::slow_down(engine, &open.attempt);
            if !open.is_slow {
                self.attempts.remove(index);
            }
        }
        Ok(())
    }

    /// An endpoint answers, or has taken too long.
    pub(super) fn answer_attempt(&mut self) -> CheckResult<bool> {
        let now = self.base.now;
        let is_healing = self.base.is_healing;
        let answers = |open: &OutboundAttempt| {
            let is_late = open.sent_at + TIMEOUT_MS <= now;
            let hangs = open.behavior == EndpointBehavior::Hang;
            !open.is_answered && (!hangs || is_late || is_healing)
        };
        let open = (0..self.attempts.len()).filter(|index| answers(&self.attempts[*index]));
        let open: Vec<usize> = open.collect();
        if open.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&open);
        let open = &mut self.attempts[index];
        open.is_answered = true;
        let is_good = open.behavior == EndpointBehavior::Accept;
        let error: Option<Arc<str>> = (!is_good).then(|| "failed".into());
        let action = match (&open.attempt, &open.content) {
            (Attempt::Wake(attempt), AttemptContent::Wake(streams)) => {
                let response = match is_good {
                    true => WakeResponse::Done(engine::announced(streams)),
                    false => WakeResponse::Failed,
                };
                Action::RecordWake(WakeOutcome { attempt: attempt.clone(), response, error })
            }
            (Attempt::Delivery(delivery), _) => {
                let attempt = AttemptRecord {
                    status: Some(if is_good { 200 } else { 500 }),
                    error,
                    ..AttemptRecord::new(delivery.attempt, now, now.since(open.sent_at))
                };
                let verdict = if is_good { Verdict::Delivered } else { Verdict::Failed };
                Action::RecordDelivery(DeliveryOutcome { id: delivery.id, attempt, verdict })
            }
            (Attempt::Wake(_), AttemptContent::Delivery { .. }) => unreachable!("it is a wake"),
        };
        let (partition, tenant, id) = (open.partition, open.tenant.clone(), open.id);
        if is_good {
            let content = open.content.clone();
            self.note_taken(&tenant, content);
        }
        let mut request = TenantRequest::new(self, tenant, action);
        request.attempt = Some(id);
        self.base.run_on(partition, Origin::Background, Box::new(request));
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(super) fn end_attempt(&mut self, id: u64) {
        let Some(index) = self.attempts.iter().position(|open| open.id == id) else { return };
        let over = self.attempts.remove(index);
        let engine = self.base.partitions[over.partition].engine();
        engine::end_attempt(engine, &over.attempt);
    }

    /// An endpoint has taken it, whether or not the server will hear of that.
    fn note_taken(&mut self, tenant: &Tenant, content: AttemptContent) {
        match content {
            AttemptContent::Wake(streams) => {
                for NotifiedStream { path, tail, .. } in streams {
                    let told = self.told.entry((tenant.clone(), path)).or_insert(Offset::ZERO);
                    *told = (*told).max(tail.unwrap_or(Offset::ZERO));
                }
            }
            AttemptContent::Delivery { hook, event } => {
                self.delivered.insert((hook, event));
            }
        }
    }
}
