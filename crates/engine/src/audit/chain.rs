//! Writing rows, and forgetting the oldest.

use bytes::Bytes;
use reveille_core::audit::{AuditEntry, AuditRow, ChainHead};
use reveille_core::trace::Trace;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision, Outcome};
use reveille_kernel::error::{Damaged, Error, Never};
use reveille_kernel::txn::ReadError;
use reveille_schema::audit::{self, Chain};
use reveille_schema::{Record, keys};

use crate::app::{App, Txn};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::limits::CLEAN_UP_SLICE;
use crate::records::{ReadRecord, damaged};

/// The bytes that a row adds to a batch beside a few hundred: a reason and a diff are short.
pub(crate) const ROW_WEIGHT: usize = 8 << 10;

/// Writes a row, with whatever else is decided. Returns its number.
pub fn record(txn: &mut Txn<'_>, entry: &AuditEntry) -> Result<u64, ReadError> {
    let head_key = keys::audit_head(&entry.tenant);
    let head = txn.read(&head_key, ChainHead::decode)?.unwrap_or_default();
    let (id, at) = (txn.take_id(), txn.now());
    let row = AuditRow { id, seq: head.next, at, entry: entry.within_limits() }.encode();
    let next = head.appended(at, &row);
    txn.set(keys::audit_row(&entry.tenant, head.next), audit::row_value(next.hash, &row));
    txn.set(head_key, next.encode());
    Ok(id)
}

/// A command that is written down if it changes anything.
pub struct Audited<C, F> {
    pub command: C,
    pub entry: AuditEntry,
    /// Says more in the row, once it is known what the command came to. What memory knows is still
    /// as it was before.
    pub describe: F,
}

impl<C, F> Command<App> for Audited<C, F>
where
    C: Command<App>,
    F: Fn(&Txn<'_>, &C::Answer, &mut AuditEntry) + Send + Sync,
{
    type Answer = C::Answer;
    type Rejection = C::Rejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<C::Answer, C::Rejection> {
        let before = txn.bytes();
        let answer = match self.command.decide(txn)? {
            Ok(answer) => answer,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if txn.bytes() > before {
            let mut entry = self.entry.clone();
            (self.describe)(txn, &answer, &mut entry);
            record(txn, &entry)?;
        }
        Ok(Ok(answer))
    }

    fn weight(&self) -> usize {
        self.command.weight() + ROW_WEIGHT
    }

    fn needs_room(&self) -> bool {
        self.command.needs_room()
    }

    fn is_urgent(&self, effects: &[Effect]) -> bool {
        self.command.is_urgent(effects)
    }

    fn not_before(&self) -> Millis {
        self.command.not_before()
    }

    fn too_late(&self, now: Millis) -> Option<C::Rejection> {
        self.command.too_late(now)
    }

    fn trace(&self) -> Option<Trace> {
        self.command.trace()
    }
}

impl Engine {
    /// A row about something of a tenant, or of all, done by whoever this engine acts for.
    pub(crate) fn audit_entry(
        &self,
        action: &str,
        tenant: Option<&Tenant>,
        subject: &str,
    ) -> AuditEntry {
        AuditEntry::new(self.actor().clone(), action, tenant.cloned(), subject)
    }

    /// Writes a row about what changes nothing else, and waits until it is durable.
    pub async fn write_audit_row(
        &self,
        tenant: &Tenant,
        entry: AuditEntry,
    ) -> Result<(), Error<Never>> {
        self.submit(tenant, &RecordAudit { entry }).await
    }

    /// Brings a command to the partition of its tenant, and writes it down there if it changes
    /// anything.
    pub(crate) async fn submit_audited<C: Command<App>>(
        &self,
        tenant: &Tenant,
        command: C,
        entry: AuditEntry,
    ) -> Outcome<C::Answer, C::Rejection> {
        let describe = |_: &Txn<'_>, _: &C::Answer, _: &mut AuditEntry| {};
        self.submit(tenant, &Audited { command, entry, describe }).await
    }
}

/// Writes a row about what changes nothing else.
#[derive(Debug, Clone)]
pub struct RecordAudit {
    pub entry: AuditEntry,
}

impl Command<App> for RecordAudit {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        record(txn, &self.entry)?;
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        ROW_WEIGHT
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// Forgets rows of a chain that are from before a time: one slice of them, from the beginning.
#[derive(Debug, Clone)]
pub struct TrimAudit {
    pub chain: Chain,
    pub cutoff: Millis,
}

impl Command<App> for TrimAudit {
    /// How many were forgotten.
    type Answer = u64;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<u64, Never> {
        let head_key = keys::audit_head(&self.chain);
        let Some(head) = txn.read(&head_key, ChainHead::decode)? else { return Ok(Ok(0)) };
        let (from, to) = keys::audit_rows(&self.chain, head.first, head.next);
        let found = txn.range(&from, &to, CLEAN_UP_SLICE)?;
        let (mut trimmed, mut forgotten) = (head, 0);
        for (key, value) in &found.pairs {
            let (row, hash) = read_row(value)?;
            if row.at >= self.cutoff {
                break;
            }
            // What does not follow stays, so that it is still found by whoever checks.
            if row.seq != trimmed.first {
                break;
            }
            trimmed = trimmed.trimmed(row.seq + 1, hash);
            txn.remove(key);
            forgotten += 1;
        }
        if forgotten > 0 {
            txn.set(head_key, trimmed.encode());
        }
        Ok(Ok(forgotten))
    }

    fn weight(&self) -> usize {
        CLEAN_UP_SLICE * 96
    }
}

/// A row with its hash, from its value.
pub(super) fn read_row(
    value: &Bytes,
) -> Result<(AuditRow, reveille_core::audit::ChainHash), Damaged> {
    let split = audit::split_row_value(value);
    let (hash, row) = split.ok_or_else(|| Damaged::new("a row of the audit log is cut short"))?;
    Ok((AuditRow::decode(row).map_err(damaged)?, hash))
}
