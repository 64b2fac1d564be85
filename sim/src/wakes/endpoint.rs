//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::consumer::{Answer as Ending, Dialect, WakeId};
use reveille_core::subscription::{Subscription, Target};
use reveille_core::token::{Claims, TokenKind};
use reveille_engine::command::Command;
use reveille_engine::command::consumer::WakeOutcome;
use reveille_engine::effect::WakeAttempt;
use reveille_engine::encoder::NotifiedStream;
use reveille_engine::outbound;
use reveille_engine::outbox::Attempt;

use super::agent::Agent;
use super::errand::Owner;
use super::world::Wakes;
use crate::server::Server;
use crate::world::{Checked, violated};

/// An attempt that is on its way.
pub(crate) struct Post {
    told: WakeAttempt,
    streams: Vec<NotifiedStream>,
    sent_at: Millis,
    plan: Plan,
    /// Its answer is being written down, together with these.
    group: Option<u64>,
}

/// Answers that are written down together.
const LOT_MAX: usize = 4;

/// What an endpoint makes of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Accept,
    Done,
    Fail,
    Hang,
}

impl Wakes {
    /// The next attempt is made.
    pub(crate) fn post(&mut self) -> Checked<bool> {
        let shared = self.life().shared.clone();
        let Some(Attempt::Wake(told)) = shared.outbox.next() else {
            return Ok(false);
        };
        let subscription = shared.lock().registry.get(told.consumer.subscription).cloned();
        let Some(subscription) = subscription else {
            shared.outbox.ended(&Attempt::Wake(told), false);
            return Ok(true);
        };
        let current = outbound::current(
            &shared.state.reader(),
            &subscription,
            &told,
            self.base.now,
            &shared.access_times,
        );
        let current = current.map_err(|error| violated(format!("no notice: {error}")))?;
        let Some((record, streams)) = current else {
            shared.outbox.ended(&Attempt::Wake(told), false);
            return Ok(true);
        };
        let wake_id = record.consumer.wake_id;
        self.note(&format!("tell {told:?} {wake_id:?} {streams:?}"));
        self.history.notified(&told.consumer, told.epoch, wake_id)?;
        if !matches!(subscription.spec.target, Target::Webhook(_)) {
            return Err(violated(format!("{told:?} is for nobody")));
        }
        self.base.tally.wakes += 1;
        let plan = if self.base.honest {
            Plan::Accept
        } else {
            self.base.random.weighted(&[
                (40, Plan::Accept),
                (20, Plan::Done),
                (20, Plan::Fail),
                (20, Plan::Hang),
            ])
        };
        // Some lie: they accept and never call. Others call although they seemed to fail.
        let works = match plan {
            Plan::Accept => self.base.honest || !self.base.random.one_in(5),
            Plan::Done | Plan::Fail => self.base.random.one_in(8),
            Plan::Hang => self.base.random.one_in(2),
        };
        if let (true, Some(wake_id)) = (works, wake_id) {
            let primary = record.primary.map_or(0, |id| id.0);
            self.wake_agent(&subscription, &told, wake_id, primary, streams.clone());
        }
        let sent_at = self.base.now;
        self.posts.push(Post { told, streams, sent_at, plan, group: None });
        Ok(true)
    }

    pub(crate) fn wake_agent(
        &mut self,
        subscription: &Arc<Subscription>,
        told: &WakeAttempt,
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
            epoch: told.epoch,
            expires_at: self.base.now + self.timings.token_ttl_ms,
        };
        let id = self.next_number();
        let key = told.consumer.clone();
        let paths = streams.into_iter().map(|it| it.path).collect();
        self.agents.push(Agent::new(id, key, told.epoch, wake_id, claims, paths));
        if self.agents.len() > 24 && !self.base.honest {
            self.agents.remove(0);
        }
    }

    /// Endpoints answer, or have taken too long; what came of a few is written down together.
    pub(crate) fn answer(&mut self) -> Checked<bool> {
        let open: Vec<usize> =
            (0..self.posts.len()).filter(|at| self.posts[*at].group.is_none()).collect();
        if open.is_empty() {
            return Ok(false);
        }
        let group = self.next_number();
        let first = self.base.random.index(open.len());
        let most = self.base.random.index(LOT_MAX) + 1;
        let around = open.iter().cycle().skip(first).take(open.len().min(most));
        let mut all = Vec::new();
        for index in around {
            if let Some((answer, error)) = self.ending(*index) {
                let post = &mut self.posts[*index];
                post.group = Some(group);
                all.push(WakeOutcome { told: post.told.clone(), answer, error });
            }
        }
        if all.is_empty() {
            return Ok(false);
        }
        if !self.base.honest && self.base.random.one_in(10) {
            let some = self.base.random.index(all.len()) + 1;
            self.send(Owner::Nobody, Command::RecordWakeOutcomes(all[..some].to_vec()));
        }
        if !self.base.honest && self.base.random.one_in(10) {
            all.extend(all.first().cloned());
        }
        self.send(Owner::Posts(group), Command::RecordWakeOutcomes(all));
        Ok(true)
    }

    /// How an attempt ends, if it does.
    fn ending(&self, index: usize) -> Option<(Ending, Option<Arc<str>>)> {
        let post = &self.posts[index];
        let late = post.sent_at + self.timings.webhook_timeout_ms <= self.base.now;
        match post.plan {
            _ if late => Some((Ending::Failed, Some("too late".into()))),
            Plan::Hang => None,
            Plan::Fail => Some((Ending::Failed, Some("answered 500".into()))),
            Plan::Accept => Some((Ending::Accepted, None)),
            Plan::Done => Some((Ending::Done(outbound::announced(&post.streams)), None)),
        }
    }

    /// What came of attempts is written down, or never will be.
    pub(crate) fn answers_are_home(&mut self, group: u64) {
        let posts = std::mem::take(&mut self.posts);
        let (home, open) = posts.into_iter().partition(|post| post.group == Some(group));
        self.posts = open;
        for Post { told, .. } in home {
            self.life().shared.outbox.ended(&Attempt::Wake(told), false);
        }
    }
}
