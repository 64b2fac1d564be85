//! Events as they are stored: their records, and what they say.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::id::EventNo;
use reveille_kernel::error::Damaged;
use reveille_schema::keys;
use reveille_schema::record::{self, EventRecord};
use reveille_store::keys::BlobId;
use reveille_store::state::Reader;

use crate::records::ReadRecord;

/// The event of a number.
pub(crate) fn event(
    reader: &Reader,
    tenant: &Tenant,
    no: EventNo,
) -> Result<Option<EventRecord>, Damaged> {
    let mut reader = reader;
    reader.read(&keys::event(tenant, no), record::decode_event)
}

/// What an event says.
pub fn payload(reader: &Reader, event: &EventRecord) -> Result<Bytes, Damaged> {
    let (mut at, end) = (event.from.position(), event.from.position() + event.len);
    let mut payload = Vec::with_capacity(usize::try_from(event.len).unwrap_or(0));
    while at < end {
        let chunk = reader.chunk_at(BlobId(event.stream.0), at)?;
        let lost = || Damaged(format!("stream {} has no bytes at {at}", event.stream.0));
        let chunk = chunk.ok_or_else(lost)?;
        let to = chunk.end().min(end);
        let piece = chunk.slice(at, to);
        if at == event.from.position() && to == end {
            return Ok(piece);
        }
        payload.extend_from_slice(&piece);
        at = to;
    }
    Ok(payload.into())
}
