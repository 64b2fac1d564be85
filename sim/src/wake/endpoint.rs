//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::consumer::{Answer as Ending, Dialect, WakeId};
use reveille_core::subscription::{Subscription, Target};
use reveille_core::token::{Claims, TokenKind};
use reveille_engine::command::Command;
use reveille_engine::command::consumer::Ended;
use reveille_engine::effect::Told;
use reveille_engine::herald::NoticeStream;
use reveille_engine::outbound;
use reveille_engine::outbox::Errand;

use super::agent::Agent;
use super::errand::Owner;
use super::world::Wakes;
use crate::server::Server;
use crate::world::{Checked, violated};

/// An attempt that is on its way.
pub(crate) struct Post {
    id: u64,
    told: Told,
    streams: Vec<NoticeStream>,
    sent_at: Millis,
    plan: Plan,
    /// The answer is being written down.
    answered: bool,
}

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
        let Some(Errand::Tell(told)) = shared.outbox.next() else {
            return Ok(false);
        };
        let subscription = shared.lock().registry.get(told.consumer.subscription).cloned();
        let Some(subscription) = subscription else {
            shared.outbox.ended(&Errand::Tell(told), false);
            return Ok(true);
        };
        let current = outbound::current(
            &shared.state.reader(),
            &subscription,
            &told,
            self.base.now,
            &shared.touches,
        );
        let current = current.map_err(|error| violated(format!("no notice: {error}")))?;
        let Some((enrolled, streams)) = current else {
            shared.outbox.ended(&Errand::Tell(told), false);
            return Ok(true);
        };
        let wake_id = enrolled.consumer.wake_id;
        self.note(&format!("tell {told:?} {wake_id:?} {streams:?}"));
        self.history.notified(&told.consumer, told.epoch, wake_id)?;
        if !matches!(subscription.asked.target, Target::Webhook(_)) {
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
            let primary = enrolled.primary.map_or(0, |id| id.0);
            self.wake_agent(&subscription, &told, wake_id, primary, streams.clone());
        }
        let id = self.next_number();
        let (sent_at, answered) = (self.base.now, false);
        self.posts.push(Post { id, told, streams, sent_at, plan, answered });
        Ok(true)
    }

    pub(crate) fn wake_agent(
        &mut self,
        subscription: &Arc<Subscription>,
        told: &Told,
        wake_id: WakeId,
        stream: u64,
        streams: Vec<NoticeStream>,
    ) {
        let kind = match subscription.asked.dialect {
            Dialect::Webhooks => TokenKind::Callback,
            Dialect::Leases => TokenKind::Lease,
        };
        let claims = Claims {
            kind,
            tenant: self.tenant.clone(),
            consumer: subscription.asked.name.clone(),
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

    /// An endpoint answers, or has taken too long.
    pub(crate) fn answer(&mut self) -> Checked<bool> {
        let open: Vec<usize> =
            (0..self.posts.len()).filter(|at| !self.posts[*at].answered).collect();
        if open.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&open);
        let twice = !self.base.honest && self.base.random.one_in(10);
        let (now, timeout) = (self.base.now, self.timings.webhook_timeout_ms);
        let post = &mut self.posts[index];
        let late = post.sent_at + timeout <= now;
        let (answer, error) = match post.plan {
            _ if late => (Ending::Failed, Some("too late".into())),
            Plan::Hang => return Ok(false),
            Plan::Fail => (Ending::Failed, Some("answered 500".into())),
            Plan::Accept => (Ending::Accepted, None),
            Plan::Done => (Ending::Done(outbound::announced(&post.streams)), None),
        };
        post.answered = true;
        let (told, owner) = (post.told.clone(), Owner::Post(post.id));
        let command = Command::Ended(Ended { told, answer, error });
        if twice {
            self.send(Owner::Nobody, command.clone());
        }
        self.send(owner, command);
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(crate) fn answer_is_home(&mut self, id: u64) {
        if let Some(index) = self.posts.iter().position(|post| post.id == id) {
            let post = self.posts.remove(index);
            self.life().shared.outbox.ended(&Errand::Tell(post.told.clone()), false);
        }
    }
}
