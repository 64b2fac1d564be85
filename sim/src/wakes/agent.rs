//! Whoever was woken: reads, reports, lies, repeats itself, and comes back from the dead.

use bytes::Bytes;
use reveille_core::consumer::{Ack, Dialect, WakeId};
use reveille_core::stream::Body;
use reveille_core::stream::append::Append;
use reveille_core::token::Claims;
use reveille_core::{ContentType, Offset, StreamPath};
use reveille_schema::keys::ConsumerKey;

use super::Wakes;
use super::action::{Action, TokenAction, WakeAnswer, WakeError, WakeResult};
use super::engine::{
    self, ApplyCallback, CallbackBody, Lease, ReleaseLease, RenewLease, WakeAttempt,
};
use super::request::Sender;
use crate::base::{CheckResult, Origin, violation};

/// Somebody who was told of a wake.
pub(super) struct Agent {
    pub(super) id: u64,
    key: ConsumerKey,
    epoch: u64,
    wake_id: WakeId,
    claims: Claims,
    paths: Vec<StreamPath>,
    /// A report is on its way.
    is_busy: bool,
    /// It was told to stop, or has finished; it may not know.
    pub(super) is_retired: bool,
    /// Its last report, to be repeated.
    last: Option<TokenAction>,
}

impl Agent {
    pub(super) fn new(
        id: u64,
        key: ConsumerKey,
        epoch: u64,
        wake_id: WakeId,
        claims: Claims,
        paths: Vec<StreamPath>,
    ) -> Agent {
        let (is_busy, is_retired, last) = (false, false, None);
        Agent { id, key, epoch, wake_id, claims, paths, is_busy, is_retired, last }
    }
}

impl Wakes {
    /// Somebody who was woken does something.
    pub(super) fn act(&mut self) -> CheckResult<bool> {
        let zombies = !self.base.is_healing && self.base.random.one_in(6);
        let may = |agent: &Agent| !agent.is_busy && agent.is_retired == zombies;
        let free: Vec<usize> =
            (0..self.agents.len()).filter(|index| may(&self.agents[*index])).collect();
        if free.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&free);
        let repeat = !self.base.is_healing && self.base.random.one_in(5);
        let asked = match &self.agents[index].last {
            Some(last) if repeat => last.clone(),
            _ if self.agents[index].key.path.is_some() => self.callback(index),
            _ => self.lease_report(index),
        };
        let agent = &mut self.agents[index];
        agent.is_busy = true;
        agent.last = Some(asked.clone());
        let sender = Sender::Agent(agent.id);
        self.send_tokens(Origin::Background, sender, asked);
        Ok(true)
    }

    /// How far the streams can be read now; sometimes less, older, or nonsense.
    fn acks(&mut self, index: usize) -> Vec<Ack> {
        let mut acks = Vec::new();
        for path in self.agents[index].paths.clone() {
            let Some(tail) = self.seen.streams.get(&path).map(|head| head.tail) else { continue };
            let to = match self.base.random.below(if self.base.is_healing { 1 } else { 14 }) {
                0..9 => Some(Some(tail)),
                9 => Some(Some(Offset::new(self.base.random.below(tail.position() + 1)))),
                10 => continue,
                11 => Some(Some(tail.plus(1 + self.base.random.below(50)))),
                12 => Some(None),
                _ => None,
            };
            acks.push(Ack { path: path.as_str().into(), offset: to, from: None });
        }
        if !self.base.is_healing && self.base.random.one_in(16) {
            acks.push(Ack {
                path: "/nowhere".into(),
                offset: Some(Some(Offset::new(3))),
                from: None,
            });
        }
        acks
    }

    fn callback(&mut self, index: usize) -> TokenAction {
        let acks = if self.base.is_healing || !self.base.random.one_in(5) {
            self.acks(index)
        } else {
            vec![]
        };
        let agent = &self.agents[index];
        let (claims, consumer) = (agent.claims.clone(), agent.key.clone());
        let mut body = CallbackBody {
            epoch: agent.epoch,
            wake_id: Some(Ok(agent.wake_id)),
            acks,
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
            done: true,
            appends: Vec::new(),
        };
        let mut tokens = Vec::new();
        if self.base.is_healing {
            return self.report(claims, consumer, body, tokens);
        }
        body.done = self.base.random.one_in(2);
        match self.base.random.below(16) {
            0..4 => body.wake_id = None,
            4 => body.wake_id = Some(Err(())),
            5 => body.epoch = (body.epoch + 1).saturating_sub(self.base.random.below(3)),
            6 => body.wake_id = Some(Ok(WakeId([7; 12]))),
            _ => {}
        }
        if self.base.random.one_in(4) {
            body.subscribe.push(self.base.random.pick(&self.paths).clone());
        }
        if self.base.random.one_in(8) {
            body.unsubscribe.push(self.base.random.pick(&self.paths).clone());
        }
        if self.base.random.one_in(4) {
            let path = self.base.random.pick(&self.paths[..5]).clone();
            let token = format!("#{}", self.next_number());
            body.appends.push((path.clone(), text(&token)));
            tokens.push((path, token));
        }
        self.report(claims, consumer, body, tokens)
    }

    fn report(
        &self,
        claims: Claims,
        consumer: ConsumerKey,
        body: CallbackBody,
        tokens: Vec<(StreamPath, String)>,
    ) -> TokenAction {
        let callback = Box::new(ApplyCallback { claims, consumer, body, trace: None });
        TokenAction { tenant: self.tenant.clone(), action: Action::Callback(callback), tokens }
    }

    fn lease_report(&mut self, index: usize) -> TokenAction {
        let acks = if self.base.is_healing || !self.base.random.one_in(5) {
            self.acks(index)
        } else {
            vec![]
        };
        let agent = &self.agents[index];
        let (claims, mut generation) = (agent.claims.clone(), agent.epoch);
        let mut wake_id = Ok(agent.wake_id);
        let mut done = true;
        if !self.base.is_healing {
            done = self.base.random.one_in(2);
            match self.base.random.below(16) {
                0 => wake_id = Err(()),
                1 => generation = (generation + 1).saturating_sub(self.base.random.below(3)),
                _ => {}
            }
        }
        let action = if !self.base.is_healing && self.base.random.one_in(8) {
            Action::Release(ReleaseLease { claims, generation, wake_id })
        } else {
            Action::Renew(RenewLease { claims, generation, wake_id, acks, done })
        };
        TokenAction { tenant: self.tenant.clone(), action, tokens: Vec::new() }
    }

    /// What an agent makes of the answer to its report.
    pub(super) fn answer_agent(&mut self, id: u64, action: &Action, outcome: &WakeResult) {
        let expires_at = self.base.now + self.timings.token_ttl_ms;
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.id == id) else {
            return;
        };
        agent.is_busy = false;
        let done = match action {
            Action::Callback(callback) => callback.body.done,
            Action::Renew(renew) => renew.done,
            _ => true,
        };
        match outcome {
            Ok(WakeAnswer::Heard(receipt)) => {
                if !receipt.streams.is_empty() {
                    agent.paths = receipt.streams.iter().map(|(path, _)| path.clone()).collect();
                }
                if receipt.epoch == agent.epoch {
                    agent.claims.expires_at = expires_at;
                }
                agent.is_retired |= done;
            }
            Ok(_) | Err(WakeError::Refused) => agent.is_retired = true,
            Err(WakeError::Unavailable | WakeError::Conflict) => {}
            Err(WakeError::TokenExpired) => agent.claims.expires_at = expires_at,
            // Perhaps it is not followed any more.
            Err(WakeError::InvalidOffset(path)) => {
                agent.paths.retain(|it| it.as_str() != &**path);
            }
        }
    }

    /// A worker was given the work of a subscription that is pulled.
    pub(super) fn start_claim(&mut self, name: &str, lease: &Lease) -> CheckResult {
        let Some(subscription) = self.seen.named(Dialect::Leases, name).cloned() else {
            return Ok(());
        };
        if !self.history.claimed.insert((subscription.id, lease.generation)) {
            let what = format!("{name} gave generation {} to two workers", lease.generation);
            return Err(violation(what));
        }
        let consumer = ConsumerKey { subscription: subscription.id, path: None };
        let Some(record) = self.seen.consumers.get(&consumer) else {
            return Ok(());
        };
        let streams = engine::streams(self.base.engine(), &subscription, record)?;
        let tenant = subscription.tenant.clone();
        let attempt = WakeAttempt { consumer, epoch: lease.generation, attempt: 1, tenant };
        self.wake_agent(&subscription.into(), &attempt, lease.wake_id, 0, streams);
        Ok(())
    }

    /// After a crash nobody hears answers; whoever waits for one asks again.
    pub(super) fn disconnect_agents(&mut self) {
        for agent in &mut self.agents {
            agent.is_busy = false;
        }
    }
}

/// An append of a few bytes that are found again.
pub(super) fn text(token: &str) -> Append {
    let kind = ContentType::parse("text/plain");
    let body = Body::new(Bytes::from(format!("{token};")), kind.as_ref());
    Append { content_type: kind, body, ..Append::default() }
}
