//! The end of a run: everything heals, everybody is told of everything, and nothing is left.

use reveille_core::Millis;
use reveille_core::consumer::{Dialect, Phase};
use reveille_core::subscription::{SubscriptionChange, Target};
use reveille_schema::wakes::WakeTimer;

use super::Wakes;
use super::action::Action;
use super::audit::waits_to_be_claimed;
use crate::base::{CheckResult, crash, finale, violation};

/// Longer than any timer, token or lifetime.
const LONG_MS: u64 = 3 * 3_600_000;
/// More waits than any consumer needs to be told, give up or finish.
const WAITS_MAX: u32 = 600;

impl Wakes {
    pub(super) fn tell_everything(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        for agent in &mut self.agents {
            agent.is_retired = true;
        }
        finale::settle(self)?;
        self.resume_all();
        self.until_all_is_told()?;
        finale::settle(self)?;
        self.audit_content()?;
        self.unsubscribe_all()?;
        finale::settle(self)?;
        self.nothing_of_subscriptions()?;
        // A stream whose time has come cannot be deleted, only ended.
        self.base.set_clock(self.base.latest + LONG_MS);
        finale::settle(self)?;
        for path in self.paths.clone() {
            self.ask(Action::Delete { path });
        }
        finale::settle(self)?;
        self.base.set_clock(self.base.latest + LONG_MS);
        finale::settle(self)?;
        self.nothing_left()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        self.nothing_left()
    }

    /// L1: time passes, endpoints behave, and every consumer learns of everything.
    fn until_all_is_told(&mut self) -> CheckResult {
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            let claims = self.claim_all();
            if claims {
                finale::settle(self)?;
            }
            let next = self.seen.wake_timers();
            let next = next.filter(|(_, timer)| matches!(timer, WakeTimer::Consumer(_)));
            let next = next.map(|(at, _)| at).min();
            match next {
                None if !claims => return self.all_is_told(),
                None => {}
                Some(at) => finale::pass_time_until(self, at),
            }
        }
        Err(violation("L1: there is always somebody left to be told"))
    }

    /// Whatever is paused goes on.
    fn resume_all(&mut self) {
        let names: Vec<_> = self.seen.subscriptions.values().collect();
        let paused = names.into_iter().filter(|it| it.paused_at.is_some());
        let names: Vec<_> = paused.map(|it| it.spec.name.clone()).collect();
        for name in names {
            let paused = Some(false);
            let change = SubscriptionChange { paused, ..SubscriptionChange::default() };
            self.ask(Action::Change { name, change });
        }
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
            self.ask(Action::Claim { name: name.clone(), worker: "honest".into() });
        }
        !names.is_empty()
    }

    /// Every consumer rests, and has acknowledged every tail.
    fn all_is_told(&mut self) -> CheckResult {
        for (key, record) in &self.seen.consumers {
            if !self.seen.is_current(key, record) {
                continue;
            }
            match record.consumer.phase {
                Phase::Idle { wake_at: None } | Phase::Gone(_) => {}
                _ => return Err(violation(format!("L1: {key:?} does not rest: {record:?}"))),
            }
        }
        for ((id, path), (_, tail)) in &self.history.must {
            let subscription = &self.seen.subscriptions[id];
            if subscription.spec.dialect == Dialect::Leases {
                let link = self.seen.links.get(&(*id, path.clone()));
                if link.is_none_or(|it| it.acked < Some(*tail)) {
                    return Err(violation(format!(
                        "L1: {id:?} has {link:?} of {path} at {tail:?}"
                    )));
                }
            }
        }
        self.base.coverage.reads += 1;
        Ok(())
    }

    fn unsubscribe_all(&mut self) -> CheckResult {
        for subscription in self.seen.subscriptions.values().cloned().collect::<Vec<_>>() {
            let (dialect, name) = (subscription.spec.dialect, subscription.spec.name);
            self.ask(Action::Unsubscribe { dialect, name });
        }
        Ok(())
    }

    /// Everybody was unsubscribed: nothing of them is left.
    fn nothing_of_subscriptions(&mut self) -> CheckResult {
        let seen = &self.seen;
        let timers =
            seen.wake_timers().filter(|(_, timer)| !matches!(timer, WakeTimer::Forget(..)));
        let timers: Vec<(Millis, &WakeTimer)> = timers.collect();
        let left = seen.subscriptions.len()
            + seen.consumers.len()
            + seen.links.len()
            + seen.backlog.len()
            + seen.followers.len()
            + seen.fan_outs.len()
            + timers.len();
        if left == 0 {
            return Ok(());
        }
        Err(violation(format!(
            "left of subscriptions are {:?} {:?} {:?} {:?} {:?} {:?} {timers:?}",
            seen.subscriptions.keys(),
            seen.consumers,
            seen.links,
            seen.backlog,
            seen.followers,
            seen.fan_outs
        )))
    }

    /// Everything was deleted: only counters remain.
    fn nothing_left(&mut self) -> CheckResult {
        if self.seen.raw.is_empty() {
            return Ok(());
        }
        Err(violation(format!("left over are {:?}", self.seen.raw.keys())))
    }
}
