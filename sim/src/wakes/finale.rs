//! The end of a run: everything heals, everybody is told of everything, and nothing is left.

use reveille_core::Millis;
use reveille_core::consumer::{Dialect, Phase};
use reveille_core::subscription::Target;
use reveille_engine::command::Command;
use reveille_engine::command::lease::LeaseRequest;
use reveille_schema::keys::Due;

use super::audit::waits_to_be_claimed;
use super::errand::Owner;
use super::world::Wakes;
use crate::crash::Death;
use crate::server::Server;
use crate::world::{Checked, violated};

/// Longer than any timer, token or lifetime.
const LONG_MS: u64 = 3 * 3_600_000;
/// More turns than any work takes.
const TURNS_MAX: u32 = 5_000;
/// More waits than any consumer needs to be told, give up or finish.
const WAITS_MAX: u32 = 600;

impl Wakes {
    pub(crate) fn finale(&mut self) -> Checked {
        self.note("finale");
        self.base.honest = true;
        if self.base.faulty || self.base.full_once {
            self.die(Death::Power)?;
        }
        self.life().checkpointer.watch_disk();
        self.set_clock(self.base.latest + 1);
        for agent in &mut self.agents {
            agent.retired = true;
        }
        self.until_all_is_told()?;
        self.work_off()?;
        self.audit_content()?;
        self.unsubscribe_all()?;
        self.work_off()?;
        self.nothing_of_subscriptions()?;
        // A stream whose time has come cannot be deleted, only ended.
        self.set_clock(self.base.latest + LONG_MS);
        self.work_off()?;
        for path in self.paths.clone() {
            let command = Command::Delete { tenant: self.tenant.clone(), path };
            self.send(Owner::Client, command);
        }
        self.work_off()?;
        self.set_clock(self.base.latest + LONG_MS);
        self.work_off()?;
        self.nothing_left()?;
        self.die(Death::Power)?;
        self.work_off()?;
        self.nothing_left()
    }

    /// One turn of everything that can go on without time passing.
    fn turn(&mut self) -> Checked<bool> {
        self.base.trace.step += 1;
        self.work()?;
        let mut moved = false;
        while self.post()? || self.answer()? || self.act()? {
            moved = true;
        }
        for index in (0..self.errands.len()).rev() {
            if !self.errands[index].is_waiting() {
                moved = true;
                self.go_on(index)?;
            }
        }
        self.take();
        moved |= self.base.taken.is_some();
        let result = self.commit()?;
        self.survive(result)?;
        if self.base.random.one_in(8) {
            let result = self.life_mut().checkpointer.apply();
            self.survive(result)?;
        }
        let asleep = self.base.worker.sleeps_until().is_some_and(|at| at > self.base.now);
        self.agents.retain(|agent| !agent.retired);
        Ok(moved || !asleep || !self.errands.is_empty())
    }

    /// Nobody comes any more: what was begun is finished, what is due is done.
    fn work_off(&mut self) -> Checked {
        for _ in 0..TURNS_MAX {
            if !self.turn()? {
                return self.audit();
            }
        }
        Err(violated("the work has no end".into()))
    }

    /// L1: time passes, endpoints behave, and every consumer learns of everything.
    fn until_all_is_told(&mut self) -> Checked {
        for _ in 0..WAITS_MAX {
            self.work_off()?;
            let claims = self.claim_all();
            if claims {
                self.work_off()?;
            }
            let next = self.seen.due.iter().filter(|(_, due)| matches!(due, Due::Consumer(_)));
            let next = next.map(|(at, _)| *at).min();
            match next {
                None if !claims => return self.all_is_told(),
                None => {}
                // What is due already waits for a worker that pauses after a failure.
                Some(at) if at <= self.base.now => {
                    let resumes = self.base.worker.sleeps_until().unwrap_or(self.base.now);
                    self.set_clock(resumes.max(self.base.now + 1));
                }
                Some(at) => self.set_clock(at),
            }
        }
        Err(violated("L1: there is always somebody left to be told".into()))
    }

    /// Workers look for work in every subscription that is pulled.
    fn claim_all(&mut self) -> bool {
        let mut names = Vec::new();
        for (key, record) in &self.seen.consumers {
            let subscription = self.seen.subscriptions.get(&key.subscription);
            if let Some(subscription) = subscription
                && matches!(subscription.spec.target, Target::Pull(_))
                && waits_to_be_claimed(record)
            {
                names.push(subscription.spec.name.clone());
            }
        }
        for name in &names {
            let request = LeaseRequest::Claim { worker: "honest".into() };
            let (tenant, name) = (self.tenant.clone(), name.clone());
            self.send(Owner::Client, Command::Lease { tenant, name, request });
        }
        !names.is_empty()
    }

    /// Every consumer rests, and has acknowledged every tail.
    fn all_is_told(&mut self) -> Checked {
        for (key, record) in &self.seen.consumers {
            if !self.seen.is_current(key, record) {
                continue;
            }
            match record.consumer.phase {
                Phase::Idle { wake_at: None } | Phase::Gone(_) => {}
                _ => return Err(violated(format!("L1: {key:?} does not rest: {record:?}"))),
            }
        }
        for ((id, path), (_, tail)) in &self.history.must {
            let subscription = &self.seen.subscriptions[id];
            if subscription.spec.dialect == Dialect::Leases {
                let link = self.seen.links.get(&(*id, path.clone()));
                if link.is_none_or(|it| it.acked < Some(*tail)) {
                    return Err(violated(format!("L1: {id:?} has {link:?} of {path} at {tail:?}")));
                }
            }
        }
        self.base.tally.reads += 1;
        Ok(())
    }

    fn unsubscribe_all(&mut self) -> Checked {
        for subscription in self.seen.subscriptions.values().cloned().collect::<Vec<_>>() {
            let (dialect, name) = (subscription.spec.dialect, subscription.spec.name);
            let tenant = self.tenant.clone();
            self.send(Owner::Client, Command::Unsubscribe { tenant, dialect, name });
        }
        Ok(())
    }

    /// Everybody was unsubscribed: nothing of them is left.
    fn nothing_of_subscriptions(&mut self) -> Checked {
        let seen = &self.seen;
        let timers = seen.due.iter().filter(|(_, due)| {
            matches!(
                due,
                Due::Consumer(_)
                    | Due::Unsubscribe(..)
                    | Due::FanOutToFollowers(..)
                    | Due::FanOutToSubscriptions(..)
            )
        });
        let timers: Vec<&(Millis, Due)> = timers.collect();
        let left = seen.subscriptions.len()
            + seen.consumers.len()
            + seen.links.len()
            + seen.backlog.len()
            + seen.followers.len()
            + seen.crowds.len()
            + timers.len();
        if left == 0 {
            return Ok(());
        }
        Err(violated(format!(
            "left of subscriptions are {:?} {:?} {:?} {:?} {:?} {:?} {timers:?}",
            seen.subscriptions.keys(),
            seen.consumers,
            seen.links,
            seen.backlog,
            seen.followers,
            seen.crowds
        )))
    }

    /// Everything was deleted: only counters remain.
    fn nothing_left(&mut self) -> Checked {
        if self.seen.raw.is_empty() {
            return Ok(());
        }
        Err(violated(format!("left over are {:?}", self.seen.raw.keys())))
    }
}
