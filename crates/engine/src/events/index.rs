//! Which hooks are for events of a type, in memory.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::event::hook::{EventHookSpec, FACE, Identity};
use reveille_core::event::{EventMatcher, EventPattern, EventType};
use reveille_kernel::error::Damaged;
use reveille_schema::events::decode_hook_spec;
use reveille_schema::{keys, record};

use super::hook::EventHook;
use crate::app::{IndexPart, Indexes};
use crate::deliveries::index::HookIndex;
use crate::records::damaged;

/// Hooks for events, by what they match and by what no two may have alike.
#[derive(Default)]
pub struct EventHookIndex {
    matchers: HashMap<Tenant, EventMatcher<u64>>,
    by_identity: HashMap<(Tenant, Identity), HookId>,
    by_key: HashMap<Bytes, (Tenant, HookId)>,
    specs: HashMap<HookId, Arc<EventHookSpec>>,
}

impl IndexPart for EventHookIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let hook = value.map(|value| record::decode_hook(value)).transpose().map_err(damaged)?;
        let hook = hook.filter(|hook| hook.face == FACE);
        let spec = hook.as_ref().map(decode_hook_spec).transpose().map_err(damaged)?;
        let pattern = spec.as_ref().map(|spec| &spec.pattern);
        let mut is_matched = false;
        if let Some((tenant, id)) = self.by_key.remove(key)
            && let Some(before) = self.specs.remove(&id)
        {
            self.by_identity.remove(&(tenant.clone(), before.identity()));
            // Most changes leave alone what is matched, and a matcher is costly to change.
            is_matched = pattern == Some(&before.pattern);
            if !is_matched {
                self.unmatch(&tenant, id, &before.pattern);
            }
        }
        if let (Some(Hook { id, tenant, .. }), Some(spec)) = (hook, spec) {
            if !is_matched {
                let matcher = self.matchers.entry(tenant.clone()).or_default();
                matcher.insert(&spec.pattern, id.0);
            }
            self.by_identity.insert((tenant.clone(), spec.identity()), id);
            self.by_key.insert(key.clone(), (tenant, id));
            self.specs.insert(id, Arc::new(spec));
        }
        Ok(())
    }
}

impl EventHookIndex {
    fn unmatch(&mut self, tenant: &Tenant, id: HookId, pattern: &EventPattern) {
        if let Some(matcher) = self.matchers.get_mut(tenant) {
            matcher.remove(pattern, id.0);
            if matcher.is_empty() {
                self.matchers.remove(tenant);
            }
        }
    }

    /// What the owner of a hook wishes; `None` if it is not one for events.
    pub(crate) fn spec(&self, id: HookId) -> Option<&Arc<EventHookSpec>> {
        self.specs.get(&id)
    }

    /// Those of these hooks that are for events.
    pub(crate) fn with_specs(&self, hooks: Vec<Arc<Hook>>) -> Vec<EventHook> {
        let with_spec = |hook: Arc<Hook>| {
            let spec = self.spec(hook.id)?.clone();
            Some(EventHook { hook, spec })
        };
        hooks.into_iter().filter_map(with_spec).collect()
    }

    /// The hook of a tenant that has this in common with none of its others.
    pub(crate) fn identical(&self, tenant: &Tenant, identity: Identity) -> Option<HookId> {
        self.by_identity.get(&(tenant.clone(), identity)).copied()
    }
}

/// The hooks that are for events of this type and come after one, active or not, oldest first.
pub(crate) fn matching_after(
    index: &Indexes,
    tenant: &Tenant,
    kind: &EventType,
    after: HookId,
) -> Vec<Arc<Hook>> {
    let (matching, hooks) = (index.of::<EventHookIndex>(), index.of::<HookIndex>());
    let Some(matcher) = matching.matchers.get(tenant) else {
        return Vec::new();
    };
    let mut ids = Vec::new();
    matcher.matches(kind, &mut ids);
    let rest = ids.into_iter().map(HookId).filter(|id| *id > after);
    rest.filter_map(|id| hooks.get(id)).cloned().collect()
}

/// All of them.
pub fn matching(index: &Indexes, tenant: &Tenant, kind: &EventType) -> Vec<Arc<Hook>> {
    matching_after(index, tenant, kind, HookId(0))
}
