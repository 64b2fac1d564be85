//! Building an index from the documents that were there before it, and removing one, in slices.
//!
//! From the moment when an index is declared every write keeps it, so that whoever builds it need
//! only come by every document that is older.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_core::key_range::above;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::documents::{IndexNo, IndexRecord, IndexState};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::index::DocumentIndex;
use crate::app::Txn;
use crate::limits::{BUILD_BYTES, BUILD_COLLECTIONS, BUILD_SLICE, PURGE_SLICE};
use crate::records::{ReadRecord, damaged};

/// Where a slice of building begins and ends.
#[derive(Debug, Clone)]
pub struct BuildLook {
    /// Where the index had come to.
    begun_at: Bytes,
    /// Documents of collections that it is for: each from the first to before the second.
    parts: Vec<(Bytes, Bytes)>,
    /// Up to here nothing else is; `None` if nothing is behind them either.
    until: Option<Bytes>,
}

impl BuildLook {
    /// Looks for the next documents that an index is for; `None` if it is not being built.
    pub(super) fn make(
        reader: &Reader,
        tenant: &Tenant,
        no: IndexNo,
    ) -> Result<Option<BuildLook>, Damaged> {
        let mut records = reader;
        let index = records.read(&keys::index(tenant, no), IndexRecord::decode)?;
        let Some(IndexRecord { definition, state, .. }) = index else { return Ok(None) };
        let IndexState::Building { from: begun_at, .. } = state else { return Ok(None) };
        let (first, end) = keys::documents_of(tenant, &definition.collection);
        let mut from = first.max(begun_at.clone());
        let (mut parts, mut documents, mut bytes) = (Vec::new(), 0, 0);
        for _ in 0..BUILD_COLLECTIONS {
            let found = reader.keys(&from, &end, 1)?;
            let Some(key) = found.into_iter().next() else {
                return Ok(Some(BuildLook { begun_at, parts, until: None }));
            };
            let unreadable = || Damaged::new("the key of a document is damaged");
            let (_, path) = keys::parse_document(&key).ok_or_else(unreadable)?;
            let (_, behind) = keys::documents(tenant, path.collection());
            if !definition.collection.matches(path.collection()) {
                from = behind;
                continue;
            }
            let (pairs_left, bytes_left) = (BUILD_SLICE - documents, BUILD_BYTES - bytes);
            let pairs = reader.range_within(&key, &behind, pairs_left, bytes_left)?;
            from = pairs.last().map_or_else(|| behind.clone(), |(last, _)| above(last));
            parts.push((key, from.clone()));
            documents += pairs.len();
            bytes += pairs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            if documents >= BUILD_SLICE || bytes >= BUILD_BYTES {
                break;
            }
        }
        Ok(Some(BuildLook { begun_at, parts, until: Some(from) }))
    }
}

/// Gives the next documents their entries, as they are now. Says whether the index is done.
pub(super) fn build(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    no: IndexNo,
    look: &BuildLook,
) -> Result<bool, ReadError> {
    let Some(index) = DocumentIndex::of_txn(txn).get(tenant, no) else { return Ok(true) };
    let IndexState::Building { from, documents } = &index.state else { return Ok(true) };
    if *from != look.begun_at {
        // Somebody was here meanwhile.
        return Ok(false);
    }
    // There may be some that were not there when it was looked.
    let found = txn.gather(&look.parts, |txn, (from, to)| txn.range(from, to, 2 * BUILD_SLICE))?;
    let (mut documents, begun_with) = (*documents, *documents);
    let mut until = look.until.clone();
    'slice: for page in found {
        for (key, value) in &page.pairs {
            if documents > begun_with && txn.is_full() {
                until = Some(key.clone());
                break 'slice;
            }
            let unreadable = || Damaged::new("the key of a document is damaged");
            let (_, path) = keys::parse_document(key).ok_or_else(unreadable)?;
            let document = Document::decode(value).map_err(damaged)?;
            let view = DocumentView::new(&path, &document);
            let (entry, value) = keys::index_entry(tenant, no, &index.definition, &view);
            txn.set(entry, value);
            documents += 1;
        }
        if let Some(last) = page.last {
            // So many have come that they are for the next slice.
            until = Some(above(&last));
            break;
        }
    }
    let is_done = until.is_none();
    let state = match until {
        Some(from) => IndexState::Building { from, documents },
        None => IndexState::Ready,
    };
    let index = IndexRecord { state, ..index.clone() };
    txn.set(keys::index(tenant, no), index.encode());
    Ok(is_done)
}

/// The next entries of an index that is to be removed.
pub(super) fn remains(
    reader: &Reader,
    tenant: &Tenant,
    no: IndexNo,
) -> Result<Vec<Bytes>, Damaged> {
    let (from, to) = keys::all_index_entries(tenant, no);
    Ok(reader.keys(&from, &to, PURGE_SLICE)?)
}

/// Removes entries, and in the end the index. Says whether that is done.
pub(super) fn remove(txn: &mut Txn<'_>, tenant: &Tenant, no: IndexNo, found: &[Bytes]) -> bool {
    let index = DocumentIndex::of_txn(txn).get(tenant, no);
    if index.is_none_or(|index| index.state != IndexState::Removing) {
        return true;
    }
    for key in found {
        txn.remove(key);
        if txn.is_full() {
            break;
        }
    }
    if found.is_empty() {
        txn.remove(&keys::index(tenant, no));
    }
    found.is_empty()
}
