//! Documents of tenants, the indexes over them, and what is remembered of their writes.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `20` document | tenant, `00`, collection, `00`, id | [`Document`](reveille_core::document::snapshot::Document): a tombstone has no data |
//! | `21` index entry | tenant, `00`, number of the index `u32`, collection, `00`, entry | one byte: with how many bytes of the entry the id of the document ends it |
//! | `22` index | tenant, `00`, number `u32` | [`IndexRecord`] |
//! | `23` outcome of a write | tenant, `00`, scope, `00`, idempotency key | [`WriteRecord`](reveille_core::document::idempotency::WriteRecord) |
//! | `24` change head | tenant | [`ChangeHead`](reveille_core::document::change::ChangeHead) |
//! | `25` place of a change | tenant, `00`, seq `u64` | number of its event, `u64` |
//! | `26` rules | tenant | [`RulesRecord`] |
//!
//! | timer of domain `05` | subject |
//! |---|---|
//! | `01` build index | number `u64`, tenant: the next documents are to have their entries |
//! | `02` remove index | number `u64`, tenant: the next entries are to be removed |
//! | `03` purge tombstone | tenant, `00`, collection, `/`, id |
//!
//! An entry is the fields of a document as [`IndexDefinition`] encodes them, and its id. What an
//! index has of one collection is together, in the order of the index.

mod change;
mod document;
mod index;
mod outcome;
mod rules;
#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::Tenant;
use reveille_core::document::idempotency::IdempotencyKey;
use reveille_core::document::index::{CollectionPattern, IndexDefinition};
use reveille_core::document::path::{CollectionPath, DocumentId, DocumentPath};
use reveille_core::document::snapshot::DocumentView;
use reveille_core::key_range::after_prefix;

use crate::parts;

pub use index::{IndexRecord, IndexState};
pub use rules::RulesRecord;
pub use timer::DocumentTimer;

const DOCUMENT: u8 = 0x20;
const INDEX_ENTRY: u8 = 0x21;
const INDEX: u8 = 0x22;
const WRITE_OUTCOME: u8 = 0x23;
const CHANGE_HEAD: u8 = 0x24;
const CHANGE_PLACE: u8 = 0x25;
const RULES: u8 = 0x26;

#[cfg(test)]
pub(crate) const TAGS: &[u8] =
    &[DOCUMENT, INDEX_ENTRY, INDEX, WRITE_OUTCOME, CHANGE_HEAD, CHANGE_PLACE, RULES];

/// The number of an index among those of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexNo(pub u32);

pub fn document_key(tenant: &Tenant, path: &DocumentPath) -> Bytes {
    of_collection(tenant, path.collection(), path.id().as_str().as_bytes())
}

/// The keys of a collection's documents: from the first, to before the second.
pub fn document_keys(tenant: &Tenant, collection: &CollectionPath) -> (Bytes, Bytes) {
    let first = of_collection(tenant, collection, &[]);
    let end = after_prefix(&first);
    (first, end)
}

/// A key among those of a collection's documents, from what of it is the id.
pub fn document_bound(tenant: &Tenant, collection: &CollectionPath, id: &[u8]) -> Bytes {
    of_collection(tenant, collection, id)
}

/// The keys of the documents of all collections that a pattern may be for: from the first, to
/// before the second.
pub fn document_keys_of(tenant: &Tenant, pattern: &CollectionPattern) -> (Bytes, Bytes) {
    let text = pattern.as_str();
    let plain = text.split_once('*').map_or(text, |(plain, _)| plain);
    let first = parts::of_tenant(DOCUMENT, tenant, plain.as_bytes());
    let end = after_prefix(&first);
    (first, end)
}

/// The keys of all documents of a tenant: from the first, to before the second.
pub fn tenant_document_keys(tenant: &Tenant) -> (Bytes, Bytes) {
    parts::tenant_range(DOCUMENT, tenant)
}

/// The keys of all documents: from the first, to before the second.
pub fn all_document_keys() -> (Bytes, Bytes) {
    parts::tag_range::<DOCUMENT>()
}

/// Where the document of a key is.
pub fn parse_document_key(key: &[u8]) -> Option<(Tenant, DocumentPath)> {
    let text = std::str::from_utf8(key.strip_prefix(&[DOCUMENT])?).ok()?;
    let mut parts = text.split('\0');
    let (tenant, collection, id) = (parts.next()?, parts.next()?, parts.next()?);
    let collection = CollectionPath::parse(collection).ok()?;
    let path = collection.document(DocumentId::parse(id).ok()?).ok()?;
    parts.next().is_none().then_some((Tenant::parse(tenant).ok()?, path))
}

fn of_collection(tenant: &Tenant, collection: &CollectionPath, id: &[u8]) -> Bytes {
    let (tenant, collection) = (tenant.as_str(), collection.as_str());
    let mut key = BytesMut::with_capacity(3 + tenant.len() + collection.len() + id.len());
    key.put_u8(DOCUMENT);
    key.put_slice(tenant.as_bytes());
    key.put_u8(0);
    key.put_slice(collection.as_bytes());
    key.put_u8(0);
    key.put_slice(id);
    key.freeze()
}

/// The entry of a document in an index: its key, and its value.
pub fn index_entry(
    tenant: &Tenant,
    no: IndexNo,
    definition: &IndexDefinition,
    view: &DocumentView<'_>,
) -> (Bytes, Bytes) {
    let mut key = index_prefix(tenant, no, view.collection);
    definition.write_entry(view, &mut key);
    // An id is 64 bytes long at most.
    let id = u8::try_from(view.id.len()).unwrap_or(u8::MAX);
    (key.into(), Bytes::copy_from_slice(&[id]))
}

/// A key among the entries that an index has of a collection, from the entry or the beginning of
/// one.
pub fn index_entry_bound(
    tenant: &Tenant,
    no: IndexNo,
    collection: &CollectionPath,
    entry: &[u8],
) -> Bytes {
    let mut key = index_prefix(tenant, no, collection.as_str());
    key.extend_from_slice(entry);
    key.into()
}

/// The keys of all entries of an index: from the first, to before the second.
pub fn all_index_entry_keys(tenant: &Tenant, no: IndexNo) -> (Bytes, Bytes) {
    let first = parts::of_tenant(INDEX_ENTRY, tenant, &no.0.to_be_bytes());
    let end = after_prefix(&first);
    (first, end)
}

/// The id of the document that an entry is of.
pub fn parse_index_entry_id(key: &[u8], value: &[u8]) -> Option<DocumentId> {
    let [len] = value else { return None };
    let id = key.get(key.len().checked_sub(usize::from(*len))?..)?;
    DocumentId::parse(std::str::from_utf8(id).ok()?).ok()
}

fn index_prefix(tenant: &Tenant, no: IndexNo, collection: &str) -> Vec<u8> {
    let tenant = tenant.as_str();
    let mut key = Vec::with_capacity(64 + tenant.len() + collection.len());
    key.push(INDEX_ENTRY);
    key.extend_from_slice(tenant.as_bytes());
    key.push(0);
    key.extend_from_slice(&no.0.to_be_bytes());
    key.extend_from_slice(collection.as_bytes());
    key.push(0);
    key
}

pub fn index_key(tenant: &Tenant, no: IndexNo) -> Bytes {
    parts::of_tenant(INDEX, tenant, &no.0.to_be_bytes())
}

/// The keys of a tenant's indexes: from the first, to before the second.
pub fn index_keys(tenant: &Tenant) -> (Bytes, Bytes) {
    parts::tenant_range(INDEX, tenant)
}

/// The keys of the indexes of all tenants: from the first, to before the second.
pub fn all_index_keys() -> (Bytes, Bytes) {
    parts::tag_range::<INDEX>()
}

pub fn parse_index_key(key: &[u8]) -> Option<(Tenant, IndexNo)> {
    let (name, no) = key.strip_prefix(&[INDEX])?.split_last_chunk::<4>()?;
    let tenant = std::str::from_utf8(name.strip_suffix(&[0])?).ok()?;
    Some((Tenant::parse(tenant).ok()?, IndexNo(u32::from_be_bytes(*no))))
}

/// What is remembered under a key that a scope has used.
pub fn write_outcome_key(tenant: &Tenant, scope: &str, key: &IdempotencyKey) -> Bytes {
    let rest = [scope.as_bytes(), &[0], key.as_str().as_bytes()].concat();
    parts::of_tenant(WRITE_OUTCOME, tenant, &rest)
}

/// The keys of all outcomes of writes: from the first, to before the second.
pub fn all_write_outcome_keys() -> (Bytes, Bytes) {
    parts::tag_range::<WRITE_OUTCOME>()
}

pub fn change_head_key(tenant: &Tenant) -> Bytes {
    of_name(CHANGE_HEAD, tenant)
}

/// The keys of the last changes of all tenants: from the first, to before the second.
pub fn all_change_head_keys() -> (Bytes, Bytes) {
    parts::tag_range::<CHANGE_HEAD>()
}

pub fn parse_change_head_key(key: &[u8]) -> Option<Tenant> {
    Tenant::parse(std::str::from_utf8(key.strip_prefix(&[CHANGE_HEAD])?).ok()?).ok()
}

pub fn change_place_key(tenant: &Tenant, seq: u64) -> Bytes {
    parts::of_tenant(CHANGE_PLACE, tenant, &seq.to_be_bytes())
}

/// The keys of the places of a tenant's changes from one on: from the first, to before the second.
pub fn change_place_keys(tenant: &Tenant, from: u64) -> (Bytes, Bytes) {
    (change_place_key(tenant, from), parts::tenant_range(CHANGE_PLACE, tenant).1)
}

/// Which change a place is of.
pub fn parse_change_place_key(key: &[u8]) -> Option<u64> {
    let (_, seq) = key.strip_prefix(&[CHANGE_PLACE])?.split_last_chunk::<8>()?;
    Some(u64::from_be_bytes(*seq))
}

pub fn rules_key(tenant: &Tenant) -> Bytes {
    of_name(RULES, tenant)
}

/// The keys of the rules of all tenants: from the first, to before the second.
pub fn all_rules_keys() -> (Bytes, Bytes) {
    parts::tag_range::<RULES>()
}

pub fn parse_rules_key(key: &[u8]) -> Option<Tenant> {
    Tenant::parse(std::str::from_utf8(key.strip_prefix(&[RULES])?).ok()?).ok()
}

/// A tag and a tenant.
fn of_name(tag: u8, tenant: &Tenant) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + tenant.as_str().len());
    key.put_u8(tag);
    key.put_slice(tenant.as_str().as_bytes());
    key.freeze()
}
