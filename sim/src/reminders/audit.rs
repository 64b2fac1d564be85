//! What must be true of what is durable: everybody who is owed something has a delivery of it, lanes
//! have one in turn, and records, marks, counts and timers agree.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::delivery::hook::{DeliveryCounts, Hook, Standing};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::{DeadReason, Phase};
use reveille_schema::record::DeliveryRecord;

use super::Reminders;
use super::face::{FACE, lane_of};
use super::snapshot::Snapshot;
use crate::base::{CheckResult, violation};

/// The pauses after the first and the second attempt, at most; chance takes up to half of them.
const PAUSES_MS: [u64; 2] = [2_000, 3_000];
const ATTEMPTS_MAX: usize = 3;

impl Reminders {
    /// What became of deliveries from one batch to the next.
    pub(super) fn check_changes(&self, now: &Snapshot) -> CheckResult {
        for (id, before) in &self.seen.deliveries {
            let wrong = |what: &str| Err(violation(format!("{id:?} {what}: {before:?}")));
            let Some(after) = now.deliveries.get(id) else {
                if now.hooks.contains_key(&id.hook) {
                    return wrong("is forgotten");
                }
                continue;
            };
            if !after.delivery.attempts.starts_with(&before.delivery.attempts) {
                return wrong("has another past");
            }
            if before.delivery.ended_at().is_some() && after.delivery != before.delivery {
                return wrong("goes on after its end");
            }
        }
        Ok(())
    }

    pub(super) fn audit_state(&self) -> CheckResult {
        self.audit_reminders()?;
        self.audit_hooks()?;
        for hook in self.seen.hooks.values() {
            self.audit_owed(hook)?;
            self.audit_lanes(hook)?;
            self.audit_counts(hook)?;
            for (id, it) in self.seen.of(hook.id) {
                self.audit_delivery(*id, it)?;
            }
        }
        self.audit_marks()?;
        let left = self.seen.deliveries.keys().map(|id| id.hook);
        let mut left = left.filter(|hook| !self.seen.hooks.contains_key(hook));
        match left.find(|hook| !self.seen.unhooks.contains(hook)) {
            Some(hook) => Err(violation(format!("nobody removes what {hook:?} left"))),
            None => Ok(()),
        }
    }

    /// What is set and what has come is what the model says; whatever is set is in the due index.
    fn audit_reminders(&self) -> CheckResult {
        let came: BTreeSet<_> = self.seen.came.values().map(|it| &it.name).collect();
        if !came.iter().copied().eq(self.durable.came.keys()) || came.len() != self.seen.came.len()
        {
            return Err(violation(format!("what has come is {came:?}")));
        }
        if !self.seen.set.iter().eq(self.durable.set.keys()) {
            return Err(violation(format!("what is set is {:?}", self.seen.set)));
        }
        let timers = self.durable.set.iter().map(|(name, (of, _))| (of.clone(), name.clone()));
        match timers.into_iter().find(|timer| !self.seen.reminds.contains(timer)) {
            Some(timer) => Err(violation(format!("nobody reminds of {timer:?}"))),
            None => Ok(()),
        }
    }

    fn audit_hooks(&self) -> CheckResult {
        let active = |hook: &Hook| self.durable.hooks.get(&hook.name).map(|it| it.is_active);
        let mut hooks = self.seen.hooks.values();
        if let Some(hook) =
            hooks.find(|hook| active(hook) != Some(hook.is_active()) || hook.face != FACE)
        {
            return Err(violation(format!("wrongly there, or wrongly active: {hook:?}")));
        }
        if self.seen.hooks.len() != self.durable.hooks.len() {
            return Err(violation("hooks are missing"));
        }
        Ok(())
    }

    /// A hook has one delivery of everything that it is owed, and of nothing else.
    fn audit_owed(&self, hook: &Hook) -> CheckResult {
        let owed = &self.durable.hooks[&hook.name].owed;
        let mut found = BTreeSet::new();
        for (id, _) in self.seen.of(hook.id) {
            let Some(came) = self.seen.came.get(&id.no.event) else {
                return Err(violation(format!("{id:?} is of nothing")));
            };
            match id.no.round.checked_sub(1) {
                None => drop(found.insert(came.name.clone())),
                Some(round) => {
                    let before = DeliveryId { no: DeliveryNo { round, ..id.no }, ..*id };
                    if !self.seen.deliveries.get(&before).is_some_and(|it| it.retried) {
                        return Err(violation(format!("nobody asked for {id:?}")));
                    }
                }
            }
        }
        if found != *owed {
            return Err(violation(format!("{} has {found:?}, and is owed {owed:?}", hook.name)));
        }
        Ok(())
    }

    /// In each lane one has its turn and all others wait.
    fn audit_lanes(&self, hook: &Hook) -> CheckResult {
        let mut open: BTreeMap<u64, Vec<(DeliveryId, Phase)>> = BTreeMap::new();
        for (id, it) in self.seen.of(hook.id) {
            let subject = &self.seen.came[&id.no.event].subject;
            if it.lane != Some(lane_of(subject)) {
                return Err(violation(format!("{id:?} of {subject} is in another lane: {it:?}")));
            }
            if it.delivery.ended_at().is_none() {
                let lane = open.entry(lane_of(subject)).or_default();
                lane.push((*id, it.delivery.phase));
            }
        }
        let mine = self.seen.lanes.iter().filter(|((of, _), _)| *of == hook.id);
        let lanes: BTreeMap<u64, _> = mine.map(|((_, number), lane)| (*number, lane)).collect();
        if !lanes.keys().eq(open.keys()) {
            return Err(violation(format!("{} has lanes {lanes:?} of {open:?}", hook.name)));
        }
        for (number, lane) in lanes {
            let all = &open[&number];
            let (queued, in_turn): (Vec<_>, Vec<_>) =
                all.iter().partition(|(_, phase)| *phase == Phase::Queued);
            let head = in_turn.first().map(|(id, _)| id.no);
            let waiting = queued.len() as u64;
            if in_turn.len() != 1 || head != Some(lane.head) || lane.waiting != waiting {
                return Err(violation(format!("{} has lane {lane:?} of {all:?}", hook.name)));
            }
            let is_marked = |id: DeliveryId| self.seen.waiting.contains(&(hook.id, number, id.no));
            if let Some((id, _)) =
                all.iter().find(|(id, phase)| is_marked(*id) != (*phase == Phase::Queued))
            {
                return Err(violation(format!("{id:?} waits and does not")));
            }
        }
        Ok(())
    }

    /// Nothing is ever forgotten here: counts are what the records say.
    fn audit_counts(&self, hook: &Hook) -> CheckResult {
        let mut counts = DeliveryCounts::default();
        for (_, it) in self.seen.of(hook.id) {
            counts.begun += 1;
            counts.kept += 1;
            counts.attempts += it.delivery.attempts.len() as u64;
            match it.delivery.standing() {
                Standing::Pending => counts.pending += 1,
                Standing::Failed => counts.failed += 1,
                Standing::Delivered => counts.delivered += 1,
                Standing::Dead => {
                    counts.died += 1;
                    counts.dead_letters += u64::from(!it.retried);
                }
                Standing::Dropped => counts.dropped += 1,
            }
        }
        counts.logs = counts.attempts;
        let kept = self.seen.counts.get(&hook.id).copied().unwrap_or_default();
        // Which attempt came last is not told by records.
        let kept = DeliveryCounts { failing_since: None, ..kept };
        if kept != counts {
            return Err(violation(format!("{} counts {kept:?}, not {counts:?}", hook.name)));
        }
        Ok(())
    }

    /// A delivery follows the policy of this face, and what must happen by itself is in the due
    /// index.
    fn audit_delivery(&self, id: DeliveryId, it: &DeliveryRecord) -> CheckResult {
        let wrong = |what: &str| Err(violation(format!("{id:?} {what}: {it:?}")));
        if it.delivery.deadline().is_some_and(|at| !self.seen.looks.contains(&(at, id))) {
            return wrong("is looked at by nobody");
        }
        let attempts = &it.delivery.attempts;
        let last = attempts.last();
        let status = last.and_then(|last| last.status);
        if !(1..).zip(attempts).all(|(number, attempt)| attempt.number == number) {
            return wrong("has attempts that are not numbered one after another");
        }
        let is_right = match it.delivery.phase {
            Phase::Delivered { .. } => status == Some(200) && self.accepted.contains(&id),
            Phase::Dead { why: DeadReason::Exhausted, .. } => attempts.len() == ATTEMPTS_MAX,
            Phase::Dead { why: DeadReason::Refused, .. } => status == Some(404),
            Phase::Dead { .. } => false,
            Phase::Dropped { .. } => self.may_be_dropped(id),
            Phase::Pending { at } => last.is_some_and(|last| {
                let pause = PAUSES_MS.get(attempts.len() - 1).copied().unwrap_or(u64::MAX);
                at >= last.at + pause / 2 * self.retry_scale_milli() / 1_000
            }),
            Phase::Queued => attempts.is_empty(),
            Phase::Held | Phase::Leased { .. } => attempts.len() < ATTEMPTS_MAX,
        };
        if is_right { Ok(()) } else { wrong("does not follow the rules") }
    }

    fn may_be_dropped(&self, id: DeliveryId) -> bool {
        let subject = &self.seen.came[&id.no.event].subject;
        let tenant = &self.seen.hooks[&id.hook].tenant;
        self.ever_muted.contains(&(tenant.clone(), subject.clone()))
    }

    /// Dead letters and held ones are exactly those that their records say.
    fn audit_marks(&self) -> CheckResult {
        for (id, it) in &self.seen.deliveries {
            let is_dead = matches!(it.delivery.phase, Phase::Dead { .. }) && !it.retried;
            let is_held = it.delivery.phase == Phase::Held;
            let marks = (self.seen.dead_letters.contains(id), self.seen.held.contains(id));
            if self.seen.hooks.contains_key(&id.hook) && marks != (is_dead, is_held) {
                return Err(violation(format!("{id:?} is marked {marks:?}: {it:?}")));
            }
        }
        Ok(())
    }
}
