//! What must be true from one snapshot to the next, and what only the past can tell.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::Millis;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{DeliveryCounts, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_schema::record::DeliveryRecord;

use super::snapshot::{Changed, Snapshot};
use crate::world::{Checked, violated};

/// An answer that no attempt is waiting for any more has this status: none may be written down.
pub(crate) const ECHO: u16 = 418;

/// Everything that ever was.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) begun: BTreeSet<DeliveryId>,
    pub(crate) ended: BTreeSet<DeliveryId>,
    /// Deliveries of each hook counted: whatever is not in a record any more.
    pub(crate) tallies: BTreeMap<HookId, DeliveryCounts>,
    /// Deliveries that ended before this may be forgotten.
    pub(crate) cutoff: Millis,
}

impl History {
    /// Hears of everything that became durable at once.
    pub(crate) fn advance(&mut self, now: &Snapshot, changed: &[Changed]) -> Checked {
        for Changed { id, before, after } in changed {
            match after {
                Some(after) => self.moved(now, *id, before.as_ref(), after)?,
                None => self.gone(now, *id, before.as_ref())?,
            }
        }
        Ok(())
    }

    fn moved(
        &mut self,
        now: &Snapshot,
        id: DeliveryId,
        before: Option<&DeliveryRecord>,
        after: &DeliveryRecord,
    ) -> Checked {
        let wrong = |what: &str| Err(violated(format!("{id:?} {what}: {before:?} → {after:?}")));
        let tally = self.tallies.entry(id.hook).or_default();
        let answered = before.map_or(&[][..], |it| &it.delivery.attempts);
        let attempts = &after.delivery.attempts;
        if !attempts.starts_with(answered) {
            return wrong("has another past");
        }
        tally.attempts += (attempts.len() - answered.len()) as u64;
        if !(1..).zip(attempts).all(|(number, attempt)| attempt.number == number) {
            return wrong("has attempts that are not numbered one after another");
        }
        if attempts.iter().any(|attempt| attempt.status == Some(ECHO)) {
            return wrong("heard an answer that came too late");
        }
        if let Phase::Leased { attempt, .. } = after.delivery.phase
            && attempts.len() as u64 + 1 != u64::from(attempt)
        {
            return wrong("is tried out of turn");
        }
        if before.is_none() {
            if !self.begun.insert(id) {
                return wrong("begins twice");
            }
            tally.begun += 1;
            if let Some(round) = id.no.round.checked_sub(1) {
                let earlier = DeliveryId { no: DeliveryNo { round, ..id.no }, ..id };
                // It may have been forgotten meanwhile.
                let asked = now.deliveries.get(&earlier).is_none_or(|it| it.retried);
                if !asked || !self.ended.contains(&earlier) {
                    return wrong("is made again, and was not asked for");
                }
            }
        }
        let ended_before = before.is_some_and(|it| it.delivery.ended_at().is_some());
        if ended_before && before.is_some_and(|it| it.delivery != after.delivery) {
            return wrong("goes on after its end");
        }
        if !ended_before && after.delivery.ended_at().is_some() {
            self.ended.insert(id);
            match after.delivery.phase {
                Phase::Delivered { .. } => tally.delivered += 1,
                Phase::Dead { .. } => tally.died += 1,
                _ => tally.dropped += 1,
            }
        }
        Ok(())
    }

    /// A delivery is forgotten only with its hook, or long after its end.
    fn gone(&self, now: &Snapshot, id: DeliveryId, before: Option<&DeliveryRecord>) -> Checked {
        let ended_at = before.and_then(|it| it.delivery.ended_at());
        let old = ended_at.is_some_and(|at| at < self.cutoff);
        if now.hooks.contains_key(&id.hook) && !old {
            return Err(violated(format!("{id:?} is forgotten: {before:?}")));
        }
        Ok(())
    }
}
