//! Hooks: keeping, changing and ending them, and what follows from that in slices.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{
    ActiveSpan, Backfill, DeliveryCounts, FIRST_VERSION, FaceId, Hook, HookId, OpenDeliveries,
};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::{Input, Policy, Versions};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::{keys, record};

use super::delivery::{self, DeliveryTxn};
use super::ended::end;
use super::error::DeliveryRejection;
use super::index::HookIndex;
use super::spread::next_fan_out;
use crate::app::{App, Txn};

/// A hook that is to be made.
#[derive(Debug, Clone)]
pub struct NewHook {
    pub face: FaceId,
    pub tenant: Tenant,
    /// No other hook of the tenant and the face has it.
    pub name: Arc<str>,
    pub policy: Policy,
    /// In the words of the face.
    pub spec: Bytes,
    pub backfill: Option<Backfill>,
    /// The key by which it is asked for.
    pub created_by: Option<Arc<str>>,
}

/// Makes a hook active, or not.
#[derive(Debug, Clone)]
pub struct SetHookActive {
    pub face: FaceId,
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub active: bool,
}

/// Has a hook wait, or go on: what is for it meanwhile begins, and is held.
#[derive(Debug, Clone)]
pub struct SetHookPaused {
    pub face: FaceId,
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub paused: bool,
}

/// Ends a hook, with everything that belongs to it.
#[derive(Debug, Clone)]
pub struct DeleteHook {
    pub face: FaceId,
    pub tenant: Tenant,
    pub name: Arc<str>,
    /// What becomes of deliveries that have no end, where dead letters outlive the hook.
    pub open: OpenDeliveries,
}

/// Makes a hook, active from now on, unless its tenant has one of this name.
pub fn create(txn: &mut Txn<'_>, new: NewHook) -> Result<Arc<Hook>, DeliveryRejection> {
    let NewHook { face, tenant, name, policy, spec, backfill, created_by } = new;
    txn.rests_on_index();
    if HookIndex::of_txn(txn).of_tenant(face, &tenant, &name).is_some() {
        return Err(DeliveryRejection::Exists);
    }
    let max = txn.domains().settings.quotas.hooks;
    if HookIndex::of_txn(txn).counts().get(&tenant) >= max {
        return Err(DeliveryRejection::TooManyHooks { max });
    }
    let (id, now) = (txn.take_id(), txn.now());
    let spans = vec![ActiveSpan { from: EventNo(id), to: None }];
    let (created_at, updated_at, id) = (now, now, HookId(id));
    let hook = Hook {
        id,
        tenant,
        name,
        created_at,
        updated_at,
        version: FIRST_VERSION,
        paused: false,
        stopped_at: None,
        spans,
        backfill,
        face,
        policy,
        spec,
        created_by,
    };
    Ok(keep(txn, hook))
}

/// Keeps a hook as it is now.
pub fn keep(txn: &mut Txn<'_>, hook: Hook) -> Arc<Hook> {
    let hook = Arc::new(hook);
    txn.set(keys::hook(hook.face, &hook.tenant, &hook.name), record::encode_hook(&hook));
    hook
}

/// Former versions of a hook that are kept. A delivery that began with an older one follows the hook
/// as it is.
const HOOK_VERSIONS_MAX: u64 = 64;

/// Keeps a hook with other rules and wishes of its owner: the next version of it. Its transport
/// stays: attempts that wait are made as they were begun.
pub fn change(txn: &mut Txn<'_>, hook: &Hook, policy: Policy, spec: Bytes) -> Arc<Hook> {
    let (updated_at, version) = (txn.now(), hook.version.saturating_add(1));
    let policy = Policy { transport: hook.policy.transport, ..policy };
    if hook.policy.versions == Versions::Matched {
        txn.set(keys::hook_version(hook.id, hook.version), record::encode_hook(hook));
        if let Some(oldest) = hook.version.checked_sub(HOOK_VERSIONS_MAX) {
            txn.remove(&keys::hook_version(hook.id, oldest));
        }
    }
    keep(txn, Hook { updated_at, version, policy, spec, ..hook.clone() })
}

/// A tenant's hook of this name, if it is one of this face.
pub fn named<'a>(
    txn: &mut Txn<'a>,
    face: FaceId,
    tenant: &Tenant,
    name: &str,
) -> Option<&'a Arc<Hook>> {
    txn.rests_on_index();
    HookIndex::of_txn(txn).of_tenant(face, tenant, name)
}

impl Command<App> for SetHookActive {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let SetHookActive { face, tenant, name, active } = self;
        let Some(hook) = named(txn, *face, tenant, name) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        if *active == hook.is_active() {
            return Ok(Ok(hook.clone()));
        }
        let next = from_now_on(txn);
        let oldest = next_fan_out(txn, *face, tenant, EventNo(0))?.unwrap_or(next);
        let backfilled = hook.backfill.map_or(next, |backfill| backfill.next);
        let oldest = oldest.min(backfilled);
        let changed = hook.with_active(*active, next, oldest).changed_at(txn.now());
        if changed.is_sending() {
            let timer = DeliveryTimer::Resume(tenant.clone(), hook.id);
            txn.set_delivery_timer(txn.now(), &timer);
        }
        Ok(Ok(keep(txn, changed)))
    }
}

impl Command<App> for SetHookPaused {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let SetHookPaused { face, tenant, name, paused } = self;
        let Some(hook) = named(txn, *face, tenant, name) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        if *paused == hook.paused {
            return Ok(Ok(hook.clone()));
        }
        let changed = Hook { paused: *paused, ..Hook::clone(hook) }.changed_at(txn.now());
        if changed.is_sending() {
            let timer = DeliveryTimer::Resume(tenant.clone(), hook.id);
            txn.set_delivery_timer(txn.now(), &timer);
        }
        Ok(Ok(keep(txn, changed)))
    }
}

impl Command<App> for DeleteHook {
    /// What its deliveries had come to.
    type Answer = DeliveryCounts;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<DeliveryCounts, DeliveryRejection> {
        let Some(hook) = named(txn, self.face, &self.tenant, &self.name) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        let counts = txn.counts(hook)?;
        end(txn, hook, self.open);
        Ok(Ok(counts))
    }
}

/// A number above all events that there are, and below all that will come. It is taken: numbers of
/// a batch that the log had no room for are given out again after a restart.
pub fn from_now_on(txn: &mut Txn<'_>) -> EventNo {
    EventNo(txn.take_id())
}

/// Tries what was held while a hook was not active.
pub(crate) fn resume(txn: &mut Txn<'_>, tenant: &Tenant, id: HookId) -> Result<(), ReadError> {
    let Some(hook) = HookIndex::of_txn(txn).get(id).filter(|hook| hook.is_sending()) else {
        return Ok(());
    };
    let (from, to) = keys::all_held(id);
    let found = txn.range(&from, &to, txn.domains().settings.fan_out)?;
    let held: Vec<_> = found.pairs.iter().filter_map(|(key, _)| keys::parse_held(key)).collect();
    let records: Vec<Bytes> = held.iter().map(|id| keys::delivery(*id)).collect();
    txn.want(&records)?;
    let done =
        txn.gather_slice(&held, |txn, id| delivery::advance(txn, hook, *id, Input::Resumed))?;
    if !found.complete || done < held.len() {
        txn.set_delivery_timer(txn.now(), &DeliveryTimer::Resume(tenant.clone(), id));
    }
    Ok(())
}
