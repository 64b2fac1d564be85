//! Which hooks are for events of a type, in memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::hook::{EventHookSpec, FACE, Identity};
use reveille_core::event::{EventMatcher, EventType};
use reveille_core::matcher::Page;
use reveille_core::steps::Steps;
use reveille_kernel::error::Damaged;
use reveille_schema::events::decode_hook_spec;
use reveille_schema::{keys, record};

use super::hook::EventHook;
use crate::app::{IndexPart, Indexes, Settings};
use crate::deliveries::index::HookIndex;
use crate::deliveries::spread::{MatchingHook, MatchingHooks};
use crate::records::damaged;

/// Hooks for events, by what they match and by what no two may have alike.
#[derive(Default)]
pub struct EventHookIndex {
    by_tenant: HashMap<Tenant, TenantHooks>,
    by_identity: HashMap<(Tenant, Identity), HookId>,
    by_key: HashMap<Bytes, (Tenant, HookId)>,
    specs: HashMap<HookId, Arc<EventHookSpec>>,
    /// Those of which the matcher has more than one pattern.
    repatterned: HashSet<HookId>,
    hash_seed: u64,
}

/// What one tenant has: nobody's patterns are looked at for another's events.
struct TenantHooks {
    matcher: EventMatcher<u64>,
    ids: BTreeSet<HookId>,
}

/// Which of the hooks for events of a type are asked for.
pub(crate) struct HookQuery<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) kind: &'a EventType,
    /// For the event of this number, which came a while ago; `None` for those that come now.
    pub(crate) at: Option<EventNo>,
    /// Those that come after one.
    pub(crate) after: HookId,
    pub(crate) limit: usize,
    pub(crate) accepts: &'a dyn Fn(&Hook) -> bool,
}

impl IndexPart for EventHookIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let hook = value.map(|value| record::decode_hook(value)).transpose().map_err(damaged)?;
        let hook = hook.filter(|hook| hook.face == FACE);
        let spec = hook.as_ref().map(decode_hook_spec).transpose().map_err(damaged)?;
        let mut is_matched = false;
        if let Some((tenant, id)) = self.by_key.remove(key)
            && let Some(before) = self.specs.remove(&id)
        {
            self.by_identity.remove(&(tenant.clone(), before.identity()));
            // Most changes leave alone what is matched, and a matcher is costly to change.
            is_matched = spec.as_ref().is_some_and(|spec| spec.patterns().eq(before.patterns()));
            if !is_matched {
                self.unmatch(&tenant, id, &before);
            }
        }
        if let (Some(Hook { id, tenant, .. }), Some(spec)) = (hook, spec) {
            if !is_matched {
                let seed = self.hash_seed;
                let of_tenant = self.by_tenant.entry(tenant.clone()).or_insert_with(|| {
                    TenantHooks { matcher: EventMatcher::with_seed(seed), ids: BTreeSet::new() }
                });
                for pattern in spec.patterns() {
                    of_tenant.matcher.insert(pattern, id.0);
                }
                of_tenant.ids.insert(id);
                if !spec.former.patterns.is_empty() {
                    self.repatterned.insert(id);
                }
            }
            self.by_identity.insert((tenant.clone(), spec.identity()), id);
            self.by_key.insert(key.clone(), (tenant, id));
            self.specs.insert(id, Arc::new(spec));
        }
        Ok(())
    }
}

impl EventHookIndex {
    pub fn new(settings: &Settings) -> EventHookIndex {
        EventHookIndex { hash_seed: settings.hash_seed, ..EventHookIndex::default() }
    }

    fn unmatch(&mut self, tenant: &Tenant, id: HookId, spec: &EventHookSpec) {
        self.repatterned.remove(&id);
        if let Some(of_tenant) = self.by_tenant.get_mut(tenant) {
            for pattern in spec.patterns() {
                of_tenant.matcher.remove(pattern, id.0);
            }
            of_tenant.ids.remove(&id);
            if of_tenant.ids.is_empty() {
                self.by_tenant.remove(tenant);
            }
        }
    }

    /// Whether a hook that one of its patterns leads to is for the events that are asked about.
    fn is_for(&self, id: HookId, query: &HookQuery<'_>, steps: &mut Steps) -> bool {
        !self.repatterned.contains(&id) || self.matches(id, query, steps)
    }

    /// Whether the pattern that counts is for the events that are asked about.
    fn matches(&self, id: HookId, query: &HookQuery<'_>, steps: &mut Steps) -> bool {
        let Some(spec) = self.specs.get(&id) else { return false };
        let pattern = match query.at {
            Some(event) => spec.pattern_at(event),
            None => Some(&spec.pattern),
        };
        pattern.is_some_and(|it| it.matches_counted(query.kind, steps))
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

/// The first hooks that are for events of a type. If looking for more of them takes too many steps,
/// they are left.
pub(crate) fn matching(index: &Indexes, query: &HookQuery<'_>, steps: &mut Steps) -> MatchingHooks {
    let (matching, known) = (index.of::<EventHookIndex>(), index.of::<HookIndex>());
    let mut found = MatchingHooks::after(query.after);
    let Some(of_tenant) = matching.by_tenant.get(query.tenant) else {
        return MatchingHooks { complete: true, ..found };
    };
    // Those that are not accepted do not count: there may be many.
    while found.hooks.len() < query.limit {
        let limit = query.limit - found.hooks.len();
        let page = Page { after: Some(found.through.0), through: None, limit };
        let Some(matched) = of_tenant.matcher.search(query.kind, page, steps) else {
            return found;
        };
        let hooks = matched.values.iter().filter_map(|id| known.get(HookId(*id)));
        let hooks = hooks.filter(|hook| (query.accepts)(hook));
        let hooks = hooks.filter(|hook| matching.is_for(hook.id, query, steps));
        found.hooks.extend(hooks.cloned().map(MatchingHook::from));
        let last = matched.values.last().copied();
        if matched.highest == last {
            return MatchingHooks { complete: true, ..found };
        }
        found.through = last.map_or(found.through, HookId);
    }
    found
}

/// The same for a slice of what was left, which always comes further: where looking for all at once
/// takes too many steps, hooks are looked at one after another.
pub(crate) fn next_matching(
    index: &Indexes,
    query: &HookQuery<'_>,
    steps: &mut Steps,
) -> MatchingHooks {
    let mut one_by_one = *steps;
    let (matching_hooks, known) = (index.of::<EventHookIndex>(), index.of::<HookIndex>());
    let found = matching(index, query, steps);
    let is_stuck = steps.is_exceeded() && found.through == query.after;
    let Some(of_tenant) = matching_hooks.by_tenant.get(query.tenant).filter(|_| is_stuck) else {
        return found;
    };
    let mut found = MatchingHooks { complete: true, ..MatchingHooks::after(query.after) };
    for id in of_tenant.ids.range((Bound::Excluded(query.after), Bound::Unbounded)) {
        if found.hooks.len() == query.limit || one_by_one.is_exceeded() {
            found.complete = false;
            break;
        }
        found.through = *id;
        one_by_one.count(1);
        let hook = known.get(*id).filter(|hook| (query.accepts)(hook));
        if hook.is_some() && matching_hooks.matches(*id, query, &mut one_by_one) {
            found.hooks.extend(hook.cloned().map(MatchingHook::from));
        }
    }
    steps.count(one_by_one.used());
    found
}

/// All of them.
pub fn matching_all(index: &Indexes, tenant: &Tenant, kind: &EventType) -> Vec<Arc<Hook>> {
    let (after, limit) = (HookId(0), usize::MAX);
    let query = HookQuery { tenant, kind, at: None, after, limit, accepts: &|_| true };
    let found = matching(index, &query, &mut Steps::unlimited());
    found.hooks.into_iter().map(|it| it.hook).collect()
}
