//! Hooks that have ended: what becomes of what they leave, in slices, and who they were, for the
//! dead letters that have outlived them.
//!
//! ```text
//! hook ends ─▶ its record goes ─┬─ letters go with it ──▶ everything is removed
//!                               └─ letters outlive it ──▶ ended hook ─▶ only letters are left
//!                                    ─▶ they are older than deliveries are kept ─▶ nothing
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::audit::{Actor, AuditEntry, action};
use reveille_core::delivery::hook::{
    DeliveryCounts, EndedHook, FaceId, Hook, HookId, OpenDeliveries,
};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::{DeadReason, Delivery, DropReason, Letters, Phase};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::Record;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys::{self, TenantDeadLetter};
use reveille_schema::record::{self, DeliveryRecord};
use reveille_store::state::Reader;

use super::dead_letter::{self, LetterState};
use super::delivery::DeliveryTxn;
use super::error::DeliveryRejection;
use super::face::{DeliveryFaces, EndReason};
use super::index::HookIndex;
use super::replay;
use crate::app::{IndexPart, Shared, Txn};
use crate::audit;
use crate::effect::Effect;
use crate::limits::{ENDED_HOOKS_MAX, PURGE_SLICE, SCAN_BYTES};
use crate::records::{ReadRecord, damaged};

/// Hooks that their dead letters have outlived.
#[derive(Default)]
pub struct EndedHookIndex {
    by_id: BTreeMap<HookId, EndedHookName>,
    /// Those that ended first come first.
    by_tenant: HashMap<Tenant, BTreeSet<(Millis, HookId)>>,
    by_key: HashMap<Bytes, HookId>,
}

/// What is known of one without reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedHookName {
    pub tenant: Tenant,
    pub face: FaceId,
    pub name: Arc<str>,
    pub ended_at: Millis,
}

impl IndexPart for EndedHookIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_ended_hooks()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if let Some(id) = self.by_key.remove(key)
            && let Some(before) = self.by_id.remove(&id)
            && let Some(of_tenant) = self.by_tenant.get_mut(&before.tenant)
        {
            of_tenant.remove(&(before.ended_at, id));
            if of_tenant.is_empty() {
                self.by_tenant.remove(&before.tenant);
            }
        }
        if let Some(value) = value {
            let EndedHook { hook, ended_at, .. } = EndedHook::decode(value).map_err(damaged)?;
            let Hook { id, tenant, face, name, .. } = hook;
            self.by_key.insert(key.clone(), id);
            self.by_tenant.entry(tenant.clone()).or_default().insert((ended_at, id));
            self.by_id.insert(id, EndedHookName { tenant, face, name, ended_at });
        }
        Ok(())
    }
}

impl EndedHookIndex {
    /// What a decision knows of ended hooks.
    pub fn of_txn<'a>(txn: &Txn<'a>) -> &'a EndedHookIndex {
        txn.index().of()
    }

    pub fn get(&self, id: HookId) -> Option<&EndedHookName> {
        self.by_id.get(&id)
    }

    /// A tenant's ended hooks of this name, whatever face they were of.
    pub fn named(&self, tenant: &Tenant, name: &str) -> Vec<HookId> {
        let ids = self.by_tenant.get(tenant).into_iter().flatten().map(|(_, id)| *id);
        ids.filter(|id| self.get(*id).is_some_and(|it| *it.name == *name)).collect()
    }

    /// Those of a tenant, or of all, from a number on; at most so many.
    pub fn from(&self, tenant: Option<&Tenant>, first: HookId, limit: usize) -> Vec<HookId> {
        let mine = |it: &EndedHookName| tenant.is_none_or(|tenant| it.tenant == *tenant);
        let all = self.by_id.range(first..).filter(|(_, it)| mine(it));
        all.take(limit).map(|(id, _)| *id).collect()
    }

    fn of_tenant(&self, tenant: &Tenant) -> Option<&BTreeSet<(Millis, HookId)>> {
        self.by_tenant.get(tenant)
    }
}

/// Who a name of a tenant stands for.
pub(super) struct NamedHooks {
    pub(super) live: Option<HookId>,
    /// Those that were called so, and that their dead letters have outlived.
    pub(super) ended: Vec<HookId>,
}

impl NamedHooks {
    pub(super) fn find(
        shared: &Shared,
        tenant: &Tenant,
        name: &str,
    ) -> Result<NamedHooks, DeliveryRejection> {
        let faces = shared.domains.part::<DeliveryFaces>().ids();
        let partition = shared.lock();
        let live = partition.index.of::<HookIndex>().of_faces(faces, tenant, name).map(|it| it.id);
        let ended = partition.index.of::<EndedHookIndex>().named(tenant, name);
        if live.is_none() && ended.is_empty() {
            return Err(DeliveryRejection::NotFound);
        }
        Ok(NamedHooks { live, ended })
    }
}

/// A hook as a decision finds it, ended or not.
pub(super) enum KnownHook<'a> {
    Live(&'a Arc<Hook>),
    Ended(Box<EndedHook>),
}

impl KnownHook<'_> {
    pub(super) fn hook(&self) -> &Hook {
        match self {
            KnownHook::Live(hook) => hook,
            KnownHook::Ended(ended) => &ended.hook,
        }
    }

    /// Whether it has ended, and more than dead letters is left of it.
    pub(super) fn is_clearing(&self) -> bool {
        matches!(self, KnownHook::Ended(ended) if !ended.is_cleared)
    }
}

/// The hook of this number, also one that its dead letters have outlived.
pub(super) fn known<'a>(txn: &mut Txn<'a>, id: HookId) -> Result<Option<KnownHook<'a>>, ReadError> {
    txn.rests_on_index();
    if let Some(hook) = HookIndex::of_txn(txn).get(id) {
        return Ok(Some(KnownHook::Live(hook)));
    }
    let Some(ended) = EndedHookIndex::of_txn(txn).get(id) else { return Ok(None) };
    let ended = txn.read(&keys::ended_hook(&ended.tenant, id), EndedHook::decode)?;
    Ok(ended.map(|ended| KnownHook::Ended(Box::new(ended))))
}

/// A tenant's hook of this number that its dead letters have outlived, as it became durable last.
pub(super) fn ended(
    mut reader: &Reader,
    tenant: &Tenant,
    id: HookId,
) -> Result<Option<EndedHook>, Damaged> {
    reader.read(&keys::ended_hook(tenant, id), EndedHook::decode)
}

/// Ends a hook; what belongs to it is removed in slices, but for dead letters that outlive it.
pub(crate) fn end(txn: &mut Txn<'_>, hook: &Hook, open: OpenDeliveries) {
    txn.remove(&keys::hook(hook.face, &hook.tenant, &hook.name));
    if hook.policy.letters == Letters::OutliveHook {
        make_room(txn, &hook.tenant);
        let (after, ended_at) = (Bytes::new(), txn.now());
        let ended = EndedHook { hook: hook.clone(), ended_at, open, after, is_cleared: false };
        txn.set(keys::ended_hook(&hook.tenant, hook.id), ended.encode());
    }
    clear_up(txn, &hook.tenant, hook.id);
}

/// Who ended a hook that its owner did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    Endpoint,
    Gate,
}

/// Ends a hook because its endpoint or its gate says so, and writes that down: its owner was not
/// asked, and its face may have more to remember. Several outcomes of one decision may say it.
pub(crate) fn end_unasked(txn: &mut Txn<'_>, hook: &Hook, by: EndedBy) -> Result<(), ReadError> {
    if !txn.is_set(&keys::hook(hook.face, &hook.tenant, &hook.name))? {
        return Ok(());
    }
    let text = match by {
        EndedBy::Endpoint => "the endpoint answered that it wants nothing more",
        EndedBy::Gate => "what was to be delivered is not for it any more",
    };
    let face = txn.domains().part::<DeliveryFaces>().get(hook.face)?;
    let unknown = EndReason { action: action::HOOK_DELETED, text };
    let EndReason { action, text } = face.hook_ended(txn, hook, by)?.unwrap_or(unknown);
    let tenant = Some(hook.tenant.clone());
    let mut entry = AuditEntry::new(Actor::server(), action, tenant, hook.name.clone());
    entry.from_version = Some(hook.version);
    entry.reason = Some(text.into());
    audit::record(txn, &entry)?;
    end(txn, hook, OpenDeliveries::Drop);
    Ok(())
}

/// However often a tenant makes and ends hooks, so many are remembered: the dead letters of the one
/// that ended first go.
fn make_room(txn: &mut Txn<'_>, tenant: &Tenant) {
    txn.rests_on_index();
    let all = EndedHookIndex::of_txn(txn).of_tenant(tenant);
    let Some(all) = all.filter(|all| all.len() >= ENDED_HOOKS_MAX) else { return };
    if let Some((_, oldest)) = all.first() {
        txn.remove(&keys::ended_hook(tenant, *oldest));
        clear_up(txn, tenant, *oldest);
    }
}

fn clear_up(txn: &mut Txn<'_>, tenant: &Tenant, id: HookId) {
    txn.set_delivery_timer(txn.now(), &DeliveryTimer::Unhook(tenant.clone(), id));
}

/// Some of what an ended hook has left, as it was found outside of the lock. Nobody changes it
/// meanwhile: of an ended hook only dead letters are, and those that are changed stay.
#[derive(Debug, Clone, Default)]
pub(super) struct HookRemains {
    /// Where the look began, for a hook that its dead letters outlive.
    outlived: Option<Bytes>,
    /// Deliveries that go, or become dead letters.
    deliveries: Vec<(DeliveryId, DeliveryRecord)>,
    /// Other keys that go.
    keys: Vec<Bytes>,
    /// The last delivery that was looked at, and whether there may be more.
    last: Bytes,
    has_more: bool,
}

impl HookRemains {
    pub(super) fn look(
        reader: &Reader,
        tenant: &Tenant,
        id: HookId,
    ) -> Result<HookRemains, Damaged> {
        let outlived = ended(reader, tenant, id)?.map(|ended| ended.after);
        let after = outlived.clone().unwrap_or_default();
        let mut remains = HookRemains { outlived, last: after.clone(), ..HookRemains::default() };
        let (first, to) = keys::deliveries(id);
        let from = if after.is_empty() { first } else { above(&after) };
        for (key, value) in reader.range_within(&from, &to, PURGE_SLICE / 4, SCAN_BYTES)? {
            remains.last = key.clone();
            remains.has_more = true;
            let record = record::decode_delivery(&value);
            let (Some(id), Ok(record)) = (keys::parse_delivery(&key), record) else {
                remains.keys.push(key);
                continue;
            };
            let is_dead = matches!(record.delivery.phase, Phase::Dead { .. });
            if !is_dead || remains.outlived.is_none() {
                remains.deliveries.push((id, record));
            }
        }
        remains.look_beside(reader, id)?;
        Ok(remains)
    }

    /// What stands beside deliveries. Dead letters have their entries for as long as they are kept.
    fn look_beside(&mut self, reader: &Reader, id: HookId) -> Result<(), Damaged> {
        let ranges = [
            keys::all_held(id),
            keys::lanes(id),
            keys::all_waiting(id),
            keys::hook_versions(id),
            keys::hook_notes(id),
        ];
        let letters = self.outlived.is_none().then(|| keys::dead_letters(id));
        for (from, to) in ranges.into_iter().chain(letters) {
            let room = PURGE_SLICE.saturating_sub(self.removals());
            if room > 0 {
                self.keys.extend(reader.keys(&from, &to, room)?);
            }
        }
        let counts = keys::counts(id);
        if self.outlived.is_none() && !self.has_more && reader.get(&counts)?.is_some() {
            self.keys.push(counts);
        }
        Ok(())
    }

    /// How many keys go.
    pub(super) fn removals(&self) -> usize {
        self.keys.len() + self.deliveries.len() * 2
    }

    pub(super) fn weight(&self) -> usize {
        self.keys.len() * 32 + self.deliveries.len() * 256
    }

    fn is_empty(&self) -> bool {
        !self.has_more && self.keys.is_empty()
    }
}

/// Removes some of what an ended hook has left. The entry of the due index stays until a look finds
/// nothing more.
pub(super) fn clear(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    id: HookId,
    remains: &HookRemains,
) -> Result<(), ReadError> {
    let ended = txn.read(&keys::ended_hook(tenant, id), EndedHook::decode)?;
    match (ended, &remains.outlived) {
        (Some(ended), Some(after)) if ended.after == *after => {
            clear_but_letters(txn, entry, ended, remains)
        }
        (None, None) => clear_all(txn, entry, tenant, remains),
        // It is otherwise since it was looked at: the next look finds it so.
        _ => Ok(()),
    }
}

fn clear_all(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    remains: &HookRemains,
) -> Result<(), ReadError> {
    for (id, record) in &remains.deliveries {
        if let Phase::Dead { at: died_at, .. } = record.delivery.phase {
            txn.remove(&TenantDeadLetter { tenant: tenant.clone(), died_at, id: *id }.key());
        }
        drop_delivery(txn, tenant, *id, record)?;
    }
    remains.keys.iter().for_each(|key| txn.remove(key));
    if remains.is_empty() {
        txn.remove(entry);
    }
    Ok(())
}

fn clear_but_letters(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    mut ended: EndedHook,
    remains: &HookRemains,
) -> Result<(), ReadError> {
    let hook = &ended.hook;
    let mut counts = txn.counts(hook)?;
    for (id, record) in &remains.deliveries {
        let is_open = record.delivery.ended_at().is_none();
        if is_open && ended.open == OpenDeliveries::Bury {
            bury(txn, hook, *id, record, &mut counts)?;
            continue;
        }
        let dropped = drop_delivery(txn, &hook.tenant, *id, record)?;
        counts.moved(Some(&record.delivery), Some(&dropped));
        counts.moved(Some(&dropped), None);
    }
    remains.keys.iter().for_each(|key| txn.remove(key));
    if !remains.is_empty() {
        ended.after = remains.last.clone();
    } else {
        ended.is_cleared = true;
        counts.failing_since = None;
        txn.remove(entry);
    }
    keep(txn, &ended, counts);
    Ok(())
}

/// Keeps an ended hook as it has become, or nothing of it once its last dead letter is gone.
pub(super) fn keep(txn: &mut Txn<'_>, ended: &EndedHook, counts: DeliveryCounts) {
    let (key, id) = (keys::ended_hook(&ended.hook.tenant, ended.hook.id), ended.hook.id);
    if ended.is_cleared && counts.kept == 0 {
        txn.scratch.counts.remove(&id);
        txn.remove(&keys::counts(id));
        txn.remove(&key);
        return;
    }
    txn.scratch.counts.insert(id, counts);
    txn.set(key, ended.encode());
}

/// A delivery that has an end, or that nobody will make any more, is forgotten.
fn drop_delivery(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    id: DeliveryId,
    record: &DeliveryRecord,
) -> Result<Delivery, ReadError> {
    if record.delivery.ended_at().is_some() {
        txn.remove(&keys::delivery(id));
        return Ok(record.delivery.clone());
    }
    // A look from before the last slice was durable may have found it once more: it ends once.
    let replay = match record.replay {
        Some(replay) if txn.is_set(&keys::delivery(id))? => Some(replay),
        _ => None,
    };
    txn.remove(&keys::delivery(id));
    cancel_timer(txn, id, record);
    let phase = Phase::Dropped { at: txn.now(), why: DropReason::Cancelled };
    let dropped = Delivery { phase, ..record.delivery.clone() };
    if let Some(replay) = replay {
        replay::count_end(txn, tenant, replay, &dropped)?;
    }
    Ok(dropped)
}

/// A delivery that will not be made any more becomes a dead letter.
fn bury(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    record: &DeliveryRecord,
    counts: &mut DeliveryCounts,
) -> Result<(), ReadError> {
    cancel_timer(txn, id, record);
    let (at, why) = (txn.now(), DeadReason::HookDeleted);
    let buried = Delivery { phase: Phase::Dead { at, why }, ..record.delivery.clone() };
    counts.moved(Some(&record.delivery), Some(&buried));
    counts.dead_letters += 1;
    txn.effect(Effect::CountDeadLetter(why));
    txn.set(keys::dead_letter(id, at), Bytes::new());
    dead_letter::enter(txn, hook, at, id, LetterState::Dead);
    if let Some(replay) = record.replay {
        replay::count_end(txn, &hook.tenant, replay, &buried)?;
    }
    let buried = DeliveryRecord { delivery: buried, timer_at: None, ..record.clone() };
    txn.set(keys::delivery(id), record::encode_delivery(&buried));
    Ok(())
}

fn cancel_timer(txn: &mut Txn<'_>, id: DeliveryId, record: &DeliveryRecord) {
    if let Some(at) = record.timer_at {
        txn.cancel_timer(at, &DeliveryTimer::Delivery(id).encode());
    }
}
