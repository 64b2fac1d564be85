//! What is left of documents that were deleted long ago goes: their tombstones, and the entries of
//! these. A document that is written there later begins anew.

use reveille_core::Tenant;
use reveille_core::document::path::DocumentPath;
use reveille_kernel::txn::ReadError;
use reveille_schema::documents::DocumentTimer;
use reveille_schema::keys;

use super::entries::EntryWriter;
use super::txn::DocumentTxn;
use crate::app::Txn;

/// Removes the tombstone at a path if it is old enough. It may be none any more.
pub(super) fn purge(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &DocumentPath,
) -> Result<(), ReadError> {
    let document = txn.document(tenant, path)?;
    let Some(tombstone) = document.filter(|document| document.is_tombstone()) else {
        return Ok(());
    };
    let purged_at = tombstone.updated_at + txn.domains().settings.documents.tombstone_ttl_ms;
    let timer = DocumentTimer::PurgeTombstone(tenant.clone(), path.clone());
    if txn.now() < purged_at {
        // Younger than it was thought, or tombstones are kept for longer now.
        txn.set_document_timer(purged_at, &timer);
        return Ok(());
    }
    // It may have come late, for a tombstone before this one.
    txn.cancel_timer(purged_at, &timer.encode());
    EntryWriter::new(txn, tenant).follow(txn, path, Some(&tombstone), None);
    txn.remove(&keys::document(tenant, path));
    Ok(())
}
