//! What rows of the audit log say of triggers. No secret is ever among it.

use std::sync::Arc;

use reveille_core::audit::AuditEntry;
use reveille_core::delivery::hook::Hook;
use reveille_core::trigger::Definition;
use reveille_schema::Record;
use reveille_schema::triggers::TriggerRecord;

use super::index::{TriggerEntry, read_definition};

/// A trigger that was like this has become that.
pub(super) fn describe(
    before: Option<&TriggerEntry>,
    after: Option<&Arc<Hook>>,
    entry: &mut AuditEntry,
) {
    entry.from_version = before.map(|it| it.hook.version);
    entry.to_version = after.map(|hook| hook.version);
    // One that cannot be read is reported by whoever sends to it.
    let record = after.and_then(|hook| TriggerRecord::decode(&hook.spec).ok());
    let definition = record.as_ref().and_then(|it| read_definition(&it.definition).ok());
    let from = before.map(|it| &*it.current.definition);
    let diff = Definition::diff(from, definition.as_deref());
    let (from, to) = (
        before.map(|it| it.record.state.as_str()),
        record.as_ref().map(|record| record.state.as_str()),
    );
    let candidate =
        |record: Option<&TriggerRecord>| record.is_some_and(|record| record.candidate.is_some());
    let had = candidate(before.map(|it| &it.record));
    let diff = diff.field("state", from, to).field("dryRunBeside", had, candidate(record.as_ref()));
    entry.diff = diff.text();
}
