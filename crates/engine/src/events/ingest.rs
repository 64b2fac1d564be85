//! Taking events in, and deciding who gets a delivery of each.
//!
//! An event is a message of its namespace's stream and a record that says where. Whoever is to get
//! it is decided here, at its place in the log: the first hooks get their deliveries in this very
//! batch, the rest in slices by the due index, from a cursor that is pinned to the event.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::event::{EventType, Ulid};
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::stream::{Body, Head, Rejected};
use reveille_core::{ContentType, Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::events::EventTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, EventRecord};

use super::index::{HookQuery, MatchingHooks, matching, next_matching};
use super::txn::EventTxn;
use crate::app::{App, Txn};
use crate::deliveries::delivery::{self, DeliveryTxn, NewDelivery};
use crate::deliveries::timer_group::TimerGroups;
use crate::effect::EventPayload;
use crate::limits::{BATCH_MEMORY_MS, DELIVERIES_PER_BATCH};
use crate::matching::{spend, steps_left};
use crate::records::ReadRecord;
use crate::streams::append::append_to;
use crate::streams::create::create_stream;
use crate::streams::txn::StreamTxn;

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
            let (head, from) = match put_into_stream(txn, self)? {
                Ok(place) => place,
                Err(rejected) => return Ok(Err(rejected)),
            };
            spread_all(txn, self, &head, from)?;
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

/// Appends the words to their stream, which the first of them makes. Returns where they begin.
fn put_into_stream(txn: &mut Txn<'_>, ingest: &IngestEvents) -> Decision<(Head, Offset), Rejected> {
    let IngestEvents { tenant, stream, payload, .. } = ingest;
    let content_type = Some(ContentType::json());
    let head = match txn.live_head(tenant, stream)? {
        Some(head) => head,
        None => {
            let request = Create { content_type: content_type.clone(), ..Create::default() };
            match create_stream(txn, tenant, stream, &request, None)? {
                Ok(created) => *created.head,
                Err(rejected) => return Ok(Err(rejected)),
            }
        }
    };
    let body = Body::of_messages(payload.clone());
    let request = Append { content_type, body, ..Append::default() };
    let from = head.tail;
    let appended = append_to(txn, tenant, stream, &request, None)?;
    Ok(appended.map(|_| (head, from)))
}

fn spread_all(
    txn: &mut Txn<'_>,
    ingest: &IngestEvents,
    head: &Head,
    mut from: Offset,
) -> Result<(), ReadError> {
    let IngestEvents { tenant, events, payload, first_id, .. } = ingest;
    let (at, stream) = (txn.now(), head.id);
    let (mut begin, mut room) = (0, DELIVERIES_PER_BATCH);
    let most = txn.domains().settings.fan_out;
    let matched = hooks_of(txn, tenant, events);
    read_counts(txn, matched.lists.iter().flat_map(|list| list.hooks.iter().take(most)))?;
    let mut waits = has_ordered(matched.lists.iter().flat_map(|list| &list.hooks))
        && next_fan_out(txn, tenant, EventNo(0))?.is_some();
    if events.iter().any(|event| !event.named) {
        // Names and numbers both follow each other: knowing where they begin is enough.
        txn.set(keys::event_ids(tenant, *first_id), record::encode_u64(txn.next_id()));
    }
    let now = |list: &MatchingHooks| list.hooks.len().min(most);
    let mut groups = TimerGroups::of(matched.by_event().map(now).sum());
    for (event, list) in events.iter().zip(matched.by_event()) {
        let hooks = &list.hooks;
        let no = EventNo(txn.take_id());
        let (id, kind) = (event.id.clone(), event.kind.clone());
        let len = u64::try_from(event.len).unwrap_or(u64::MAX);
        let recorded = EventRecord { id, kind, at, stream, from, len };
        txn.set(keys::event(tenant, no), record::encode_event(&recorded));
        if event.named {
            txn.set(keys::event_id(tenant, &recorded.id), record::encode_u64(no.0));
        }
        let said = payload.slice(begin..begin + event.len);
        let event_payload = EventPayload { id: recorded.id.clone(), at, payload: said };
        // Whoever gets events in their order gets none before those that are still being told.
        let waits_now = (waits && has_ordered(hooks)) || txn.is_full();
        let most = if waits_now { 0 } else { txn.domains().settings.fan_out };
        let now = hooks.len().min(most).min(room);
        for hook in hooks.iter().take(now) {
            let no = DeliveryNo { event: no, round: 0 };
            let new = NewDelivery { no, event_at: at, lane: 0, event: Some(&event_payload) };
            delivery::begin(txn, &mut groups, hook, new)?;
        }
        room -= now;
        if now < hooks.len() || !list.complete {
            let told = match now.checked_sub(1).and_then(|last| hooks.get(last)) {
                _ if now == hooks.len() => list.through,
                told => told.map_or(HookId(0), |hook| hook.id),
            };
            txn.set(keys::fan_out(tenant, no), record::encode_u64(told.0));
            txn.set_event_timer(at, &EventTimer::FanOutToHooks(tenant.clone(), no));
            waits = true;
        }
        // A comma follows each.
        begin += event.len + 1;
        from = from.plus(len + 1);
    }
    groups.keep(txn);
    Ok(())
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

fn has_ordered<'a>(hooks: impl IntoIterator<Item = &'a Arc<Hook>>) -> bool {
    hooks.into_iter().any(|hook| hook.is_ordered())
}

/// The first event, from one on, that not everybody was told of.
pub(super) fn next_fan_out(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    from: EventNo,
) -> Result<Option<EventNo>, ReadError> {
    let (_, to) = keys::fan_outs(tenant);
    let first = txn.first(keys::fan_out(tenant, from), &to, 2)?;
    Ok(first.and_then(|key| keys::parse_event(&key)))
}

/// Reads what beginning deliveries changes.
fn read_counts<'a>(
    txn: &mut Txn<'_>,
    hooks: impl Iterator<Item = &'a Arc<Hook>>,
) -> Result<(), ReadError> {
    let begun = hooks.take(DELIVERIES_PER_BATCH).map(|hook| hook.id).collect();
    txn.counts_and(&begun, []).map(drop)
}

/// Begins the next slice of an event's deliveries. Where some of them are in order, older events
/// come first; the last slice of those calls for this one.
pub(super) fn fan_out(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    no: EventNo,
    payload: Option<&Bytes>,
) -> Result<(), ReadError> {
    let cursor = keys::fan_out(tenant, no);
    let told = txn.read(&cursor, record::decode_u64)?;
    let (Some(told), Some(event)) = (told, txn.event(tenant, no)?) else {
        return Ok(());
    };
    let (limit, mut steps) = (txn.domains().settings.fan_out, steps_left(txn));
    let accepts = |hook: &Hook| hook.was_active_at(no) && !hook.is_catching_up();
    let (kind, after) = (&event.kind, HookId(told));
    let query = HookQuery { tenant, kind, at: Some(no), after, limit, accepts: &accepts };
    let list = next_matching(txn.index(), &query, &mut steps);
    spend(txn, tenant, steps.used());
    let hooks = list.hooks;
    if has_ordered(&hooks) && next_fan_out(txn, tenant, EventNo(0))?.is_some_and(|it| it < no) {
        return Ok(());
    }
    read_counts(txn, hooks.iter())?;
    let event_payload = payload.map(|payload| {
        let (id, payload) = (event.id.clone(), payload.clone());
        EventPayload { id, at: event.at, payload }
    });
    let mut groups = TimerGroups::of(hooks.len());
    for hook in &hooks {
        let no = DeliveryNo { event: no, round: 0 };
        let (event_at, event) = (event.at, event_payload.as_ref());
        delivery::begin(txn, &mut groups, hook, NewDelivery { no, event_at, lane: 0, event })?;
    }
    groups.keep(txn);
    if !list.complete {
        txn.set(cursor, record::encode_u64(list.through.0));
        txn.set_event_timer(txn.now(), &EventTimer::FanOutToHooks(tenant.clone(), no));
        return Ok(());
    }
    txn.remove(&cursor);
    if let Some(next) = next_fan_out(txn, tenant, EventNo(no.0 + 1))? {
        txn.set_event_timer(txn.now(), &EventTimer::FanOutToHooks(tenant.clone(), next));
    }
    Ok(())
}
