//! Changes: every write of a document is a message of its tenant's stream and an event, and whoever
//! has a hook for it gets a delivery, in the batch of the write.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::Tenant;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{Change, ChangeEvent, ChangeHead, FACE};
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Document;
use reveille_core::trace::Trace;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{self, EventPlace, EventRecord};
use reveille_schema::{Record, keys};

use super::hooks::{RegisteredHooks, WriteMatch};
use crate::app::Txn;
use crate::deliveries::face::PreparedMatch;
use crate::deliveries::source::put_event;
use crate::deliveries::spread::{MatchingHooks, Spread, SpreadEvent, want_lanes};
use crate::effect::EventPayload;
use crate::engine::Engine;
use crate::records::ReadRecord;
use crate::streams::own::append_own;

/// The changes of a transaction.
pub(super) struct NewChanges<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) origin: &'a Origin,
    /// The documents as they were before.
    pub(super) stored: &'a BTreeMap<DocumentPath, Option<Document>>,
    pub(super) changes: Vec<Change>,
}

/// A change with its place.
struct PlacedChange {
    no: EventNo,
    record: EventRecord,
    message: Bytes,
}

impl NewChanges<'_> {
    /// Gives them their places, one after another, and tells whoever has hooks for them. `false` if
    /// the write should come again instead, with another look.
    pub(super) fn append(
        self,
        txn: &mut Txn<'_>,
        prepared: Option<&PreparedMatch>,
        may_retry: bool,
    ) -> Result<bool, ReadError> {
        let NewChanges { tenant, origin, stored, changes } = self;
        if changes.is_empty() {
            return Ok(true);
        }
        let head_key = keys::change_head(tenant);
        let mut last = txn.read(&head_key, ChangeHead::decode)?.unwrap_or_default();
        let events = last.number(tenant, txn.now(), origin, changes);
        txn.set(head_key, last.encode());
        let hooks = &txn.domains().part::<RegisteredHooks>().0;
        let write = WriteMatch { tenant, events: &events, stored, prepared, may_retry };
        let Some(matches) = hooks.matching(txn, &write) else { return Ok(false) };
        let placed = place(txn, tenant, &events)?;
        spread(txn, tenant, &placed, &matches)?;
        Ok(true)
    }
}

/// Puts changes into the stream of their tenant and into the source.
fn place(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    events: &[ChangeEvent],
) -> Result<Vec<PlacedChange>, ReadError> {
    let (mut messages, mut lengths) = (BytesMut::new(), Vec::with_capacity(events.len()));
    for event in events {
        let message = event.to_json();
        messages.put_slice(&message);
        messages.put_u8(b',');
        lengths.push(message.len());
    }
    let (stream, messages) = (Engine::change_stream(tenant), messages.freeze());
    let appended = append_own(txn, tenant, &stream, messages.clone())?;
    let (head, mut from) =
        appended.map_err(|rejected| Damaged(format!("{stream} takes no changes: {rejected:?}")))?;
    let (mut placed, mut begin) = (Vec::with_capacity(events.len()), 0);
    let trace = txn.trace.map(Trace::to_bytes);
    for (event, length) in events.iter().zip(lengths) {
        let no = EventNo(txn.take_id());
        let len = u64::try_from(length).unwrap_or(u64::MAX);
        let place = EventPlace::Stream { stream: head.id, from, len };
        let record = EventRecord {
            id: event.seq.to_string().into(),
            kind: event.change.kind.as_str().into(),
            subject: Some(event.change.path.to_string().into()),
            at: txn.now(),
            place,
            trace,
        };
        put_event(txn, FACE, tenant, no, &record);
        txn.set(keys::change_place(tenant, event.seq), record::encode_u64(no.0));
        placed.push(PlacedChange { no, record, message: messages.slice(begin..begin + length) });
        // A comma follows each.
        from = from.plus(len + 1);
        begin += length + 1;
    }
    Ok(placed)
}

fn spread(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    placed: &[PlacedChange],
    matches: &[MatchingHooks],
) -> Result<(), ReadError> {
    let is_nothing = |it: &MatchingHooks| it.complete && it.hooks.is_empty() && it.notes.is_empty();
    if matches.iter().all(is_nothing) {
        return Ok(());
    }
    let most = txn.domains().settings.fan_out;
    let told = matches.iter().map(|list| list.hooks.len().min(most)).sum();
    let mut spread = Spread::begin(txn, FACE, tenant, matches.iter(), told)?;
    want_lanes(txn, placed.iter().map(|it| &it.record).zip(matches))?;
    for (PlacedChange { no, record, message }, list) in placed.iter().zip(matches) {
        let (id, payload) = (record.id.clone(), message.clone());
        let said = EventPayload { id, at: record.at, payload, trace: txn.trace };
        let event = SpreadEvent { no: *no, record, payload: Some(&said), prepared: None };
        spread.event(txn, event, list)?;
    }
    spread.end(txn)
}
