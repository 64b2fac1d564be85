//! The changes of a tenant after one of them, as they are durable.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{ChangeHead, ChangeKind, FACE};
use reveille_core::document::path::DocumentPath;
use reveille_kernel::error::Damaged;
use reveille_schema::documents::RulesRecord;
use reveille_schema::record::{self, EventRecord};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use crate::deliveries::source;
use crate::limits::LIVE_CHANGES;
use crate::records::{ReadRecord, damaged};

/// A change, without its content.
pub(super) struct StoredChange {
    pub(super) seq: u64,
    pub(super) kind: ChangeKind,
    pub(super) path: DocumentPath,
    event: EventRecord,
}

impl StoredChange {
    /// The bytes of its content.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.event.place.len()).unwrap_or(usize::MAX)
    }

    /// What is in the log of its tenant.
    pub(super) fn content(&self, reader: &Reader) -> Result<Bytes, Damaged> {
        let lost = || Damaged(format!("change {} of {} has no content", self.seq, self.path));
        source::content(reader, &self.event)?.ok_or_else(lost)
    }
}

/// The last change of a tenant.
pub(super) fn change_head(mut reader: &Reader, tenant: &Tenant) -> Result<ChangeHead, Damaged> {
    let head = reader.read(&keys::change_head(tenant), ChangeHead::decode)?;
    Ok(head.unwrap_or_default())
}

/// Which rules a tenant has.
pub(super) fn rules_version(mut reader: &Reader, tenant: &Tenant) -> Result<Option<u64>, Damaged> {
    reader.read(&keys::rules(tenant), RulesRecord::decode_version)
}

/// Some of the changes that follow one, in order: as many as are looked at together. `None` if the
/// first of them is forgotten; there must be one.
pub(super) fn changes_after<'r>(
    reader: &'r Reader,
    tenant: &'r Tenant,
    seq: u64,
) -> Result<Option<impl Iterator<Item = Result<StoredChange, Damaged>> + 'r>, Damaged> {
    let (from, to) = keys::change_places(tenant, seq.saturating_add(1));
    let places = reader.range(&from, &to, LIVE_CHANGES)?;
    let first = places.first().and_then(|(key, _)| keys::parse_change_place(key));
    if first != seq.checked_add(1) {
        return Ok(None);
    }
    Ok(Some((seq + 1..).zip(places).map(move |(seq, (key, place))| {
        if keys::parse_change_place(&key) != Some(seq) {
            return Err(Damaged(format!("the place of change {seq} is missing")));
        }
        stored_change(reader, tenant, seq, &place)
    })))
}

fn stored_change(
    reader: &Reader,
    tenant: &Tenant,
    seq: u64,
    place: &[u8],
) -> Result<StoredChange, Damaged> {
    let no = EventNo(record::decode_u64(place).map_err(damaged)?);
    let missing = || Damaged(format!("change {seq} is missing"));
    let event = source::event(reader, FACE, tenant, no)?.ok_or_else(missing)?;
    let path = event.subject.as_deref().and_then(|path| DocumentPath::parse(path).ok());
    let path = path.ok_or_else(|| Damaged(format!("change {seq} is of no document")))?;
    let kind = ChangeKind::parse(&event.kind);
    let kind = kind.ok_or_else(|| Damaged(format!("change {seq} is of no kind")))?;
    Ok(StoredChange { seq, kind, path, event })
}
