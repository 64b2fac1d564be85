//! What decisions read and write of documents.

use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Document;
use reveille_core::{Millis, Tenant};
use reveille_kernel::txn::ReadError;
use reveille_schema::documents::DocumentTimer;
use reveille_schema::{Record, keys};

use crate::app::Txn;
use crate::records::ReadRecord;

/// Documents, as a decision sees them.
pub(super) trait DocumentTxn {
    /// The document at a path, or its tombstone.
    fn document(
        &mut self,
        tenant: &Tenant,
        path: &DocumentPath,
    ) -> Result<Option<Document>, ReadError>;

    fn set_document(&mut self, tenant: &Tenant, path: &DocumentPath, document: &Document);

    fn set_document_timer(&mut self, at: Millis, timer: &DocumentTimer);
}

impl DocumentTxn for Txn<'_> {
    fn document(
        &mut self,
        tenant: &Tenant,
        path: &DocumentPath,
    ) -> Result<Option<Document>, ReadError> {
        self.read(&keys::document(tenant, path), Document::decode)
    }

    fn set_document(&mut self, tenant: &Tenant, path: &DocumentPath, document: &Document) {
        self.set(keys::document(tenant, path), document.encode());
    }

    fn set_document_timer(&mut self, at: Millis, timer: &DocumentTimer) {
        self.set_timer(at, &timer.encode());
    }
}
