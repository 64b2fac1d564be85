//! Taking events in, and deciding who gets a delivery of each.
//!
//! An event is a message of its namespace's stream and a record that says where.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::hook::FACE;
use reveille_core::event::{EventType, Ulid};
use reveille_core::stream::{Head, Rejected};
use reveille_core::trace::Trace;
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::record::{self, EventPlace, EventRecord};

use super::index::{HookQuery, matching};
use crate::app::{App, Txn};
use crate::deliveries::source::put_event;
use crate::deliveries::spread::{MatchingHooks, Spread, SpreadEvent};
use crate::effect::EventPayload;
use crate::limits::BATCH_MEMORY_MS;
use crate::matching::{spend, steps_left};
use crate::records::ReadRecord;
use crate::streams::own::append_own;

/// Events that are taken in together, or not at all.
#[derive(Debug, Clone)]
pub struct IngestEvents {
    pub tenant: Tenant,
    /// The stream that has their words.
    pub stream: StreamPath,
    /// What is to be taken in.
    pub events: Vec<NewEvent>,
    /// The name that the first of them has, if its sender gave it none, and so on.
    pub first_id: Ulid,
    /// Their words, each followed by a comma.
    pub payload: Bytes,
    /// A name by which a repetition is known.
    pub batch: Option<Arc<str>>,
}

/// An event that comes in.
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub id: Arc<str>,
    /// Whether its sender gave it that name.
    pub named: bool,
    pub kind: EventType,
    /// How many bytes its words are.
    pub len: usize,
}

/// What became of events that were taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestReceipt {
    pub received: u64,
    /// Whether they were taken in before: then nothing is done now.
    pub repeated: bool,
}

impl Command<App> for IngestEvents {
    type Answer = IngestReceipt;
    type Rejection = Rejected;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<IngestReceipt, Rejected> {
        let IngestEvents { tenant, events, batch, .. } = self;
        if let Some(batch) = batch {
            let marker = keys::ingested(tenant, batch);
            if let Some(received) = txn.read(&marker, record::decode_u64)? {
                return Ok(Ok(IngestReceipt { received, repeated: true }));
            }
        }
        let received = u64::try_from(events.len()).unwrap_or(u64::MAX);
        if !events.is_empty() {
            match append_own(txn, tenant, &self.stream, self.payload.clone())? {
                Ok((head, from)) => spread_all(txn, self, &head, from)?,
                Err(rejected) => return Ok(Err(rejected)),
            }
        }
        if let Some(batch) = batch {
            let marker = keys::ingested(tenant, batch);
            let forget_at = txn.now() + BATCH_MEMORY_MS;
            txn.set(keys::later(forget_at, &marker), Bytes::new());
            txn.set(marker, record::encode_u64(received));
        }
        Ok(Ok(IngestReceipt { received, repeated: false }))
    }

    fn weight(&self) -> usize {
        self.payload.len() + self.events.len() * 512
    }

    fn needs_room(&self) -> bool {
        true
    }
}

fn spread_all(
    txn: &mut Txn<'_>,
    ingest: &IngestEvents,
    head: &Head,
    mut from: Offset,
) -> Result<(), ReadError> {
    let IngestEvents { tenant, events, payload, first_id, .. } = ingest;
    let (at, stream, mut begin) = (txn.now(), head.id, 0);
    let trace = txn.trace.map(Trace::to_bytes);
    let most = txn.domains().settings.fan_out;
    let matched = hooks_of(txn, tenant, events);
    let told = matched.by_event().map(|list| list.hooks.len().min(most)).sum();
    let mut spread = Spread::begin(txn, FACE, tenant, matched.lists.iter(), told)?;
    if events.iter().any(|event| !event.named) {
        // Names and numbers both follow each other: knowing where they begin is enough.
        txn.set(keys::event_ids(tenant, *first_id), record::encode_u64(txn.next_id()));
    }
    for (event, list) in events.iter().zip(matched.by_event()) {
        let no = EventNo(txn.take_id());
        let len = u64::try_from(event.len).unwrap_or(u64::MAX);
        let (id, kind) = (event.id.clone(), event.kind.to_shared());
        let place = EventPlace::Stream { stream, from, len };
        let recorded = EventRecord { id, kind, subject: None, at, place, trace };
        put_event(txn, FACE, tenant, no, &recorded);
        if event.named {
            txn.set(keys::event_id(tenant, &recorded.id), record::encode_u64(no.0));
        }
        let said = payload.slice(begin..begin + event.len);
        let said = EventPayload { id: recorded.id.clone(), at, payload: said, trace: txn.trace };
        let event_told =
            SpreadEvent { no, record: &recorded, payload: Some(&said), prepared: None };
        spread.event(txn, event_told, list)?;
        // A comma follows each.
        begin += event.len + 1;
        from = from.plus(len + 1);
    }
    spread.end(txn)
}

/// The hooks that each event is for, or the first of them. Batches are mostly of a few types, whose
/// events share a list.
struct MatchedHooks {
    lists: Vec<MatchingHooks>,
    /// The place of each event's list.
    places: Vec<usize>,
}

impl MatchedHooks {
    /// The list of each event.
    fn by_event(&self) -> impl Iterator<Item = &MatchingHooks> {
        self.places.iter().filter_map(|place| self.lists.get(*place))
    }
}

fn hooks_of(txn: &mut Txn<'_>, tenant: &Tenant, events: &[NewEvent]) -> MatchedHooks {
    let mut kinds: HashMap<&EventType, usize, foldhash::fast::RandomState> = HashMap::default();
    let mut matched = MatchedHooks { lists: Vec::new(), places: Vec::with_capacity(events.len()) };
    let limit = txn.domains().settings.fan_out;
    let accepts = |hook: &Hook| hook.is_active() && !hook.is_catching_up();
    for NewEvent { kind, .. } in events {
        let place = *kinds.entry(kind).or_insert_with(|| {
            let mut steps = steps_left(txn);
            let after = HookId(0);
            let query = HookQuery { tenant, kind, at: None, after, limit, accepts: &accepts };
            matched.lists.push(matching(txn.index(), &query, &mut steps));
            spend(txn, tenant, steps.used());
            matched.lists.len() - 1
        });
        matched.places.push(place);
    }
    matched
}
