//! What is shown of gardens and subscriptions.

use std::sync::Arc;

use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::{Delivery, Phase};
use reveille_core::fact::EntityUri;
use reveille_core::fact::garden::{Garden, GardenRole, Membership};
use reveille_core::fact::subscription::{Cancelled, FactHookSpec};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::facts::CancelledRecord;
use reveille_schema::{Record, keys, record};
use reveille_store::state::Reader;

use super::face::spec_of;
use super::limits::LAST_EVENT_LOOKS_MAX;
use crate::records::{ReadRecord, ScanBack, damaged};

/// A garden, as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GardenView {
    pub garden: Garden,
    pub role: GardenRole,
}

/// Somebody in a garden, and what they were there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    pub member: EntityUri,
    pub membership: Membership,
}

/// A subscription, cancelled or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionView {
    pub id: Arc<str>,
    /// The number by which events have their names.
    pub hook: HookId,
    pub spec: FactHookSpec,
    pub created_at: Millis,
    /// When an event was recorded that was then sent, or will be; never one that was dropped.
    pub last_event_at: Option<Millis>,
    pub cancelled: Option<Cancelled>,
}

/// Some subscriptions of somebody, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionPage {
    pub subscriptions: Vec<SubscriptionView>,
    /// How many there are in all.
    pub total: usize,
    /// After which one the next page begins.
    pub next: Option<HookId>,
}

impl SubscriptionView {
    pub(super) fn of(reader: &Reader, hook: &Hook) -> Result<SubscriptionView, Damaged> {
        Ok(SubscriptionView {
            id: hook.name.clone(),
            hook: hook.id,
            spec: spec_of(hook)?.spec,
            created_at: hook.created_at,
            last_event_at: last_event_at(reader, hook.id)?,
            cancelled: None,
        })
    }

    /// What is left of one that was cancelled.
    pub(super) fn cancelled(
        mut reader: &Reader,
        tenant: &Tenant,
        id: &Arc<str>,
    ) -> Result<Option<SubscriptionView>, Damaged> {
        let record = reader.read(&keys::cancelled(tenant, id), CancelledRecord::decode)?;
        Ok(record.map(|record| SubscriptionView {
            id: id.clone(),
            hook: record.hook,
            spec: record.subscription.spec,
            created_at: record.created_at,
            last_event_at: None,
            cancelled: Some(record.cancelled),
        }))
    }
}

/// When the last event was recorded that was not dropped, among the latest.
fn last_event_at(reader: &Reader, hook: HookId) -> Result<Option<Millis>, Damaged> {
    let (from, to) = keys::deliveries(hook);
    for pair in ScanBack::new(reader, from, to).take(LAST_EVENT_LOOKS_MAX) {
        let delivery = record::decode_delivery(&pair?.1).map_err(damaged)?;
        if was_open(&delivery.delivery) {
            return Ok(Some(delivery.created_at));
        }
    }
    Ok(None)
}

/// Whether its gate was open at least once: nothing is told of what nobody may know of.
fn was_open(delivery: &Delivery) -> bool {
    match delivery.phase {
        Phase::Dropped { .. } => false,
        Phase::Delivered { .. } => true,
        _ => !delivery.attempts.is_empty(),
    }
}
