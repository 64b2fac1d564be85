//! What must be true of one snapshot: records, marks, counts and obligations agree, and whatever is
//! owed is on its way.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{DeliveryCounts, Hook, HookId, Standing};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;
use reveille_core::event::hook::FACE;
use reveille_core::{Millis, Tenant};
use reveille_kernel::keys::timer as timer_key;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::events::EventTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventPlace};

use super::Deliveries;
use super::engine;
use super::model::EventModel;
use crate::base::engine::AnyTimer;
use crate::base::{CheckResult, violation};

impl Deliveries {
    /// Everything that can be told from what is durable.
    pub(super) fn audit_state(&self) -> CheckResult {
        let events = self.audit_events()?;
        self.audit_payloads()?;
        self.audit_trimmed()?;
        self.audit_hooks()?;
        self.audit_marks()?;
        self.audit_due()?;
        for hook in self.seen.hooks.values() {
            self.audit_counts(hook)?;
            self.audit_lane(hook)?;
            self.audit_owed(hook, &events)?;
        }
        Ok(())
    }

    /// The events are those that were taken in, in their order. Returns their numbers by place.
    fn audit_events(&self) -> CheckResult<Vec<EventNo>> {
        let mut numbers = Vec::with_capacity(self.durable.events.len());
        let mut found = self.seen.all_events();
        for event in &self.durable.events {
            match found.next() {
                Some((no, record))
                    if record.id == event.id && *record.kind == *event.kind.as_str() =>
                {
                    numbers.push(*no);
                }
                other => return Err(violation(format!("for {event:?} there is {other:?}"))),
            }
        }
        match found.next() {
            Some(more) => Err(violation(format!("nobody took in {more:?}"))),
            None => Ok(numbers),
        }
    }

    /// Whatever is kept can be read, and its stream begins before it.
    fn audit_payloads(&self) -> CheckResult {
        let reader = self.base.reader();
        for (event, (no, record)) in self.durable.events.iter().zip(self.seen.all_events()) {
            if !self.seen.events.contains_key(no) {
                continue;
            }
            let payload = engine::payload(&reader, record);
            if payload.as_ref() != Ok(&event.payload) {
                return Err(violation(format!("{event:?} reads {payload:?}")));
            }
            let path = engine::event_stream(&event.tenant);
            let head = engine::head(&reader, &event.tenant, &path)?;
            let EventPlace::Stream { from, .. } = record.place else {
                return Err(violation(format!("{record:?} is in no stream")));
            };
            if head.is_none_or(|head| head.first > from) {
                return Err(violation(format!("the stream begins behind {record:?}")));
            }
        }
        Ok(())
    }

    /// Nobody is still to be told of what was forgotten.
    fn audit_trimmed(&self) -> CheckResult {
        for (id, it) in self.seen.deliveries.iter().filter(|(id, _)| self.lives(**id)) {
            let dead_letter = self.seen.dead_letters.contains(id);
            let open = it.delivery.ended_at().is_none() || dead_letter;
            if open && self.seen.trimmed.contains_key(&id.no.event) {
                return Err(violation(format!("the event of {id:?} was forgotten: {it:?}")));
            }
        }
        match self.seen.fan_outs.keys().find(|no| self.seen.trimmed.contains_key(no)) {
            Some(no) => Err(violation(format!("{no:?} was forgotten before all were told"))),
            None => Ok(()),
        }
    }

    /// The hooks are those that were made, also in memory.
    fn audit_hooks(&self) -> CheckResult {
        let names: BTreeSet<_> = self.seen.hooks.values().map(|hook| &hook.name).collect();
        let known: BTreeSet<_> = self.durable.hooks.keys().collect();
        if names != known {
            return Err(violation(format!("there are hooks {names:?}, not {known:?}")));
        }
        for hook in self.seen.hooks.values() {
            let known = &self.durable.hooks[&hook.name];
            if (hook.is_active(), hook.paused) != (known.active, known.paused) {
                return Err(violation(format!("wrongly active or paused, or not: {hook:?}")));
            }
            if hook.is_sending() != hook.stopped_at.is_none() {
                return Err(violation(format!("it is not known since when: {hook:?}")));
            }
        }
        if let Some(known) = engine::hooks_if_idle(self.base.engine())
            && !known.iter().map(|hook| &**hook).eq(self.seen.hooks.values())
        {
            return Err(violation("memory knows other hooks than the state"));
        }
        Ok(())
    }

    /// Dead letters, held ones and those that wait are exactly those that their records say.
    fn audit_marks(&self) -> CheckResult {
        let with = |is: fn(&DeliveryRecord) -> bool| -> BTreeSet<DeliveryId> {
            let kept = self.seen.deliveries.iter().filter(|(id, it)| self.lives(**id) && is(it));
            kept.map(|(id, _)| *id).collect()
        };
        let mine = |ids: &BTreeSet<DeliveryId>| -> BTreeSet<DeliveryId> {
            ids.iter().copied().filter(|id| self.lives(*id)).collect()
        };
        let dead = with(|it| matches!(it.delivery.phase, Phase::Dead { .. }) && !it.retried);
        let held = with(|it| it.delivery.phase == Phase::Held);
        let queued = with(|it| it.delivery.phase == Phase::Queued);
        let marked = self.seen.waiting.iter().map(|(hook, no)| (*hook, *no));
        let next = |(hook, lane): (&HookId, &Lane)| {
            lane.next.iter().map(|no| (*hook, *no)).collect::<Vec<_>>()
        };
        let waiting = marked.chain(self.seen.lanes.iter().flat_map(next));
        let waiting = waiting.map(|(hook, no)| DeliveryId { hook, no });
        let died = with(|it| matches!(it.delivery.phase, Phase::Dead { .. }));
        let letters = &self.seen.tenant_letters;
        let open = letters.iter().filter(|(_, is_open)| **is_open).map(|(id, _)| *id);
        let pairs = [
            ("dead letters of a tenant", dead.clone(), mine(&open.collect())),
            ("all of them", died, mine(&letters.keys().copied().collect())),
            ("dead letters", dead, mine(&self.seen.dead_letters)),
            ("held", held, mine(&self.seen.held)),
            ("waiting", queued, mine(&waiting.collect())),
        ];
        for (what, records, marks) in pairs {
            if records != marks {
                return Err(violation(format!("{what}: {marks:?}, by their records {records:?}")));
            }
        }
        for id in &mine(&self.seen.held) {
            let hook = &self.seen.hooks[&id.hook];
            let resume = DeliveryTimer::Resume(hook.tenant.clone(), id.hook);
            let resume = AnyTimer::Delivery(resume);
            if hook.is_sending() && !self.seen.has_timer(|timer| *timer == resume) {
                return Err(violation(format!("{id:?} is held for ever")));
            }
        }
        Ok(())
    }

    fn lives(&self, id: DeliveryId) -> bool {
        self.seen.hooks.contains_key(&id.hook)
    }

    /// Whatever must happen by itself is in the due index, and nothing else is.
    fn audit_due(&self) -> CheckResult {
        let groups = self.groups()?;
        for (id, it) in self.seen.deliveries.iter().filter(|(id, _)| self.lives(**id)) {
            let deadline = it.delivery.deadline();
            let in_group = deadline.is_some_and(|at| groups.contains(&(at, *id)));
            if it.timer_at != deadline && (it.timer_at.is_some() || !in_group) {
                return Err(violation(format!("{id:?} has a wrong timer: {it:?}")));
            }
            if let Some(at) = it.timer_at
                && !self
                    .seen
                    .timers
                    .contains(&timer_key(at, &DeliveryTimer::Delivery(*id).encode()))
            {
                return Err(violation(format!("{id:?} has no timer: {it:?}")));
            }
        }
        let (mut unhooked, mut cursors, mut backfills) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (at, timer) in self.seen.timers.iter().filter_map(|key| AnyTimer::parse(key)) {
            match timer {
                AnyTimer::Delivery(DeliveryTimer::Delivery(id)) if self.lives(id) => {
                    let kept = self.seen.deliveries.get(&id);
                    if kept.is_none_or(|it| it.timer_at != Some(at)) {
                        return Err(violation(format!("a timer of {id:?} rings for {kept:?}")));
                    }
                }
                AnyTimer::Delivery(DeliveryTimer::Unhook(_, id)) => drop(unhooked.insert(id)),
                AnyTimer::Delivery(DeliveryTimer::FanOut(_, _, no)) => drop(cursors.insert(no)),
                AnyTimer::Event(EventTimer::Backfill(_, id)) => drop(backfills.insert(id)),
                _ => {}
            }
        }
        let left = self
            .seen
            .deliveries
            .keys()
            .find(|id| !self.seen.hooks.contains_key(&id.hook) && !unhooked.contains(&id.hook));
        if let Some(id) = left {
            return Err(violation(format!("nobody removes {id:?}")));
        }
        // Others may wait for the first of their tenant.
        for tenant in &self.tenants {
            let (from, to) = keys::fan_outs(FACE, tenant);
            let first = self.seen.raw.range(from..to).next();
            let first = first.and_then(|(key, _)| keys::parse_event(key));
            if first.is_some_and(|no| !cursors.contains(&no)) {
                return Err(violation(format!("nobody goes on with {first:?}")));
            }
        }
        let mut filling = self.seen.hooks.values().filter(|hook| hook.backfill.is_some());
        match filling.find(|hook| !backfills.contains(&hook.id)) {
            Some(hook) => Err(violation(format!("nobody goes on with {hook:?}"))),
            None => Ok(()),
        }
    }

    /// Deliveries that began together, and when they are looked at.
    fn groups(&self) -> CheckResult<BTreeSet<(Millis, DeliveryId)>> {
        let mut groups = BTreeSet::new();
        for key in &self.seen.timers {
            if let Some((at, AnyTimer::Delivery(DeliveryTimer::DeliveryGroup(first)))) =
                AnyTimer::parse(key)
            {
                let ids = record::decode_delivery_group(&self.seen.raw[key]);
                let ids = ids.map_err(|error| violation(error.to_string()))?;
                if !ids.contains(&first) {
                    return Err(violation(format!("{first:?} is not of its group {ids:?}")));
                }
                groups.extend(ids.into_iter().map(|id| (at, id)));
            }
        }
        Ok(groups)
    }

    /// Counts are what the records and the past say.
    fn audit_counts(&self, hook: &Hook) -> CheckResult {
        let mut counts = self.history.counts.get(&hook.id).copied().unwrap_or_default();
        for (_, it) in self.of(hook) {
            counts.kept += 1;
            counts.logs += it.delivery.attempts.len() as u64;
            match it.delivery.standing() {
                Standing::Pending => counts.pending += 1,
                Standing::Failed => counts.failed += 1,
                Standing::Dead if !it.retried => counts.dead_letters += 1,
                Standing::Dead | Standing::Delivered | Standing::Dropped => {}
            }
        }
        let kept = self.seen.counts.get(&hook.id).copied().unwrap_or_default();
        // Which attempt came last is not told by records.
        let kept = DeliveryCounts { failing_since: None, ..kept };
        counts.failing_since = None;
        if kept != counts || !kept.adds_up() {
            return Err(violation(format!("{} counts {kept:?}, not {counts:?}", hook.name)));
        }
        Ok(())
    }

    fn of(&self, hook: &Hook) -> impl Iterator<Item = (&DeliveryId, &DeliveryRecord)> {
        let first = DeliveryId { hook: hook.id, no: DeliveryNo { event: EventNo(0), round: 0 } };
        let id = hook.id;
        self.seen.deliveries.range(first..).take_while(move |(it, _)| it.hook == id)
    }

    /// One of a lane has its turn, and nobody does if nobody is there.
    fn audit_lane(&self, hook: &Hook) -> CheckResult {
        let open = self.of(hook).filter(|(_, it)| it.lane.is_some());
        let open = open.filter(|(_, it)| it.delivery.ended_at().is_none());
        let open: BTreeMap<DeliveryNo, Phase> =
            open.map(|(id, it)| (id.no, it.delivery.phase)).collect();
        let mut in_turn = open.iter().filter(|(_, phase)| **phase != Phase::Queued);
        let head = in_turn.next().map(|(no, _)| *no);
        let lane = self.seen.lanes.get(&hook.id);
        if in_turn.next().is_some() || lane.map(|lane| lane.head) != head {
            return Err(violation(format!("{} has lane {lane:?} of {open:?}", hook.name)));
        }
        if head.is_none() && !open.is_empty() {
            return Err(violation(format!("{} has nobody's turn of {open:?}", hook.name)));
        }
        Ok(())
    }

    /// Whatever a hook is owed has begun or will; nothing else has.
    fn audit_owed(&self, hook: &Hook, events: &[EventNo]) -> CheckResult {
        let known = &self.durable.hooks[&hook.name];
        for place in &known.owed {
            let event = events[*place];
            let id = DeliveryId { hook: hook.id, no: DeliveryNo { event, round: 0 } };
            let told = self.seen.fan_outs.get(&event);
            let cursor = told.is_some_and(|told| *told < hook.id.0);
            let backfill = hook.backfill.is_some_and(|it| it.next <= event)
                && !self.seen.trimmed.contains_key(&event);
            if !self.history.begun.contains(&id) && !cursor && !backfill {
                let event = &self.durable.events[*place];
                let cursors = &self.seen.fan_outs;
                return Err(violation(format!(
                    "{} never gets {event:?}, {event:?}: {hook:?}, {cursors:?}",
                    hook.name
                )));
            }
        }
        let owed = known.owed.iter().chain(&known.maybe);
        let owed: BTreeSet<EventNo> = owed.map(|place| events[*place]).collect();
        for (id, it) in self.of(hook) {
            if !owed.contains(&id.no.event) {
                return Err(violation(format!("{} is not owed {id:?}: {it:?}", hook.name)));
            }
            let answered = it.delivery.attempts.len() as u64;
            if answered > u64::from(known.attempts_max) {
                return Err(violation(format!("{id:?} was tried {answered} times: {it:?}")));
            }
        }
        Ok(())
    }

    /// Where an event is among those that were taken in.
    pub(super) fn place_of(&self, tenant: &Tenant, id: &str) -> Option<usize> {
        let same = |event: &EventModel| event.tenant == *tenant && *event.id == *id;
        self.durable.events.iter().rposition(same)
    }
}
