//! Whom the changes of a write are for, in the step that decides it: each trigger by the version that
//! is in force then.
//!
//! ```text
//! the look still holds ─────────────────────▶ what it has found
//! it does not, or depends on the moment ────▶ found out here, within the steps of a decision
//! there are not enough steps ───────────────▶ another look; in the end, left to slices
//! ```

use std::sync::Arc;

use reveille_core::delivery::DeadReason;
use reveille_core::delivery::hook::HookId;
use reveille_core::document::change::ChangeEvent;
use reveille_core::steps::Steps;

use super::evaluate::{ChangeCase, Evaluation, OutOfSteps};
use super::index::{TenantTriggers, TriggerEntry, TriggerIndex};
use super::look::{ChangeLook, TriggerLook};
use super::notes::{ChangeMark, TriggerNote};
use crate::app::Txn;
use crate::deliveries::face::PreparedMatch;
use crate::deliveries::spread::{MatchNote, MatchingHook, MatchingHooks};
use crate::documents::hooks::WriteMatch;
use crate::matching::{spend, steps_left};

/// What a look has found of a change, where it still holds.
#[derive(Clone, Copy)]
struct HeldLook<'a> {
    triggers: &'a Arc<TenantTriggers>,
    change: &'a ChangeLook,
}

/// The triggers that changes are for; `None` if the write should come again with another look.
pub(super) fn matching(txn: &mut Txn<'_>, write: &WriteMatch<'_>) -> Option<Vec<MatchingHooks>> {
    let all = MatchingHooks { complete: true, ..MatchingHooks::after(HookId(0)) };
    let Some(triggers) = TriggerIndex::of_txn(txn).of_tenant(write.tenant) else {
        return Some(vec![all; write.events.len()]);
    };
    let limit = txn.domains().settings.fan_out;
    let mut lists = Vec::with_capacity(write.events.len());
    for (ordinal, event) in write.events.iter().enumerate() {
        let mut steps = steps_left(txn);
        let look = held_look(write, ordinal, event);
        let list = match_change(triggers, look, event, limit, &mut steps);
        spend(txn, write.tenant, steps.used());
        let is_short = !list.complete && list.hooks.len() + list.notes.len() < limit;
        // Another look would find what this decision had no steps for.
        if is_short && write.may_retry && look.is_none() {
            return None;
        }
        lists.push(list);
    }
    Some(lists)
}

/// What the look has found of a change, if its document still has the version that it had.
fn held_look<'a>(
    write: &WriteMatch<'a>,
    ordinal: usize,
    event: &ChangeEvent,
) -> Option<HeldLook<'a>> {
    let look: &TriggerLook = write.prepared.and_then(|it: &PreparedMatch| it.downcast_ref())?;
    let path = &event.change.path;
    let version = write.stored.get(path)?.as_ref().map(|document| document.version);
    let holds = *look.versions.get(path)? == version;
    let change = look.changes.get(ordinal).filter(|_| holds)?;
    Some(HeldLook { triggers: &look.triggers, change })
}

fn match_change(
    triggers: &Arc<TenantTriggers>,
    look: Option<HeldLook<'_>>,
    event: &ChangeEvent,
    limit: usize,
    steps: &mut Steps,
) -> MatchingHooks {
    let (case, mark) = (ChangeCase::of_event(event), ChangeMark::of_event(event));
    let mut list = MatchingHooks::after(HookId(0));
    let mut told = 0;
    for entry in entries(triggers, look, event) {
        if told >= limit {
            return list;
        }
        let evaluation = match look.and_then(|look| look.of(entry)) {
            Some(known) => Ok(known),
            None if entry.is_compiled() => case.evaluate(entry, steps),
            None => Err(OutOfSteps),
        };
        let Ok(evaluation) = evaluation else { return list };
        if evaluation.is_miss {
            entry.count_miss();
        }
        told += usize::from(!evaluation.is_nothing());
        add(&mut list, entry, evaluation, &mark);
    }
    list.complete = true;
    list
}

/// The triggers that are looked at: where nothing has changed since the look, those that it has
/// found something of, or could not know.
fn entries<'a>(
    triggers: &'a Arc<TenantTriggers>,
    look: Option<HeldLook<'_>>,
    event: &ChangeEvent,
) -> Vec<&'a Arc<TriggerEntry>> {
    let all = |after| triggers.candidates(&event.change.path, after);
    let Some(look) = look.filter(|look| Arc::ptr_eq(look.triggers, triggers)) else {
        return all(HookId(0));
    };
    let found = look.change.found.iter().map(|it| it.hook);
    let mut ids: Vec<HookId> = found.chain(look.change.timed.iter().copied()).collect();
    ids.sort_unstable();
    let known = ids.into_iter().filter_map(|id| triggers.get(id));
    let rest = look.change.through.map(all).unwrap_or_default();
    known.chain(rest).collect()
}

impl HeldLook<'_> {
    /// What it has found of a trigger that is still the same.
    fn of(&self, entry: &Arc<TriggerEntry>) -> Option<Evaluation> {
        let id = entry.hook.id;
        let is_same = self.triggers.get(id).is_some_and(|it| Arc::ptr_eq(it, entry));
        let was_seen = self.change.through.is_none_or(|through| id <= through);
        if !is_same || !was_seen || self.change.timed.contains(&id) {
            return None;
        }
        let found = self.change.found.binary_search_by_key(&id, |it| it.hook);
        let found = found.ok().and_then(|at| self.change.found.get(at));
        Some(found.map(|it| it.evaluation.clone()).unwrap_or_default())
    }
}

/// Adds what came of a trigger to the list of a change.
pub(super) fn add(
    list: &mut MatchingHooks,
    entry: &Arc<TriggerEntry>,
    evaluation: Evaluation,
    change: &ChangeMark,
) {
    let id = entry.hook.id;
    list.through = id;
    if let Some(version) = evaluation.matched {
        // Triggers that made each other go off too often stop here, and are told so.
        let dead = change.is_loop.then_some(DeadReason::LoopGuard);
        list.hooks.push(MatchingHook { hook: entry.hook.clone(), version, dead });
    }
    if evaluation.has_note() {
        let note: MatchNote = Arc::new(TriggerNote::new(evaluation, change));
        list.notes.push((id, note));
    }
}
