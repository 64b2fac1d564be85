//! What the faces may ask about documents.

use std::sync::Arc;

use reveille_core::audit::{AuditEntry, action};
use reveille_core::document::idempotency::{BodyHash, IdempotencyKey};
use reveille_core::document::index::IndexDefinition;
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::query::Query;
use reveille_core::document::rules::{RuleAuth, RuleSet};
use reveille_core::document::settings::DocumentSettings;
use reveille_core::document::snapshot::Document;
use reveille_core::document::transaction::Op;
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::error::{Damaged, Error};
use reveille_kernel::limits::PAGE_BYTES_MAX;
use reveille_kernel::{fairness, task};
use reveille_schema::{Record, keys};

use super::declare::{IndexView, SetDocumentIndexes};
use super::error::{DocumentError, DocumentRejection};
use super::hooks::{RegisteredHooks, WriteLook};
use super::outcome::{WriteTag, WritesInFlight};
use super::query::{self, QueryAnswer, QueryRun};
use super::rules::{DocumentRules, RuleLook, RuleVerdict, SetDocumentRules, TenantRules};
use super::write::{WriteDocuments, WriteReceipt};
use crate::deliveries::face::PreparedMatch;
use crate::engine::Engine;
use crate::records::damaged;

/// Looks of the hooks for changes at one write: where others write the same documents at the same
/// time, the last one is followed by a decision that leaves to slices what it cannot know.
const LOOKS_MAX: usize = 3;

/// Documents that cost a query about as much as taking an append in.
pub(super) const DOCUMENTS_PER_APPEND: u64 = 16;

/// Documents up to this size are taken apart where everybody else waits for their turn.
const READ_HERE_BYTES: usize = 16 * 1024;

/// Writes that are looked at where everybody else waits for their turn, at most.
const OPS_HERE: usize = 16;

/// Bytes of documents that cost a write about as much as taking an append in.
const BYTES_PER_APPEND: usize = 8 * 1024;

/// Who asks.
#[derive(Debug, Clone)]
pub struct DocumentCaller {
    /// Whose documents.
    pub tenant: Tenant,
    /// As rules see it.
    pub auth: RuleAuth,
    /// Whose idempotency keys: the id of an API key, or nothing on a server that asks for none.
    pub scope: Arc<str>,
}

/// Writes that are done together, or not at all.
#[derive(Debug, Clone)]
pub struct DocumentWrite {
    pub ops: Vec<Op>,
    /// Under which a repetition is known, and what the body was.
    pub idempotency: Option<(IdempotencyKey, BodyHash)>,
    /// Whose doing they are.
    pub origin: Origin,
    /// What is written down of them in their own batch, if they are done.
    pub audit: Option<AuditEntry>,
}

/// Whether writes are few, and their documents small: they are looked at where everybody else waits
/// for their turn.
fn is_small(ops: &[Op]) -> bool {
    ops.len() <= OPS_HERE && ops.iter().map(|op| op.write.bytes()).sum::<usize>() <= READ_HERE_BYTES
}

impl Engine {
    /// The stream of all changes of a tenant's documents.
    pub fn change_stream(tenant: &Tenant) -> StreamPath {
        let path = StreamPath::parse(&format!("/_changes/{tenant}"));
        path.expect("a tenant's name can be a part of a path")
    }

    /// What the server was told about documents.
    pub fn document_settings(&self) -> DocumentSettings {
        self.first_partition().domains.settings.documents
    }

    /// A document, if there is one and whoever asks may read it.
    pub async fn document(
        &self,
        caller: &DocumentCaller,
        path: &DocumentPath,
    ) -> Result<Document, DocumentError> {
        let DocumentCaller { tenant, auth, .. } = caller.clone();
        self.fairness().request(&tenant, fairness::TAKEN_IN);
        let rules = self.rules_for(caller).await?;
        let (reader, now) = (self.partition(&tenant).state.reader(), self.clock().now());
        let of = path.clone();
        // One key is read here, as it is for a decision.
        let stored = reader.get(&keys::document(&tenant, path)).map_err(Damaged::from)?;
        let is_small = stored.as_ref().is_none_or(|stored| stored.len() <= READ_HERE_BYTES);
        let is_quick = is_small && rules.is_none();
        let look = move || -> Result<_, Damaged> {
            let document = stored.map(|stored| Document::decode(&stored)).transpose();
            let document = document.map_err(damaged)?;
            let document = document.filter(|document| !document.is_tombstone());
            let look = RuleLook::new(&reader, &tenant, &auth, now);
            match &rules {
                Some(it) if !look.may_get(&it.rules, &of, document.as_ref())? => Ok(None),
                _ => Ok(Some(document)),
            }
        };
        // A document may be large, and rules may take a while.
        let found = if is_quick { look() } else { task::blocking(look).await };
        match found? {
            Some(Some(document)) => Ok(document),
            Some(None) => Err(Error::Rejected(DocumentRejection::NotFound(path.clone()))),
            None => Err(Error::Rejected(DocumentRejection::RuleDenied { op_index: None })),
        }
    }

    /// Documents, or nothing where there is none: all of them, if whoever asks may read each, and
    /// no more than so many bytes.
    pub async fn documents(
        &self,
        caller: &DocumentCaller,
        paths: Vec<DocumentPath>,
        bytes_max: usize,
    ) -> Result<Vec<Option<Document>>, DocumentError> {
        let DocumentCaller { tenant, auth, .. } = caller.clone();
        self.fairness().request(&tenant, fairness::TAKEN_IN);
        let count = u64::try_from(paths.len()).unwrap_or(u64::MAX);
        self.fairness().count(&tenant, count / DOCUMENTS_PER_APPEND);
        let rules = self.rules_for(caller).await?;
        let (reader, now) = (self.partition(&tenant).state.reader(), self.clock().now());
        let read = move || {
            let look = RuleLook::new(&reader, &tenant, &auth, now);
            look.read_all(rules.as_ref().map(|it| &it.rules), &paths, bytes_max)
        };
        task::blocking(read).await?.map_err(Error::Rejected)
    }

    /// Does writes, all or none; those that were done before under their key are not done again.
    pub async fn write_documents(
        &self,
        caller: &DocumentCaller,
        write: DocumentWrite,
    ) -> Result<WriteReceipt, DocumentError> {
        let (tenant, settings) = (&caller.tenant, self.document_settings());
        let bytes: usize = write.ops.iter().map(|op| op.write.bytes()).sum();
        let work = write.ops.len() + bytes / BYTES_PER_APPEND;
        let work = u64::try_from(work).unwrap_or(u64::MAX);
        self.fairness().request(tenant, work.saturating_mul(fairness::TAKEN_IN));
        let decide_by = self.clock().now() + settings.transaction_timeout_ms;
        let scope = caller.scope.clone();
        let tag = write.idempotency.map(|(key, body)| WriteTag { scope, key, body });
        let writes = self.partition(tenant).domains.part::<WritesInFlight>();
        let _in_flight = match tag.as_ref().map(|tag| (tag, writes.begin(tenant, tag))) {
            None => None,
            Some((_, Ok(in_flight))) => Some(in_flight),
            Some((tag, Err(rejection))) => {
                return self.repeated_write(tenant, tag, rejection).await;
            }
        };
        let mut command = WriteDocuments {
            tenant: tenant.clone(),
            ops: write.ops.into(),
            origin: write.origin,
            tag,
            verdict: None,
            prepared: None,
            may_retry: true,
            audit: write.audit,
            decide_by,
        };
        let (mut is_second, mut looks) = (false, 0);
        loop {
            command.verdict = self.ask_rules(caller, &command.ops).await?;
            command.prepared = self.ask_hooks(&command).await?;
            looks += 1;
            command.may_retry = looks < LOOKS_MAX;
            match self.submit(tenant, &command).await {
                Err(Error::Rejected(DocumentRejection::Stale)) => {}
                Err(Error::Rejected(DocumentRejection::Conflict)) if !is_second => {
                    is_second = true;
                    let clock = self.clock();
                    clock.sleep_until(clock.now() + settings.conflict_delay_ms).await;
                }
                outcome => {
                    let receipt = outcome?.map_err(Error::Rejected)?;
                    // How large a document is that was patched is known only now.
                    let written = receipt.documents.values().map(Document::bytes).sum::<usize>();
                    let more = written.saturating_sub(bytes) / BYTES_PER_APPEND;
                    self.fairness().count(tenant, u64::try_from(more).unwrap_or(u64::MAX));
                    return Ok(receipt);
                }
            }
        }
    }

    /// What the hooks for changes make of writes; `None` if that takes no look.
    async fn ask_hooks(
        &self,
        command: &WriteDocuments,
    ) -> Result<Option<PreparedMatch>, DocumentError> {
        let WriteDocuments { tenant, ops, origin, .. } = command;
        let shared = self.partition(tenant).clone();
        let hooks = shared.domains.part::<RegisteredHooks>().0.clone();
        if !hooks.is_interested(&shared, tenant, ops) {
            return Ok(None);
        }
        let limits = self.document_settings().transaction_limits();
        let (tenant, ops, origin) = (tenant.clone(), ops.clone(), origin.clone());
        let now = self.clock().now();
        let is_small = is_small(&ops);
        let look = move |in_turn| {
            let (tenant, ops, origin) = (&tenant, &*ops, &origin);
            let reader = &shared.state.reader();
            hooks.look(&shared, &WriteLook { tenant, ops, origin, limits, now, reader, in_turn })
        };
        if is_small && let Some(found) = look(true)? {
            return Ok(Some(found));
        }
        Ok(task::blocking(move || look(false)).await?)
    }

    /// What whoever meets a write of the same key is told: how it ended, if it has. Then it was
    /// itself asked for again.
    async fn repeated_write(
        &self,
        tenant: &Tenant,
        tag: &WriteTag,
        rejection: DocumentRejection,
    ) -> Result<WriteReceipt, DocumentError> {
        let (reader, now) = (self.partition(tenant).state.reader(), self.clock().now());
        let (tag, of) = (tag.clone(), tenant.clone());
        let settled = task::blocking(move || tag.recall_settled(&reader, &of, now)).await?;
        match settled {
            Some(_) => Ok(WriteReceipt { repeated: settled, ..WriteReceipt::default() }),
            None => Err(Error::Rejected(rejection)),
        }
    }

    /// What the rules say of writes; `None` for those who need not ask them.
    async fn ask_rules(
        &self,
        caller: &DocumentCaller,
        ops: &Arc<[Op]>,
    ) -> Result<Option<RuleVerdict>, DocumentError> {
        let DocumentCaller { tenant, auth, .. } = caller.clone();
        if auth.is_admin() {
            return Ok(None);
        }
        let Some(rules) = self.rules_for(caller).await? else {
            return Ok(Some(RuleVerdict::default()));
        };
        let limits = self.document_settings().transaction_limits();
        let (ops, now) = (ops.clone(), self.clock().now());
        // Whatever is looked at is younger than the rules that were found.
        let reader = self.partition(&tenant).state.reader();
        let ask =
            move || RuleLook::new(&reader, &tenant, &auth, now).of_writes(&rules, &ops, limits);
        Ok(Some(task::blocking(ask).await?))
    }

    /// The rules that somebody must ask. Whoever looks at documents does it after this.
    pub(super) async fn rules_for(
        &self,
        caller: &DocumentCaller,
    ) -> Result<Option<TenantRules>, Damaged> {
        if caller.auth.is_admin() {
            return Ok(None);
        }
        let shared = self.partition(&caller.tenant);
        shared.domains.part::<DocumentRules>().of(&caller.tenant).await
    }

    /// A page of the documents that a query is for. Whoever asks has room for a page
    /// ([`Engine::admit_page`]): that is how many are answered at once.
    pub async fn query_documents(
        &self,
        caller: &DocumentCaller,
        query: &Query,
    ) -> Result<QueryAnswer, DocumentError> {
        let tenant = &caller.tenant;
        self.fairness().request(tenant, fairness::TAKEN_IN);
        let rules = self.rules_for(caller).await?;
        let rules = rules.map(|it| (it.rules, caller.auth.clone()));
        let run = QueryRun {
            reader: self.partition(tenant).state.reader(),
            clock: self.clock().clone(),
            tenant: tenant.clone(),
            query: query.clone(),
            rules,
            scan_limit: self.document_settings().scan_limit,
            page_bytes: PAGE_BYTES_MAX,
        };
        let answer = task::blocking(move || run.answer()).await?;
        // What it took is known only now; the tenant's next requests wait for it.
        self.fairness().count(tenant, answer.cost.documents_read / DOCUMENTS_PER_APPEND);
        Ok(answer)
    }

    /// The indexes of a tenant, without those that are being removed.
    pub fn document_indexes(&self, tenant: &Tenant) -> Result<Vec<IndexView>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        let indexes = query::indexes(&reader, tenant)?;
        Ok(indexes.iter().filter_map(|(_, index)| IndexView::of(index)).collect())
    }

    /// Has a tenant have these indexes and no others: those that are new are built in the
    /// background, those that are not among them are removed.
    pub async fn set_document_indexes(
        &self,
        tenant: &Tenant,
        indexes: Vec<IndexDefinition>,
    ) -> Result<Vec<IndexView>, DocumentError> {
        let command = SetDocumentIndexes::new(tenant.clone(), indexes);
        let command = command.map_err(|error| Error::Rejected(error.into()))?;
        let entry = self.audit_entry(action::INDEXES_UPDATED, Some(tenant), tenant.as_str());
        self.submit_audited(tenant, command, entry).await
    }

    /// The text of a tenant's rules, as it was put.
    pub fn document_rules(&self, tenant: &Tenant) -> Option<Arc<str>> {
        self.partition(tenant).domains.part::<DocumentRules>().source(tenant)
    }

    /// Has a tenant have these rules, or none: then everybody who has its keys may do everything.
    pub async fn set_document_rules(
        &self,
        tenant: &Tenant,
        rules: Option<RuleSet>,
    ) -> Result<(), DocumentError> {
        let source = rules.map(|rules| rules.source().into());
        let command = SetDocumentRules { tenant: tenant.clone(), source };
        let entry = self.audit_entry(action::RULES_UPDATED, Some(tenant), tenant.as_str());
        let done = self.submit_audited(tenant, command, entry).await;
        done.map_err(|error| error.map_rejection(|never| match never {}))
    }
}
