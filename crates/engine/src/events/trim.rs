//! Forgetting events that came long ago: their records, their names and their words.
//!
//! An event is kept for as long as somebody may still be told of it, however old it is: a delivery of
//! it has no end or had it just now, a dead letter may be made again, a hook has not come to it yet.
//! What is behind such an event is kept with it: a stream is trimmed from its beginning.

use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::event::hook::FACE;
use reveille_core::key_range::above;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::keys as kernel_keys;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use super::txn::{EventTxn, named_places};
use crate::app::{App, Txn};
use crate::deliveries::index::HookIndex;
use crate::deliveries::retention::ForgottenSlice;
use crate::limits::{CLEAN_UP_SLICE, TRIM_LOOK};
use crate::records::{ReadRecord, damaged};
use crate::streams::txn::StreamTxn;

/// What a look at the oldest events of a tenant has found.
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
        tenant: &Tenant,
        cutoff: Millis,
    ) -> Result<Option<TrimPlan>, Damaged> {
        let (from, to) = keys::events(tenant, EventNo(0));
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
        let until = first_needed(reader, tenant, (first, end), cutoff)?;
        let mut reader = reader;
        let seen = reader.read(&kernel_keys::next_id(), record::decode_u64)?;
        let (more, needed) = (old.len() == TRIM_LOOK && until == end, until < end);
        Ok(Some(TrimPlan { until, more, needed, seen: seen.unwrap_or(0) }))
    }
}

/// The first of these events that somebody may still be told of; the end if there is none.
fn first_needed(
    reader: &Reader,
    tenant: &Tenant,
    (first, end): (EventNo, EventNo),
    cutoff: Millis,
) -> Result<EventNo, Damaged> {
    let mut until = end;
    let (_, to) = keys::fan_outs(tenant);
    let cursor = reader.keys(&keys::fan_out(tenant, first), &to, 1)?;
    if let Some(no) = cursor.first().and_then(|key| keys::parse_event(key)) {
        until = until.min(no);
    }
    let (from, to) = keys::hooks_of(FACE, tenant);
    for (_, value) in reader.range(&from, &to, usize::MAX)? {
        let hook = record::decode_hook(&value).map_err(damaged)?;
        if let Some(backfill) = hook.backfill {
            until = until.min(backfill.next);
        }
        let at = |event| DeliveryId { hook: hook.id, no: DeliveryNo { event, round: 0 } };
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

/// Whether what a delivery is of may still be asked for.
fn is_needed(it: &DeliveryRecord, cutoff: Millis) -> bool {
    let dead_letter = matches!(it.delivery.phase, Phase::Dead { .. }) && !it.retried;
    it.delivery.ended_at().is_none_or(|at| at >= cutoff) || dead_letter
}

/// Forgets the oldest events of a tenant: one slice of them.
#[derive(Debug, Clone)]
pub struct TrimEvents {
    pub tenant: Tenant,
    /// The stream that has their payload.
    pub stream: StreamPath,
    pub plan: TrimPlan,
}

impl Command<App> for TrimEvents {
    type Answer = ForgottenSlice;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<ForgottenSlice, Never> {
        trim(txn, &self.tenant, &self.stream, &self.plan).map(Ok)
    }
}

fn trim(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    stream: &StreamPath,
    plan: &TrimPlan,
) -> Result<ForgottenSlice, ReadError> {
    txn.rests_on_index();
    let nothing = ForgottenSlice::default();
    if !HookIndex::of_txn(txn).from(tenant, HookId(plan.seen), 1).is_empty() {
        return Ok(nothing);
    }
    let Some(mut head) = txn.live_head(tenant, stream)?.filter(|head| head.forks == 0) else {
        return Ok(nothing);
    };
    let (from, to) = (keys::event(tenant, EventNo(0)), keys::event(tenant, plan.until));
    let found = txn.range(&from, &to, CLEAN_UP_SLICE)?;
    let mut old = Vec::with_capacity(found.pairs.len());
    for (key, value) in &found.pairs {
        let event = record::decode_event(value).map_err(damaged)?;
        old.extend(keys::parse_event(key).map(|no| (no, event)));
    }
    if found.complete
        && let Some(first) = txn.event(tenant, plan.until)?
    {
        // Those that came together, which share a name, go together.
        while old.pop_if(|(_, event)| event.at == first.at).is_some() {}
    }
    let names: Vec<_> = old.iter().flat_map(|(_, it)| named_places(tenant, &it.id)).collect();
    txn.want(&names.into_iter().map(|(key, _)| key).collect::<Vec<_>>())?;
    for (no, event) in &old {
        txn.remove(&keys::event(tenant, *no));
        forget_name(txn, tenant, *no, event)?;
        if event.stream == head.id {
            // A comma follows each.
            head.first = head.first.max(event.from.plus(event.len + 1));
        }
    }
    if !old.is_empty() {
        txn.trim_bytes(head.id, head.first);
        txn.set_head(tenant, stream, &head);
    }
    let forgotten = u64::try_from(old.len()).unwrap_or(u64::MAX);
    Ok(ForgottenSlice { next: found.last, forgotten })
}

/// An event has its name no longer; a younger one may have it.
fn forget_name(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    no: EventNo,
    event: &EventRecord,
) -> Result<(), ReadError> {
    for (key, place) in named_places(tenant, &event.id) {
        let Some(first) = txn.read(&key, record::decode_u64)? else { continue };
        if first.checked_add(place) == Some(no.0) {
            txn.remove(&key);
        }
    }
    Ok(())
}
