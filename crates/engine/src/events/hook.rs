//! Hooks for typed events: making and changing them, and giving them events from before their time.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{ActiveSpan, Backfill, Hook, HookId, HookSpec, HookUpdate};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::events::EventTimer;
use reveille_schema::{keys, record};

use super::index::EventHookIndex;
use super::txn::EventTxn;
use crate::app::{App, Txn};
use crate::deliveries::DeliveryRejection;
use crate::deliveries::delivery;
use crate::deliveries::hook::{from_now_on, keep, named};
use crate::deliveries::index::HookIndex;
use crate::deliveries::timer_group::TimerGroups;
use crate::records::damaged;

/// Which events a new hook gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// Those that come after it.
    #[default]
    Now,
    /// All that there are.
    Beginning,
    /// From the one with this id on.
    Event(Arc<str>),
}

/// Makes a hook.
#[derive(Debug, Clone)]
pub struct CreateHook {
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub spec: HookSpec,
    pub start: StartFrom,
}

impl Command<App> for CreateHook {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let CreateHook { tenant, name, spec, start } = self;
        txn.rests_on_index();
        let index = txn.index().of::<EventHookIndex>();
        if index.identical(tenant, spec.identity()).is_some() {
            return Ok(Err(DeliveryRejection::Exists));
        }
        let next = match start {
            StartFrom::Now => None,
            StartFrom::Beginning => Some(EventNo(0)),
            StartFrom::Event(id) => {
                let Some(no) = txn.event_named(tenant, id)? else {
                    return Ok(Err(DeliveryRejection::NoEvent));
                };
                Some(no)
            }
        };
        let id = txn.take_id();
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
            txn.set_event_timer(txn.now(), &EventTimer::Backfill(tenant.clone(), hook.id));
        }
        Ok(Ok(keep(txn, hook)))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// Changes some of a hook's settings.
#[derive(Debug, Clone)]
pub struct UpdateHook {
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub update: HookUpdate,
}

impl Command<App> for UpdateHook {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let UpdateHook { tenant, name, update } = self;
        let Some(hook) = named(txn, tenant, name) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        let edited = hook.edited(update, txn.now());
        let index = txn.index().of::<EventHookIndex>();
        let identical = index.identical(tenant, edited.spec.identity());
        if identical.is_some_and(|id| id != hook.id) {
            return Ok(Err(DeliveryRejection::Exists));
        }
        Ok(Ok(keep(txn, edited)))
    }
}

/// Gives a hook the next of the events from before its time; one that gets all in their order is
/// given those that came since, too, before it gets any at once.
pub(super) fn backfill(txn: &mut Txn<'_>, tenant: &Tenant, id: HookId) -> Result<(), ReadError> {
    let Some(hook) = HookIndex::of_txn(txn).get(id) else {
        return Ok(());
    };
    let Some(Backfill { next }) = hook.backfill else {
        return Ok(());
    };
    let (from, all) = keys::events(tenant, next);
    let to = if hook.is_catching_up() { all } else { keys::event(tenant, EventNo(id.0)) };
    let found = txn.range(&from, &to, txn.domains().settings.fan_out)?;
    let mut groups = TimerGroups::of(found.pairs.len());
    for (key, value) in &found.pairs {
        let Some(no) = keys::parse_event(key) else { continue };
        let event = record::decode_event(value).map_err(damaged)?;
        let its_time = no < EventNo(id.0) || hook.was_active_at(no);
        if its_time && hook.wants(&event.kind) {
            let no = DeliveryNo { event: no, round: 0 };
            delivery::begin(txn, &mut groups, hook, no, event.at, None)?;
        }
    }
    groups.keep(txn);
    let last = found.last.and_then(|key| keys::parse_event(&key));
    let backfill = last.map(|last| Backfill { next: EventNo(last.0 + 1) });
    if backfill.is_some() {
        txn.set_event_timer(txn.now(), &EventTimer::Backfill(tenant.clone(), id));
    }
    let after = match backfill {
        None if hook.is_catching_up() => hook.caught_up(from_now_on(txn)),
        _ => Hook { backfill, ..Hook::clone(hook) },
    };
    keep(txn, after);
    Ok(())
}
