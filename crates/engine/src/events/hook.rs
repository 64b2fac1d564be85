//! Hooks for typed events: making and changing them, and giving them events from before their time.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{Backfill, Hook, HookId};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::event::hook::{EventHookSpec, FACE, HookUpdate};
use reveille_core::secret::SealedSecret;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::events::{EventTimer, decode_hook_spec, encode_hook_spec};
use reveille_schema::{keys, record};

use super::face::kind_of;
use super::index::EventHookIndex;
use super::txn::EventTxn;
use crate::app::{App, Txn};
use crate::deliveries::DeliveryRejection;
use crate::deliveries::delivery::{self, NewDelivery};
use crate::deliveries::hook::{NewHook, change, create, from_now_on, keep, named};
use crate::deliveries::index::HookIndex;
use crate::deliveries::spread::next_fan_out;
use crate::deliveries::timer_group::TimerGroups;
use crate::matching::{spend, steps_left};
use crate::records::damaged;

/// A hook for typed events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHook {
    pub hook: Arc<Hook>,
    pub spec: Arc<EventHookSpec>,
}

impl EventHook {
    /// A hook with what its owner wishes; `None` if it is one of another face.
    pub fn of(hook: Arc<Hook>) -> Result<Option<EventHook>, Damaged> {
        if hook.face != FACE {
            return Ok(None);
        }
        let spec = Arc::new(read_spec(&hook)?);
        Ok(Some(EventHook { hook, spec }))
    }
}

/// What the owner of a hook for typed events wishes.
pub fn read_spec(hook: &Hook) -> Result<EventHookSpec, Damaged> {
    decode_hook_spec(hook).map_err(damaged)
}

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
    pub spec: EventHookSpec,
    pub start: StartFrom,
    /// The key by which it is asked for.
    pub created_by: Option<Arc<str>>,
}

impl Command<App> for CreateHook {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let CreateHook { tenant, name, spec, start, created_by } = self;
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
        let new = NewHook {
            face: FACE,
            tenant: tenant.clone(),
            name: name.clone(),
            policy: spec.policy(),
            spec: encode_hook_spec(spec),
            backfill: next.map(|next| Backfill { next }),
            created_by: created_by.clone(),
        };
        let hook = match create(txn, new) {
            Ok(hook) => hook,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if hook.backfill.is_some() {
            txn.set_event_timer(txn.now(), &EventTimer::Backfill(tenant.clone(), hook.id));
        }
        Ok(Ok(hook))
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
        let index = txn.index().of::<EventHookIndex>();
        let hook = named(txn, FACE, tenant, name);
        let Some((hook, spec)) = hook.and_then(|hook| Some((hook, index.spec(hook.id)?))) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        let edited = spec.edited(update);
        let identical = index.identical(tenant, edited.identity());
        if identical.is_some_and(|id| id != hook.id) {
            return Ok(Err(DeliveryRejection::Exists));
        }
        let oldest = next_fan_out(txn, FACE, tenant, EventNo(0))?;
        let backfilled = hook.backfill.map(|backfill| backfill.next);
        let oldest = oldest.into_iter().chain(backfilled).min();
        let is_repatterned = edited.pattern != spec.pattern;
        let next = if is_repatterned { from_now_on(txn) } else { EventNo(0) };
        let Ok(edited) = edited.following(spec, next, oldest) else {
            return Ok(Err(DeliveryRejection::PatternBusy));
        };
        Ok(Ok(change(txn, hook, edited.policy(), encode_hook_spec(&edited))))
    }
}

/// Has deliveries of a hook signed with another secret. The one that it has is valid, too, for a
/// while: both signatures are sent.
#[derive(Debug, Clone)]
pub struct RotateHookSecret {
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub secret: SealedSecret,
    pub overlap_ms: u64,
}

impl Command<App> for RotateHookSecret {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let RotateHookSecret { tenant, name, secret, overlap_ms } = self;
        let index = txn.index().of::<EventHookIndex>();
        let hook = named(txn, FACE, tenant, name);
        let Some((hook, spec)) = hook.and_then(|hook| Some((hook, index.spec(hook.id)?))) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        if spec.secret.is_none() {
            return Ok(Err(DeliveryRejection::NoSecret));
        }
        let until = (*overlap_ms > 0).then_some(txn.now() + *overlap_ms);
        let spec = spec.with_rotated_secret(secret.clone(), until);
        Ok(Ok(change(txn, hook, spec.policy(), encode_hook_spec(&spec))))
    }
}

/// Gives a hook the next of the events from before its time; one that gets all in their order is
/// given those that came since, too, before it gets any at once.
pub(super) fn backfill(txn: &mut Txn<'_>, tenant: &Tenant, id: HookId) -> Result<(), ReadError> {
    let spec = txn.index().of::<EventHookIndex>().spec(id);
    let (Some(hook), Some(spec)) = (HookIndex::of_txn(txn).get(id), spec) else {
        return Ok(());
    };
    let Some(Backfill { next }) = hook.backfill else {
        return Ok(());
    };
    let (from, all) = keys::events(FACE, tenant, next);
    let to = if hook.is_catching_up() { all } else { keys::event(FACE, tenant, EventNo(id.0)) };
    let found = txn.range(&from, &to, txn.domains().settings.fan_out)?;
    let mut groups = TimerGroups::of(found.pairs.len());
    let mut steps = steps_left(txn);
    let mut last = found.last;
    for (key, value) in &found.pairs {
        let Some(no) = keys::parse_event(key) else { continue };
        let event = record::decode_event(value).map_err(damaged)?;
        let its_time = no < EventNo(id.0) || hook.was_active_at(no);
        let pattern = spec.pattern_at(no).filter(|_| its_time);
        let kind = kind_of(&event)?;
        if pattern.is_some_and(|it| it.matches_counted(&kind, &mut steps)) {
            let no = DeliveryNo { event: no, round: 0 };
            let (version, event_at) = (hook.version, event.at);
            let new = NewDelivery { no, version, event_at, lane: 0, event: None, dead: None };
            delivery::begin(txn, &mut groups, hook, new)?;
        }
        if txn.is_full() || steps.is_exceeded() {
            // Whatever comes after this is for the next slice.
            last = Some(key.clone());
            break;
        }
    }
    spend(txn, tenant, steps.used());
    groups.keep(txn);
    let last = last.and_then(|key| keys::parse_event(&key));
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
