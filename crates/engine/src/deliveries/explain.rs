//! Why an event was delivered to a hook, or was not: what decides it, in order, for every face. What
//! only the face can know, why its matcher says no, it says itself.

use std::collections::VecDeque;

use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::{AttemptRecord, DeadReason, DropReason, Phase};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use super::DeliveryRejection;
use super::error::DeliveryError;
use super::face::{DeliveryFace, DeliveryFaces, EventMatch, GateReason};
use super::index::HookIndex;
use super::send::delivery_record;
use super::source;
use crate::app::Shared;
use crate::effect::AttemptKey;
use crate::engine::Engine;
use crate::limits::{EXPLAINED_DELIVERIES_MAX, SCAN_SLICE};
use crate::records::ReadRecord;

/// One thing that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Whether the hook is active now.
    Active(bool),
    /// The hook is paused now.
    Paused,
    /// Which of the two came first.
    Age(Age),
    /// Whether the hook is for the event, as its face says.
    Match(EventMatch),
    /// What the gate of the face says now.
    Gate(GateReason),
    /// There is no delivery although the hook is for the event.
    Absent(Absence),
    /// So many deliveries that were made again since are not shown.
    Older(usize),
    /// A delivery began.
    Begun { id: DeliveryId, at: Millis },
    /// An attempt to make it has ended.
    Attempt(AttemptRecord),
    /// Where it stands.
    Rest(Rest),
}

/// Which came first, the event or the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The hook.
    HookFirst,
    /// The event, and the hook got it all the same.
    Backfilled,
    /// The event, and the hook will get it.
    BackfillComing,
    /// The event, and the hook does not go so far back.
    EventFirst,
}

/// Why there is no delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It is not the hook's turn yet: there are many.
    FanOut,
    /// It is not the event's turn yet: the hook still gets those that came before.
    CatchingUp,
    /// The hook was not active when the event came.
    Inactive,
    /// It is so long ago that a delivery may have been forgotten.
    Forgotten,
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Others of its lane come first.
    Queued {
        /// The one whose turn it is.
        head: Option<DeliveryId>,
    },
    /// The next attempt is made at a time.
    Next { attempt: u32, at: Millis },
    /// An attempt waits for its turn.
    Waits {
        attempt: u32,
        /// How many wait, of all hooks and subscriptions.
        queued: usize,
    },
    /// An attempt is on its way.
    Sent { attempt: u32 },
    /// The hook is not active, or paused.
    Held,
    /// It was accepted.
    Delivered { at: Millis },
    /// It is tried no more.
    Dead {
        at: Millis,
        why: DeadReason,
        /// What somebody has done about it since.
        since: Option<LetterEnd>,
    },
    /// It is not owed any more.
    Dropped { at: Millis, why: DropReason },
}

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterEnd {
    Retried,
    Discarded,
}

/// A hook and an event that were named, in the face of the hook.
#[derive(Debug, Clone)]
pub struct Explanation {
    pub face: FaceId,
    pub event: EventRecord,
    pub reasons: Vec<Reason>,
}

impl Engine {
    /// What decided about an event, and what has come of it.
    pub fn explain_event(
        &self,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<Vec<Reason>, Damaged> {
        let (now, kept_ms) = (self.clock().now(), self.retention().deliveries_ms);
        explain(self.partition(&hook.tenant), hook, no, event, (now, kept_ms))
    }

    /// The same for a hook and an event of a tenant that are named, whatever face they are of.
    pub fn explain_named(
        &self,
        tenant: &Tenant,
        hook: &str,
        event: &str,
    ) -> Result<Explanation, DeliveryError> {
        let shared = self.partition(tenant);
        let faces = shared.domains.part::<DeliveryFaces>();
        let known =
            shared.lock().index.of::<HookIndex>().of_faces(faces.ids(), tenant, hook).cloned();
        let reader = shared.state.reader();
        let Some(known) = known else {
            return explain_ended(&reader, faces, tenant, (hook, event));
        };
        // What is decided but not durable yet is not shown.
        let key = keys::hook(known.face, tenant, hook);
        let hook = (&reader).read(&key, record::decode_hook)?;
        let hook = hook.ok_or(DeliveryRejection::NotFound)?;
        let (no, event) = event_named(&reader, faces.get(hook.face)?, tenant, event)?;
        let reasons = self.explain_event(&hook, no, &event)?;
        Ok(Explanation { face: hook.face, event, reasons })
    }
}

fn event_named(
    reader: &Reader,
    face: &dyn DeliveryFace,
    tenant: &Tenant,
    name: &str,
) -> Result<(EventNo, EventRecord), DeliveryError> {
    let no = face.event_named(reader, tenant, name)?.ok_or(DeliveryRejection::NoEvent)?;
    let event = source::event(reader, face.id(), tenant, no)?;
    Ok((no, event.ok_or(DeliveryRejection::NoEvent)?))
}

/// The same of a hook that its gate has ended, as far as its face remembers it.
fn explain_ended(
    reader: &Reader,
    faces: &DeliveryFaces,
    tenant: &Tenant,
    (hook, event): (&str, &str),
) -> Result<Explanation, DeliveryError> {
    for face in faces.ids() {
        let known = faces.get(face)?;
        if let Some(gate) = known.explain_ended(reader, tenant, hook)? {
            let (_, event) = event_named(reader, known, tenant, event)?;
            let reasons = vec![Reason::Active(false), Reason::Gate(gate)];
            return Ok(Explanation { face, event, reasons });
        }
    }
    Err(DeliveryRejection::NotFound.into())
}

/// What decided about an event, and what has come of it. A delivery that ended longer ago than they
/// are kept may have been forgotten.
pub fn explain(
    shared: &Shared,
    hook: &Hook,
    no: EventNo,
    event: &EventRecord,
    (now, kept_ms): (Millis, u64),
) -> Result<Vec<Reason>, Damaged> {
    let reader = shared.state.reader();
    let face = shared.domains.part::<DeliveryFaces>().get(hook.face)?;
    let (deliveries, older) = deliveries_of(&reader, hook, no)?;
    let age = age(hook, no, !deliveries.is_empty());
    let matched = face.explain_match(&reader, hook, no, event)?;
    let is_due = matched == EventMatch::Matches && age == Age::HookFirst;
    let mut reasons = vec![Reason::Active(hook.is_active())];
    reasons.extend(hook.paused.then_some(Reason::Paused));
    reasons.extend([Reason::Age(age), Reason::Match(matched)]);
    let gate = if is_due { face.explain_gate(&reader, hook, event, now)? } else { None };
    reasons.extend(gate.map(Reason::Gate));
    if is_due && deliveries.is_empty() {
        let cutoff = Millis(now.0.saturating_sub(kept_ms));
        reasons.push(Reason::Absent(absence(&reader, hook, no, event, cutoff)?));
    }
    reasons.extend((older > 0).then_some(Reason::Older(older)));
    for (id, record) in deliveries {
        reasons.push(Reason::Begun { id, at: record.created_at });
        reasons.extend(record.delivery.attempts.iter().cloned().map(Reason::Attempt));
        reasons.push(Reason::Rest(rest(shared, &reader, id, &record)?));
    }
    Ok(reasons)
}

fn absence(
    reader: &Reader,
    hook: &Hook,
    no: EventNo,
    event: &EventRecord,
    cutoff: Millis,
) -> Result<Absence, Damaged> {
    let mut look = reader;
    let told = look.read(&keys::fan_out(hook.face, &hook.tenant, no), record::decode_u64)?;
    if hook.is_catching_up() && hook.backfill.is_some_and(|backfill| backfill.next <= no) {
        return Ok(Absence::CatchingUp);
    }
    if told.is_some_and(|told| told < hook.id.0) && hook.was_active_at(no) {
        return Ok(Absence::FanOut);
    }
    Ok(if event.at <= cutoff { Absence::Forgotten } else { Absence::Inactive })
}

fn age(hook: &Hook, no: EventNo, delivered: bool) -> Age {
    if hook.id.0 < no.0 {
        Age::HookFirst
    } else if delivered {
        Age::Backfilled
    } else if hook.backfill.is_some_and(|backfill| backfill.next <= no) {
        Age::BackfillComing
    } else {
        Age::EventFirst
    }
}

fn rest(
    shared: &Shared,
    reader: &Reader,
    id: DeliveryId,
    record: &DeliveryRecord,
) -> Result<Rest, Damaged> {
    Ok(match record.delivery.phase {
        Phase::Queued => Rest::Queued { head: head_of(reader, id, record)? },
        Phase::Pending { at } => {
            let last = record.delivery.attempts.last();
            Rest::Next { attempt: last.map_or(1, |last| last.number.saturating_add(1)), at }
        }
        Phase::Leased { attempt, .. }
            if !shared.outbox.sent(&AttemptKey::Delivery(id)).is_empty() =>
        {
            Rest::Sent { attempt }
        }
        Phase::Leased { attempt, .. } => {
            Rest::Waits { attempt, queued: shared.outbox.traffic().queued }
        }
        Phase::Held => Rest::Held,
        Phase::Delivered { at } => Rest::Delivered { at },
        Phase::Dead { at, why } => {
            let since = match (record.retried, record.discarded) {
                (_, true) => Some(LetterEnd::Discarded),
                (true, false) => Some(LetterEnd::Retried),
                (false, false) => None,
            };
            Rest::Dead { at, why, since }
        }
        Phase::Dropped { at, why } => Rest::Dropped { at, why },
    })
}

/// The delivery that one waits behind.
fn head_of(
    reader: &Reader,
    id: DeliveryId,
    record: &DeliveryRecord,
) -> Result<Option<DeliveryId>, Damaged> {
    let mut look = reader;
    let Some(lane) = record.lane else { return Ok(None) };
    let lane = look.read(&keys::lane(id.hook, lane), record::decode_lane)?;
    Ok(lane.map(|lane| DeliveryId { no: lane.head, ..id }))
}

/// The newest deliveries of one event to a hook, oldest first: the first, and those that were asked
/// for again. Says how many older ones there are.
fn deliveries_of(
    reader: &Reader,
    hook: &Hook,
    no: EventNo,
) -> Result<(Vec<(DeliveryId, DeliveryRecord)>, usize), Damaged> {
    let first = |event| DeliveryId { hook: hook.id, no: DeliveryNo { event, round: 0 } };
    let (mut from, to) = (keys::delivery(first(no)), keys::delivery(first(EventNo(no.0 + 1))));
    let (mut newest, mut older) = (VecDeque::new(), 0);
    loop {
        let keys = reader.keys(&from, &to, SCAN_SLICE)?;
        let Some(last) = keys.last() else { break };
        from = above(last);
        newest.extend(keys.iter().filter_map(|key| keys::parse_delivery(key)));
        let extra = newest.len().saturating_sub(EXPLAINED_DELIVERIES_MAX);
        newest.drain(..extra);
        older += extra;
    }
    let mut found = Vec::with_capacity(newest.len());
    for id in newest {
        found.extend(delivery_record(reader, id)?.map(|record| (id, record)));
    }
    Ok((found, older))
}
