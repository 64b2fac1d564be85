//! Hooks: making, changing and ending them, and what follows from that in slices.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::Input;
use reveille_core::delivery::hook::{ActiveSpan, Backfill, Hook, HookId, HookSpec, HookUpdate};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_schema::keys::{self, Due};
use reveille_schema::record;

use super::timer_group::TimerGroups;
use super::{Answer, Decided, delivery, ingest};
use crate::failure::Refused;
use crate::limits::CLEAN_UP_SLICE;
use crate::registry::Change;
use crate::txn::{ReadError, Txn};

/// Which events a new hook gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Since {
    /// Those that come after it.
    #[default]
    New,
    /// All that there are.
    All,
    /// From the one with this id on.
    Event(Arc<str>),
}

/// What is to be done about a hook that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookChange {
    /// Some of its settings are others.
    Update(HookUpdate),
    /// It is active, or not.
    Activate(bool),
    /// It ends.
    End,
}

pub(super) fn add(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    name: &Arc<str>,
    spec: &HookSpec,
    since: &Since,
) -> Decided {
    txn.rests_on_registry();
    if txn.hooks().identical(tenant, spec.identity()).is_some() {
        return Ok(Err(Refused::HookExists.into()));
    }
    let next = match since {
        Since::New => None,
        Since::All => Some(EventNo(0)),
        Since::Event(id) => {
            let Some(no) = txn.event_named(tenant, id)? else {
                return Ok(Err(Refused::NoEvent.into()));
            };
            Some(no)
        }
    };
    let id = txn.next_id();
    txn.take_id();
    let hook = Hook {
        id: HookId(id),
        tenant: tenant.clone(),
        name: name.clone(),
        created_at: txn.now(),
        updated_at: txn.now(),
        spans: vec![ActiveSpan { from: EventNo(id), to: None }],
        backfill: next.map(|next| Backfill { next }),
        spec: spec.clone(),
    };
    if hook.backfill.is_some() {
        txn.set_due(txn.now(), &Due::Backfill(tenant.clone(), hook.id));
    }
    Ok(Ok(Answer::Hooked(keep(txn, hook))))
}

fn keep(txn: &mut Txn<'_>, hook: Hook) -> Arc<Hook> {
    let hook = Arc::new(hook);
    txn.set(keys::hook(&hook.tenant, &hook.name), record::encode_hook(&hook));
    txn.changes.push(Change::Hooked(hook.clone()));
    hook
}

pub(super) fn change(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    name: &str,
    change: &HookChange,
) -> Decided {
    txn.rests_on_registry();
    let hook = txn.hooks().named(name).filter(|hook| hook.tenant == *tenant).cloned();
    let Some(hook) = hook else {
        return Ok(Err(Refused::NotFound.into()));
    };
    match change {
        HookChange::Update(edit) => {
            let edited = hook.edited(edit, txn.now());
            let identical = txn.hooks().identical(tenant, edited.spec.identity());
            if identical.is_some_and(|id| id != hook.id) {
                return Ok(Err(Refused::HookExists.into()));
            }
            Ok(Ok(Answer::Hooked(keep(txn, edited))))
        }
        HookChange::Activate(active) if *active == hook.is_active() => Ok(Ok(Answer::Hooked(hook))),
        HookChange::Activate(active) => {
            let next = from_now_on(txn);
            let oldest = ingest::next_fan_out(txn, tenant, EventNo(0))?.unwrap_or(next);
            let backfilled = hook.backfill.map_or(next, |backfill| backfill.next);
            let oldest = oldest.min(backfilled);
            let mut changed = hook.with_active(*active, next, oldest);
            changed.updated_at = txn.now();
            if *active {
                txn.set_due(txn.now(), &Due::Resume(tenant.clone(), hook.id));
            }
            Ok(Ok(Answer::Hooked(keep(txn, changed))))
        }
        HookChange::End => {
            let counts = txn.counts(&hook)?;
            end(txn, &hook);
            Ok(Ok(Answer::Unhooked(counts)))
        }
    }
}

/// A number above all events that there are, and below all that will come. It is taken: numbers of
/// a batch that the log had no room for are given out again after a restart.
fn from_now_on(txn: &mut Txn<'_>) -> EventNo {
    let next = EventNo(txn.next_id());
    txn.take_id();
    next
}

/// Ends a hook; what belongs to it is removed in slices.
pub(super) fn end(txn: &mut Txn<'_>, hook: &Hook) {
    txn.remove(&keys::hook(&hook.tenant, &hook.name));
    txn.set_due(txn.now(), &Due::Unhook(hook.tenant.clone(), hook.id));
    txn.changes.push(Change::Unhooked(Arc::new(hook.clone())));
}

/// Gives a hook the next of the events from before its time; one that gets all in their order is
/// given those that came since, too, before it gets any at once.
pub(super) fn backfill(txn: &mut Txn<'_>, tenant: &Tenant, id: HookId) -> Result<(), ReadError> {
    let Some(hook) = txn.hooks().get(id).cloned() else {
        return Ok(());
    };
    let Some(Backfill { next }) = hook.backfill else {
        return Ok(());
    };
    let (from, all) = keys::events(tenant, next);
    let to = if hook.is_catching_up() { all } else { keys::event(tenant, EventNo(id.0)) };
    let found = txn.range(&from, &to, txn.fan_out())?;
    let mut groups = TimerGroups::of(found.pairs.len());
    for (key, value) in &found.pairs {
        let Some(no) = keys::parse_event(key) else { continue };
        let event = record::decode_event(value);
        let event = event.map_err(|error| ReadError::Damaged(error.to_string()))?;
        let its_time = no < EventNo(id.0) || hook.was_active_at(no);
        if its_time && hook.wants(&event.kind) {
            let no = DeliveryNo { event: no, round: 0 };
            delivery::begin(txn, &mut groups, &hook, no, event.at, None)?;
        }
    }
    groups.keep(txn);
    let last = found.last.and_then(|key| keys::parse_event(&key));
    let backfill = last.map(|last| Backfill { next: EventNo(last.0 + 1) });
    if backfill.is_some() {
        txn.set_due(txn.now(), &Due::Backfill(tenant.clone(), id));
    }
    let after = match backfill {
        None if hook.is_catching_up() => hook.caught_up(from_now_on(txn)),
        _ => Hook { backfill, ..Hook::clone(&hook) },
    };
    keep(txn, after);
    Ok(())
}

/// Tries what was held while a hook was not active.
pub(super) fn resume(txn: &mut Txn<'_>, tenant: &Tenant, id: HookId) -> Result<(), ReadError> {
    let Some(hook) = txn.hooks().get(id).filter(|hook| hook.is_active()).cloned() else {
        return Ok(());
    };
    let (from, to) = keys::all_held(id);
    let found = txn.range(&from, &to, txn.fan_out())?;
    let held: Vec<_> = found.pairs.iter().filter_map(|(key, _)| keys::parse_held(key)).collect();
    let records: Vec<Bytes> = held.iter().map(|id| keys::delivery(*id)).collect();
    txn.want(&records)?;
    for id in held {
        delivery::advance(txn, &hook, id, Input::Resumed)?;
    }
    if !found.complete {
        txn.set_due(txn.now(), &Due::Resume(tenant.clone(), id));
    }
    Ok(())
}

/// Forgets deliveries of a hook that ended before a time, from a key on.
pub(super) fn clean_up(txn: &mut Txn<'_>, id: HookId, cutoff: Millis, after: &Bytes) -> Decided {
    let Some(hook) = txn.hooks().get(id).cloned() else {
        return Ok(Ok(Answer::CleanedUp { next: None, forgotten: 0 }));
    };
    let (first, to) = keys::deliveries(id);
    let from = if after.is_empty() { first } else { above(after) };
    let found = txn.range(&from, &to, CLEAN_UP_SLICE)?;
    let mut counts = txn.counts(&hook)?;
    let (mut forgotten, mut younger) = (0, false);
    for (key, value) in &found.pairs {
        let read = record::decode_delivery(value);
        let record = read.map_err(|error| ReadError::Damaged(error.to_string()))?;
        // Deliveries are in the order of their events: whatever comes after this is younger still.
        younger = record.event_at >= cutoff;
        if younger {
            break;
        }
        if record.delivery.ended_at().is_none_or(|at| at >= cutoff) {
            continue;
        }
        let Some(delivery) = keys::parse_delivery(key) else { continue };
        if let reveille_core::delivery::Phase::Dead { at, .. } = record.delivery.phase
            && !record.retried
        {
            txn.remove(&keys::dead_letter(delivery, at));
            counts.dead_letters = counts.dead_letters.saturating_sub(1);
        }
        counts.moved(Some(&record.delivery), None);
        txn.remove(key);
        forgotten += 1;
    }
    if forgotten > 0 {
        txn.counts_of_hooks.insert(id, counts);
    }
    let next = found.last.filter(|_| !younger);
    Ok(Ok(Answer::CleanedUp { next, forgotten }))
}

/// Removes keys that are of no use any more.
pub(super) fn sweep(txn: &mut Txn<'_>, found: &[Bytes]) -> Answer {
    for entry in found {
        if let Some(key) = keys::parse_later(entry) {
            txn.remove(&key);
        }
        txn.remove(entry);
    }
    Answer::Done
}
