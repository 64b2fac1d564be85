//! Lists of hooks and dead letters, entry by entry: whoever asks has one of them in
//! memory, and says when its page is full.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::event::EventType;
use reveille_core::event::hook::FACE;
use reveille_core::key_range::above;
use reveille_core::steps::Steps;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::keys;

use super::hook::EventHook;
use super::index::{EventHookIndex, HookQuery, next_matching};
use crate::app::Shared;
use crate::deliveries::find::DeliveryView;
use crate::deliveries::index::{HookAge, HookIndex};
use crate::deliveries::send::delivery_record;
use crate::deliveries::source;
use crate::engine::Engine;
use crate::limits::INDEX_SLICE;
use crate::records::{Scan, TakeEntry};

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
