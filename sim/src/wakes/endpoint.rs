//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::consumer::{Answer as WakeResponse, Dialect, WakeId};
use reveille_core::subscription::{Subscription, Target};
use reveille_core::token::{Claims, TokenKind};

use super::Wakes;
use super::action::Action;
use super::agent::Agent;
use super::engine::{self, NotifiedStream, WakeAttempt, WakeOutcome};
use super::request::Sender;
use crate::base::{CheckResult, Origin, violation};

/// An attempt that is on its way.
pub(super) struct OutboundAttempt {
    attempt: WakeAttempt,
    streams: Vec<NotifiedStream>,
    sent_at: Millis,
    behavior: EndpointBehavior,
    /// Its answer is being written down, together with these.
    group: Option<u64>,
}

/// Answers that are written down together.
const GROUP_MAX: usize = 4;

/// What an endpoint makes of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointBehavior {
    Accept,
    Done,
    Fail,
    Hang,
}

impl Wakes {
    /// The next attempt is made.
    pub(super) fn make_attempt(&mut self) -> CheckResult<bool> {
        let engine = self.base.engine();
        let Some(attempt) = engine::next_attempt(engine, self.base.now) else { return Ok(false) };
        let subscription = engine::subscription(engine, attempt.consumer.subscription);
        let Some(subscription) = subscription else {
            engine::end_attempt(engine, attempt);
            return Ok(true);
        };
        let notice = engine::notice(engine, &subscription, &attempt, self.base.now)?;
        let Some((record, streams)) = notice else {
            engine::end_attempt(engine, attempt);
            return Ok(true);
        };
        let wake_id = record.consumer.wake_id;
        self.base.note(&format!("notify {attempt:?} {wake_id:?} {streams:?}"));
        self.history.notified(&attempt.consumer, attempt.epoch, wake_id)?;
        if !matches!(subscription.spec.target, Target::Webhook(_)) {
            return Err(violation(format!("{attempt:?} is for nobody")));
        }
        if subscription.paused_at.is_some() {
            return Err(violation(format!("{attempt:?} is told while paused")));
        }
        self.base.coverage.attempts += 1;
        let behavior = if self.base.is_healing {
            EndpointBehavior::Accept
        } else {
            self.base.random.weighted(&[
                (40, EndpointBehavior::Accept),
                (20, EndpointBehavior::Done),
                (20, EndpointBehavior::Fail),
                (20, EndpointBehavior::Hang),
            ])
        };
        // Some lie: they accept and never call. Others call although they seemed to fail.
        let works = match behavior {
            EndpointBehavior::Accept => self.base.is_healing || !self.base.random.one_in(5),
            EndpointBehavior::Done | EndpointBehavior::Fail => self.base.random.one_in(8),
            EndpointBehavior::Hang => self.base.random.one_in(2),
        };
        if let (true, Some(wake_id)) = (works, wake_id) {
            let primary = record.primary.map_or(0, |id| id.0);
            self.wake_agent(&subscription, &attempt, wake_id, primary, streams.clone());
        }
        let sent_at = self.base.now;
        self.attempts.push(OutboundAttempt { attempt, streams, sent_at, behavior, group: None });
        Ok(true)
    }

    pub(super) fn wake_agent(
        &mut self,
        subscription: &Arc<Subscription>,
        attempt: &WakeAttempt,
        wake_id: WakeId,
        stream: u64,
        streams: Vec<NotifiedStream>,
    ) {
        let kind = match subscription.spec.dialect {
            Dialect::Webhooks => TokenKind::Callback,
            Dialect::Leases => TokenKind::Lease,
        };
        let claims = Claims {
            kind,
            tenant: self.tenant.clone(),
            consumer: subscription.spec.name.clone(),
            subscription: subscription.id.0,
            stream,
            epoch: attempt.epoch,
            expires_at: self.base.now + self.timings.token_ttl_ms,
        };
        let id = self.next_number();
        let key = attempt.consumer.clone();
        let paths = streams.into_iter().map(|it| it.path).collect();
        self.agents.push(Agent::new(id, key, attempt.epoch, wake_id, claims, paths));
        if self.agents.len() > 24 && !self.base.is_healing {
            self.agents.remove(0);
        }
    }

    /// Endpoints answer, or have taken too long; what came of a few is written down together.
    pub(super) fn answer_attempts(&mut self) -> CheckResult<bool> {
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|at| self.attempts[*at].group.is_none()).collect();
        if open.is_empty() {
            return Ok(false);
        }
        let group = self.next_number();
        let first = self.base.random.index(open.len());
        let most = self.base.random.index(GROUP_MAX) + 1;
        let around = open.iter().cycle().skip(first).take(open.len().min(most));
        let mut all = Vec::new();
        for index in around {
            if let Some((response, error)) = self.ending(*index) {
                let open = &mut self.attempts[*index];
                open.group = Some(group);
                all.push(WakeOutcome { attempt: open.attempt.clone(), response, error });
            }
        }
        if all.is_empty() {
            return Ok(false);
        }
        if !self.base.is_healing && self.base.random.one_in(10) {
            let some = self.base.random.index(all.len()) + 1;
            let again = Action::RecordOutcomes(all[..some].to_vec());
            self.send(Origin::Background, Sender::Anybody, again);
        }
        if !self.base.is_healing && self.base.random.one_in(10) {
            all.extend(all.first().cloned());
        }
        let action = Action::RecordOutcomes(all);
        self.send(Origin::Background, Sender::Endpoint(group), action);
        Ok(true)
    }

    /// How an attempt ends, if it does.
    fn ending(&self, index: usize) -> Option<(WakeResponse, Option<Arc<str>>)> {
        let open = &self.attempts[index];
        let late = open.sent_at + self.timings.webhook_timeout_ms <= self.base.now;
        match open.behavior {
            _ if late => Some((WakeResponse::Failed, Some("too late".into()))),
            EndpointBehavior::Hang => None,
            EndpointBehavior::Fail => Some((WakeResponse::Failed, Some("answered 500".into()))),
            EndpointBehavior::Accept => Some((WakeResponse::Accepted, None)),
            EndpointBehavior::Done => {
                Some((WakeResponse::Done(engine::announced(&open.streams)), None))
            }
        }
    }

    /// What came of attempts is written down, or never will be.
    pub(super) fn end_attempts(&mut self, group: u64) {
        let attempts = std::mem::take(&mut self.attempts);
        let is_over = |it: &OutboundAttempt| it.group == Some(group);
        let (over, open) = attempts.into_iter().partition(is_over);
        self.attempts = open;
        for OutboundAttempt { attempt, .. } in over {
            engine::end_attempt(self.base.engine(), attempt);
        }
    }
}
