//! The subscriptions of a partition, in memory: which of them are for a stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::condition::WakeCondition;
use reveille_core::consumer::Dialect;
use reveille_core::fan_out::IdRange;
use reveille_core::matcher::Matcher;
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::{keys, record};

use crate::app::{IndexPart, Txn};
use crate::records::damaged;

/// All subscriptions, by name, by number and by what they match.
#[derive(Default)]
pub struct SubscriptionIndex {
    by_id: HashMap<SubscriptionId, Arc<Subscription>>,
    by_name: HashMap<(Tenant, Dialect, Arc<str>), SubscriptionId>,
    by_key: HashMap<Bytes, SubscriptionId>,
    by_tenant: HashMap<Tenant, BTreeSet<SubscriptionId>>,
    matchers: HashMap<Tenant, Matcher<u64>>,
    conditions: HashMap<SubscriptionId, Arc<WakeCondition>>,
    /// Whether anybody follows a stream by name; never taken back until the next start.
    pub(crate) any_followers: bool,
}

/// Some of the subscriptions whose pattern matches a stream.
pub struct Matching {
    pub found: Vec<Arc<Subscription>>,
    /// The youngest of the others, if there are more.
    pub rest: Option<SubscriptionId>,
}

impl Matching {
    /// The youngest of all that match.
    pub(crate) fn youngest(&self) -> Option<SubscriptionId> {
        self.rest.or_else(|| self.found.last().map(|last| last.id))
    }
}

impl IndexPart for SubscriptionIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::subscriptions(), keys::all_followers()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if *key >= keys::all_followers().0 {
            self.any_followers |= value.is_some();
            return Ok(());
        }
        if let Some(before) = self.by_key.remove(key).and_then(|id| self.by_id.get(&id).cloned()) {
            self.remove(&before);
        }
        if let Some(value) = value {
            let subscription = record::decode_subscription(value).map_err(damaged)?;
            self.by_key.insert(key.clone(), subscription.id);
            self.add(Arc::new(subscription));
        }
        Ok(())
    }
}

impl SubscriptionIndex {
    /// What a decision knows of subscriptions.
    pub(crate) fn of_txn<'a>(txn: &Txn<'a>) -> &'a SubscriptionIndex {
        txn.index().of()
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
        self.by_tenant.entry(subscription.tenant.clone()).or_default().insert(subscription.id);
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
        if let Some(ids) = self.by_tenant.get_mut(&subscription.tenant) {
            ids.remove(&subscription.id);
            if ids.is_empty() {
                self.by_tenant.remove(&subscription.tenant);
            }
        }
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

    /// The oldest subscriptions of a tenant from a number on; at most so many.
    pub fn from(
        &self,
        tenant: &Tenant,
        first: SubscriptionId,
        limit: usize,
    ) -> Vec<Arc<Subscription>> {
        let Some(ids) = self.by_tenant.get(tenant) else { return Vec::new() };
        ids.range(first..).take(limit).filter_map(|id| self.by_id.get(id).cloned()).collect()
    }

    /// The first subscriptions in a range whose pattern matches a stream, oldest first.
    pub fn matching(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        range: IdRange,
        limit: usize,
    ) -> Matching {
        let mut ids = Vec::new();
        if let Some(matcher) = self.matchers.get(tenant) {
            matcher.matches(path, &mut ids);
        }
        ids.retain(|id| range.contains(SubscriptionId(*id)));
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
