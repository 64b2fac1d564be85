//! The end of a run: everything heals, everything owed is delivered, and nothing is left.

use reveille_core::delivery::Phase;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys;
use reveille_schema::record::DeliveryRecord;

use super::Deliveries;
use super::action::{Action, HookChange};
use super::engine;
use crate::base::engine::AnyTimer;
use crate::base::{CheckResult, crash, finale, violation};

/// Longer than the name of a batch is remembered.
const LONG_MS: u64 = 25 * 3_600_000;
/// More waits than deliveries need to come to their end.
const WAITS_MAX: u32 = 2_000;

impl Deliveries {
    pub(super) fn deliver_everything(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        finale::settle(self)?;
        for hook in self.seen.hooks.values().cloned().collect::<Vec<_>>() {
            for change in [HookChange::Activate(true), HookChange::Pause(false)] {
                let (tenant, name) = (hook.tenant.clone(), hook.name.clone());
                self.ask(Action::ChangeHook { tenant, name, change });
            }
        }
        self.until_all_is_delivered()?;
        self.nothing_under_way()?;
        for hook in self.seen.hooks.values().cloned().collect::<Vec<_>>() {
            let (tenant, name, change) = (hook.tenant, hook.name, HookChange::End);
            self.ask(Action::ChangeHook { tenant, name, change });
        }
        finale::settle(self)?;
        self.sweep()?;
        self.nothing_left()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        self.nothing_left()
    }

    /// Time passes, endpoints behave, and every delivery comes to its end.
    fn until_all_is_delivered(&mut self) -> CheckResult {
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            self.nothing_waits()?;
            let next = self.seen.timers.first().and_then(|key| AnyTimer::parse(key));
            match next {
                None => return self.all_is_delivered(),
                Some((at, _)) => finale::pass_time_until(self, at),
            }
        }
        Err(violation("there is always something left to be delivered"))
    }

    /// Whatever may be tried now has been.
    fn nothing_waits(&self) -> CheckResult {
        let leased = |it: &DeliveryRecord| matches!(it.delivery.phase, Phase::Leased { .. });
        let mut open = self.seen.deliveries.iter().filter(|(id, _)| !self.delayed.contains(id));
        match open.find(|(_, it)| leased(it)) {
            Some((id, it)) => Err(violation(format!("nobody tries {id:?}: {it:?}"))),
            None => Ok(()),
        }
    }

    /// Every hook was sent everything that it is owed, and nothing is open.
    fn all_is_delivered(&mut self) -> CheckResult {
        let mut open = self.seen.deliveries.iter();
        if let Some((id, it)) = open.find(|(_, it)| it.delivery.ended_at().is_none()) {
            return Err(violation(format!("{id:?} has no end: {it:?}")));
        }
        let events: Vec<_> = self.seen.all_events().map(|(no, _)| *no).collect();
        for (name, known) in &self.durable.hooks {
            let hook = self.seen.named(name).expect("audited").id;
            for place in &known.owed {
                let no = DeliveryNo { event: events[*place], round: 0 };
                let id = DeliveryId { hook, no };
                if !self.attempted.contains(&id) || !self.history.ended.contains(&id) {
                    let event = &self.durable.events[*place];
                    return Err(violation(format!("{name} was never sent {event:?}")));
                }
            }
        }
        Ok(())
    }

    /// Nothing waits, and nothing is on its way.
    fn nothing_under_way(&self) -> CheckResult {
        match engine::outbox_remains(self.base.engine()) {
            Some(remains) => Err(violation(format!("left in the outbox: {remains}"))),
            None if self.attempts.is_empty() => Ok(()),
            None => Err(violation("attempts are left")),
        }
    }

    /// The names of batches are forgotten.
    fn sweep(&mut self) -> CheckResult {
        self.base.set_clock(self.base.latest + LONG_MS);
        let (from, to) = keys::later_until(self.base.now);
        let found = self.base.reader().keys(&from, &to, usize::MAX);
        let found = found.map_err(|error| violation(error.to_string()))?;
        for found in found.chunks(16) {
            self.ask(Action::Sweep { found: found.to_vec() });
        }
        finale::settle(self)
    }

    /// All hooks were ended: only events remain.
    fn nothing_left(&mut self) -> CheckResult {
        let is_event = |key: &[u8]| matches!(key.first(), Some(0x0e | 0x0f));
        let is_delivery =
            |timer: &AnyTimer| matches!(timer, AnyTimer::Delivery(DeliveryTimer::Delivery(_)));
        let left: Vec<_> = self.seen.raw.keys().filter(|key| !is_event(key)).collect();
        if left.is_empty() && !self.seen.has_timer(is_delivery) {
            return Ok(());
        }
        Err(violation(format!("left over are {left:?}")))
    }
}
