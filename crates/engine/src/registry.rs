//! The subscriptions of a partition, in memory: which of them are for a stream.

use std::collections::HashMap;
use std::sync::Arc;

use reveille_core::condition::WakeCondition;
use reveille_core::consumer::Dialect;
use reveille_core::delivery::hook::Hook;
use reveille_core::fan_out::IdRange;
use reveille_core::key_range::above;
use reveille_core::matcher::Matcher;
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{StreamPath, Tenant};
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use crate::hooks::Hooks;

/// Subscriptions that are read at once when a partition opens.
const LOAD_SLICE: usize = 1_024;

/// All subscriptions, by name, by number and by what they match.
#[derive(Default)]
pub struct Registry {
    by_id: HashMap<SubscriptionId, Arc<Subscription>>,
    by_name: HashMap<(Tenant, Dialect, Arc<str>), SubscriptionId>,
    matchers: HashMap<Tenant, Matcher<u64>>,
    conditions: HashMap<SubscriptionId, Arc<WakeCondition>>,
    /// Who gets deliveries.
    pub hooks: Hooks,
    /// Whether anybody follows a stream by name; never taken back until the next start.
    pub(crate) any_followers: bool,
}

/// Some of the subscriptions whose pattern matches a stream.
pub struct Matching {
    pub found: Vec<Arc<Subscription>>,
    /// The youngest of the others, if there are more.
    pub rest: Option<SubscriptionId>,
}

/// A change that a decision made.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Added(Arc<Subscription>),
    Removed(Arc<Subscription>),
    Followed,
    Hooked(Arc<Hook>),
    Unhooked(Arc<Hook>),
}

impl Registry {
    /// What is stored.
    pub(crate) fn load(reader: &Reader) -> Result<Registry, String> {
        let mut registry = Registry::default();
        let (mut from, to) = keys::subscriptions();
        loop {
            let pairs = reader.range(&from, &to, LOAD_SLICE).map_err(|error| error.to_string())?;
            let full = pairs.len() == LOAD_SLICE;
            for (key, value) in pairs {
                let subscription =
                    record::decode_subscription(&value).map_err(|error| error.to_string())?;
                registry.add(Arc::new(subscription));
                from = above(&key);
            }
            if !full {
                break;
            }
        }
        let (from, to) = keys::all_followers();
        let followers = reader.keys(&from, &to, 1).map_err(|error| error.to_string())?;
        registry.any_followers = !followers.is_empty();
        registry.hooks = Hooks::load(reader)?;
        Ok(registry)
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Added(subscription) => self.add(subscription),
            Change::Removed(subscription) => self.remove(&subscription),
            Change::Followed => self.any_followers = true,
            Change::Hooked(hook) => self.hooks.put(hook),
            Change::Unhooked(hook) => self.hooks.remove(&hook),
        }
    }

    fn add(&mut self, subscription: Arc<Subscription>) {
        let spec = &subscription.spec;
        if let Some(pattern) = &spec.pattern {
            let matcher = self.matchers.entry(subscription.tenant.clone()).or_default();
            matcher.insert(pattern, subscription.id.0);
        }
        // It was read when the subscription was made; one that cannot be read any more makes every
        // wake wait for as long as it may.
        let condition =
            spec.coalescing.wake_if.as_ref().and_then(|it| WakeCondition::parse(it).ok());
        if let Some(condition) = condition {
            self.conditions.insert(subscription.id, Arc::new(condition));
        }
        let name = (subscription.tenant.clone(), spec.dialect, spec.name.clone());
        self.by_name.insert(name, subscription.id);
        self.by_id.insert(subscription.id, subscription);
    }

    fn remove(&mut self, subscription: &Subscription) {
        let spec = &subscription.spec;
        if let Some(pattern) = &spec.pattern
            && let Some(matcher) = self.matchers.get_mut(&subscription.tenant)
        {
            matcher.remove(pattern, subscription.id.0);
            if matcher.is_empty() {
                self.matchers.remove(&subscription.tenant);
            }
        }
        self.by_name.remove(&(subscription.tenant.clone(), spec.dialect, spec.name.clone()));
        self.by_id.remove(&subscription.id);
        self.conditions.remove(&subscription.id);
    }

    /// The condition under which a subscription's work is worth a wake.
    pub(crate) fn condition(&self, id: SubscriptionId) -> Option<&WakeCondition> {
        self.conditions.get(&id).map(Arc::as_ref)
    }

    /// A subscription that has not ended.
    pub fn get(&self, id: SubscriptionId) -> Option<&Arc<Subscription>> {
        self.by_id.get(&id)
    }

    /// The subscription of this name.
    pub fn named(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
        name: &Arc<str>,
    ) -> Option<&Arc<Subscription>> {
        let id = self.by_name.get(&(tenant.clone(), dialect, name.clone()))?;
        self.by_id.get(id)
    }

    /// The first subscriptions in a stretch whose pattern matches a stream, oldest first.
    pub fn matching(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        stretch: IdRange,
        limit: usize,
    ) -> Matching {
        let mut ids = Vec::new();
        if let Some(matcher) = self.matchers.get(tenant) {
            matcher.matches(path, &mut ids);
        }
        ids.retain(|id| stretch.contains(SubscriptionId(*id)));
        let youngest = ids.last().copied().map(SubscriptionId);
        let first = ids.iter().take(limit);
        let found = first.filter_map(|id| self.by_id.get(&SubscriptionId(*id)));
        let found: Vec<_> = found.cloned().collect();
        let rest = youngest.filter(|_| ids.len() > limit);
        Matching { found, rest }
    }

    /// Whether any subscription's pattern matches a stream.
    pub fn is_matched(&self, tenant: &Tenant, path: &StreamPath) -> bool {
        let mut ids = Vec::new();
        if let Some(matcher) = self.matchers.get(tenant) {
            matcher.matches(path, &mut ids);
        }
        !ids.is_empty()
    }

    /// The subscriptions of a tenant in one dialect, by name.
    pub fn of(&self, tenant: &Tenant, dialect: Dialect) -> Vec<Arc<Subscription>> {
        let mine = |it: &&Arc<Subscription>| it.tenant == *tenant && it.spec.dialect == dialect;
        let mut all: Vec<_> = self.by_id.values().filter(mine).cloned().collect();
        all.sort_by(|left, right| left.spec.name.cmp(&right.spec.name));
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
