//! What must be true from one snapshot to the next, and what only the past can tell.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::Millis;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{DeliveryCounts, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_schema::record::DeliveryRecord;

use super::snapshot::{DeliveryChange, Snapshot};
use crate::base::{CheckResult, violation};

/// An answer that no attempt is waiting for any more has this status: none may be written down.
pub(super) const ECHO: u16 = 418;

/// Everything that ever was.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) begun: BTreeSet<DeliveryId>,
    pub(super) ended: BTreeSet<DeliveryId>,
    /// Deliveries of each hook counted: whatever is not in a record any more.
    pub(super) counts: BTreeMap<HookId, DeliveryCounts>,
    /// Deliveries that ended before this may be forgotten.
    pub(super) cutoff: Millis,
}

impl History {
    /// Hears of everything that became durable at once.
    pub(super) fn advance(&mut self, now: &Snapshot, changes: &[DeliveryChange]) -> CheckResult {
        for DeliveryChange { id, before, after } in changes {
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
    ) -> CheckResult {
        let wrong = |what: &str| Err(violation(format!("{id:?} {what}: {before:?} → {after:?}")));
        let counts = self.counts.entry(id.hook).or_default();
        let answered = before.map_or(&[][..], |it| &it.delivery.attempts);
        let attempts = &after.delivery.attempts;
        if !attempts.starts_with(answered) {
            return wrong("has another past");
        }
        counts.attempts += (attempts.len() - answered.len()) as u64;
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
            counts.begun += 1;
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
                Phase::Delivered { .. } => counts.delivered += 1,
                Phase::Dead { .. } => counts.died += 1,
                _ => counts.dropped += 1,
            }
        }
        Ok(())
    }

    /// A delivery is forgotten only with its hook, or long after its end.
    fn gone(&self, now: &Snapshot, id: DeliveryId, before: Option<&DeliveryRecord>) -> CheckResult {
        let ended_at = before.and_then(|it| it.delivery.ended_at());
        let old = ended_at.is_some_and(|at| at < self.cutoff);
        if now.hooks.contains_key(&id.hook) && !old {
            return Err(violation(format!("{id:?} is forgotten: {before:?}")));
        }
        Ok(())
    }
}
