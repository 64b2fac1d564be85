//! Attempts on their way to endpoints, and how they are answered.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::delivery::hook::{Hook, HookSpec};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::{AttemptRecord, Verdict};
use reveille_engine::command::Command;
use reveille_engine::command::delivery::DeliveryOutcome;
use reveille_engine::effect::DeliveryAttempt;
use reveille_engine::outbound::deliveries::{Ready, ready, refill};
use reveille_engine::outbox::Attempt;

use super::errand::Owner;
use super::history::ECHO;
use super::world::Deliveries;
use crate::server::Server;
use crate::world::{Checked, violated};

/// An attempt that is on its way.
pub(crate) struct Post {
    id: u64,
    job: DeliveryAttempt,
    sent_at: Millis,
    timeout_ms: u64,
    plan: Plan,
    slow: bool,
    /// The answer is being written down.
    answered: bool,
}

/// What an endpoint makes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Accept,
    Fail,
    Hang,
}

impl Deliveries {
    /// The next attempt is made.
    pub(crate) fn post(&mut self) -> Checked<bool> {
        let shared = self.life().shared.clone();
        let Some(Attempt::Delivery(job)) = shared.outbox.next() else {
            return Ok(false);
        };
        let hook = shared.lock().registry.hooks.get(job.id.hook).cloned();
        let Some(hook) = hook else {
            shared.outbox.ended(&Attempt::Delivery(job), false);
            return Ok(true);
        };
        let found = ready(&shared.state.reader(), &hook, &job);
        let found = found.map_err(|error| violated(format!("nothing to say: {error}")))?;
        let plan = match found {
            Ready::Nothing => {
                shared.outbox.ended(&Attempt::Delivery(job), false);
                return Ok(true);
            }
            Ready::Held => {
                self.hold(job);
                return Ok(true);
            }
            Ready::Send(event) => {
                self.note(&format!("post {:?} attempt {}", job.id, job.attempt));
                self.may_be_sent(&hook, &job, &event.id, &event.payload)?;
                self.base.tally.wakes += 1;
                self.plan()
            }
        };
        let HookSpec::Events(spec) = &hook.spec;
        let (timeout_ms, sent_at) = (spec.timeout_ms, self.base.now);
        let id = self.next_number();
        let post = Post { id, job, sent_at, timeout_ms, plan, slow: false, answered: false };
        self.posts.push(post);
        Ok(true)
    }

    /// An attempt is not made, because its hook is not active.
    fn hold(&mut self, job: DeliveryAttempt) {
        let id = self.next_number();
        self.delayed.insert(job.id);
        let command = Command::Unsent { id: job.id, attempt: job.attempt };
        let (sent_at, timeout_ms, plan) = (self.base.now, 0, Plan::Hang);
        let post = Post { id, job, sent_at, timeout_ms, plan, slow: false, answered: true };
        self.posts.push(post);
        self.send(Owner::Post(id), command);
    }

    fn plan(&mut self) -> Plan {
        if self.base.honest {
            return Plan::Accept;
        }
        self.base.random.weighted(&[(50, Plan::Accept), (35, Plan::Fail), (15, Plan::Hang)])
    }

    /// What is about to be sent is owed, is what its sender said, and it is its turn.
    fn may_be_sent(
        &mut self,
        hook: &Arc<Hook>,
        job: &DeliveryAttempt,
        event: &str,
        payload: &[u8],
    ) -> Checked {
        let DeliveryAttempt { id, attempt, .. } = job;
        let wrong =
            |what: &str| Err(violated(format!("{id:?} ({event}, attempt {attempt}) {what}")));
        let known = self.durable.hooks.get(&hook.name);
        let place = self.place_of(&hook.tenant, event);
        let (Some(known), Some(place)) = (known, place) else {
            return wrong("is of a hook or an event that there is not");
        };
        if !known.owed.contains(&place) && !known.maybe.contains(&place) {
            return wrong("is not owed");
        }
        if self.durable.events[place].payload != *payload {
            return wrong("has other words than its sender's");
        }
        // Whether it is active may be decided and not durable.
        if !known.active && !self.decided.hooks.get(&hook.name).is_some_and(|it| it.active) {
            return wrong("is of a hook that is not active");
        }
        if self.history.ended.contains(id) {
            return wrong("is sent after its end");
        }
        if self.posts.iter().any(|post| post.job.id == *id && !post.answered) {
            return wrong("is on its way twice");
        }
        if known.spec.ordered && id.no.round == 0 && !self.posted.contains(id) {
            let events: Vec<_> = self.seen.all_events().map(|(no, _)| *no).collect();
            let id_at = |place: &usize| {
                let no = DeliveryNo { event: events[*place], round: 0 };
                DeliveryId { no, ..*id }
            };
            let begun = |place: &&usize| self.history.begun.contains(&id_at(place));
            let maybe = known.maybe.range(..place).filter(begun);
            for earlier in known.owed.range(..place).chain(maybe) {
                if !self.history.ended.contains(&id_at(earlier)) {
                    let said = &self.durable.events[*earlier].id;
                    return wrong(&format!("overtakes {said}"));
                }
            }
        }
        self.posted.insert(*id);
        Ok(())
    }

    /// Hooks with room in memory have more of their deliveries there.
    pub(crate) fn refill(&mut self) -> bool {
        let shared = self.life().shared.clone();
        let Some((hook, from)) = shared.outbox.next_refill() else {
            return false;
        };
        self.note(&format!("refill {hook:?} from {from:?}"));
        self.base.tally.reads += 1;
        refill(&shared, hook, from);
        true
    }

    /// An attempt has been open for a while.
    pub(crate) fn slow_down(&mut self) {
        let shared = self.life().shared.clone();
        if let Some(post) = self.posts.iter_mut().find(|post| !post.slow) {
            post.slow = shared.outbox.slows(&Attempt::Delivery(post.job.clone()));
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
        let now = self.base.now;
        let post = &mut self.posts[index];
        let (id, number) = (post.job.id, post.job.attempt);
        let late = post.sent_at + post.timeout_ms <= now;
        let (verdict, status) = match post.plan {
            Plan::Hang if !late && !self.base.honest => return Ok(false),
            Plan::Hang => (Verdict::Failed, None),
            Plan::Fail => (Verdict::Failed, Some(500)),
            Plan::Accept => (Verdict::Delivered, Some(200)),
        };
        post.answered = true;
        let owner = Owner::Post(post.id);
        let error = (verdict == Verdict::Failed).then(|| "failed".into());
        let took_ms = now.since(post.sent_at);
        let attempt = AttemptRecord { number, at: now, took_ms, status, error, response: None };
        let command =
            Command::RecordDeliveryOutcomes(vec![DeliveryOutcome { id, attempt, verdict }]);
        if twice {
            self.send(Owner::Nobody, command.clone());
        }
        self.send(owner, command);
        Ok(true)
    }

    /// What came of an attempt is written down, or never will be.
    pub(crate) fn answer_is_home(&mut self, id: u64, command: &Command, heard: bool) {
        if let Some(index) = self.posts.iter().position(|post| post.id == id) {
            let post = self.posts.remove(index);
            if !heard {
                self.delayed.insert(post.job.id);
            }
            self.life().shared.outbox.ended(&Attempt::Delivery(post.job), post.slow);
        }
        if let (Command::RecordDeliveryOutcomes(delivered), true) = (command, heard) {
            let Some(mut echo) = delivered.first().cloned() else { return };
            echo.attempt.status = Some(ECHO);
            echo.verdict = *self.base.random.pick(&[Verdict::Delivered, Verdict::Failed]);
            self.echoes.push(echo);
        }
    }

    /// An answer comes once more, long after it was heard.
    pub(crate) fn echo(&mut self) {
        if !self.echoes.is_empty() {
            let index = self.base.random.index(self.echoes.len());
            let echo = self.echoes.swap_remove(index);
            self.send(Owner::Nobody, Command::RecordDeliveryOutcomes(vec![echo]));
        }
    }
}
