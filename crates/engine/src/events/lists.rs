//! Lists of hooks, deliveries and dead letters, entry by entry: whoever asks has one of them in
//! memory, and says when its page is full.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{Hook, HookId, Standing};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::event::EventType;
use reveille_core::event::hook::FACE;
use reveille_core::key_range::above;
use reveille_core::steps::Steps;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord};
use reveille_store::state::Reader;

use super::hook::EventHook;
use super::index::{EventHookIndex, HookQuery, next_matching};
use super::queries::DeliveryView;
use crate::app::Shared;
use crate::deliveries::index::{HookAge, HookIndex};
use crate::deliveries::send::delivery_record;
use crate::deliveries::source;
use crate::deliveries::{DeliveryError, DeliveryRejection};
use crate::engine::Engine;
use crate::limits::{INDEX_SLICE, LIST_LOOKS_MAX, LIST_PAGE_MAX};
use crate::records::{Scan, ScanBack, TakeEntry, damaged};

/// A dead letter.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The delivery.
    pub shown: DeliveryView,
    pub died_at: Millis,
    /// What was to be delivered.
    pub payload: Bytes,
}

/// A dead letter's place among those of its hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterCursor {
    pub died_at: Millis,
    pub id: DeliveryId,
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
    /// The hooks of a tenant, or of all tenants, that are older than one, youngest first. Returns
    /// the last one that was taken if there are more.
    pub async fn hooks(
        &self,
        tenant: Option<&Tenant>,
        after: Option<HookAge>,
        take: TakeEntry<'_, EventHook>,
    ) -> Option<HookAge> {
        let partitions: Vec<&Arc<Shared>> = match tenant {
            Some(tenant) => vec![self.partition(tenant)],
            None => self.partitions().iter().collect(),
        };
        let walk = |shared| HookWalk { shared, tenant, than: after, slice: VecDeque::new() };
        let mut walks: Vec<HookWalk<'_>> = partitions.into_iter().map(walk).collect();
        let mut last = after;
        loop {
            for _ in 0..INDEX_SLICE {
                let ages = walks.iter_mut().map(HookWalk::next_age);
                let youngest = ages.enumerate().filter_map(|(at, age)| Some((age?, at))).max();
                let (age, at) = youngest?;
                let hook = walks.get_mut(at).and_then(|walk| walk.slice.pop_front())?;
                if !take(&hook) {
                    return last;
                }
                last = Some(age);
            }
            // Others have waited meanwhile.
            tokio::task::yield_now().await;
        }
    }

    /// The active hooks of a tenant that are for events of this type and are older than one, youngest
    /// first; at most so many. The matcher goes from the oldest on, so all of them are passed, and no
    /// more are held than are asked for.
    pub fn matching_hooks(
        &self,
        tenant: &Tenant,
        kind: &EventType,
        before: HookId,
        limit: usize,
    ) -> Vec<EventHook> {
        let (shared, mut youngest) = (self.partition(tenant), VecDeque::new());
        let accepts = |hook: &Hook| hook.is_active() && hook.id < before;
        let mut after = HookId(0);
        loop {
            // Nobody waits for longer than a slice takes.
            let partition = shared.lock();
            let settings = &shared.domains.settings;
            let query = HookQuery {
                tenant,
                kind,
                at: None,
                after,
                limit: settings.fan_out,
                accepts: &accepts,
            };
            let mut steps = Steps::new(settings.match_steps);
            let list = next_matching(&partition.index, &query, &mut steps);
            let hooks = list.hooks.into_iter().map(|it| it.hook).collect();
            youngest.extend(partition.index.of::<EventHookIndex>().with_specs(hooks));
            drop(partition);
            youngest.drain(..youngest.len().saturating_sub(limit));
            if list.complete || list.through >= before {
                return youngest.into_iter().rev().collect();
            }
            after = list.through;
        }
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
        let event = match filter.event {
            None => None,
            Some(id) => {
                let found = self.find_event(tenant, id)?;
                Some(found.ok_or(DeliveryRejection::NoEvent)?.0)
            }
        };
        let shared = self.partition(tenant);
        let reader = shared.state.reader();
        let mut walk = DeliveryWalk::new(reader, filter, take, limit, after);
        let range = |hook: HookId| match event {
            Some(event) => event_range(hook, event),
            None => keys::deliveries(hook),
        };
        if let Some(name) = filter.hook {
            let hook = shared.lock().index.of::<HookIndex>().of_tenant(FACE, tenant, name).cloned();
            let hook = hook.filter(|hook| hook.face == FACE);
            let hook = hook.ok_or(DeliveryRejection::NotFound)?;
            let is_later = after.is_none_or(|after| hook.id <= after.hook);
            let is_over = !is_later || walk.visit(&hook, range(hook.id))?;
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
            for hook in hooks.iter().filter(|hook| hook.face == FACE) {
                if !walk.visit(hook, range(hook.id))? {
                    return Ok(walk.last);
                }
                walk.last = Some(first_of(hook.id));
            }
        }
        Ok(walk.last)
    }

    /// The dead letters of a hook, newest first, after one. Returns the last one that was taken if
    /// there are more.
    pub fn dead_letters(
        &self,
        hook: &Arc<Hook>,
        after: Option<DeadLetterCursor>,
        limit: usize,
        take: TakeEntry<'_, DeadLetter>,
    ) -> Result<Option<DeadLetterCursor>, Damaged> {
        let reader = self.partition(&hook.tenant).state.reader();
        let (first, to) = keys::dead_letters(hook.id);
        let from = after.map_or(first, |it| above(&keys::dead_letter(it.id, it.died_at)));
        let (mut left, mut last) = (limit, after);
        for pair in Scan::new(&reader, from, to) {
            let Some(id) = keys::parse_dead_letter(&pair?.0) else { continue };
            let Some(record) = delivery_record(&reader, id)? else { continue };
            let Phase::Dead { at: died_at, .. } = record.delivery.phase else { continue };
            if left == 0 {
                return Ok(last);
            }
            let event = source::event(&reader, FACE, &hook.tenant, id.no.event)?;
            let payload = match &event {
                Some(event) => source::content(&reader, event)?.unwrap_or_default(),
                None => Bytes::new(),
            };
            let shown = DeliveryView { id, hook: hook.clone(), record, event };
            if !take(&DeadLetter { shown, died_at, payload }) {
                return Ok(last);
            }
            (left, last) = (left - 1, Some(DeadLetterCursor { died_at, id }));
        }
        Ok(None)
    }
}

/// A look at the hooks of one partition, youngest first, a slice under its lock at a time.
struct HookWalk<'a> {
    shared: &'a Arc<Shared>,
    tenant: Option<&'a Tenant>,
    /// Those that follow are older.
    than: Option<HookAge>,
    slice: VecDeque<EventHook>,
}

impl HookWalk<'_> {
    fn next_age(&mut self) -> Option<HookAge> {
        // A slice may hold nothing but hooks of other faces.
        while self.slice.is_empty() {
            let partition = self.shared.lock();
            let hooks = partition.index.of::<HookIndex>();
            let hooks = hooks.older(self.tenant, self.than, INDEX_SLICE);
            self.than = Some(HookAge::of(hooks.last()?));
            self.slice = partition.index.of::<EventHookIndex>().with_specs(hooks).into();
        }
        self.slice.front().map(|it| HookAge::of(&it.hook))
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
                let event = source::event(&self.reader, FACE, &hook.tenant, id.no.event)?;
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
