//! What rows of the audit log say of hooks for typed events.

use std::sync::Arc;

use reveille_core::audit::{AuditEntry, Diff};
use reveille_core::delivery::hook::Hook;
use reveille_core::event::hook::{EventHookSpec, FACE, hook_diff};

use super::hook::read_spec;
use crate::app::Txn;
use crate::deliveries::index::HookIndex;

/// A hook was made, or has become this.
pub(super) fn describe_change(txn: &Txn<'_>, hook: &Arc<Hook>, entry: &mut AuditEntry) {
    describe(HookIndex::of_txn(txn).get(hook.id), Some(hook), entry);
}

/// The hook that a row is about has ended.
pub(super) fn describe_end<A>(txn: &Txn<'_>, _: &A, entry: &mut AuditEntry) {
    let Some(tenant) = &entry.tenant else { return };
    let before = HookIndex::of_txn(txn).of_tenant(FACE, tenant, &entry.subject);
    describe(before, None, entry);
}

fn describe(before: Option<&Arc<Hook>>, after: Option<&Arc<Hook>>, entry: &mut AuditEntry) {
    entry.from_version = before.map(|hook| hook.version);
    entry.to_version = after.map(|hook| hook.version);
    // One that cannot be read is reported by whoever sends to it.
    let spec = |hook: Option<&Arc<Hook>>| -> Option<EventHookSpec> { read_spec(hook?).ok() };
    let diff = hook_diff(spec(before).as_ref(), spec(after).as_ref());
    entry.diff = with_state(diff, before, after).text();
}

fn with_state(diff: Diff, before: Option<&Arc<Hook>>, after: Option<&Arc<Hook>>) -> Diff {
    let (Some(before), Some(after)) = (before, after) else { return diff };
    diff.field("active", before.is_active(), after.is_active()).field(
        "paused",
        before.paused,
        after.paused,
    )
}
