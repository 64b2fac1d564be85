//! What the faces may ask about documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use reveille_core::document::idempotency::{BodyHash, IdempotencyKey, WriteRecord};
use reveille_core::document::index::IndexDefinition;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::query::Query;
use reveille_core::document::rules::{RuleAuth, RuleSet};
use reveille_core::document::settings::DocumentSettings;
use reveille_core::document::snapshot::Document;
use reveille_core::document::transaction::{Op, OpResult};
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::error::Damaged;

use super::error::DocumentError;
use super::query::QueryAnswer;
use crate::engine::Engine;

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

/// An index of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexView {
    pub definition: IndexDefinition,
    pub progress: IndexProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexProgress {
    /// No query uses it yet.
    Building {
        /// So many documents from before its time have their entries.
        documents: u64,
    },
    Ready,
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
        todo!("{caller:?} {path:?}")
    }

    /// Does writes, all or none; those that were done before under their key are not done again.
    pub async fn write_documents(
        &self,
        caller: &DocumentCaller,
        write: DocumentWrite,
    ) -> Result<WriteReceipt, DocumentError> {
        todo!("{caller:?} {write:?}")
    }

    /// A page of the documents that a query is for. Whoever asks has room for a page
    /// ([`Engine::admit_page`]).
    pub async fn query_documents(
        &self,
        caller: &DocumentCaller,
        query: &Query,
    ) -> Result<QueryAnswer, DocumentError> {
        todo!("{caller:?} {query:?}")
    }

    /// The indexes of a tenant, without those that are being removed.
    pub fn document_indexes(&self, tenant: &Tenant) -> Result<Vec<IndexView>, Damaged> {
        todo!("{tenant:?}")
    }

    /// Has a tenant have these indexes and no others: those that are new are built in the
    /// background, those that are not among them are removed.
    pub async fn set_document_indexes(
        &self,
        tenant: &Tenant,
        indexes: Vec<IndexDefinition>,
    ) -> Result<Vec<IndexView>, DocumentError> {
        todo!("{tenant:?} {indexes:?}")
    }

    /// The rules of a tenant.
    pub async fn document_rules(&self, tenant: &Tenant) -> Result<Option<RuleSet>, Damaged> {
        todo!("{tenant:?}")
    }

    /// Has a tenant have these rules, or none: then everybody who has its keys may do everything.
    pub async fn set_document_rules(
        &self,
        tenant: &Tenant,
        rules: Option<RuleSet>,
    ) -> Result<(), DocumentError> {
        todo!("{tenant:?} {rules:?}")
    }
}
