//! Changes: every write of a document is a message of its tenant's stream and an event, in the
//! batch of the write.

use bytes::{BufMut, BytesMut};
use reveille_core::Tenant;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{Change, ChangeHead, FACE};
use reveille_core::document::origin::Origin;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{self, EventPlace, EventRecord};
use reveille_schema::{Record, keys};

use crate::app::Txn;
use crate::deliveries::source::put_event;
use crate::engine::Engine;
use crate::records::ReadRecord;
use crate::streams::own::append_own;

/// Gives the changes of a transaction their places, one after another.
pub(super) fn append_changes(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    origin: &Origin,
    changes: Vec<Change>,
) -> Result<(), ReadError> {
    if changes.is_empty() {
        return Ok(());
    }
    let head_key = keys::change_head(tenant);
    let mut last = txn.read(&head_key, ChangeHead::decode)?.unwrap_or_default();
    let events = last.number(tenant, txn.now(), origin, changes);
    txn.set(head_key, last.encode());
    let (mut messages, mut lengths) = (BytesMut::new(), Vec::with_capacity(events.len()));
    for event in &events {
        let message = event.to_json();
        messages.put_slice(&message);
        messages.put_u8(b',');
        lengths.push(u64::try_from(message.len()).unwrap_or(u64::MAX));
    }
    let stream = Engine::change_stream(tenant);
    let appended = append_own(txn, tenant, &stream, messages.freeze())?;
    let (head, mut from) =
        appended.map_err(|rejected| Damaged(format!("{stream} takes no changes: {rejected:?}")))?;
    for (event, len) in events.iter().zip(lengths) {
        let no = EventNo(txn.take_id());
        let place = EventPlace::Stream { stream: head.id, from, len };
        let recorded = EventRecord {
            id: event.seq.to_string().into(),
            kind: event.change.kind.as_str().into(),
            subject: Some(event.change.path.to_string().into()),
            at: txn.now(),
            place,
            trace: None,
        };
        put_event(txn, FACE, tenant, no, &recorded);
        txn.set(keys::change_place(tenant, event.seq), record::encode_u64(no.0));
        // A comma follows each.
        from = from.plus(len + 1);
    }
    Ok(())
}
