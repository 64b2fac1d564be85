//! Deliveries are found, whatever face they are of, entry by entry: whoever asks has one of them in
//! memory, and says when its page is full.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{FaceId, Hook, HookId, Standing};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use super::face::DeliveryFaces;
use super::index::{HookAge, HookIndex};
use super::send::delivery_record;
use super::source;
use super::{DeliveryError, DeliveryRejection};
use crate::engine::Engine;
use crate::limits::{INDEX_SLICE, LIST_LOOKS_MAX, LIST_PAGE_MAX};
use crate::records::{ScanBack, TakeEntry, damaged};

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

/// Which deliveries of a tenant are looked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeliveryFilter<'a> {
    /// Those of the event of this id.
    pub event: Option<&'a str>,
    /// Those of the hook of this name.
    pub hook: Option<&'a str>,
    /// Those that stand so.
    pub standing: Option<Standing>,
    /// Those that began at this time or later.
    pub from: Option<Millis>,
    /// Those that began before this time.
    pub to: Option<Millis>,
}

impl DeliveryFilter<'_> {
    fn accepts(&self, record: &DeliveryRecord) -> bool {
        let at = record.created_at;
        self.standing.is_none_or(|standing| record.delivery.standing() == standing)
            && self.from.is_none_or(|from| from <= at)
            && self.to.is_none_or(|to| at < to)
    }
}

impl Engine {
    /// Whether a tenant has the hook of this number.
    pub fn has_hook(&self, tenant: &Tenant, id: HookId) -> bool {
        let partition = self.partition(tenant).lock();
        partition.index.of::<HookIndex>().get(id).is_some_and(|hook| hook.tenant == *tenant)
    }

    /// The deliveries of a hook, those of the newest event first, after one. Returns the last one
    /// that was taken if there are more.
    pub fn deliveries(
        &self,
        hook: &Arc<Hook>,
        after: Option<DeliveryId>,
        limit: usize,
        take: TakeEntry<'_, DeliveryView>,
    ) -> Result<Option<DeliveryId>, Damaged> {
        let reader = self.partition(&hook.tenant).state.reader();
        let mut walk = DeliveryWalk::new(reader, DeliveryFilter::default(), take, limit, after);
        let range = keys::deliveries(hook.id);
        Ok(if walk.visit(hook, range)? { None } else { walk.last })
    }

    /// Deliveries of a tenant, hook by hook from the youngest on, those of the newest event first,
    /// after one. Returns where to go on if there may be more.
    pub fn find_deliveries(
        &self,
        tenant: &Tenant,
        filter: DeliveryFilter<'_>,
        after: Option<DeliveryId>,
        limit: usize,
        take: TakeEntry<'_, DeliveryView>,
    ) -> Result<Option<DeliveryId>, DeliveryError> {
        let shared = self.partition(tenant);
        let faces = shared.domains.part::<DeliveryFaces>();
        let reader = shared.state.reader();
        // The same name may be that of an event of each face.
        let events = filter.event.map(|name| events_named(faces, &reader, tenant, name));
        let events = events.transpose()?;
        if events.as_ref().is_some_and(BTreeMap::is_empty) {
            return Err(DeliveryRejection::NoEvent.into());
        }
        let mut walk = DeliveryWalk::new(reader, filter, take, limit, after);
        let range = |hook: &Hook| match &events {
            Some(events) => events.get(&hook.face).map(|event| event_range(hook.id, *event)),
            None => Some(keys::deliveries(hook.id)),
        };
        if let Some(name) = filter.hook {
            let known = shared.lock();
            let hook = known.index.of::<HookIndex>().of_faces(faces.ids(), tenant, name).cloned();
            drop(known);
            let hook = hook.ok_or(DeliveryRejection::NotFound)?;
            let is_later = after.is_none_or(|after| hook.id <= after.hook);
            let range = range(&hook).filter(|_| is_later);
            let is_over = range.map_or(Ok(true), |range| walk.visit(&hook, range))?;
            return Ok(if is_over { None } else { walk.last });
        }
        // Of one tenant they are numbered in the order in which they were made.
        let age = |id: u64| HookAge { created_at: Millis(0), id: HookId(id) };
        let mut than = after.map(|after| age(after.hook.0.saturating_add(1)));
        for _ in 0..LIST_PAGE_MAX.div_ceil(INDEX_SLICE) {
            let known = shared.lock();
            let hooks = known.index.of::<HookIndex>().older(Some(tenant), than, INDEX_SLICE);
            drop(known);
            let Some(oldest) = hooks.last() else { return Ok(None) };
            than = Some(age(oldest.id.0));
            for hook in &hooks {
                if let Some(range) = range(hook)
                    && !walk.visit(hook, range)?
                {
                    return Ok(walk.last);
                }
                walk.last = Some(first_of(hook.id));
            }
        }
        Ok(walk.last)
    }

    /// A delivery, whatever face it is of, if it is one of this tenant, or of anybody.
    pub fn delivery(
        &self,
        tenant: Option<&Tenant>,
        id: DeliveryId,
    ) -> Result<Option<DeliveryView>, Damaged> {
        for shared in self.partitions() {
            let hook = shared.lock().index.of::<HookIndex>().get(id.hook).cloned();
            let is_mine = |hook: &Arc<Hook>| tenant.is_none_or(|tenant| hook.tenant == *tenant);
            let Some(hook) = hook.filter(is_mine) else { continue };
            let reader = shared.state.reader();
            if let Some(record) = delivery_record(&reader, id)? {
                let event = source::event(&reader, hook.face, &hook.tenant, id.no.event)?;
                return Ok(Some(DeliveryView { id, hook, record, event }));
            }
        }
        Ok(None)
    }
}

/// A look at deliveries, from the youngest hook and the newest event on.
struct DeliveryWalk<'a> {
    reader: Reader,
    filter: DeliveryFilter<'a>,
    take: TakeEntry<'a, DeliveryView>,
    /// How many are still wanted.
    left: usize,
    /// How many more may be looked at: most may be others than those that are wanted.
    looks: usize,
    /// The place behind those that were taken or looked at.
    last: Option<DeliveryId>,
}

impl<'a> DeliveryWalk<'a> {
    fn new(
        reader: Reader,
        filter: DeliveryFilter<'a>,
        take: TakeEntry<'a, DeliveryView>,
        left: usize,
        last: Option<DeliveryId>,
    ) -> DeliveryWalk<'a> {
        DeliveryWalk { reader, filter, take, left, looks: LIST_LOOKS_MAX, last }
    }

    /// Shows the deliveries of a hook in a range. Says whether those were all.
    fn visit(&mut self, hook: &Arc<Hook>, range: (Bytes, Bytes)) -> Result<bool, Damaged> {
        let (first, end) = range;
        let after = self.last.filter(|last| last.hook == hook.id);
        let to = after.map_or(end.clone(), |last| keys::delivery(last).min(end));
        for pair in ScanBack::new(&self.reader, first, to) {
            let (key, value) = pair?;
            let Some(id) = keys::parse_delivery(&key) else { continue };
            if self.left == 0 || self.looks == 0 {
                return Ok(false);
            }
            self.looks -= 1;
            let record = record::decode_delivery(&value).map_err(damaged)?;
            if self.filter.accepts(&record) {
                let event = source::event(&self.reader, hook.face, &hook.tenant, id.no.event)?;
                if !(self.take)(&DeliveryView { id, hook: hook.clone(), record, event }) {
                    return Ok(false);
                }
                self.left -= 1;
            }
            self.last = Some(id);
        }
        Ok(true)
    }
}

/// Where the deliveries of one event to a hook are.
fn event_range(hook: HookId, no: EventNo) -> (Bytes, Bytes) {
    let first = |event| keys::delivery(DeliveryId { hook, no: DeliveryNo { event, round: 0 } });
    (first(no), first(EventNo(no.0 + 1)))
}

/// A place before all deliveries of a hook.
fn first_of(hook: HookId) -> DeliveryId {
    DeliveryId { hook, no: DeliveryNo { event: EventNo(0), round: 0 } }
}

/// The events that a name means, face by face.
fn events_named(
    faces: &DeliveryFaces,
    reader: &Reader,
    tenant: &Tenant,
    name: &str,
) -> Result<BTreeMap<FaceId, EventNo>, Damaged> {
    let mut events = BTreeMap::new();
    for id in faces.ids() {
        // A name may be a number, whether there is an event of that number or not.
        if let Some(no) = faces.get(id)?.event_named(reader, tenant, name)?
            && source::event(reader, id, tenant, no)?.is_some()
        {
            events.insert(id, no);
        }
    }
    Ok(events)
}
