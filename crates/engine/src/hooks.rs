//! The hooks of a partition, in memory: which of them are for an event.

use std::collections::HashMap;
use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId, HookSpec, Identity};
use reveille_core::event::{EventMatcher, EventType};
use reveille_core::key_range::above;
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

/// Hooks that are read at once when a partition opens.
const LOAD_SLICE: usize = 1_024;

/// All hooks, by number, by name, by what they match, and by what no two may have alike.
#[derive(Default)]
pub struct Hooks {
    by_id: HashMap<HookId, Arc<Hook>>,
    by_name: HashMap<Arc<str>, HookId>,
    by_identity: HashMap<(Tenant, Identity), HookId>,
    matchers: HashMap<Tenant, EventMatcher<u64>>,
}

impl Hooks {
    /// What is stored.
    pub(crate) fn load(reader: &Reader) -> Result<Hooks, String> {
        let mut hooks = Hooks::default();
        let (mut from, to) = keys::hooks();
        loop {
            let pairs = reader.range(&from, &to, LOAD_SLICE).map_err(|error| error.to_string())?;
            let full = pairs.len() == LOAD_SLICE;
            for (key, value) in pairs {
                let hook = record::decode_hook(&value).map_err(|error| error.to_string())?;
                hooks.put(Arc::new(hook));
                from = above(&key);
            }
            if !full {
                return Ok(hooks);
            }
        }
    }

    /// A hook is new, or has changed.
    pub(crate) fn put(&mut self, hook: Arc<Hook>) {
        if let Some(before) = self.by_id.get(&hook.id).cloned() {
            self.by_identity.remove(&(before.tenant.clone(), before.spec.identity()));
        } else {
            let HookSpec::Events(spec) = &hook.spec;
            let matcher = self.matchers.entry(hook.tenant.clone()).or_default();
            matcher.insert(&spec.pattern, hook.id.0);
            self.by_name.insert(hook.name.clone(), hook.id);
        }
        self.by_identity.insert((hook.tenant.clone(), hook.spec.identity()), hook.id);
        self.by_id.insert(hook.id, hook);
    }

    /// A hook has ended.
    pub(crate) fn remove(&mut self, hook: &Hook) {
        let HookSpec::Events(spec) = &hook.spec;
        if let Some(matcher) = self.matchers.get_mut(&hook.tenant) {
            matcher.remove(&spec.pattern, hook.id.0);
            if matcher.is_empty() {
                self.matchers.remove(&hook.tenant);
            }
        }
        self.by_identity.remove(&(hook.tenant.clone(), hook.spec.identity()));
        self.by_name.remove(&hook.name);
        self.by_id.remove(&hook.id);
    }

    /// The hook of this number.
    pub fn get(&self, id: HookId) -> Option<&Arc<Hook>> {
        self.by_id.get(&id)
    }

    /// The hook of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Hook>> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// The hook of a tenant that has this in common with none of its others.
    pub fn identical(&self, tenant: &Tenant, identity: Identity) -> Option<HookId> {
        self.by_identity.get(&(tenant.clone(), identity)).copied()
    }

    /// The hooks that are for events of this type, active or not, oldest first.
    pub fn matching(&self, tenant: &Tenant, kind: &EventType) -> Vec<Arc<Hook>> {
        self.matching_after(tenant, kind, HookId(0))
    }

    /// The same, but for those up to one.
    pub fn matching_after(
        &self,
        tenant: &Tenant,
        kind: &EventType,
        after: HookId,
    ) -> Vec<Arc<Hook>> {
        let Some(matcher) = self.matchers.get(tenant) else {
            return Vec::new();
        };
        let mut ids = Vec::new();
        matcher.matches(kind, &mut ids);
        let rest = ids.into_iter().map(HookId).filter(|id| *id > after);
        rest.filter_map(|id| self.by_id.get(&id)).cloned().collect()
    }

    /// The hooks of a tenant, or of all, oldest first.
    pub fn of(&self, tenant: Option<&Tenant>) -> Vec<Arc<Hook>> {
        let mine = |hook: &&Arc<Hook>| tenant.is_none_or(|tenant| hook.tenant == *tenant);
        let mut all: Vec<Arc<Hook>> = self.by_id.values().filter(mine).cloned().collect();
        all.sort_by_key(|hook| hook.id);
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
