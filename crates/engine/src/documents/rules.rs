//! Rules: who may read and write what.
//!
//! They are asked outside of the partition's lock, as the documents are that are durable. What they
//! looked at goes with the write, and the decision looks whether it is still so.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use reveille_core::document::change::{Change, ChangeHead, ChangeKind};
use reveille_core::document::path::{CollectionPath, DocumentPath};
use reveille_core::document::query::page::Page;
use reveille_core::document::rules::{
    Action, Documents, RuleAuth, RuleCheck, RuleDecision, RuleRequest, RuleSet,
};
use reveille_core::document::shape::Fields;
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_core::document::transaction::{
    Applied, ApplyError, Failure, Op, TransactionLimits, Write, apply,
};
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::task;
use reveille_schema::documents::RulesRecord;
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;
use tokio::sync::OnceCell;

use super::error::DocumentRejection;
use crate::app::{App, Part, Txn};
use crate::records::{ReadRecord, damaged};

/// The rules of all tenants, as they are durable.
#[derive(Default)]
pub struct DocumentRules(Mutex<HashMap<Tenant, Arc<StoredRules>>>);

/// The rules of one tenant. They are read when somebody asks for the first time: that may take half
/// a second, for which everybody else who asks waits, and no thread with them.
#[derive(Debug)]
pub(super) struct StoredRules {
    version: u64,
    source: Arc<str>,
    read: OnceCell<Result<RuleSet, Damaged>>,
}

/// The rules of one tenant, ready to be asked.
#[derive(Debug, Clone)]
pub struct TenantRules {
    /// Which rules these are.
    pub version: u64,
    pub rules: RuleSet,
}

impl Part for DocumentRules {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_rules()]
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let unreadable = || Damaged::new("the key of rules is damaged");
        let tenant = keys::parse_rules(key).ok_or_else(unreadable)?;
        let record = value.map(|value| RulesRecord::decode(value)).transpose();
        let record = record.map_err(damaged)?;
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match record {
            Some(RulesRecord { version, source }) => {
                let read = OnceCell::new();
                rules.insert(tenant, Arc::new(StoredRules { version, source, read }));
            }
            None => {
                rules.remove(&tenant);
            }
        }
        Ok(())
    }
}

impl DocumentRules {
    fn stored(&self, tenant: &Tenant) -> Option<Arc<StoredRules>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }

    /// The text of a tenant's rules.
    pub(super) fn source(&self, tenant: &Tenant) -> Option<Arc<str>> {
        self.stored(tenant).map(|stored| stored.source.clone())
    }

    /// The rules of a tenant, as they are when this returns.
    pub(super) async fn of(&self, tenant: &Tenant) -> Result<Option<TenantRules>, Damaged> {
        let mut stored = self.stored(tenant);
        while let Some(asked) = stored {
            let rules = asked.clone().read().await?;
            // Reading may have taken so long that they are others by now.
            stored = self.stored(tenant);
            if stored.as_ref().is_some_and(|stored| Arc::ptr_eq(stored, &asked)) {
                return Ok(Some(rules));
            }
        }
        Ok(None)
    }
}

impl StoredRules {
    async fn read(self: Arc<StoredRules>) -> Result<TenantRules, Damaged> {
        let version = self.version;
        let rules = match self.read.get() {
            Some(rules) => rules.clone(),
            // By a task of its own: it goes on when whoever asked goes away, and is not begun again.
            None => {
                task::spawned(async move { self.read.get_or_init(|| self.parse()).await.clone() })
                    .await
            }
        };
        Ok(TenantRules { version, rules: rules? })
    }

    async fn parse(&self) -> Result<RuleSet, Damaged> {
        let source = self.source.clone();
        let parsed = task::blocking(move || RuleSet::parse(&source)).await;
        parsed.map_err(|error| Damaged(format!("stored rules cannot be read: {error}")))
    }
}

/// Has a tenant have these rules, or none.
#[derive(Debug, Clone)]
pub struct SetDocumentRules {
    pub tenant: Tenant,
    /// Their text, which was read before.
    pub source: Option<Arc<str>>,
}

impl Command<App> for SetDocumentRules {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let key = keys::rules(&self.tenant);
        let before = txn.read(&key, RulesRecord::decode)?;
        if before.map(|rules| rules.source) == self.source {
            return Ok(Ok(()));
        }
        // Whoever follows the documents has a picture that is right by the rules before.
        let head_key = keys::change_head(&self.tenant);
        let mut head = txn.read(&head_key, ChangeHead::decode)?.unwrap_or_default();
        head.rules_seq = Some(head.seq);
        txn.set(head_key, head.encode());
        match &self.source {
            Some(source) => {
                let record = RulesRecord { version: txn.take_id(), source: source.clone() };
                txn.set(key, record.encode());
            }
            None => txn.remove(&key),
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.len())
    }

    fn needs_room(&self) -> bool {
        self.source.is_some()
    }
}

/// What the rules said of a write, and what they looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleVerdict {
    /// Which rules they were.
    pub rules: Option<u64>,
    /// Documents, with the versions that they had; tombstones have one, and what never was has
    /// none.
    pub versions: BTreeMap<DocumentPath, Option<u64>>,
    /// The first write that they do not allow.
    pub denied: Option<usize>,
}

/// One look at a tenant's documents, for somebody who asks the rules.
pub(super) struct RuleLook<'r> {
    pub(super) reader: &'r Reader,
    pub(super) tenant: &'r Tenant,
    pub(super) auth: &'r RuleAuth,
    pub(super) now: Millis,
    /// What was looked at.
    seen: RefCell<BTreeMap<DocumentPath, Option<u64>>>,
}

impl<'r> RuleLook<'r> {
    pub(super) fn new(
        reader: &'r Reader,
        tenant: &'r Tenant,
        auth: &'r RuleAuth,
        now: Millis,
    ) -> RuleLook<'r> {
        RuleLook { reader, tenant, auth, now, seen: RefCell::default() }
    }

    /// Whether a document may be read.
    pub(super) fn may_get(
        &self,
        rules: &RuleSet,
        path: &DocumentPath,
        document: Option<&Document>,
    ) -> Result<bool, Damaged> {
        let resource = document.map(|it| DocumentView::new(path, it).to_fields());
        let path = path.to_string();
        let (action, resource) = (Action::Get, resource.as_ref());
        let request = RuleRequest { action, path: &path, resource, resulting: None };
        let decision = RuleCheck::new(rules, self.auth, self.now, self).decide(&request)?;
        Ok(is_allowed(self.tenant, &decision))
    }

    /// Documents one after another, if all of them may be read. Of those that are more than so many
    /// bytes nothing is kept, but the rules are asked about each: whoever may not read one is told
    /// nothing of the others.
    pub(super) fn read_all(
        &self,
        rules: Option<&RuleSet>,
        paths: &[DocumentPath],
        bytes_max: usize,
    ) -> Result<Result<Vec<Option<Document>>, DocumentRejection>, Damaged> {
        let mut check = rules.map(|rules| RuleCheck::new(rules, self.auth, self.now, self));
        let (mut documents, mut bytes) = (Vec::with_capacity(paths.len()), 0);
        for path in paths {
            let document = self.document(path)?.filter(|document| !document.is_tombstone());
            if let Some(check) = &mut check {
                let resource = document.as_ref().map(|it| DocumentView::new(path, it).to_fields());
                let path = path.to_string();
                let (action, resource) = (Action::Get, resource.as_ref());
                let request = RuleRequest { action, path: &path, resource, resulting: None };
                if !is_allowed(self.tenant, &check.decide(&request)?) {
                    return Ok(Err(DocumentRejection::RuleDenied { op_index: None }));
                }
            }
            bytes += document.as_ref().map_or(0, Document::bytes);
            if bytes <= bytes_max || documents.is_empty() {
                documents.push(document);
            }
        }
        match documents.len() == paths.len() {
            true => Ok(Ok(documents)),
            false => Ok(Err(DocumentRejection::TooManyBytes { bytes_max })),
        }
    }

    /// Whether a document may be among those that are shown, asked for itself alone.
    pub(super) fn may_show(
        &self,
        rules: &RuleSet,
        path: &DocumentPath,
        fields: &Fields,
    ) -> Result<bool, Damaged> {
        let path = path.to_string();
        let mut check = RuleCheck::new(rules, self.auth, self.now, self);
        let decision = check.decide_page([(path.as_str(), fields)])?;
        Ok(is_allowed(self.tenant, &decision))
    }

    /// What was looked at, but for what was asked about.
    pub(super) fn into_seen(self) -> impl Iterator<Item = DocumentPath> {
        self.seen.into_inner().into_keys()
    }

    /// Whether a page may be shown.
    pub(super) fn may_list(
        &self,
        rules: &RuleSet,
        collection: &CollectionPath,
        page: &Page,
    ) -> Result<bool, Damaged> {
        let mut check = RuleCheck::new(rules, self.auth, self.now, self);
        // One after another, so that the page is not in memory once more.
        for (id, document) in &page.documents {
            let view = DocumentView { collection: collection.as_str(), id, document };
            let (path, fields) = (format!("{collection}/{id}"), view.to_fields());
            let decision = check.decide_page([(path.as_str(), &fields)])?;
            if !is_allowed(self.tenant, &decision) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the rules say of writes. Those that fail are asked about as well: whoever may not
    /// write a document is not told why it could not be written.
    pub(super) fn of_writes(
        self,
        rules: &TenantRules,
        ops: &[Op],
        limits: TransactionLimits,
    ) -> Result<RuleVerdict, Damaged> {
        let mut check = RuleCheck::new(&rules.rules, self.auth, self.now, &self);
        let read = |path: &DocumentPath| self.document(path);
        let (changes, failed) = match apply(ops, self.now, limits, read) {
            Ok(applied) => (applied.changes, None),
            Err(ApplyError::Unread(error)) => return Err(error),
            Err(ApplyError::Failed(Failure { op_index, .. })) => {
                let done = ops.get(..op_index).unwrap_or(ops);
                let applied = match apply(done, self.now, limits, read) {
                    Ok(applied) => applied,
                    Err(ApplyError::Unread(error)) => return Err(error),
                    // It did not fail a moment ago, in the same look.
                    Err(ApplyError::Failed(_)) => Applied::default(),
                };
                let last = |path| applied.documents.get(path).cloned().map(Some);
                let failed = match ops.get(op_index) {
                    Some(op) => {
                        let current = last(&op.path).map_or_else(|| read(&op.path), Ok)?;
                        Some(self.intended(op, op_index, current, limits))
                    }
                    None => None,
                };
                (applied.changes, failed)
            }
        };
        let mut denied = None;
        for change in changes.into_iter().chain(failed) {
            if !is_allowed(self.tenant, &decide_change(&mut check, &change)?) {
                denied = Some(change.ordinal);
                break;
            }
        }
        drop(check);
        let versions = self.seen.into_inner();
        Ok(RuleVerdict { rules: Some(rules.version), versions, denied })
    }

    /// What a write would be if nothing were in its way but the rules.
    fn intended(
        &self,
        op: &Op,
        ordinal: usize,
        current: Option<Document>,
        limits: TransactionLimits,
    ) -> Change {
        let free = Op { preconditions: Vec::new(), ..op.clone() };
        let read = |_: &DocumentPath| Ok::<_, Damaged>(current.clone());
        let applied = apply(std::slice::from_ref(&free), self.now, limits, read).ok();
        if let Some(change) = applied.and_then(|applied| applied.changes.into_iter().next()) {
            return Change { ordinal, ..change };
        }
        let before = current.filter(|document| !document.is_tombstone());
        let (kind, data) = match (&op.write, &before) {
            (Write::Create(data), _) | (Write::Set(data), None) => (ChangeKind::Create, Some(data)),
            (Write::Set(data), Some(_)) => (ChangeKind::Update, Some(data)),
            (Write::Patch(_), _) => (ChangeKind::Update, None),
            (Write::Delete, _) => (ChangeKind::Delete, None),
        };
        let after = data.map(|data| Document {
            version: 1,
            created_at: self.now,
            updated_at: self.now,
            data: Some(data.clone()),
        });
        Change { kind, path: op.path.clone(), before, after, ordinal }
    }

    fn document(&self, path: &DocumentPath) -> Result<Option<Document>, Damaged> {
        let mut reader = self.reader;
        let document = reader.read(&keys::document(self.tenant, path), Document::decode)?;
        let version = document.as_ref().map(|document| document.version);
        self.seen.borrow_mut().insert(path.clone(), version);
        Ok(document)
    }
}

impl Documents for RuleLook<'_> {
    type Error = Damaged;

    fn get(&self, path: &DocumentPath) -> Result<Option<Fields>, Damaged> {
        let document = self.document(path)?.filter(|document| !document.is_tombstone());
        Ok(document.map(|document| DocumentView::new(path, &document).to_fields()))
    }
}

fn decide_change<D: Documents>(
    check: &mut RuleCheck<'_, D>,
    change: &Change,
) -> Result<RuleDecision, D::Error> {
    let fields = |it: &Option<Document>| {
        it.as_ref().map(|document| DocumentView::new(&change.path, document).to_fields())
    };
    let (before, after) = (fields(&change.before), fields(&change.after));
    let action = match change.kind {
        ChangeKind::Create => Action::Create,
        ChangeKind::Update => Action::Update,
        ChangeKind::Delete => Action::Delete,
    };
    check.decide(&RuleRequest {
        action,
        path: &change.path.to_string(),
        resource: before.as_ref(),
        resulting: after.as_ref(),
    })
}

/// Whoever asks is not told what is in the rules; who writes them finds it in the log.
fn is_allowed(tenant: &Tenant, decision: &RuleDecision) -> bool {
    match decision {
        RuleDecision::Allowed => true,
        RuleDecision::Denied(why) => {
            tracing::debug!(tenant = tenant.as_str(), %why, "the rules denied a request");
            false
        }
    }
}
