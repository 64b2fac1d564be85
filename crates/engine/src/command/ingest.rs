//! Taking events in, and deciding who gets a delivery of each.
//!
//! An event is a message of its namespace's stream and a record that says where. Whoever is to get
//! it is decided here, at its place in the log: the first hooks get their deliveries in this very
//! batch, the rest in slices by the due index, from a cursor that is pinned to the event.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::event::{EventType, Ulid};
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::stream::{Body, Head};
use reveille_core::{ContentType, Offset, StreamPath, Tenant};
use reveille_schema::keys::{self, Due};
use reveille_schema::record::{self, EventRecord};

use super::timer_group::TimerGroups;
use super::{Answer, Decided, append, create, delivery};
use crate::effect::Fresh;
use crate::failure::Failure;
use crate::limits::{BATCH_MEMORY_MS, DELIVERIES_PER_BATCH};
use crate::txn::{ReadError, Txn};

/// Events that are taken in together, or not at all.
#[derive(Debug, Clone)]
pub struct Ingest {
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

pub(super) fn decide(txn: &mut Txn<'_>, ingest: &Ingest) -> Decided {
    let Ingest { tenant, events, batch, .. } = ingest;
    if let Some(batch) = batch {
        let marker = keys::ingested(tenant, batch);
        if let Some(value) = txn.get(&marker)? {
            let received = record::decode_u64(&value)
                .map_err(|error| ReadError::Damaged(error.to_string()))?;
            return Ok(Ok(Answer::Ingested { received, repeated: true }));
        }
    }
    let received = u64::try_from(events.len()).unwrap_or(u64::MAX);
    if !events.is_empty() {
        let (head, from) = match put_into_stream(txn, ingest)? {
            Ok(place) => place,
            Err(failure) => return Ok(Err(failure)),
        };
        spread_all(txn, ingest, &head, from)?;
    }
    if let Some(batch) = batch {
        let marker = keys::ingested(tenant, batch);
        let forget_at = txn.now() + BATCH_MEMORY_MS;
        txn.set(keys::later(forget_at, &marker), Bytes::new());
        txn.set(marker, record::encode_u64(received));
    }
    Ok(Ok(Answer::Ingested { received, repeated: false }))
}

/// Appends the words to their stream, which the first of them makes. Returns where they begin.
fn put_into_stream(
    txn: &mut Txn<'_>,
    ingest: &Ingest,
) -> Result<Result<(Head, Offset), Failure>, ReadError> {
    let Ingest { tenant, stream, payload, .. } = ingest;
    let content_type = Some(ContentType::json());
    let head = match txn.live_head(tenant, stream)? {
        Some(head) => head,
        None => {
            let request = Create { content_type: content_type.clone(), ..Create::default() };
            match create::decide(txn, tenant, stream, &request, None)? {
                Ok(Answer::Created { head, .. }) => *head,
                Ok(_) => unreachable!("a create is answered as one"),
                Err(failure) => return Ok(Err(failure)),
            }
        }
    };
    let body = Body::of_messages(payload.clone());
    let request = Append { content_type, body, ..Append::default() };
    let from = head.tail;
    let grown = append::grow(txn, tenant, stream, &request, None)?;
    Ok(grown.map(|_| (head, from)).map_err(Into::into))
}

fn spread_all(
    txn: &mut Txn<'_>,
    ingest: &Ingest,
    head: &Head,
    mut from: Offset,
) -> Result<(), ReadError> {
    let Ingest { tenant, events, payload, first_id, .. } = ingest;
    let (at, stream) = (txn.now(), head.id);
    let (mut begin, mut room) = (0, DELIVERIES_PER_BATCH);
    let matching = hooks_of(txn, tenant, events);
    let most = txn.fan_out();
    read_tallies(txn, matching.lists.iter().flat_map(|hooks| hooks.iter().take(most)))?;
    let mut waits = has_ordered(matching.lists.iter().flatten())
        && next_fan_out(txn, tenant, EventNo(0))?.is_some();
    if events.iter().any(|event| !event.named) {
        // Names and numbers both follow each other: knowing where they begin is enough.
        txn.set(keys::event_ids(tenant, *first_id), record::encode_u64(txn.next_id()));
    }
    let mut groups = TimerGroups::of(matching.by_event().map(|hooks| hooks.len().min(most)).sum());
    for (event, hooks) in events.iter().zip(matching.by_event()) {
        let no = EventNo(txn.next_id());
        txn.take_id();
        let (id, kind) = (event.id.clone(), event.kind.clone());
        let len = u64::try_from(event.len).unwrap_or(u64::MAX);
        let recorded = EventRecord { id, kind, at, stream, from, len };
        txn.set(keys::event(tenant, no), record::encode_event(&recorded));
        if event.named {
            txn.set(keys::event_id(tenant, &recorded.id), record::encode_u64(no.0));
        }
        let said = payload.slice(begin..begin + event.len);
        let fresh = Fresh { id: recorded.id.clone(), at, payload: said };
        // Whoever gets events in their order gets none before those that are still being told.
        let most = if waits && has_ordered(hooks) { 0 } else { txn.fan_out() };
        let now = hooks.len().min(most).min(room);
        for hook in hooks.iter().take(now) {
            let no = DeliveryNo { event: no, round: 0 };
            delivery::begin(txn, &mut groups, hook, no, at, Some(&fresh))?;
        }
        room -= now;
        if now < hooks.len() {
            let told = now.checked_sub(1).and_then(|last| hooks.get(last));
            let told = told.map_or(HookId(0), |hook| hook.id);
            txn.set(keys::fan_out(tenant, no), record::encode_u64(told.0));
            txn.set_due(at, &Due::FanOutToHooks(tenant.clone(), no));
            waits = true;
        }
        // A comma follows each.
        begin += event.len + 1;
        from = from.plus(len + 1);
    }
    groups.keep(txn);
    Ok(())
}

/// The hooks that each event is for. Batches are mostly of a few types, whose events share a list.
struct Matching {
    lists: Vec<Vec<Arc<Hook>>>,
    /// The place of each event's list.
    places: Vec<usize>,
}

impl Matching {
    /// The list of each event.
    fn by_event(&self) -> impl Iterator<Item = &[Arc<Hook>]> {
        let list = |place: &usize| self.lists.get(*place).map_or(&[][..], Vec::as_slice);
        self.places.iter().map(list)
    }
}

fn hooks_of(txn: &Txn<'_>, tenant: &Tenant, events: &[NewEvent]) -> Matching {
    let mut kinds: Vec<&EventType> = Vec::new();
    let mut matching = Matching { lists: Vec::new(), places: Vec::with_capacity(events.len()) };
    for event in events {
        let mut known = kinds.iter().enumerate().rev().take(8);
        let place = match known.find(|(_, kind)| **kind == &event.kind) {
            Some((place, _)) => place,
            None => {
                let mut hooks = txn.hooks().matching(tenant, &event.kind);
                hooks.retain(|hook| hook.is_active() && !hook.is_catching_up());
                kinds.push(&event.kind);
                matching.lists.push(hooks);
                kinds.len() - 1
            }
        };
        matching.places.push(place);
    }
    matching
}

fn has_ordered<'a>(hooks: impl IntoIterator<Item = &'a Arc<Hook>>) -> bool {
    hooks.into_iter().any(|hook| hook.lane().is_some())
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
fn read_tallies<'a>(
    txn: &mut Txn<'_>,
    hooks: impl Iterator<Item = &'a Arc<Hook>>,
) -> Result<(), ReadError> {
    let begun = hooks.take(DELIVERIES_PER_BATCH).map(|hook| hook.id).collect();
    txn.tallies_and(&begun, []).map(drop)
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
    let (Some(told), Some(event)) = (txn.get(&cursor)?, txn.event(tenant, no)?) else {
        return Ok(());
    };
    let told = record::decode_u64(&told).map_err(|error| ReadError::Damaged(error.to_string()))?;
    let mut hooks = txn.hooks().matching_after(tenant, &event.kind, HookId(told));
    hooks.retain(|hook| hook.was_active_at(no) && !hook.is_catching_up());
    let more = hooks.len() > txn.fan_out();
    hooks.truncate(txn.fan_out());
    if has_ordered(&hooks) && next_fan_out(txn, tenant, EventNo(0))?.is_some_and(|it| it < no) {
        return Ok(());
    }
    read_tallies(txn, hooks.iter())?;
    let fresh = payload.map(|payload| {
        let (id, payload) = (event.id.clone(), payload.clone());
        Fresh { id, at: event.at, payload }
    });
    let mut groups = TimerGroups::of(hooks.len());
    for hook in &hooks {
        let no = DeliveryNo { event: no, round: 0 };
        delivery::begin(txn, &mut groups, hook, no, event.at, fresh.as_ref())?;
    }
    groups.keep(txn);
    match hooks.last() {
        Some(last) if more => {
            txn.set(cursor, record::encode_u64(last.id.0));
            txn.set_due(txn.now(), &Due::FanOutToHooks(tenant.clone(), no));
        }
        _ => {
            txn.remove(&cursor);
            if let Some(next) = next_fan_out(txn, tenant, EventNo(no.0 + 1))? {
                txn.set_due(txn.now(), &Due::FanOutToHooks(tenant.clone(), next));
            }
        }
    }
    Ok(())
}

/// Where the number of the event of this name may be written, and what is to be added to it: the
/// name that a sender gave, then those that were given to many together.
pub(crate) fn named_places(tenant: &Tenant, id: &str) -> impl Iterator<Item = (Bytes, u64)> {
    let together = Ulid::parse(id).ok().map(|id| {
        let (first, place) = id.first_and_place();
        (keys::event_ids(tenant, first), u64::from(place))
    });
    std::iter::once((keys::event_id(tenant, id), 0)).chain(together)
}

impl Txn<'_> {
    /// The number of the newest event of this name.
    pub(crate) fn event_named(
        &mut self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<EventNo>, ReadError> {
        for (key, place) in named_places(tenant, id) {
            let Some(first) = self.get(&key)? else { continue };
            let first = record::decode_u64(&first);
            let first = first.map_err(|error| ReadError::Damaged(error.to_string()))?;
            let no = EventNo(first.saturating_add(place));
            if self.event(tenant, no)?.is_some_and(|event| *event.id == *id) {
                return Ok(Some(no));
            }
        }
        Ok(None)
    }

    /// The event of a number.
    pub(crate) fn event(
        &mut self,
        tenant: &Tenant,
        no: EventNo,
    ) -> Result<Option<EventRecord>, ReadError> {
        let Some(value) = self.get(&keys::event(tenant, no))? else {
            return Ok(None);
        };
        let read = record::decode_event(&value);
        read.map(Some).map_err(|error| ReadError::Damaged(error.to_string()))
    }
}
