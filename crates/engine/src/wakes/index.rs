//! The subscriptions of a partition, in memory: which of them are for a stream.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::condition::WakeCondition;
use reveille_core::consumer::Dialect;
use reveille_core::fan_out::IdRange;
use reveille_core::matcher::{Matcher, Page};
use reveille_core::steps::Steps;
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::{keys, record};

use crate::app::{IndexPart, Settings, Txn};
use crate::quota::TenantCounts;
use crate::records::damaged;

/// All subscriptions, by name, by number and by what they match.
#[derive(Default)]
pub struct SubscriptionIndex {
    by_id: HashMap<SubscriptionId, Arc<Subscription>>,
    by_name: HashMap<(Tenant, Dialect, Arc<str>), SubscriptionId>,
    by_key: HashMap<Bytes, SubscriptionId>,
    by_tenant: HashMap<Tenant, TenantSubscriptions>,
    counts: TenantCounts,
    hash_seed: u64,
    conditions: HashMap<SubscriptionId, Arc<WakeCondition>>,
    /// Whether anybody follows a stream by name; never taken back until the next start.
    pub(crate) any_followers: bool,
}

/// What one tenant has: nobody's patterns are looked at for another's streams.
struct TenantSubscriptions {
    matcher: Matcher<u64>,
    /// All of them, also those without a pattern.
    ids: BTreeSet<SubscriptionId>,
}

/// Some of the subscriptions whose pattern matches a stream.
pub struct Matching {
    /// Oldest first.
    pub found: Vec<Arc<Subscription>>,
    /// Nobody who matches and is not younger than this is left out.
    pub through: SubscriptionId,
    /// The youngest that may match beside them, if there are more or were not all looked at.
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

    pub fn new(settings: &Settings) -> SubscriptionIndex {
        SubscriptionIndex { hash_seed: settings.hash_seed, ..SubscriptionIndex::default() }
    }

    fn add(&mut self, subscription: Arc<Subscription>) {
        let spec = &subscription.spec;
        let seed = self.hash_seed;
        let of_tenant = self.by_tenant.entry(subscription.tenant.clone()).or_insert_with(|| {
            TenantSubscriptions { matcher: Matcher::with_seed(seed), ids: BTreeSet::new() }
        });
        if let Some(pattern) = &spec.pattern {
            of_tenant.matcher.insert(pattern, subscription.id.0);
        }
        of_tenant.ids.insert(subscription.id);
        self.counts.add(&subscription.tenant);
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
        if let Some(of_tenant) = self.by_tenant.get_mut(&subscription.tenant) {
            if let Some(pattern) = &spec.pattern {
                of_tenant.matcher.remove(pattern, subscription.id.0);
            }
            of_tenant.ids.remove(&subscription.id);
            if of_tenant.ids.is_empty() {
                self.by_tenant.remove(&subscription.tenant);
            }
        }
        self.counts.remove(&subscription.tenant);
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

    /// The oldest subscriptions of a tenant from a number on; at most so many.
    pub fn from(
        &self,
        tenant: &Tenant,
        first: SubscriptionId,
        limit: usize,
    ) -> Vec<Arc<Subscription>> {
        let Some(of_tenant) = self.by_tenant.get(tenant) else { return Vec::new() };
        let ids = of_tenant.ids.range(first..);
        ids.take(limit).filter_map(|id| self.by_id.get(id).cloned()).collect()
    }

    /// The first subscriptions in a range whose pattern matches a stream. If that takes too many
    /// steps none is found, and all are left.
    pub fn matching(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        range: IdRange,
        limit: usize,
        steps: &mut Steps,
    ) -> Matching {
        let Some(of_tenant) = self.by_tenant.get(tenant) else {
            return Matching { found: Vec::new(), through: range.through, rest: None };
        };
        let (after, through) = (Some(range.after.0), Some(range.through.0));
        let Some(matched) = of_tenant.matcher.search(path, Page { after, through, limit }, steps)
        else {
            let rest = of_tenant.youngest(range);
            return Matching { found: Vec::new(), through: range.after, rest };
        };
        let last = matched.values.last().copied();
        let rest = matched.highest.filter(|highest| last.is_none_or(|last| *highest > last));
        let through = match rest {
            Some(_) => last.map_or(range.after, SubscriptionId),
            None => range.through,
        };
        let ids = matched.values.iter().map(|id| SubscriptionId(*id));
        let found = ids.filter_map(|id| self.by_id.get(&id)).cloned().collect();
        Matching { found, through, rest: rest.map(SubscriptionId) }
    }

    /// The same for a slice of what was left, which always comes further: where looking for all at
    /// once takes too many steps, subscriptions are looked at one after another.
    pub fn next_matching(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        range: IdRange,
        limit: usize,
        steps: &mut Steps,
    ) -> Matching {
        let mut one_by_one = *steps;
        let matching = self.matching(tenant, path, range, limit, steps);
        let Some(of_tenant) = self.by_tenant.get(tenant).filter(|_| steps.is_exceeded()) else {
            return matching;
        };
        let (mut found, mut through) = (Vec::new(), range.after);
        for id in of_tenant.within(range) {
            if found.len() == limit || one_by_one.is_exceeded() {
                steps.count(one_by_one.used());
                return Matching { found, through, rest: of_tenant.youngest(range) };
            }
            through = *id;
            one_by_one.count(1);
            let subscription = self.by_id.get(id);
            let pattern = subscription.and_then(|it| it.spec.pattern.as_ref());
            if pattern.is_some_and(|pattern| pattern.matches_counted(path, &mut one_by_one)) {
                found.extend(subscription.cloned());
            }
        }
        steps.count(one_by_one.used());
        Matching { found, through: range.through, rest: None }
    }

    /// Whether any subscription's pattern matches a stream, or might if that takes too many steps.
    pub fn may_match(&self, tenant: &Tenant, path: &StreamPath, steps: &mut Steps) -> bool {
        let Some(of_tenant) = self.by_tenant.get(tenant) else { return false };
        let page = Page { limit: 1, ..Page::all() };
        of_tenant.matcher.search(path, page, steps).is_none_or(|found| found.highest.is_some())
    }

    /// How many each tenant has.
    pub fn counts(&self) -> &TenantCounts {
        &self.counts
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

impl TenantSubscriptions {
    fn within(&self, range: IdRange) -> impl DoubleEndedIterator<Item = &SubscriptionId> {
        let through = range.through.max(range.after);
        self.ids.range((Bound::Excluded(range.after), Bound::Included(through)))
    }

    fn youngest(&self, range: IdRange) -> Option<SubscriptionId> {
        self.within(range).next_back().copied()
    }
}
