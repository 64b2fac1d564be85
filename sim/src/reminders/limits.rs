//! What hooks may be told at once, counted a second time: how many attempts are open, and in which
//! pace they begin.

use std::collections::BTreeMap;

use reveille_core::Millis;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::DeliveryId;
use reveille_engine::effect::{AttemptKey, AttemptSource};

use super::Reminders;
use super::endpoint::OutboundAttempt;
use crate::base::{CheckResult, violation};

/// When attempts of hooks were begun since the server started.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The latest time that the outbox was told.
    now: Millis,
    begun: BTreeMap<HookId, Begun>,
}

#[derive(Debug, Default)]
struct Begun {
    /// Of the hook: another version may have another pace.
    version: u64,
    at: Vec<Millis>,
}

impl Pace {
    /// The outbox is told the time, which does not go back there.
    pub(super) fn pass(&mut self, now: Millis) {
        self.now = self.now.max(now);
    }

    fn begin(&mut self, hook: &Hook) -> CheckResult {
        let Some(rate) = hook.policy.limits.rate else { return Ok(()) };
        let begun = self.begun.entry(hook.id).or_default();
        if begun.version != hook.version {
            *begun = Begun { version: hook.version, at: Vec::new() };
        }
        begun.at.push(self.now);
        let (burst, per_s) = (u64::from(rate.burst), u64::from(rate.per_s));
        for (before, from) in begun.at.iter().rev().enumerate() {
            let count = before as u64 + 1;
            // What the clock says is less than a millisecond too short.
            if count * 1_000 >= burst * 1_000 + (self.now.since(*from) + 1) * per_s {
                let what = format!("{} is told {count} times since {from:?}", hook.name);
                return Err(violation(what));
            }
        }
        Ok(())
    }
}

impl Reminders {
    /// An attempt of a hook may begin: no more are open than its limits and its tenant's allow. They
    /// are those of the hook as it is, whatever version a delivery follows.
    pub(super) fn check_limits(&mut self, id: HookId) -> CheckResult {
        let Some(hook) = self.seen.hooks.get(&id) else { return Ok(()) };
        let open = |it: &&OutboundAttempt| !it.is_answered;
        let limits = hook.policy.limits;
        let of_hook = self.attempts.iter().filter(open).filter(|it| it.attempt.id.hook == id);
        let of_hook = of_hook.count();
        if limits.concurrency.is_some_and(|most| of_hook >= most as usize) {
            return Err(violation(format!("{} has {of_hook} attempts open already", hook.name)));
        }
        let shares = |it: &&OutboundAttempt| {
            let other = self.seen.hooks.get(&it.attempt.id.hook);
            other.is_some_and(|it| it.policy.limits.per_tenant && it.tenant == hook.tenant)
        };
        let of_tenant = self.attempts.iter().filter(open).filter(shares).count();
        let most = self.settings.tenant_concurrency;
        if limits.per_tenant && most.is_some_and(|most| of_tenant >= most) {
            return Err(violation(format!("{} has {of_tenant} attempts open", hook.tenant)));
        }
        self.pace.begin(hook)
    }

    /// Whether a delivery waits for nothing but its hook's pace.
    pub(super) fn waits_for_pace(&self, id: DeliveryId) -> bool {
        let hook = self.seen.hooks.get(&id.hook);
        let outbox = &self.base.engine().shared().outbox;
        let (key, source) = (AttemptKey::Delivery(id), AttemptSource::Hook(id.hook));
        hook.is_some_and(|hook| hook.policy.limits.rate.is_some())
            && outbox.keeps(&key, source, id.no)
    }
}
