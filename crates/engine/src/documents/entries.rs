//! Entries of documents in the indexes of their tenant: they follow in the batch of the write.

use reveille_core::Tenant;
use reveille_core::document::index::IndexDefinition;
use reveille_core::document::path::{CollectionPath, DocumentPath};
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_schema::documents::{IndexNo, IndexState};
use reveille_schema::keys;

use super::index::DocumentIndex;
use crate::app::Txn;

/// Keeps indexes as their documents become.
pub(super) struct EntryWriter<'a> {
    tenant: &'a Tenant,
    index: &'a DocumentIndex,
    /// The indexes of the collection that was asked for last: documents come by collection.
    last: Option<(CollectionPath, Vec<(IndexNo, &'a IndexDefinition)>)>,
}

impl<'a> EntryWriter<'a> {
    pub(super) fn new<'t: 'a>(txn: &Txn<'t>, tenant: &'a Tenant) -> EntryWriter<'a> {
        EntryWriter { tenant, index: DocumentIndex::of_txn(txn), last: None }
    }

    /// A document that was like this, tombstone or not, becomes like that.
    pub(super) fn follow(
        &mut self,
        txn: &mut Txn<'_>,
        path: &DocumentPath,
        before: Option<&Document>,
        after: Option<&Document>,
    ) {
        let tenant = self.tenant;
        for (no, definition) in self.indexes_of(path.collection()) {
            let entry = |document: &Document| {
                keys::index_entry(tenant, *no, definition, &DocumentView::new(path, document))
            };
            let (before, after) = (before.map(entry), after.map(entry));
            if before == after {
                continue;
            }
            // An index that is still being built may not have this one.
            if let Some((key, _)) = before {
                txn.remove(&key);
            }
            if let Some((key, value)) = after {
                txn.set(key, value);
            }
        }
    }

    /// Those that are built or being built.
    fn indexes_of(&mut self, collection: &CollectionPath) -> &[(IndexNo, &'a IndexDefinition)] {
        let (tenant, index) = (self.tenant, self.index);
        let is_last = self.last.as_ref().is_some_and(|(it, _)| it == collection);
        let last = self.last.take().filter(|_| is_last).unwrap_or_else(|| {
            let kept = index.indexes(tenant).filter(|(_, it)| it.state != IndexState::Removing);
            let kept = kept.filter(|(_, it)| it.definition.collection.matches(collection));
            (collection.clone(), kept.map(|(no, it)| (no, &it.definition)).collect())
        });
        &self.last.insert(last).1
    }
}
