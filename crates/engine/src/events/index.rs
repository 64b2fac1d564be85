//! Which hooks are for events of a type, in memory.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId, HookSpec, Identity};
use reveille_core::event::{EventMatcher, EventPattern, EventType};
use reveille_kernel::error::Damaged;
use reveille_schema::{keys, record};

use crate::app::{IndexPart, Indexes};
use crate::deliveries::index::HookIndex;
use crate::records::damaged;

/// Hooks for events, by what they match and by what no two may have alike.
#[derive(Default)]
pub struct EventHookIndex {
    matchers: HashMap<Tenant, EventMatcher<u64>>,
    by_identity: HashMap<(Tenant, Identity), HookId>,
    by_key: HashMap<Bytes, IndexedHook>,
}

struct IndexedHook {
    id: HookId,
    tenant: Tenant,
    pattern: EventPattern,
    identity: Identity,
}

impl IndexPart for EventHookIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let hook = value.map(|value| record::decode_hook(value)).transpose().map_err(damaged)?;
        if let Some(before) = self.by_key.remove(key) {
            self.by_identity.remove(&(before.tenant.clone(), before.identity.clone()));
            // Most changes leave alone what is matched, and a matcher is costly to change.
            if hook.as_ref().and_then(indexed).is_none_or(|it| it.pattern != before.pattern) {
                self.unmatch(&before);
            } else if let Some(after) = hook.as_ref().and_then(indexed) {
                self.by_identity.insert((after.tenant.clone(), after.identity.clone()), after.id);
                self.by_key.insert(key.clone(), after);
                return Ok(());
            }
        }
        if let Some(after) = hook.as_ref().and_then(indexed) {
            let matcher = self.matchers.entry(after.tenant.clone()).or_default();
            matcher.insert(&after.pattern, after.id.0);
            self.by_identity.insert((after.tenant.clone(), after.identity.clone()), after.id);
            self.by_key.insert(key.clone(), after);
        }
        Ok(())
    }
}

fn indexed(hook: &Hook) -> Option<IndexedHook> {
    let HookSpec::Events(spec) = &hook.spec;
    Some(IndexedHook {
        id: hook.id,
        tenant: hook.tenant.clone(),
        pattern: spec.pattern.clone(),
        identity: hook.spec.identity(),
    })
}

impl EventHookIndex {
    fn unmatch(&mut self, hook: &IndexedHook) {
        if let Some(matcher) = self.matchers.get_mut(&hook.tenant) {
            matcher.remove(&hook.pattern, hook.id.0);
            if matcher.is_empty() {
                self.matchers.remove(&hook.tenant);
            }
        }
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
pub(crate) fn matching(index: &Indexes, tenant: &Tenant, kind: &EventType) -> Vec<Arc<Hook>> {
    matching_after(index, tenant, kind, HookId(0))
}
