//! A write is looked at before it is decided, away from the lock: what the conditions of triggers
//! make of its changes, as the documents are that are durable.
//!
//! The decision believes it where the trigger is the very same and the document has the version that
//! it had here. What depends on the moment of the decision itself is found out there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Document;
use reveille_core::document::transaction::{Applied, ApplyError, Op, apply};
use reveille_core::steps::Steps;
use reveille_kernel::error::Damaged;
use reveille_schema::{Record, keys};

use super::evaluate::{ChangeCase, Evaluated};
use super::index::{TenantTriggers, TriggerEntry, TriggerIndex};
use crate::app::Shared;
use crate::documents::hooks::WriteLook;
use crate::limits::{TRIGGER_LOOK_STEPS, TRIGGER_TURN_STEPS, TRIGGERS_PER_TURN};
use crate::matching::Shares;
use crate::records::ReadRecord;

/// What a look at a write has found.
#[derive(Debug)]
pub(super) struct TriggerLook {
    /// The triggers as they were.
    pub(super) triggers: Arc<TenantTriggers>,
    /// The documents that were read, with their versions.
    pub(super) versions: BTreeMap<DocumentPath, Option<u64>>,
    /// Of each change, in order.
    pub(super) changes: Vec<ChangeLook>,
}

/// What it has found of one change.
#[derive(Debug, Default)]
pub(super) struct ChangeLook {
    /// Triggers about which there is something to be done, in their order.
    pub(super) found: Vec<Evaluated>,
    /// Triggers that depend on the moment.
    pub(super) timed: BTreeSet<HookId>,
    /// The last trigger that was looked at; `None` if all were.
    pub(super) through: Option<HookId>,
}

/// The triggers of a tenant as they are decided now.
pub(super) fn triggers_of(shared: &Shared, tenant: &Tenant) -> Option<Arc<TenantTriggers>> {
    shared.lock().index.of::<TriggerIndex>().of_tenant(tenant).cloned()
}

/// Whether there is a condition to be asked about any of these writes.
pub(super) fn is_interested(shared: &Shared, tenant: &Tenant, ops: &[Op]) -> bool {
    let Some(triggers) = triggers_of(shared, tenant) else { return false };
    let mut paths = BTreeSet::new();
    ops.iter().any(|op| {
        paths.insert(&op.path)
            && triggers.candidates(&op.path, HookId(0)).iter().any(|it| it.asks())
    })
}

/// `None` if it is not done within the turn that it has.
pub(super) fn look(shared: &Shared, write: &WriteLook<'_>) -> Result<Option<TriggerLook>, Damaged> {
    let triggers = triggers_of(shared, write.tenant).unwrap_or_default();
    let versions = RefCell::new(BTreeMap::new());
    let read = |path: &DocumentPath| -> Result<_, Damaged> {
        let mut reader = write.reader;
        let document = reader.read(&keys::document(write.tenant, path), Document::decode)?;
        let version = document.as_ref().map(|document| document.version);
        versions.borrow_mut().insert(path.clone(), version);
        Ok(document)
    };
    let applied = match apply(write.ops, write.now, write.limits, read) {
        Ok(applied) => applied,
        Err(ApplyError::Unread(error)) => return Err(error),
        // The decision says why.
        Err(ApplyError::Failed(_)) => Applied::default(),
    };
    let mut steps = Steps::new(if write.in_turn { TRIGGER_TURN_STEPS } else { TRIGGER_LOOK_STEPS });
    let timestamp = write.now.0 / 1_000;
    // Of a look that does not come to its end another one counts.
    let (mut changes, mut misses) = (Vec::with_capacity(applied.changes.len()), Vec::new());
    for change in &applied.changes {
        let case = ChangeCase::new(write.tenant, change, timestamp, write.origin);
        let candidates = triggers.candidates(&change.path, HookId(0));
        // Conditions that nobody has asked yet have to be compiled.
        let is_short =
            candidates.len() <= TRIGGERS_PER_TURN && candidates.iter().all(|it| it.is_compiled());
        if write.in_turn && !is_short {
            return Ok(None);
        }
        let look = look_at(&candidates, &case, &mut steps, &mut misses);
        if write.in_turn && look.through.is_some() {
            return Ok(None);
        }
        changes.push(look);
    }
    misses.into_iter().for_each(TriggerEntry::count_miss);
    shared.domains.part::<Shares>().count_steps(write.tenant, steps.used());
    Ok(Some(TriggerLook { triggers, versions: versions.into_inner(), changes }))
}

fn look_at<'c>(
    candidates: &[&'c Arc<TriggerEntry>],
    case: &ChangeCase<'_>,
    steps: &mut Steps,
    misses: &mut Vec<&'c TriggerEntry>,
) -> ChangeLook {
    let (mut look, mut last) = (ChangeLook::default(), HookId(0));
    for entry in candidates {
        let hook = entry.hook.id;
        if case.reads_time(entry) {
            // It is compiled here, so that the decision need not do it.
            look.timed.insert(hook);
        } else {
            match case.evaluate(entry, steps) {
                Ok(mut evaluation) => {
                    if std::mem::take(&mut evaluation.is_miss) {
                        misses.push(entry);
                    }
                    if !evaluation.is_nothing() {
                        look.found.push(Evaluated { hook, evaluation });
                    }
                }
                Err(_) => {
                    look.through = Some(last);
                    return look;
                }
            }
        }
        last = hook;
    }
    look
}
