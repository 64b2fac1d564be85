//! Reminders and their hooks, told once more: what is set, what has come, and who is owed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_core::Tenant;
use reveille_engine::deliveries::DeliveryRejection;

use super::action::{Action, ReminderError, ReminderResult};
use super::face::{self, FACE, Occurrence, ReminderSpec};
use crate::base::engine::AnyTimer;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    /// Reminders whose time has not come, by name.
    pub(super) set: BTreeMap<Arc<str>, (Tenant, Occurrence)>,
    /// Those whose time has come.
    pub(super) came: BTreeMap<Arc<str>, (Tenant, Occurrence)>,
    pub(super) muted: BTreeSet<(Tenant, Arc<str>)>,
    /// Hooks whose gate ends them.
    pub(super) revoked: BTreeSet<(Tenant, Arc<str>)>,
    pub(super) hooks: BTreeMap<Arc<str>, HookModel>,
}

/// A hook that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookModel {
    pub(super) tenant: Tenant,
    /// What its owner has wished, one after another.
    pub(super) versions: Vec<ReminderSpec>,
    pub(super) is_active: bool,
    /// The reminders that it must be told of.
    pub(super) owed: BTreeSet<Arc<str>>,
}

impl HookModel {
    /// What its owner wishes now.
    pub(super) fn spec(&self) -> ReminderSpec {
        *self.versions.last().expect("a hook has a version")
    }

    /// What its owner wished when it had this version.
    pub(super) fn version(&self, version: u64) -> Option<ReminderSpec> {
        let place = usize::try_from(version.checked_sub(1)?).ok()?;
        self.versions.get(place).copied()
    }
}

impl Model {
    /// What an action comes to; `None` where that is not known here.
    pub(super) fn apply(&mut self, action: &Action) -> Option<ReminderResult> {
        match action {
            Action::Set(set) => {
                let (name, reminder) = (set.reminder.name.clone(), set.reminder.clone());
                self.set.entry(name).or_insert_with(|| (set.tenant.clone(), reminder));
                Some(Ok(()))
            }
            Action::Mute(mute) => {
                let subject = (mute.tenant.clone(), mute.subject.clone());
                if mute.is_muted {
                    self.muted.insert(subject);
                } else {
                    self.muted.remove(&subject);
                }
                Some(Ok(()))
            }
            Action::CreateHook(new) => {
                let (tenant, versions) = (new.tenant.clone(), vec![new.spec]);
                let hook = HookModel { tenant, versions, is_active: true, owed: BTreeSet::new() };
                self.hooks.insert(new.name.clone(), hook);
                Some(Ok(()))
            }
            Action::ChangeHook(change) => Some(
                match self.hooks.get_mut(&change.name).filter(|it| it.tenant == change.tenant) {
                    Some(hook) => {
                        hook.versions.push(change.spec);
                        Ok(())
                    }
                    None => Err(ReminderError::Rejected(DeliveryRejection::NotFound)),
                },
            ),
            Action::Revoke(revoke) => {
                self.revoked.insert((revoke.tenant.clone(), revoke.name.clone()));
                Some(Ok(()))
            }
            Action::Activate { face, tenant, name, active } => Some(
                match self.hooks.get_mut(name).filter(|it| it.tenant == *tenant && *face == FACE) {
                    Some(hook) => {
                        hook.is_active = *active;
                        Ok(())
                    }
                    None => Err(ReminderError::Rejected(DeliveryRejection::NotFound)),
                },
            ),
            Action::End { face, tenant, name, .. } => {
                let hook = self.hooks.get(name);
                if hook.is_some_and(|it| it.tenant == *tenant && *face == FACE) {
                    self.hooks.remove(name);
                    return Some(Ok(()));
                }
                Some(Err(ReminderError::Rejected(DeliveryRejection::NotFound)))
            }
            Action::Timer(timer) => {
                if let AnyTimer::Face(timer) = &timer.timer {
                    self.remind(timer);
                }
                Some(Ok(()))
            }
            Action::Retry { .. } | Action::Discard(_) => None,
            Action::Replay(_)
            | Action::Expire(_)
            | Action::Stream { .. }
            | Action::Append(_)
            | Action::RecordOutcome(_)
            | Action::Hold(_)
            | Action::Drop(_)
            | Action::Forget(_)
            | Action::ForgetReplays(_) => Some(Ok(())),
        }
    }

    /// A reminder's time has come, unless it has already.
    fn remind(&mut self, timer: &[u8]) {
        let Some((_, name)) = face::parse_timer(timer) else { return };
        let Some((tenant, reminder)) = self.set.remove(&name) else { return };
        for hook in self.hooks.values_mut() {
            if hook.tenant == tenant && hook.is_active && hook.spec().wants(reminder.topic) {
                hook.owed.insert(name.clone());
            }
        }
        self.came.insert(name, (tenant, reminder));
    }
}
