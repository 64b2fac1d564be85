//! Triggers are made, changed, enabled, disabled, run dry, rolled back and ended: one decision each,
//! with its row in the audit log.
//!
//! What is changed takes effect for the changes that come after it: the version that was in force
//! before stays known for as long as older changes are still being told.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::delivery::hook::{FIRST_VERSION, Hook, OpenDeliveries};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::FACE;
use reveille_core::trigger::deployment::{Deployment, State};
use reveille_core::trigger::rollout::SloWindow;
use reveille_core::trigger::{Definition, TriggerId};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::triggers::{
    DryRunCandidate, FormerTrigger, KeptVersion, StoredDefinition, TriggerHealth, TriggerRecord,
};
use reveille_schema::{Record, keys, record};

use super::describe::describe;
use super::error::TriggerRejection;
use super::index::{TriggerEntry, TriggerIndex};
use super::notes;
use super::secrets::DEFAULT_SECRET;
use crate::app::{App, Txn};
use crate::audit;
use crate::deliveries::DeliveryRejection;
use crate::deliveries::delivery::DeliveryTxn;
use crate::deliveries::ended::end;
use crate::deliveries::hook::{NewHook, change, create, from_now_on, keep, named};
use crate::deliveries::spread::next_fan_out;
use crate::limits::{
    FORMER_TRIGGERS_BYTES, FORMER_TRIGGERS_MAX, TRIGGER_VERSIONS_BYTES, TRIGGER_VERSIONS_MAX,
};
use crate::records::ReadRecord;

/// The bytes that a change of a trigger adds to a batch, roughly: its definition, perhaps twice, and
/// a row of the audit log. Most definitions are far smaller than they may be.
pub(super) const CHANGE_WEIGHT: usize = 12 << 10;

/// What is done with a trigger, or what keeps that from being done.
pub(super) type Changed = Result<Arc<Hook>, TriggerRejection>;

/// Has a trigger made, or changed, or put into another state.
#[derive(Debug, Clone)]
pub struct ChangeTrigger {
    pub tenant: Tenant,
    pub id: Arc<str>,
    /// The version that whoever asks has seen.
    pub expected: Option<u64>,
    pub change: TriggerChange,
    /// Why, in the words of whoever asks.
    pub reason: Option<Arc<str>>,
    /// Without a name for what is done; the decision says more.
    pub entry: AuditEntry,
}

/// What is to become of a trigger.
#[derive(Debug, Clone)]
pub enum TriggerChange {
    /// It is made, disabled.
    Create { id: TriggerId, definition: Arc<Definition>, created_by: Option<Arc<str>> },
    /// Another version takes over.
    Update { definition: Arc<Definition> },
    /// What matches from now on is delivered, and so is what waits.
    Enable,
    /// Nothing matches from now on; what was matched waits.
    Disable,
    /// What matches from now on is counted, and not delivered; or a definition is, beside the one
    /// that is in force.
    DryRun { candidate: Option<Arc<Definition>> },
    /// Nothing runs dry any more.
    EndDryRun,
    /// A version of before takes over, as a version of its own.
    RollBack { version: u64 },
}

/// Ends a trigger.
#[derive(Debug, Clone)]
pub struct DeleteTrigger {
    pub tenant: Tenant,
    pub id: Arc<str>,
    pub expected: Option<u64>,
    /// What becomes of deliveries that have no end.
    pub open: OpenDeliveries,
    pub entry: AuditEntry,
}

/// A version that takes over.
pub(super) struct Replacement {
    pub(super) definition: Arc<Definition>,
    pub(super) state: State,
    pub(super) stable: Option<StoredDefinition>,
    pub(super) reason: Option<Arc<str>>,
    pub(super) is_unsigned: bool,
}

/// A version of before is in force, or nothing is.
pub(super) fn rolled_back(is_active: bool) -> State {
    State::RolledBack { is_active }
}

/// A trigger of a tenant, as a decision knows it.
pub(super) fn trigger<'a>(
    txn: &mut Txn<'a>,
    tenant: &Tenant,
    id: &str,
    expected: Option<u64>,
) -> Result<&'a Arc<TriggerEntry>, TriggerRejection> {
    let hook = named(txn, FACE, tenant, id);
    let entry = hook.and_then(|hook| TriggerIndex::of_txn(txn).get(tenant, hook.id));
    let entry = entry.ok_or_else(|| TriggerRejection::NotFound { id: id.into() })?;
    match expected {
        Some(expected) if expected != entry.hook.version => {
            Err(TriggerRejection::VersionMismatch { id: id.into(), current: entry.hook.version })
        }
        _ => Ok(entry),
    }
}

impl Command<App> for ChangeTrigger {
    type Answer = Arc<Hook>;
    type Rejection = TriggerRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, TriggerRejection> {
        if let TriggerChange::Create { id, definition, created_by } = &self.change {
            let (tenant, by) = (&self.tenant, created_by.clone());
            let made = make(txn, tenant, id, definition, by, self.has_signed())?;
            if let Ok(hook) = &made {
                self.write_down(txn, action::TRIGGER_CREATED, None, hook)?;
            }
            return Ok(made);
        }
        let entry = match trigger(txn, &self.tenant, &self.id, self.expected) {
            Ok(entry) => entry,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let (action, changed) = match &self.change {
            TriggerChange::Create { .. } => return Ok(Ok(entry.hook.clone())),
            TriggerChange::Update { definition } => {
                (action::TRIGGER_UPDATED, update(txn, entry, definition, self.has_signed())?)
            }
            TriggerChange::Enable => (action::TRIGGER_ENABLED, self.enable(txn, entry)?),
            TriggerChange::Disable => (action::TRIGGER_DISABLED, self.disable(txn, entry)?),
            TriggerChange::DryRun { candidate } => {
                (action::TRIGGER_DRY_RUN, self.run_dry(txn, entry, candidate.as_ref())?)
            }
            TriggerChange::EndDryRun => (action::TRIGGER_DRY_RUN_ENDED, end_dry_run(txn, entry)?),
            TriggerChange::RollBack { version } => {
                (action::TRIGGER_ROLLED_BACK, self.roll_back(txn, entry, *version)?)
            }
        };
        if let Ok(hook) = &changed
            && !Arc::ptr_eq(hook, &entry.hook)
        {
            self.write_down(txn, action, Some(entry), hook)?;
        }
        Ok(changed)
    }

    fn weight(&self) -> usize {
        CHANGE_WEIGHT
    }

    fn needs_room(&self) -> bool {
        matches!(
            self.change,
            TriggerChange::Create { .. }
                | TriggerChange::Update { .. }
                | TriggerChange::DryRun { .. }
        )
    }
}

impl ChangeTrigger {
    /// Whether whoever asks has signed the request (AUD-3).
    fn has_signed(&self) -> bool {
        self.entry.actor.has_signed
    }

    fn write_down(
        &self,
        txn: &mut Txn<'_>,
        action: &str,
        before: Option<&Arc<TriggerEntry>>,
        after: &Arc<Hook>,
    ) -> Result<(), ReadError> {
        let mut entry = AuditEntry { action: action.into(), ..self.entry.clone() };
        entry.subject = after.name.clone();
        entry.reason = self.reason.clone().or(entry.reason);
        describe(before.map(|it| &**it), Some(after), &mut entry);
        audit::record(txn, &entry).map(drop)
    }

    fn enable(&self, txn: &mut Txn<'_>, entry: &TriggerEntry) -> Result<Changed, ReadError> {
        if entry.record.state == State::Enabled {
            return Ok(Ok(entry.hook.clone()));
        }
        if let Err(rejection) = check_secret(txn, &self.tenant, &entry.current.definition)? {
            return Ok(Err(rejection));
        }
        let key = keys::trigger_health(entry.hook.id);
        if let Some(health) = txn.read(&key, TriggerHealth::decode)? {
            // Whatever was judged before is looked at anew.
            let health = TriggerHealth { version: 0, window: SloWindow::default(), ..health };
            txn.set(key, health.encode());
        }
        let reason = self.reason.clone();
        let is_unsigned = entry.record.is_unsigned && !self.has_signed();
        let before = entry.record.clone();
        let record = TriggerRecord { dry_since: None, reason, is_unsigned, ..before };
        set_state(txn, entry, State::Enabled, record).map(Ok)
    }

    fn disable(&self, txn: &mut Txn<'_>, entry: &TriggerEntry) -> Result<Changed, ReadError> {
        if entry.record.state == State::Disabled {
            return Ok(Ok(entry.hook.clone()));
        }
        let (reason, candidate) = (self.reason.clone(), None);
        let record = TriggerRecord { dry_since: None, candidate, reason, ..entry.record.clone() };
        set_state(txn, entry, State::Disabled, record).map(Ok)
    }

    fn run_dry(
        &self,
        txn: &mut Txn<'_>,
        entry: &TriggerEntry,
        candidate: Option<&Arc<Definition>>,
    ) -> Result<Changed, ReadError> {
        let since = from_now_on(txn);
        let reason = self.reason.clone();
        notes::clear_dry_run(txn, entry.hook.id);
        Ok(Ok(match candidate {
            Some(definition) => {
                let definition = definition.to_stored().into();
                let candidate = Some(DryRunCandidate { definition, since });
                let record = TriggerRecord { candidate, dry_since: None, ..entry.record.clone() };
                keep_record(txn, Hook::clone(&entry.hook), &record)
            }
            None => {
                let dry_since = Some(since);
                let record =
                    TriggerRecord { candidate: None, dry_since, reason, ..entry.record.clone() };
                set_state(txn, entry, State::DryRun, record)?
            }
        }))
    }

    fn roll_back(
        &self,
        txn: &mut Txn<'_>,
        entry: &TriggerEntry,
        version: u64,
    ) -> Result<Changed, ReadError> {
        if version == entry.hook.version {
            return Ok(Err(TriggerRejection::SameVersion { version }));
        }
        let key = keys::hook_version(entry.hook.id, version);
        let Some(former) = txn.read(&key, record::decode_hook)? else {
            return Ok(Err(TriggerRejection::NoVersion { version }));
        };
        let definition = super::definition_of(&former)?;
        let (state, reason) = (entry.record.state.of_next_version(), self.reason.clone());
        let is_unsigned = is_unsigned_as(entry, &definition, self.has_signed());
        replace(txn, entry, Replacement { definition, state, stable: None, reason, is_unsigned })
    }
}

/// Whether nobody has signed where and how a trigger sends once it is like this. What leaves that as
/// it was leaves its signature as well.
fn is_unsigned_as(entry: &TriggerEntry, next: &Definition, has_signed: bool) -> bool {
    match entry.current.definition.sensitive_changes(next).is_empty() {
        true => entry.record.is_unsigned,
        false => !has_signed,
    }
}

/// Makes a trigger, disabled.
pub(super) fn make(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    id: &TriggerId,
    definition: &Definition,
    created_by: Option<Arc<str>>,
    has_signed: bool,
) -> Result<Changed, ReadError> {
    txn.rests_on_index();
    let max = txn.domains().settings.quotas.triggers;
    if TriggerIndex::of_txn(txn).count(tenant) >= max
        && named(txn, FACE, tenant, id.as_str()).is_none()
    {
        return Ok(Err(TriggerRejection::TooManyTriggers { max }));
    }
    let record = TriggerRecord {
        definition: definition.to_stored().into(),
        state: State::Disabled,
        since: EventNo(0),
        stable: None,
        former: Vec::new(),
        candidate: None,
        dry_since: None,
        kept: Vec::new(),
        reason: None,
        is_unsigned: !has_signed,
    };
    let new = NewHook {
        face: FACE,
        tenant: tenant.clone(),
        name: id.to_shared(),
        policy: definition.policy(),
        spec: record.encode(),
        backfill: None,
        created_by,
    };
    Ok(match create(txn, new) {
        Ok(hook) => {
            // Nothing is for it until it is enabled.
            let disabled = Hook { spans: Vec::new(), ..Hook::clone(&hook) }.changed_at(txn.now());
            Ok(keep(txn, disabled))
        }
        Err(DeliveryRejection::TooManyHooks { max }) => Err(TriggerRejection::TooManyHooks { max }),
        Err(_) => Err(TriggerRejection::Exists { id: id.clone() }),
    })
}

/// Another version takes over, unless it is like the one in force.
pub(super) fn update(
    txn: &mut Txn<'_>,
    entry: &TriggerEntry,
    definition: &Arc<Definition>,
    has_signed: bool,
) -> Result<Changed, ReadError> {
    if **definition == *entry.current.definition {
        return Ok(Ok(entry.hook.clone()));
    }
    let record = &entry.record;
    if record.state.is_sending()
        && let Err(rejection) = check_secret(txn, &entry.hook.tenant, definition)?
    {
        return Ok(Err(rejection));
    }
    let deployment = Deployment {
        state: record.state,
        version: entry.hook.version,
        stable: record.stable.as_ref().map(|stable| stable.version),
    };
    let next = deployment.with_next_version(&entry.current.definition.rollout);
    let current =
        StoredDefinition { version: entry.hook.version, definition: record.definition.clone() };
    // Where the new version is for all documents and on no trial, nobody asks for another.
    let needs_stable = !definition.rollout.is_full() || definition.rollout.slo.is_some();
    let stable = next.stable.filter(|_| needs_stable).and_then(|version| {
        [Some(&current), record.stable.as_ref()]
            .into_iter()
            .flatten()
            .find(|it| it.version == version)
    });
    let (stable, definition) = (stable.cloned(), definition.clone());
    let state = next.state;
    let reason = record.reason.clone().filter(|_| state == record.state);
    let is_unsigned = is_unsigned_as(entry, &definition, has_signed);
    replace(txn, entry, Replacement { definition, state, stable, reason, is_unsigned })
}

/// A version takes over, for the changes that come from now on.
pub(super) fn replace(
    txn: &mut Txn<'_>,
    entry: &TriggerEntry,
    replacement: Replacement,
) -> Result<Changed, ReadError> {
    let Replacement { definition, state, stable, reason, is_unsigned } = replacement;
    let (hook, before) = (&entry.hook, &entry.record);
    let since = from_now_on(txn);
    let oldest = next_fan_out(txn, FACE, &hook.tenant, EventNo(0))?;
    let mut former = before.former.clone();
    former.retain(|it| oldest.is_some_and(|oldest| oldest < it.until));
    if oldest.is_some() {
        let current =
            StoredDefinition { version: hook.version, definition: before.definition.clone() };
        former.push(FormerTrigger { current, stable: before.stable.clone(), until: since });
    }
    let bytes: usize = former.iter().map(former_bytes).sum();
    if former.len() > FORMER_TRIGGERS_MAX || bytes > FORMER_TRIGGERS_BYTES {
        return Ok(Err(TriggerRejection::Busy));
    }
    let record = TriggerRecord {
        definition: definition.to_stored().into(),
        state,
        since,
        stable,
        former,
        candidate: None,
        dry_since: before.dry_since,
        kept: before.kept.clone(),
        reason,
        is_unsigned,
    };
    let policy = definition.policy();
    let record = keep_former(txn, hook, record)?;
    let next = change(txn, hook, policy, record.encode());
    if state.is_sending() == before.state.is_sending() {
        return Ok(Ok(next));
    }
    Ok(Ok(activate(txn, &next, state.is_sending())?))
}

fn former_bytes(former: &FormerTrigger) -> usize {
    let stable = former.stable.as_ref().map_or(0, |it| it.definition.len());
    former.current.definition.len() + stable
}

/// The version in force becomes a former one: those from before that there is no room for go, but
/// for the stable one.
fn keep_former(
    txn: &mut Txn<'_>,
    hook: &Hook,
    mut record: TriggerRecord,
) -> Result<TriggerRecord, ReadError> {
    let bytes = u64::try_from(record::encode_hook(hook).len()).unwrap_or(u64::MAX);
    record.kept.push(KeptVersion { version: hook.version, bytes });
    let stable = record.stable.as_ref().map(|stable| stable.version);
    let mut total: u64 = record.kept.iter().map(|it| it.bytes).sum();
    while record.kept.len() > TRIGGER_VERSIONS_MAX || total > TRIGGER_VERSIONS_BYTES {
        let Some(at) = record.kept.iter().position(|it| Some(it.version) != stable) else { break };
        if record.kept.len() <= 1 {
            break;
        }
        let oldest = record.kept.remove(at);
        total -= oldest.bytes;
        txn.remove(&keys::hook_version(hook.id, oldest.version));
    }
    Ok(record)
}

/// Nothing matches any more: there is no version to go back to.
pub(super) fn stop(
    txn: &mut Txn<'_>,
    entry: &TriggerEntry,
    reason: &str,
) -> Result<Arc<Hook>, ReadError> {
    let record = TriggerRecord { reason: Some(reason.into()), ..entry.record.clone() };
    set_state(txn, entry, rolled_back(false), record)
}

/// A trigger gets into another state; its version stays.
fn set_state(
    txn: &mut Txn<'_>,
    entry: &TriggerEntry,
    state: State,
    record: TriggerRecord,
) -> Result<Arc<Hook>, ReadError> {
    let record = TriggerRecord { state, ..record };
    let hook = Hook { spec: record.encode(), ..Hook::clone(&entry.hook) };
    activate(txn, &hook, state.is_sending())
}

/// A trigger is for changes from now on, or for none.
fn activate(txn: &mut Txn<'_>, hook: &Hook, active: bool) -> Result<Arc<Hook>, ReadError> {
    let next = from_now_on(txn);
    let oldest = next_fan_out(txn, FACE, &hook.tenant, EventNo(0))?.unwrap_or(next);
    let changed = hook.with_active(active, next, oldest).changed_at(txn.now());
    if changed.is_sending() && !hook.is_sending() {
        let timer = DeliveryTimer::Resume(hook.tenant.clone(), hook.id);
        txn.set_delivery_timer(txn.now(), &timer);
    }
    Ok(keep(txn, changed))
}

fn keep_record(txn: &mut Txn<'_>, hook: Hook, record: &TriggerRecord) -> Arc<Hook> {
    let hook = Hook { spec: record.encode(), ..hook }.changed_at(txn.now());
    keep(txn, hook)
}

fn end_dry_run(txn: &mut Txn<'_>, entry: &TriggerEntry) -> Result<Changed, ReadError> {
    let record = TriggerRecord { candidate: None, dry_since: None, ..entry.record.clone() };
    Ok(match entry.record.state {
        State::DryRun => Ok(set_state(txn, entry, State::Disabled, record)?),
        _ if entry.record.candidate.is_some() => {
            Ok(keep_record(txn, Hook::clone(&entry.hook), &record))
        }
        _ => Err(TriggerRejection::NoDryRun),
    })
}

/// Whatever is sent is signed: there must be something to sign it with.
fn check_secret(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    definition: &Definition,
) -> Result<Result<(), TriggerRejection>, ReadError> {
    let name = definition.secrets_ref.as_ref().map_or(DEFAULT_SECRET, |it| it.as_str());
    let is_there = txn.is_set(&keys::trigger_secret(tenant, name))?;
    Ok(if is_there { Ok(()) } else { Err(TriggerRejection::NoSecret { name: name.into() }) })
}

impl Command<App> for DeleteTrigger {
    type Answer = ();
    type Rejection = TriggerRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), TriggerRejection> {
        let entry = match trigger(txn, &self.tenant, &self.id, self.expected) {
            Ok(entry) => entry,
            Err(rejection) => return Ok(Err(rejection)),
        };
        end(txn, &entry.hook, self.open);
        let mut row = AuditEntry { action: action::TRIGGER_DELETED.into(), ..self.entry.clone() };
        describe(Some(&**entry), None, &mut row);
        audit::record(txn, &row)?;
        Ok(Ok(()))
    }
}

const _: () = assert!(FIRST_VERSION == 1, "the first version of a trigger is 1");
