//! Triggers of a tenant become as a file says: all of them, or none.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::delivery::hook::Hook;
use reveille_core::trigger::{Definition, TriggerId};
use reveille_kernel::command::{Command, Decision};

use super::change::{CHANGE_WEIGHT, make, trigger, update};
use super::describe::describe;
use super::error::TriggerRejection;
use super::index::TriggerIndex;
use crate::app::{App, Txn};
use crate::audit;

/// Has triggers of a tenant be like this, all of them or none: those that are not there are made.
#[derive(Debug, Clone)]
pub struct ApplyTriggers {
    pub tenant: Tenant,
    pub triggers: Vec<TriggerDraft>,
    pub created_by: Option<Arc<str>>,
    pub entry: AuditEntry,
}

/// One of them.
#[derive(Debug, Clone)]
pub struct TriggerDraft {
    pub id: TriggerId,
    pub definition: Arc<Definition>,
    /// The version that whoever asks has seen; 0 if there was none.
    pub seen: u64,
}

/// What became of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliedTrigger {
    Created,
    Updated,
    Unchanged,
}

impl Command<App> for ApplyTriggers {
    type Answer = Vec<(Arc<Hook>, AppliedTrigger)>;
    type Rejection = TriggerRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Self::Answer, TriggerRejection> {
        let (mut applied, mut made) = (Vec::new(), 0);
        let has_signed = self.entry.actor.has_signed;
        for TriggerDraft { id, definition, seen } in &self.triggers {
            let known = match trigger(txn, &self.tenant, id.as_str(), Some(*seen)) {
                Ok(entry) => Some(entry),
                Err(TriggerRejection::NotFound { .. }) if *seen == 0 => None,
                Err(TriggerRejection::NotFound { id }) => {
                    return Ok(Err(TriggerRejection::Gone { id }));
                }
                Err(rejection) => return Ok(Err(rejection)),
            };
            let outcome = match known {
                Some(entry) => update(txn, entry, definition, has_signed)?,
                None => {
                    made += 1;
                    let max = txn.domains().settings.quotas.triggers;
                    // Memory does not know yet of those that this decision has made.
                    if TriggerIndex::of_txn(txn).count(&self.tenant) + made > max {
                        return Ok(Err(TriggerRejection::TooManyTriggers { max }));
                    }
                    make(txn, &self.tenant, id, definition, self.created_by.clone(), has_signed)?
                }
            };
            let hook = match outcome {
                Ok(hook) => hook,
                Err(rejection) => return Ok(Err(rejection)),
            };
            let (action, result) = match known {
                None => (action::TRIGGER_CREATED, AppliedTrigger::Created),
                Some(entry) if Arc::ptr_eq(&entry.hook, &hook) => {
                    applied.push((hook, AppliedTrigger::Unchanged));
                    continue;
                }
                Some(_) => (action::TRIGGER_UPDATED, AppliedTrigger::Updated),
            };
            let mut entry = AuditEntry { action: action.into(), ..self.entry.clone() };
            entry.subject = hook.name.clone();
            describe(known.map(|it| &**it), Some(&hook), &mut entry);
            audit::record(txn, &entry)?;
            applied.push((hook, result));
        }
        Ok(Ok(applied))
    }

    fn weight(&self) -> usize {
        self.triggers.len() * CHANGE_WEIGHT
    }

    fn needs_room(&self) -> bool {
        true
    }
}
