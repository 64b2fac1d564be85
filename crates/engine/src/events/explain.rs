//! Why an event was delivered to a hook, or was not: what decides it, in order.

use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::{DeliveryId, EventNo};
use reveille_core::delivery::{AttemptRecord, DeadReason, DropReason, Phase};
use reveille_core::event::EventType;
use reveille_core::event::explain::Mismatch;
use reveille_kernel::error::Damaged;
use reveille_schema::keys;
use reveille_schema::record::DeliveryRecord;
use reveille_schema::record::{self, EventRecord};

use super::face::kind_of;
use super::hook::EventHook;
use super::queries::DeliveryView;
use crate::app::Shared;
use crate::effect::AttemptKey;
use crate::engine::Engine;
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
    /// Where the pattern fails to match, if it does.
    Pattern(Option<Mismatch>),
    /// The pattern was another one when the event came, and is forgotten.
    OtherPattern,
    /// There is no delivery although the pattern matches.
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
    /// The hook was not active when the event came.
    Inactive,
    /// It is so long ago that a delivery may have been forgotten.
    Forgotten,
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Others of its lane come first.
    Queued,
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
    /// The hook is not active.
    Held,
    /// It was accepted.
    Delivered { at: Millis },
    /// It is tried no more.
    Dead {
        at: Millis,
        why: DeadReason,
        /// Whether somebody has had it made again.
        retried: bool,
    },
    /// It is not owed any more.
    Dropped { at: Millis, why: DropReason },
}

impl Engine {
    /// What decides about events of this type that come now.
    pub fn explain_type(&self, hook: &EventHook, kind: &EventType) -> Vec<Reason> {
        let EventHook { hook, spec } = hook;
        let mut reasons = vec![Reason::Active(hook.is_active())];
        reasons.extend(hook.paused.then_some(Reason::Paused));
        reasons.push(Reason::Pattern(spec.pattern.explain(kind)));
        reasons
    }

    /// What decided about an event, and what has come of it.
    pub fn explain_event(
        &self,
        hook: &EventHook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<Vec<Reason>, Damaged> {
        let EventHook { hook, spec } = hook;
        let shared = self.partition(&hook.tenant);
        let (deliveries, older) = self.deliveries_of(hook, no)?;
        let age = age(hook, no, !deliveries.is_empty());
        let pattern = match spec.pattern_at(no) {
            Some(pattern) => Reason::Pattern(pattern.explain(&kind_of(event)?)),
            None => Reason::OtherPattern,
        };
        let due = pattern == Reason::Pattern(None) && age == Age::HookFirst;
        let mut reasons = vec![Reason::Active(hook.is_active())];
        reasons.extend(hook.paused.then_some(Reason::Paused));
        reasons.extend([Reason::Age(age), pattern]);
        if due && deliveries.is_empty() {
            reasons.push(Reason::Absent(self.absence(shared, hook, no, event)?));
        }
        reasons.extend((older > 0).then_some(Reason::Older(older)));
        for DeliveryView { id, record, .. } in deliveries {
            reasons.push(Reason::Begun { id, at: record.created_at });
            reasons.extend(record.delivery.attempts.iter().cloned().map(Reason::Attempt));
            reasons.push(Reason::Rest(rest(shared, id, &record)));
        }
        Ok(reasons)
    }

    fn absence(
        &self,
        shared: &Shared,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<Absence, Damaged> {
        let reader = shared.state.reader();
        let told =
            (&reader).read(&keys::fan_out(hook.face, &hook.tenant, no), record::decode_u64)?;
        if told.is_some_and(|told| told < hook.id.0) && hook.was_active_at(no) {
            return Ok(Absence::FanOut);
        }
        let forgotten = self.clock().now().since(event.at) >= self.retention().deliveries_ms;
        Ok(if forgotten { Absence::Forgotten } else { Absence::Inactive })
    }
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

fn rest(shared: &Shared, id: DeliveryId, record: &DeliveryRecord) -> Rest {
    match record.delivery.phase {
        Phase::Queued => Rest::Queued,
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
        Phase::Dead { at, why } => Rest::Dead { at, why, retried: record.retried },
        Phase::Dropped { at, why } => Rest::Dropped { at, why },
    }
}
