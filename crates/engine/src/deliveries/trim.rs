//! Forgetting events that came long ago: their records, and whatever else their face keeps of them.
//!
//! An event is kept for as long as somebody may still be told of it, however old it is: a delivery of
//! it has no end or had it just now, a dead letter may be made again, a hook has not come to it yet.
//! What is behind such an event is kept with it: a source is trimmed from its beginning.

use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{Backfill, EndedHook, FaceId, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::keys as kernel_keys;
use reveille_kernel::txn::ReadError;
use reveille_schema::Record;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord};
use reveille_store::state::Reader;

use super::ended::EndedHookIndex;
use super::face::DeliveryFaces;
use super::index::HookIndex;
use super::retention::ForgottenSlice;
use super::source::event_of;
use crate::app::{App, Txn};
use crate::limits::{CLEAN_UP_SLICE, TRIM_LOOK};
use crate::records::{ReadRecord, damaged};

/// What a look at the oldest events of a tenant and a face has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimPlan {
    /// Those before this one may be forgotten.
    pub until: EventNo,
    /// There may be more of them.
    pub more: bool,
    /// Others are as old, and must be kept for somebody.
    pub needed: bool,
    /// Hooks from this number on were made after the look: what they need was not seen.
    pub seen: u64,
}

impl TrimPlan {
    /// Looks at the oldest events that came before a time; `None` if there are none.
    pub fn make(
        reader: &Reader,
        face: FaceId,
        tenant: &Tenant,
        cutoff: Millis,
    ) -> Result<Option<TrimPlan>, Damaged> {
        let (from, to) = keys::events(face, tenant, EventNo(0));
        let pairs = reader.range(&from, &to, TRIM_LOOK)?;
        let mut old = Vec::with_capacity(pairs.len());
        for (key, value) in &pairs {
            let event = record::decode_event(value).map_err(damaged)?;
            if event.at >= cutoff {
                break;
            }
            old.extend(keys::parse_event(key));
        }
        let (Some(first), Some(last)) = (old.first().copied(), old.last()) else {
            return Ok(None);
        };
        let end = EventNo(last.0 + 1);
        let until = first_needed(reader, face, tenant, (first, end), cutoff)?;
        let mut reader = reader;
        let seen = reader.read(&kernel_keys::next_id(), record::decode_u64)?;
        let (more, needed) = (old.len() == TRIM_LOOK && until == end, until < end);
        Ok(Some(TrimPlan { until, more, needed, seen: seen.unwrap_or(0) }))
    }
}

/// The first of these events that somebody may still be told of; the end if there is none.
fn first_needed(
    reader: &Reader,
    face: FaceId,
    tenant: &Tenant,
    (first, end): (EventNo, EventNo),
    cutoff: Millis,
) -> Result<EventNo, Damaged> {
    let mut until = end;
    let (_, to) = keys::fan_outs(face, tenant);
    let cursor = reader.keys(&keys::fan_out(face, tenant, first), &to, 1)?;
    if let Some(no) = cursor.first().and_then(|key| keys::parse_event(key)) {
        until = until.min(no);
    }
    for (hook, backfill) in hooks_with_deliveries(reader, face, tenant)? {
        if let Some(backfill) = backfill {
            until = until.min(backfill.next);
        }
        let at = |event| DeliveryId { hook, no: DeliveryNo { event, round: 0 } };
        let mut from = keys::delivery(at(first));
        while from < keys::delivery(at(until)) {
            let to = keys::delivery(at(until));
            let pairs = reader.range(&from, &to, CLEAN_UP_SLICE)?;
            for (key, value) in &pairs {
                let it = record::decode_delivery(value).map_err(damaged)?;
                let needed = is_needed(&it, cutoff);
                if let Some(id) = keys::parse_delivery(key).filter(|_| needed) {
                    until = until.min(id.no.event);
                    break;
                }
            }
            match pairs.last() {
                Some((last, _)) if pairs.len() == CLEAN_UP_SLICE => from = above(last),
                _ => break,
            }
        }
    }
    Ok(until)
}

/// The hooks of a tenant and a face, also those that have ended, and the events from before their
/// time that they are still to get.
fn hooks_with_deliveries(
    reader: &Reader,
    face: FaceId,
    tenant: &Tenant,
) -> Result<Vec<(HookId, Option<Backfill>)>, Damaged> {
    let mut hooks = Vec::new();
    let (from, to) = keys::hooks_of(face, tenant);
    for (_, value) in reader.range(&from, &to, usize::MAX)? {
        let hook = record::decode_hook(&value).map_err(damaged)?;
        hooks.push((hook.id, hook.backfill));
    }
    let (from, to) = keys::ended_hooks(tenant);
    for (_, value) in reader.range(&from, &to, usize::MAX)? {
        let EndedHook { hook, .. } = EndedHook::decode(&value).map_err(damaged)?;
        hooks.extend((hook.face == face).then_some((hook.id, None)));
    }
    Ok(hooks)
}

/// Whether what a delivery is of may still be asked for.
fn is_needed(it: &DeliveryRecord, cutoff: Millis) -> bool {
    let dead_letter = matches!(it.delivery.phase, Phase::Dead { .. }) && !it.retried;
    it.delivery.ended_at().is_none_or(|at| at >= cutoff) || dead_letter
}

/// Forgets the oldest events of a tenant and a face: one slice of them.
#[derive(Debug, Clone)]
pub struct TrimEvents {
    pub face: FaceId,
    pub tenant: Tenant,
    pub plan: TrimPlan,
}

impl Command<App> for TrimEvents {
    type Answer = ForgottenSlice;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<ForgottenSlice, Never> {
        trim(txn, self.face, &self.tenant, &self.plan).map(Ok)
    }
}

fn trim(
    txn: &mut Txn<'_>,
    face: FaceId,
    tenant: &Tenant,
    plan: &TrimPlan,
) -> Result<ForgottenSlice, ReadError> {
    txn.rests_on_index();
    let nothing = ForgottenSlice::default();
    let unseen = HookId(plan.seen);
    if !HookIndex::of_txn(txn).from(tenant, unseen, 1).is_empty()
        || !EndedHookIndex::of_txn(txn).from(Some(tenant), unseen, 1).is_empty()
    {
        return Ok(nothing);
    }
    let source = txn.domains().part::<DeliveryFaces>().get(face)?;
    let (from, to) = (keys::event(face, tenant, EventNo(0)), keys::event(face, tenant, plan.until));
    let found = txn.range(&from, &to, CLEAN_UP_SLICE)?;
    let mut old = Vec::with_capacity(found.pairs.len());
    for (key, value) in &found.pairs {
        let event = record::decode_event(value).map_err(damaged)?;
        old.extend(keys::parse_event(key).map(|no| (no, event)));
    }
    // A plan may end between two events.
    let (from, to) = keys::events(face, tenant, plan.until);
    if found.complete
        && let Some(kept) = txn.first(from, &to, 2)?.and_then(|key| keys::parse_event(&key))
        && let Some(first) = event_of(txn, face, tenant, kept)?
    {
        // Those that came together may share something, and go together.
        while old.pop_if(|(_, event)| event.at == first.at).is_some() {}
    }
    if !source.forget(txn, tenant, &old)? {
        return Ok(nothing);
    }
    for (no, _) in &old {
        txn.remove(&keys::event(face, tenant, *no));
    }
    let forgotten = u64::try_from(old.len()).unwrap_or(u64::MAX);
    Ok(ForgottenSlice { next: found.last, forgotten })
}
