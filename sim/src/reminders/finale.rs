//! The end of a run: everything heals, everybody is told, and nothing is left.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::replay::ReplayRecord;
use reveille_core::delivery::{DeadReason, Phase};
use reveille_engine::deliveries::retention::{ForgetDeliveries, ForgetReplays};
use reveille_schema::keys;

use super::Reminders;
use super::action::Action;
use super::face::FACE;
use crate::base::{CheckResult, crash, finale, violation};

/// More waits than deliveries need to come to their end.
const WAITS_MAX: u32 = 4_000;
/// Whoever keeps to a pace is not asked more often whether it may go on.
const PACE_MS: u64 = 300;

impl Reminders {
    pub(super) fn tell_everybody(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        finale::settle(self)?;
        for hook in self.seen.hooks.values().cloned().collect::<Vec<_>>() {
            let (face, tenant, name) = (FACE, hook.tenant, hook.name);
            self.ask(Action::Activate { face, tenant, name, active: true });
        }
        self.until_all_is_told()?;
        for hook in self.seen.hooks.values().cloned().collect::<Vec<_>>() {
            let (tenant, name, open) = (hook.tenant, hook.name, self.draw_open());
            self.ask(Action::End { face: FACE, tenant, name, open });
        }
        finale::settle(self)?;
        self.only_letters_left()?;
        self.forget_everything()?;
        self.nothing_left()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        self.nothing_left()
    }

    /// All hooks were ended, and what has outlived them was cleared up; so all replays are over.
    fn only_letters_left(&self) -> CheckResult {
        if let Some((id, ended)) = self.seen.ended.iter().find(|(_, it)| !it.is_cleared) {
            return Err(violation(format!("{id:?} is not cleared up: {ended:?}")));
        }
        match self.seen.replays.values().find(|it| it.ended_at.is_none()) {
            Some(replay) => Err(violation(format!("it never ends: {replay:?}"))),
            None => Ok(()),
        }
    }

    /// Dead letters and replays are older than they are kept.
    fn forget_everything(&mut self) -> CheckResult {
        self.is_forgetting = true;
        for hook in self.seen.ended.keys().copied().collect::<Vec<_>>() {
            let (cutoff, after) = (Millis::NEVER, Bytes::new());
            self.ask(Action::Forget(ForgetDeliveries { hook, cutoff, after }));
        }
        let mine = |replay: &ReplayRecord| {
            self.tenants.iter().map(|tenant| keys::replay(tenant, replay.id)).collect::<Vec<_>>()
        };
        let found = self.seen.replays.values().flat_map(mine).collect();
        self.ask(Action::ForgetReplays(ForgetReplays { found }));
        finale::settle(self)
    }

    /// Time passes, endpoints behave, and every delivery comes to its end.
    fn until_all_is_told(&mut self) -> CheckResult {
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            self.nothing_waits()?;
            let paced = self.base.engine().shared().outbox.next_look();
            let paced = paced.map(|at| at.max(self.base.now + PACE_MS));
            match self.seen.first_timer.into_iter().chain(paced).min() {
                None => return self.all_is_told(),
                Some(at) => finale::pass_time_until(self, at),
            }
        }
        Err(violation("there is always somebody left to be told"))
    }

    /// Whatever may be tried now has been.
    fn nothing_waits(&self) -> CheckResult {
        let waits = |id: &DeliveryId| self.delayed.contains(id) || self.waits_for_pace(*id);
        let mut open = self.seen.deliveries.iter().filter(|(id, _)| !waits(id));
        match open.find(|(_, it)| matches!(it.delivery.phase, Phase::Leased { .. })) {
            Some((id, it)) => Err(violation(format!("nobody tries {id:?}: {it:?}"))),
            None => Ok(()),
        }
    }

    /// Every delivery has its end, and was tried or is not owed any more. That there is one of
    /// everything that is owed was audited.
    fn all_is_told(&mut self) -> CheckResult {
        for (id, it) in &self.seen.deliveries {
            if self.seen.ended.contains_key(&id.hook) {
                continue;
            }
            // Some are given up while their hook is not active.
            let is_untold = matches!(
                it.delivery.phase,
                Phase::Dropped { .. } | Phase::Dead { why: DeadReason::Expired, .. }
            );
            if it.delivery.ended_at().is_none() || !(is_untold || self.sent.contains(id)) {
                return Err(violation(format!("{id:?} was never told: {it:?}")));
            }
        }
        if let Some(replay) = self.seen.replays.values().find(|it| !it.all_made) {
            return Err(violation(format!("letters are left: {replay:?}")));
        }
        if !self.durable.set.is_empty() || !self.attempts.is_empty() {
            return Err(violation(format!("reminders are left: {:?}", self.durable.set)));
        }
        Ok(())
    }

    /// All hooks were ended: only what has come remains.
    fn nothing_left(&self) -> CheckResult {
        match self.seen.remains() {
            Some(key) => Err(violation(format!("left over is {key:?}"))),
            None => Ok(()),
        }
    }
}
