//! The end of a run: everything heals, everything owed is delivered, and nothing waits.

use reveille_core::delivery::Phase;
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::fact::FACE;
use reveille_schema::keys;

use super::Facts;
use super::engine;
use crate::base::engine::{AnyTimer, timer_keys};
use crate::base::{CheckResult, crash, finale, violation};

/// More waits than deliveries need to come to their end.
const WAITS_MAX: u32 = 2_000;

impl Facts {
    pub(super) fn deliver_everything(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            let (from, to) = timer_keys();
            let next = self.raw.range(from..to).next().and_then(|(key, _)| AnyTimer::parse(key));
            match next {
                Some((at, _)) => finale::pass_time_until(self, at),
                None => return self.check_everything(),
            }
        }
        Err(violation("there is always something left to be done"))
    }

    fn check_everything(&mut self) -> CheckResult {
        if let Some(remains) = engine::outbox_remains(self.base.engine()) {
            return Err(violation(format!("left in the outbox: {remains}")));
        }
        self.all_is_delivered()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        self.all_is_delivered()
    }

    /// Whoever was never cancelled was sent everything, but for what they were not to know.
    fn all_is_delivered(&self) -> CheckResult {
        let deliveries = self.deliveries()?;
        let (from, to) = keys::events(FACE, &engine::tenant(), EventNo(0));
        let events: Vec<EventNo> =
            self.raw.range(from..to).filter_map(|(key, _)| keys::parse_event(key)).collect();
        let (from, to) = keys::hooks();
        let live: Vec<_> = self
            .raw
            .range(from..to)
            .filter_map(|(_, value)| reveille_schema::record::decode_hook(value).ok())
            .collect();
        for hook in live {
            let asked = &self.durable.asked[&*hook.name];
            for (no, event) in events.iter().zip(&self.durable.events) {
                if !self.durable.is_for(asked, event) {
                    continue;
                }
                let id = DeliveryId { hook: hook.id, no: DeliveryNo { event: *no, round: 0 } };
                let phase = deliveries.get(&id).map(|it| it.delivery.phase);
                let is_right = match phase {
                    Some(Phase::Delivered { .. } | Phase::Dead { .. }) => self.sent.contains(&id),
                    Some(Phase::Dropped { .. }) => self.withheld.contains(&id),
                    _ => false,
                };
                if !is_right {
                    return Err(violation(format!("{} and {no:?} came to {phase:?}", hook.name)));
                }
            }
        }
        Ok(())
    }
}
