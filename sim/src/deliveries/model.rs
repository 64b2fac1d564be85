//! Events and hooks, told once more: what is taken in, and who is owed what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::event::EventType;
use reveille_core::event::hook::{EventHookSpec, HookUpdate};
use reveille_core::{StreamPath, Tenant};

use super::action::{Action, DeliveryAnswer, DeliveryError, DeliveryResult, HookChange};
use super::engine::{IngestEvents, StartFrom};

/// All events in their order, and the hooks that there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) events: Vec<EventModel>,
    pub(super) hooks: BTreeMap<Arc<str>, HookModel>,
    batches: BTreeMap<(Tenant, Arc<str>), u64>,
    /// How many of all events may have been forgotten.
    pub(super) trimmed: usize,
}

/// An event that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventModel {
    pub(super) tenant: Tenant,
    pub(super) id: Arc<str>,
    pub(super) kind: EventType,
    pub(super) payload: Bytes,
}

/// A hook that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookModel {
    pub(super) tenant: Tenant,
    pub(super) spec: EventHookSpec,
    pub(super) active: bool,
    /// What is for it meanwhile is owed all the same.
    pub(super) paused: bool,
    /// Places of the events that it must get.
    pub(super) owed: BTreeSet<usize>,
    /// Places of those that it gets if they were not forgotten before it was made.
    pub(super) maybe: BTreeSet<usize>,
    /// The most attempts that it was ever to make.
    pub(super) attempts_max: u32,
}

impl HookModel {
    /// Whether anything may be sent to it.
    pub(super) fn is_sending(&self) -> bool {
        self.active && !self.paused
    }
}

/// A stream that takes no events.
pub(super) fn unfit() -> StreamPath {
    StreamPath::parse("/unfit").expect("a path")
}

impl Model {
    /// What an action comes to; `None` where that is not known here.
    pub(super) fn apply(&mut self, action: &Action) -> Option<DeliveryResult> {
        match action {
            Action::Ingest(ingest) => Some(self.ingest(ingest)),
            Action::CreateHook { tenant, name, spec, start } => {
                Some(self.hook(tenant, name, spec, start))
            }
            Action::ChangeHook { tenant, name, change } => Some(self.change(tenant, name, change)),
            _ => None,
        }
    }

    fn ingest(&mut self, ingest: &IngestEvents) -> DeliveryResult {
        let IngestEvents { tenant, stream, events, payload, batch, .. } = ingest;
        let marker = batch.as_ref().map(|batch| (tenant.clone(), batch.clone()));
        if let Some(received) = marker.as_ref().and_then(|marker| self.batches.get(marker)) {
            return Ok(DeliveryAnswer::Ingested { received: *received, repeated: true });
        }
        if *stream == unfit() {
            return Err(DeliveryError::Rejected);
        }
        let mut begin = 0;
        for event in events {
            let place = self.events.len();
            for hook in self.hooks.values_mut() {
                let wanted = hook.tenant == *tenant && hook.spec.pattern.matches(&event.kind);
                if wanted && hook.active {
                    hook.owed.insert(place);
                }
            }
            let payload = payload.slice(begin..begin + event.len);
            begin += event.len + 1;
            let (id, kind) = (event.id.clone(), event.kind.clone());
            self.events.push(EventModel { tenant: tenant.clone(), id, kind, payload });
        }
        let received = events.len() as u64;
        if let Some(marker) = marker {
            self.batches.insert(marker, received);
        }
        Ok(DeliveryAnswer::Ingested { received, repeated: false })
    }

    fn hook(
        &mut self,
        tenant: &Tenant,
        name: &Arc<str>,
        spec: &EventHookSpec,
        start: &StartFrom,
    ) -> DeliveryResult {
        if self.is_taken(tenant, spec, None) {
            return Err(DeliveryError::HookExists);
        }
        let mine = |event: &EventModel| event.tenant == *tenant;
        let from = match start {
            StartFrom::Now => self.events.len(),
            StartFrom::Beginning => 0,
            StartFrom::Event(id) => {
                let same = |event: &EventModel| mine(event) && event.id == *id;
                let Some(place) = self.events.iter().rposition(same) else {
                    return Err(DeliveryError::NoEvent);
                };
                place
            }
        };
        let wanted = |event: &EventModel| mine(event) && spec.pattern.matches(&event.kind);
        let places = (from..self.events.len()).filter(|place| wanted(&self.events[*place]));
        // Whoever names an event knows that it is there.
        let trimmed = if *start == StartFrom::Beginning { self.trimmed } else { 0 };
        let (maybe, owed) = places.partition(|place| *place < trimmed);
        let hook = HookModel {
            tenant: tenant.clone(),
            spec: spec.clone(),
            active: true,
            paused: false,
            owed,
            maybe,
            attempts_max: spec.max_retries.max(1),
        };
        self.hooks.insert(name.clone(), hook);
        Ok(DeliveryAnswer::Hooked)
    }

    /// Whether another hook is for the same.
    fn is_taken(&self, tenant: &Tenant, spec: &EventHookSpec, but: Option<&str>) -> bool {
        self.hooks.iter().any(|(name, hook)| {
            hook.tenant == *tenant
                && Some(&**name) != but
                && hook.spec.worker == spec.worker
                && hook.spec.pattern == spec.pattern
                && hook.spec.method == spec.method
        })
    }

    fn change(&mut self, tenant: &Tenant, name: &Arc<str>, change: &HookChange) -> DeliveryResult {
        let Some(hook) = self.hooks.get(name).filter(|hook| hook.tenant == *tenant).cloned() else {
            return Err(DeliveryError::NotFound);
        };
        match change {
            HookChange::Update(edit) => return self.edit(name, hook, edit),
            HookChange::Activate(active) => {
                self.hooks.insert(name.clone(), HookModel { active: *active, ..hook });
            }
            HookChange::Pause(paused) => {
                self.hooks.insert(name.clone(), HookModel { paused: *paused, ..hook });
            }
            HookChange::End => {
                self.hooks.remove(name);
                return Ok(DeliveryAnswer::Unhooked);
            }
        }
        Ok(DeliveryAnswer::Hooked)
    }

    fn edit(&mut self, name: &Arc<str>, mut hook: HookModel, edit: &HookUpdate) -> DeliveryResult {
        if let Some(method) = &edit.method {
            hook.spec.method = method.clone();
        }
        if let Some(pattern) = &edit.pattern {
            hook.spec.pattern = pattern.clone();
        }
        if let Some(retries) = edit.max_retries {
            hook.spec.max_retries = retries;
            hook.attempts_max = hook.attempts_max.max(retries);
        }
        if self.is_taken(&hook.tenant, &hook.spec, Some(name)) {
            return Err(DeliveryError::HookExists);
        }
        self.hooks.insert(name.clone(), hook);
        Ok(DeliveryAnswer::Hooked)
    }
}
