//! Events and hooks, told once more: what is taken in, and who is owed what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{EventHookSpec, HookSpec, HookUpdate};
use reveille_core::event::EventType;
use reveille_core::{StreamPath, Tenant};
use reveille_engine::Failure;
use reveille_engine::Refused;
use reveille_engine::command::hook::{HookChange, Since};
use reveille_engine::command::ingest::Ingest;
use reveille_engine::command::{Answer, Command};
use reveille_engine::partition::Outcome;

/// All events in their order, and the hooks that there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) events: Vec<Said>,
    pub(crate) hooks: BTreeMap<Arc<str>, Known>,
    batches: BTreeMap<(Tenant, Arc<str>), u64>,
    /// How many of all events may have been forgotten.
    pub(crate) trimmed: usize,
}

/// An event that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) tenant: Tenant,
    pub(crate) id: Arc<str>,
    pub(crate) kind: EventType,
    pub(crate) payload: Bytes,
}

/// A hook that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) tenant: Tenant,
    pub(crate) spec: EventHookSpec,
    pub(crate) active: bool,
    /// Places of the events that it must get.
    pub(crate) owed: BTreeSet<usize>,
    /// Places of those that it gets if they were not forgotten before it was made.
    pub(crate) maybe: BTreeSet<usize>,
    /// The most attempts that it was ever to make.
    pub(crate) attempts_most: u32,
}

/// What a command must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Ingested {
        received: u64,
        repeated: bool,
    },
    Hooked,
    Unhooked,
    HookExists,
    NoEvent,
    NotFound,
    /// The stream is none for events.
    Rejected,
}

/// A stream that takes no events.
pub(crate) fn unfit() -> StreamPath {
    StreamPath::parse("/unfit").expect("a path")
}

impl Expected {
    pub(crate) fn agrees(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Expected::Ingested { received, repeated }, Ok(answer)) => {
                *answer == Answer::Ingested { received, repeated }
            }
            (Expected::Hooked, Ok(answer)) => matches!(answer, Answer::Hooked(_)),
            (Expected::Unhooked, Ok(answer)) => matches!(answer, Answer::Unhooked(_)),
            (Expected::HookExists, Err(why)) => *why == Failure::from(Refused::HookExists),
            (Expected::NoEvent, Err(why)) => *why == Failure::from(Refused::NoEvent),
            (Expected::NotFound, Err(why)) => *why == Failure::from(Refused::NotFound),
            (Expected::Rejected, Err(why)) => matches!(why, Failure::Rejected(_)),
            _ => false,
        }
    }
}

impl Model {
    /// What a command comes to; `None` where that is not known here.
    pub(crate) fn apply(&mut self, command: &Command) -> Option<Expected> {
        match command {
            Command::Ingest(ingest) => Some(self.ingest(ingest)),
            Command::Hook { tenant, name, spec, since } => {
                let HookSpec::Events(spec) = spec;
                Some(self.hook(tenant, name, spec, since))
            }
            Command::ChangeHook { tenant, name, change } => Some(self.change(tenant, name, change)),
            _ => None,
        }
    }

    fn ingest(&mut self, ingest: &Ingest) -> Expected {
        let Ingest { tenant, stream, events, payload, batch, .. } = ingest;
        let marker = batch.as_ref().map(|batch| (tenant.clone(), batch.clone()));
        if let Some(received) = marker.as_ref().and_then(|marker| self.batches.get(marker)) {
            return Expected::Ingested { received: *received, repeated: true };
        }
        if *stream == unfit() {
            return Expected::Rejected;
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
            self.events.push(Said { tenant: tenant.clone(), id, kind, payload });
        }
        let received = events.len() as u64;
        if let Some(marker) = marker {
            self.batches.insert(marker, received);
        }
        Expected::Ingested { received, repeated: false }
    }

    fn hook(
        &mut self,
        tenant: &Tenant,
        name: &Arc<str>,
        spec: &EventHookSpec,
        since: &Since,
    ) -> Expected {
        if self.is_taken(tenant, spec, None) {
            return Expected::HookExists;
        }
        let mine = |said: &Said| said.tenant == *tenant;
        let from = match since {
            Since::New => self.events.len(),
            Since::All => 0,
            Since::Event(id) => {
                let same = |said: &Said| mine(said) && said.id == *id;
                let Some(place) = self.events.iter().rposition(same) else {
                    return Expected::NoEvent;
                };
                place
            }
        };
        let wanted = |said: &Said| mine(said) && spec.pattern.matches(&said.kind);
        let places = (from..self.events.len()).filter(|place| wanted(&self.events[*place]));
        // Whoever names an event knows that it is there.
        let trimmed = if *since == Since::All { self.trimmed } else { 0 };
        let (maybe, owed) = places.partition(|place| *place < trimmed);
        let known = Known {
            tenant: tenant.clone(),
            spec: spec.clone(),
            active: true,
            owed,
            maybe,
            attempts_most: spec.max_retries.max(1),
        };
        self.hooks.insert(name.clone(), known);
        Expected::Hooked
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

    fn change(&mut self, tenant: &Tenant, name: &Arc<str>, change: &HookChange) -> Expected {
        let Some(hook) = self.hooks.get(name).filter(|hook| hook.tenant == *tenant).cloned() else {
            return Expected::NotFound;
        };
        match change {
            HookChange::Update(edit) => return self.edit(name, hook, edit),
            HookChange::Activate(active) => {
                self.hooks.insert(name.clone(), Known { active: *active, ..hook });
            }
            HookChange::End => {
                self.hooks.remove(name);
                return Expected::Unhooked;
            }
        }
        Expected::Hooked
    }

    fn edit(&mut self, name: &Arc<str>, mut hook: Known, edit: &HookUpdate) -> Expected {
        if let Some(method) = &edit.method {
            hook.spec.method = method.clone();
        }
        if let Some(retries) = edit.max_retries {
            hook.spec.max_retries = retries;
            hook.attempts_most = hook.attempts_most.max(retries);
        }
        if self.is_taken(&hook.tenant, &hook.spec, Some(name)) {
            return Expected::HookExists;
        }
        self.hooks.insert(name.clone(), hook);
        Expected::Hooked
    }
}
