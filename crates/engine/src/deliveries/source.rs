//! Sources: where the events of a face are kept. Taking one in is apart from telling who gets it.
//!
//! An event is a record that says what it is about and where its content is: in a stream that the
//! face writes, or under a key. Records of one face and tenant stand in the order in which the
//! events came.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::FaceId;
use reveille_core::delivery::id::EventNo;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::record::{self, EventPlace, EventRecord};
use reveille_store::keys::BlobId;
use reveille_store::state::Reader;

use crate::app::Txn;
use crate::records::ReadRecord;

/// Puts an event into the source of its face. Its number was taken in the same decision.
pub fn put_event(
    txn: &mut Txn<'_>,
    face: FaceId,
    tenant: &Tenant,
    no: EventNo,
    event: &EventRecord,
) {
    txn.set(keys::event(face, tenant, no), record::encode_event(event));
}

/// The event of a number, as a decision sees it.
pub fn event_of(
    txn: &mut Txn<'_>,
    face: FaceId,
    tenant: &Tenant,
    no: EventNo,
) -> Result<Option<EventRecord>, ReadError> {
    txn.read(&keys::event(face, tenant, no), record::decode_event)
}

/// The event of a number.
pub fn event(
    reader: &Reader,
    face: FaceId,
    tenant: &Tenant,
    no: EventNo,
) -> Result<Option<EventRecord>, Damaged> {
    let mut reader = reader;
    reader.read(&keys::event(face, tenant, no), record::decode_event)
}

/// The content of an event, as it is stored; `None` if there is none any more.
pub fn content(reader: &Reader, event: &EventRecord) -> Result<Option<Bytes>, Damaged> {
    match &event.place {
        EventPlace::Key { key, .. } => Ok(reader.get(key)?),
        EventPlace::Stream { stream, from, len } => {
            let (from, blob) = (from.position(), BlobId(stream.0));
            stream_part(reader, blob, from, from + len).map(Some)
        }
    }
}

fn stream_part(reader: &Reader, blob: BlobId, from: u64, end: u64) -> Result<Bytes, Damaged> {
    let mut at = from;
    let mut content = Vec::with_capacity(usize::try_from(end - from).unwrap_or(0));
    while at < end {
        let chunk = reader.chunk_at(blob, at)?;
        let chunk =
            chunk.ok_or_else(|| Damaged(format!("stream {} has no bytes at {at}", blob.0)))?;
        let to = chunk.end().min(end);
        let piece = chunk.slice(at, to);
        if at == from && to == end {
            return Ok(piece);
        }
        content.extend_from_slice(&piece);
        at = to;
    }
    Ok(content.into())
}
