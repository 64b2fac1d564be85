//! A transaction is decided: what it does to documents, what follows for indexes, the changes that
//! it is, and what is remembered of it are one batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::audit::AuditEntry;
use reveille_core::document::idempotency::{WriteEnd, WriteRecord};
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Document;
use reveille_core::document::transaction::{Applied, ApplyError, Op, OpResult, Write, apply};
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::documents::DocumentTimer;
use reveille_schema::keys;

use super::change::NewChanges;
use super::entries::EntryWriter;
use super::error::DocumentRejection;
use super::index::DocumentIndex;
use super::outcome::WriteTag;
use super::rules::RuleVerdict;
use super::txn::DocumentTxn;
use crate::app::{App, Txn};
use crate::audit;
use crate::deliveries::face::PreparedMatch;
use crate::engine::Engine;
use crate::limits::TRANSACTION_READ_BYTES;

/// Does writes, all or none.
#[derive(Debug, Clone)]
pub struct WriteDocuments {
    pub tenant: Tenant,
    pub ops: Arc<[Op]>,
    /// Whose doing it is: its changes say so.
    pub origin: Origin,
    /// By what a repetition is known.
    pub tag: Option<WriteTag>,
    /// What the rules say; `None` for those who need not ask them.
    pub verdict: Option<RuleVerdict>,
    /// What the hooks for changes were found to make of it.
    pub prepared: Option<PreparedMatch>,
    /// Whether it may come again with another look, where that saves work.
    pub may_retry: bool,
    /// What is written down of it if it is done.
    pub audit: Option<AuditEntry>,
    /// If it is not decided by then it is refused.
    pub decide_by: Millis,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WriteReceipt {
    /// Of each op, in order.
    pub results: Vec<OpResult>,
    /// The documents as the last op on each left them, tombstones too.
    pub documents: BTreeMap<DocumentPath, Document>,
    /// How it ended when it was done before, well or not: nothing was done now, and nothing but
    /// this is known.
    pub repeated: Option<WriteRecord>,
}

impl Command<App> for WriteDocuments {
    /// A failure that is remembered is an answer like a receipt: its record is written. A rejection
    /// changes nothing.
    type Answer = Result<WriteReceipt, DocumentRejection>;
    type Rejection = DocumentRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Self::Answer, DocumentRejection> {
        txn.want_within(&self.keys(), TRANSACTION_READ_BYTES)?;
        if let Some(tag) = &self.tag {
            match tag.recall(txn, &self.tenant)? {
                Ok(None) => {}
                Ok(repeated) => return Ok(Ok(Ok(WriteReceipt { repeated, ..Default::default() }))),
                Err(rejection) => return Ok(Err(rejection)),
            }
        }
        if let Some(verdict) = &self.verdict {
            if !self.still_holds(txn, verdict)? {
                return Ok(Err(DocumentRejection::Conflict));
            }
            if verdict.denied.is_some() {
                let denied = DocumentRejection::RuleDenied { op_index: verdict.denied };
                self.remember(txn, WriteEnd::RuleDenied, &denied.to_string())?;
                return Ok(Ok(Err(denied)));
            }
        }
        let mut stored = BTreeMap::new();
        let (now, limits) = (txn.now(), txn.domains().settings.documents.transaction_limits());
        let applied = apply(&self.ops, now, limits, |path| -> Result<_, ReadError> {
            let document = txn.document(&self.tenant, path)?;
            stored.insert(path.clone(), document.clone());
            Ok(document)
        });
        match applied {
            Ok(applied) => self.put(txn, &stored, applied),
            Err(ApplyError::Unread(error)) => Err(error),
            Err(ApplyError::Failed(failure)) => {
                self.remember(txn, failure.reason.end(), &failure.reason.to_string())?;
                Ok(Ok(Err(failure.into())))
            }
        }
    }

    fn weight(&self) -> usize {
        // What is replaced is not known here: it is counted when it is.
        let row = if self.audit.is_some() { audit::ROW_WEIGHT } else { 0 };
        self.ops.iter().map(|op| 1_024 + 2 * op.write.bytes()).sum::<usize>() + row
    }

    /// What only deletes makes room in the end, however much is said of it at first.
    fn needs_room(&self) -> bool {
        self.ops.iter().any(|op| op.write != Write::Delete)
    }

    fn too_late(&self, now: Millis) -> Option<DocumentRejection> {
        (now >= self.decide_by).then_some(DocumentRejection::TimedOut)
    }
}

impl WriteDocuments {
    /// Whatever is read however it ends: a decision may ask only so often. Documents come last, as
    /// writes come: when too many bytes of them have been read for all to be read, the transaction
    /// changes too many as well, and ends before it comes to the others.
    fn keys(&self) -> Vec<Bytes> {
        let tenant = &self.tenant;
        let changes =
            [keys::change_head(tenant), keys::stream(tenant, &Engine::change_stream(tenant))];
        let outcome = self.tag.iter().map(|tag| tag.outcome_key(tenant));
        let audit = self.audit.iter().map(|entry| keys::audit_head(&entry.tenant));
        let looked_at = self.verdict.iter().flat_map(|verdict| verdict.versions.keys());
        let ops = self.ops.iter().map(|op| &op.path);
        let documents = looked_at.chain(ops).map(|path| keys::document(tenant, path));
        changes.into_iter().chain(outcome).chain(audit).chain(documents).collect()
    }

    /// Whether everything is as it was when the rules were asked.
    fn still_holds(&self, txn: &mut Txn<'_>, verdict: &RuleVerdict) -> Result<bool, ReadError> {
        txn.rests_on_index();
        if DocumentIndex::of_txn(txn).rules(&self.tenant) != verdict.rules {
            return Ok(false);
        }
        for (path, version) in &verdict.versions {
            let document = txn.document(&self.tenant, path)?;
            if document.map(|document| document.version) != *version {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn remember(&self, txn: &mut Txn<'_>, end: WriteEnd, message: &str) -> Result<(), ReadError> {
        match &self.tag {
            Some(tag) => tag.remember(txn, &self.tenant, end, message),
            None => Ok(()),
        }
    }

    fn put(
        &self,
        txn: &mut Txn<'_>,
        stored: &BTreeMap<DocumentPath, Option<Document>>,
        applied: Applied,
    ) -> Decision<Result<WriteReceipt, DocumentRejection>, DocumentRejection> {
        let tenant = &self.tenant;
        let Applied { results, changes, documents } = applied;
        let mut entries = EntryWriter::new(txn, tenant);
        for (path, document) in &documents {
            let before = stored.get(path).and_then(Option::as_ref);
            txn.set_document(tenant, path, document);
            entries.follow(txn, path, before, Some(document));
            set_purge_timer(txn, tenant, path, before, document);
        }
        let changes = NewChanges { tenant, origin: &self.origin, stored, changes };
        if !changes.append(txn, self.prepared.as_ref(), self.may_retry)? {
            return Ok(Err(DocumentRejection::Stale));
        }
        if let Some(entry) = &self.audit {
            audit::record(txn, entry)?;
        }
        self.remember(txn, WriteEnd::Success, "")?;
        Ok(Ok(Ok(WriteReceipt { results, documents, repeated: None })))
    }
}

/// A tombstone is purged some time; one that is none any more is not.
fn set_purge_timer(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &DocumentPath,
    before: Option<&Document>,
    after: &Document,
) {
    let ttl_ms = txn.domains().settings.documents.tombstone_ttl_ms;
    let timer = || DocumentTimer::PurgeTombstone(tenant.clone(), path.clone());
    if let Some(before) = before.filter(|before| before.is_tombstone()) {
        txn.cancel_timer(before.updated_at + ttl_ms, &timer().encode());
    }
    if after.is_tombstone() {
        txn.set_document_timer(after.updated_at + ttl_ms, &timer());
    }
}
