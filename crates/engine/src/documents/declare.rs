//! Declaring indexes: a tenant says which it wants, and those that are missing are built.

use std::collections::{HashMap, HashSet};

use reveille_core::Tenant;
use reveille_core::document::index::{IndexDefinition, IndexError};
use reveille_kernel::command::{Command, Decision};
use reveille_schema::documents::{DocumentTimer, IndexNo, IndexRecord, IndexState};
use reveille_schema::{Record, keys};

use super::error::DocumentRejection;
use super::index::DocumentIndex;
use super::txn::DocumentTxn;
use crate::app::{App, Txn};
use crate::limits::INDEX_RECORDS_MAX;

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

impl IndexView {
    /// `None` for one that is being removed.
    pub(super) fn of(record: &IndexRecord) -> Option<IndexView> {
        let progress = match record.state {
            IndexState::Building { documents, .. } => IndexProgress::Building { documents },
            IndexState::Ready => IndexProgress::Ready,
            IndexState::Removing => return None,
        };
        Some(IndexView { definition: record.definition.clone(), progress })
    }
}

/// Has a tenant have these indexes and no others.
#[derive(Debug, Clone)]
pub struct SetDocumentIndexes {
    tenant: Tenant,
    /// They can be beside each other.
    definitions: Vec<IndexDefinition>,
}

impl SetDocumentIndexes {
    /// Holds each of them against all others, which nobody has to wait for.
    pub fn new(
        tenant: Tenant,
        definitions: Vec<IndexDefinition>,
    ) -> Result<SetDocumentIndexes, IndexError> {
        for (at, definition) in definitions.iter().enumerate() {
            definition.check_beside(definitions.get(..at).unwrap_or_default())?;
        }
        Ok(SetDocumentIndexes { tenant, definitions })
    }
}

impl Command<App> for SetDocumentIndexes {
    /// As they are now, in the order in which they were declared.
    type Answer = Vec<IndexView>;
    type Rejection = DocumentRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Vec<IndexView>, DocumentRejection> {
        let SetDocumentIndexes { tenant, definitions } = self;
        txn.rests_on_index();
        let known: Vec<_> = DocumentIndex::of_txn(txn).indexes(tenant).collect();
        let wanted: HashSet<_> = definitions.iter().collect();
        let mut kept = HashMap::new();
        let now = txn.now();
        for (no, index) in &known {
            if index.state == IndexState::Removing {
                continue;
            }
            if wanted.contains(&index.definition) {
                kept.insert(&index.definition, *index);
            } else {
                let removed = IndexRecord { state: IndexState::Removing, ..(*index).clone() };
                txn.set(keys::index(tenant, *no), removed.encode());
                txn.set_document_timer(now, &DocumentTimer::RemoveIndex(tenant.clone(), *no));
            }
        }
        let mut next = known.last().map_or(0, |(IndexNo(no), _)| *no);
        let (mut count, mut views) = (known.len(), Vec::with_capacity(definitions.len()));
        for definition in definitions {
            if let Some(index) = kept.get(definition) {
                views.extend(IndexView::of(index));
                continue;
            }
            count += 1;
            // Numbers of those that are gone come again only after all others are gone, too.
            let Some(no) = next.checked_add(1).filter(|_| count <= INDEX_RECORDS_MAX) else {
                return Ok(Err(DocumentRejection::TooManyIndexes));
            };
            next = no;
            let (definition, from) = (definition.clone(), bytes::Bytes::new());
            let state = IndexState::Building { from, documents: 0 };
            let index = IndexRecord { definition, state, declared_at: now };
            txn.set(keys::index(tenant, IndexNo(no)), index.encode());
            let timer = DocumentTimer::BuildIndex(tenant.clone(), IndexNo(no));
            txn.set_document_timer(now, &timer);
            views.extend(IndexView::of(&index));
        }
        Ok(Ok(views))
    }

    fn weight(&self) -> usize {
        self.definitions.len() * 1_024
    }

    fn needs_room(&self) -> bool {
        !self.definitions.is_empty()
    }
}
