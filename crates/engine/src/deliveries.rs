//! What the faces may ask about events, hooks and deliveries.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{DeliveryCounts, Hook, HookSpec, HookUpdate};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::event::{Event, EventType, Ulid};
use reveille_core::key_range::above;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::state::Reader;
use reveille_store::table::Pair;

use crate::command::hook::{HookChange, Since};
use crate::command::ingest::{Ingest, NewEvent, named_places};
use crate::command::{Answer, Command};
use crate::decide::run;
use crate::engine::Engine;
use crate::failure::{Failure, Refused};
use crate::limits::LIST_PAGE_MAX;
use crate::outbound::deliveries::{event, payload_of, record};
use crate::{fairness, reading};

/// A delivery with what it is of and for whom.
#[derive(Debug, Clone)]
pub struct DeliveryView {
    pub id: DeliveryId,
    pub hook: Arc<Hook>,
    /// As it is kept.
    pub record: DeliveryRecord,
    /// Its event; `None` if that is no longer kept.
    pub event: Option<EventRecord>,
}

/// A page of deliveries.
#[derive(Debug, Clone)]
pub struct DeliveryPage {
    /// In the order of their events.
    pub items: Vec<DeliveryView>,
    /// The delivery after which the next page begins; `None` at the end.
    pub next: Option<DeliveryId>,
}

/// A dead letter.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The delivery.
    pub shown: DeliveryView,
    pub died_at: Millis,
    /// What was to be delivered.
    pub payload: Bytes,
}

impl Engine {
    /// The stream that has the words of a tenant's events.
    pub fn event_stream(tenant: &Tenant) -> StreamPath {
        let path = StreamPath::parse(&format!("/_events/{tenant}"));
        path.expect("a tenant's name can be a part of a path")
    }

    /// A name for something new, made of the time and chance.
    pub fn fresh_ulid(&self) -> Ulid {
        let mut drawn = [0; 10];
        self.entropy().fill(&mut drawn);
        Ulid::new(self.clock().now(), drawn)
    }

    /// The first of many such names, for those that come together.
    pub fn first_ulid(&self) -> Ulid {
        let mut drawn = [0; 8];
        self.entropy().fill(&mut drawn);
        Ulid::first_of_many(self.clock().now(), drawn)
    }

    /// Takes events in, all or none; those without a name of their own have that which follows the
    /// first by as much as they do. Says how many, and whether a batch of this name was taken in
    /// before: then nothing is.
    pub async fn ingest(
        &self,
        tenant: &Tenant,
        events: Vec<Event>,
        first_id: Ulid,
        batch: Option<Arc<str>>,
    ) -> Result<(u64, bool), Failure> {
        let work = u64::try_from(events.len()).unwrap_or(u64::MAX);
        self.fairness().request(tenant, work * fairness::TAKEN_IN);
        let shared = self.partition(tenant);
        let len = events.iter().map(|event| event.envelope.len() + 1).sum();
        let mut payload = BytesMut::with_capacity(len);
        let mut new = Vec::with_capacity(events.len());
        for Event { id, named, kind, envelope } in events {
            payload.put_slice(&envelope);
            payload.put_u8(b',');
            new.push(NewEvent { id, named, kind, len: envelope.len() });
        }
        let (stream, payload) = (Engine::event_stream(tenant), payload.freeze());
        let (tenant, events) = (tenant.clone(), new);
        let ingest = Ingest { tenant, stream, events, first_id, payload, batch };
        let command = Command::Ingest(Box::new(ingest));
        match run(shared, self.clock().as_ref(), &command).await? {
            Answer::Ingested { received, repeated } => {
                if !repeated {
                    shared.metrics.delivering.ingested(received);
                }
                Ok((received, repeated))
            }
            _ => unreachable!("an ingest is answered as one"),
        }
    }

    /// Makes a hook.
    pub async fn hook(
        &self,
        tenant: &Tenant,
        spec: HookSpec,
        since: Since,
    ) -> Result<Arc<Hook>, Failure> {
        let name = self.fresh_ulid().to_string().into();
        let command = Command::Hook { tenant: tenant.clone(), name, spec, since };
        match run(self.partition(tenant), self.clock().as_ref(), &command).await? {
            Answer::Hooked(hook) => {
                let (name, tenant) = (&*hook.name, tenant.as_str());
                tracing::info!(hook = name, tenant, "a hook was made");
                Ok(hook)
            }
            _ => unreachable!("a hook is answered as one"),
        }
    }

    /// Changes some of a hook's settings.
    pub async fn edit_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        edit: HookUpdate,
    ) -> Result<Arc<Hook>, Failure> {
        self.changed_hook(tenant, name, HookChange::Update(edit)).await
    }

    /// Makes a hook active, or not.
    pub async fn activate_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        active: bool,
    ) -> Result<Arc<Hook>, Failure> {
        self.changed_hook(tenant, name, HookChange::Activate(active)).await
    }

    async fn changed_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        change: HookChange,
    ) -> Result<Arc<Hook>, Failure> {
        match self.change_hook(tenant, name, change).await? {
            Answer::Hooked(hook) => Ok(hook),
            _ => unreachable!("a change is answered as one"),
        }
    }

    async fn change_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        change: HookChange,
    ) -> Result<Answer, Failure> {
        let command = Command::ChangeHook { tenant: tenant.clone(), name: name.into(), change };
        run(self.partition(tenant), self.clock().as_ref(), &command).await
    }

    /// Ends a hook, with everything that belongs to it. Returns what it had come to.
    pub async fn unhook(&self, tenant: &Tenant, name: &str) -> Result<DeliveryCounts, Failure> {
        match self.change_hook(tenant, name, HookChange::End).await? {
            Answer::Unhooked(counts) => {
                tracing::info!(hook = name, tenant = tenant.as_str(), "a hook was ended");
                Ok(counts)
            }
            _ => unreachable!("an end is answered as one"),
        }
    }

    /// The hook of this name, as it became durable last, among those of a tenant or of all.
    pub fn find_hook(
        &self,
        tenant: Option<&Tenant>,
        name: &str,
    ) -> Result<Option<Arc<Hook>>, Failure> {
        for shared in self.partitions() {
            let known = shared.lock().registry.hooks.named(name).cloned();
            let known = known.filter(|hook| tenant.is_none_or(|tenant| hook.tenant == *tenant));
            if let Some(known) = known {
                // What is decided but not durable yet is not shown.
                let key = keys::hook(&known.tenant, name);
                let value = shared.state.reader().get(&key).map_err(reading::damaged)?;
                let read = value.map(|value| record::decode_hook(&value)).transpose();
                let read = read.map_err(|error| Failure::Damaged(error.to_string()))?;
                return Ok(read.map(Arc::new));
            }
        }
        Ok(None)
    }

    /// The hooks of a tenant, or of all tenants, oldest first.
    pub fn hooks(&self, tenant: Option<&Tenant>) -> Vec<Arc<Hook>> {
        let mut all = Vec::new();
        for shared in self.partitions() {
            all.extend(shared.lock().registry.hooks.of(tenant));
        }
        all.sort_by_key(|hook| (hook.created_at, hook.id));
        all
    }

    /// The active hooks of a tenant that are for events of this type, oldest first.
    pub fn matching_hooks(&self, tenant: &Tenant, kind: &EventType) -> Vec<Arc<Hook>> {
        let mut hooks = self.partition(tenant).lock().registry.hooks.matching(tenant, kind);
        hooks.retain(|hook| hook.is_active());
        hooks
    }

    /// What the deliveries of a hook have come to.
    pub fn counts(&self, hook: &Hook) -> Result<DeliveryCounts, Failure> {
        let reader = self.partition(&hook.tenant).state.reader();
        let value = reader.get(&keys::counts(hook.id)).map_err(reading::damaged)?;
        let read = value.map(|value| record::decode_delivery_counts(&value)).transpose();
        Ok(read.map_err(|error| Failure::Damaged(error.to_string()))?.unwrap_or_default())
    }

    /// A delivery, if it is one of this tenant, or of anybody.
    pub fn delivery(
        &self,
        tenant: Option<&Tenant>,
        id: DeliveryId,
    ) -> Result<Option<DeliveryView>, Failure> {
        for shared in self.partitions() {
            let hook = shared.lock().registry.hooks.get(id.hook).cloned();
            let hook = hook.filter(|hook| tenant.is_none_or(|tenant| hook.tenant == *tenant));
            let Some(hook) = hook else { continue };
            let reader = shared.state.reader();
            if let Some(record) = record(&reader, id)? {
                let event = event(&reader, &hook.tenant, id.no.event)?;
                return Ok(Some(DeliveryView { id, hook, record, event }));
            }
        }
        Ok(None)
    }

    /// The deliveries of a hook in the order of their events, after one; a page of them.
    pub fn deliveries(
        &self,
        hook: &Arc<Hook>,
        after: Option<DeliveryId>,
        limit: usize,
    ) -> Result<DeliveryPage, Failure> {
        let reader = self.partition(&hook.tenant).state.reader();
        let (first, to) = keys::deliveries(hook.id);
        let from = after.map_or(first, |id| above(&keys::delivery(id)));
        let limit = limit.min(LIST_PAGE_MAX);
        let pairs = reader.range(&from, &to, limit).map_err(reading::damaged)?;
        let full = pairs.len() == limit;
        let items = shown(&reader, hook, &pairs)?;
        let next = items.last().map(|it| it.id).filter(|_| full);
        Ok(DeliveryPage { items, next })
    }

    /// Deliveries of a tenant: of one event, of one hook, or hook by hook after one; a page of them.
    pub fn find_deliveries(
        &self,
        tenant: &Tenant,
        event: Option<&str>,
        hook: Option<&str>,
        after: Option<DeliveryId>,
        limit: usize,
    ) -> Result<DeliveryPage, Failure> {
        let event = match event {
            None => None,
            Some(id) => Some(self.find_event(tenant, id)?.ok_or(Refused::NoEvent)?.0),
        };
        let mut hooks = self.partition(tenant).lock().registry.hooks.of(Some(tenant));
        hooks.retain(|it| hook.is_none_or(|name| *it.name == *name));
        if hook.is_some() && hooks.is_empty() {
            return Err(Refused::NotFound.into());
        }
        hooks.retain(|it| after.is_none_or(|after| it.id >= after.hook));
        let mut page = DeliveryPage { items: Vec::new(), next: None };
        for hook in &hooks {
            let after = after.filter(|after| after.hook == hook.id);
            let more = match event {
                Some(event) => {
                    let mut all = self.deliveries_of(hook, event)?;
                    all.retain(|it| after.is_none_or(|after| it.id > after));
                    all
                }
                None => self.deliveries(hook, after, limit - page.items.len())?.items,
            };
            page.items.extend(more);
            if page.items.len() >= limit {
                page.items.truncate(limit);
                page.next = page.items.last().map(|it| it.id);
                break;
            }
        }
        Ok(page)
    }

    /// The dead letters of a hook, newest first.
    pub fn dead_letters(&self, hook: &Arc<Hook>, limit: usize) -> Result<Vec<DeadLetter>, Failure> {
        let reader = self.partition(&hook.tenant).state.reader();
        let (from, to) = keys::dead_letters(hook.id);
        let found = reader.keys(&from, &to, limit.min(LIST_PAGE_MAX)).map_err(reading::damaged)?;
        let mut letters = Vec::with_capacity(found.len());
        for id in found.iter().filter_map(|key| keys::parse_dead_letter(key)) {
            let Some(record) = record(&reader, id)? else { continue };
            let Phase::Dead { at: died_at, .. } = record.delivery.phase else { continue };
            let event = event(&reader, &hook.tenant, id.no.event)?;
            let payload = match &event {
                Some(event) => payload_of(&reader, event)?,
                None => Bytes::new(),
            };
            let shown = DeliveryView { id, hook: hook.clone(), record, event };
            letters.push(DeadLetter { shown, died_at, payload });
        }
        Ok(letters)
    }

    /// Makes a dead delivery again, under a name of its own.
    pub async fn retry_dead_letter(
        &self,
        tenant: &Tenant,
        id: DeliveryId,
    ) -> Result<DeliveryId, Failure> {
        let command = Command::Retry { tenant: tenant.clone(), id };
        match run(self.partition(tenant), self.clock().as_ref(), &command).await? {
            Answer::Begun(id) => Ok(id),
            _ => unreachable!("a retry is answered as one"),
        }
    }

    /// The newest event of a tenant that has this id, with its number.
    pub fn find_event(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<(EventNo, EventRecord)>, Failure> {
        let reader = self.partition(tenant).state.reader();
        for (key, place) in named_places(tenant, id) {
            let Some(found) = reader.get(&key).map_err(reading::damaged)? else { continue };
            let first = record::decode_u64(&found);
            let first = first.map_err(|error| Failure::Damaged(error.to_string()))?;
            let no = EventNo(first.saturating_add(place));
            if let Some(event) = event(&reader, tenant, no)?.filter(|event| *event.id == *id) {
                return Ok(Some((no, event)));
            }
        }
        Ok(None)
    }

    /// The deliveries of one event to a hook: the first, and those that were asked for again.
    pub fn deliveries_of(
        &self,
        hook: &Arc<Hook>,
        event: EventNo,
    ) -> Result<Vec<DeliveryView>, Failure> {
        let reader = self.partition(&hook.tenant).state.reader();
        let id = |event, round| DeliveryId { hook: hook.id, no: DeliveryNo { event, round } };
        let from = keys::delivery(id(event, 0));
        let to = keys::delivery(id(EventNo(event.0 + 1), 0));
        let pairs = reader.range(&from, &to, LIST_PAGE_MAX).map_err(reading::damaged)?;
        shown(&reader, hook, &pairs)
    }

    /// Forgets deliveries that ended before a time, of a tenant or of all. Returns how many.
    pub async fn clean_up(&self, tenant: Option<&Tenant>, cutoff: Millis) -> Result<u64, Failure> {
        let mut all = 0;
        for hook in self.hooks(tenant) {
            let shared = self.partition(&hook.tenant);
            let mut after = Bytes::new();
            loop {
                let command = Command::CleanUp { hook: hook.id, cutoff, after };
                match run(shared, self.clock().as_ref(), &command).await? {
                    Answer::CleanedUp { next, forgotten } => {
                        all += forgotten;
                        match next {
                            Some(next) => after = next,
                            None => break,
                        }
                    }
                    _ => unreachable!("a clean-up is answered as one"),
                }
            }
        }
        Ok(all)
    }
}

/// A delivery that may be addressed, if the name is one.
pub fn delivery_named(name: &str) -> Result<DeliveryId, Refused> {
    let number = Ulid::parse(name).map_err(|_| Refused::NotFound)?;
    Ok(DeliveryId::from_u128(number.to_u128()))
}

/// The name that the world knows a delivery by.
pub fn delivery_name(id: DeliveryId) -> String {
    Ulid::from_u128(id.to_u128()).to_string()
}

fn shown(reader: &Reader, hook: &Arc<Hook>, pairs: &[Pair]) -> Result<Vec<DeliveryView>, Failure> {
    let mut all = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let Some(id) = keys::parse_delivery(key) else { continue };
        let read = record::decode_delivery(value);
        let record = read.map_err(|error| Failure::Damaged(error.to_string()))?;
        let event = event(reader, &hook.tenant, id.no.event)?;
        all.push(DeliveryView { id, hook: hook.clone(), record, event });
    }
    Ok(all)
}
