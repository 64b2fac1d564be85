//! Subscriptions, by what they are for, by what no two may have alike, and by whose they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::fact::garden::GardenNo;
use reveille_core::fact::name::ScopeId;
use reveille_core::fact::subscription::{Dedup, FactEventKind};
use reveille_core::fact::target::Target;
use reveille_core::fact::{EntityUri, FACE, Scope};
use reveille_core::steps::Steps;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::facts::{CancelledRecord, FactSubject, SubscriptionSpec};
use reveille_schema::{Record, keys, record};

use crate::app::{IndexPart, Indexes};
use crate::deliveries::index::HookIndex;
use crate::deliveries::spread::{MatchingHook, MatchingHooks};
use crate::records::damaged;

/// The subscriptions of all tenants, and those that were cancelled.
#[derive(Default)]
pub struct SubscriptionIndex {
    /// Whoever is here wants just these events: nobody is looked at in vain.
    by_interest: HashMap<(Tenant, Interest), BTreeSet<HookId>>,
    by_dedup: HashMap<(Tenant, Dedup), HookId>,
    by_owner: HashMap<(Tenant, EntityUri), BTreeMap<HookId, Arc<str>>>,
    specs: HashMap<HookId, Arc<SubscriptionSpec>>,
    by_key: HashMap<Bytes, (Tenant, HookId)>,
    cancelled: HashMap<Tenant, BTreeSet<(Millis, Arc<str>)>>,
    cancelled_by_key: HashMap<Bytes, CancelledPlace>,
}

struct CancelledPlace {
    at: Millis,
    owner: (Tenant, EntityUri),
    hook: HookId,
    name: Arc<str>,
}

/// A kind of events, and what they are about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Interest {
    kind: FactEventKind,
    entity: Option<EntityUri>,
    within: Within,
}

/// What events are limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Within {
    Global,
    Scope(Scope),
    Garden(GardenNo),
}

/// Whom is asked for.
pub(crate) struct EventQuery<'a> {
    pub(crate) tenant: &'a Tenant,
    pub(crate) kind: FactEventKind,
    pub(crate) subject: &'a FactSubject,
    /// Those that come after one.
    pub(crate) after: HookId,
    pub(crate) limit: usize,
    pub(crate) accepts: &'a dyn Fn(&Hook) -> bool,
}

impl IndexPart for SubscriptionIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks(), keys::all_cancelled()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if let Some((tenant, name)) = keys::parse_cancelled(key) {
            return self.follow_cancelled(key, tenant, name, value);
        }
        if let Some((tenant, id)) = self.by_key.remove(key)
            && let Some(spec) = self.specs.remove(&id)
        {
            self.forget(&tenant, id, &spec);
        }
        let hook = value.map(|value| record::decode_hook(value)).transpose().map_err(damaged)?;
        let Some(hook) = hook.filter(|hook| hook.face == FACE) else { return Ok(()) };
        let spec = SubscriptionSpec::decode(&hook.spec).map_err(damaged)?;
        let Hook { id, tenant, name, .. } = hook;
        for interest in interests(&spec) {
            self.by_interest.entry((tenant.clone(), interest)).or_default().insert(id);
        }
        let subscriber = spec.spec.subscriber.clone();
        self.by_dedup.insert((tenant.clone(), spec.spec.wanted.dedup(&subscriber)), id);
        self.by_owner.entry((tenant.clone(), subscriber)).or_default().insert(id, name);
        self.specs.insert(id, Arc::new(spec));
        self.by_key.insert(key.clone(), (tenant, id));
        Ok(())
    }
}

impl SubscriptionIndex {
    fn forget(&mut self, tenant: &Tenant, id: HookId, spec: &SubscriptionSpec) {
        for interest in interests(spec) {
            let place = (tenant.clone(), interest);
            if let Some(ids) = self.by_interest.get_mut(&place) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_interest.remove(&place);
                }
            }
        }
        let subscriber = &spec.spec.subscriber;
        let dedup = (tenant.clone(), spec.spec.wanted.dedup(subscriber));
        // One that took its place in the same step stays.
        if self.by_dedup.get(&dedup) == Some(&id) {
            self.by_dedup.remove(&dedup);
        }
        // So does what is remembered of one that was cancelled in this step.
        let owner = (tenant.clone(), subscriber.clone());
        let name = self.by_owner.get(&owner).and_then(|owned| owned.get(&id));
        let is_cancelled =
            |name| self.cancelled_by_key.contains_key(&keys::cancelled(tenant, name));
        if !name.is_some_and(|name| is_cancelled(name)) {
            self.forget_owned(owner, id);
        }
    }

    fn forget_owned(&mut self, owner: (Tenant, EntityUri), id: HookId) {
        if let Some(owned) = self.by_owner.get_mut(&owner) {
            owned.remove(&id);
            if owned.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    fn follow_cancelled(
        &mut self,
        key: &Bytes,
        tenant: Tenant,
        name: Arc<str>,
        value: Option<&Bytes>,
    ) -> Result<(), Damaged> {
        if let Some(CancelledPlace { at, owner, hook, name }) = self.cancelled_by_key.remove(key) {
            if let Some(of_tenant) = self.cancelled.get_mut(&owner.0) {
                of_tenant.remove(&(at, name));
                if of_tenant.is_empty() {
                    self.cancelled.remove(&owner.0);
                }
            }
            self.forget_owned(owner, hook);
        }
        let Some(value) = value else { return Ok(()) };
        let record = CancelledRecord::decode(value).map_err(damaged)?;
        let CancelledRecord { subscription, hook, cancelled, .. } = record;
        self.cancelled.entry(tenant.clone()).or_default().insert((cancelled.at, name.clone()));
        let owner = (tenant, subscription.spec.subscriber);
        self.by_owner.entry(owner.clone()).or_default().insert(hook, name.clone());
        let place = CancelledPlace { at: cancelled.at, owner, hook, name };
        self.cancelled_by_key.insert(key.clone(), place);
        Ok(())
    }

    /// What somebody wishes; `None` if it is no subscription to facts.
    pub fn spec(&self, id: HookId) -> Option<&Arc<SubscriptionSpec>> {
        self.specs.get(&id)
    }

    /// The subscription of a tenant that is the same.
    pub fn identical(&self, tenant: &Tenant, dedup: Dedup) -> Option<HookId> {
        self.by_dedup.get(&(tenant.clone(), dedup)).copied()
    }

    /// The youngest subscriptions of somebody that are older than one, cancelled ones too; at most
    /// so many.
    pub fn older(
        &self,
        tenant: &Tenant,
        owner: &EntityUri,
        than: HookId,
        limit: usize,
    ) -> Vec<(HookId, Arc<str>)> {
        let owned = self.by_owner.get(&(tenant.clone(), owner.clone()));
        let older = owned.into_iter().flat_map(|owned| owned.range(..than).rev());
        older.take(limit).map(|(id, name)| (*id, name.clone())).collect()
    }

    /// How many subscriptions somebody has, cancelled ones too.
    pub fn count(&self, tenant: &Tenant, owner: &EntityUri) -> usize {
        self.by_owner.get(&(tenant.clone(), owner.clone())).map_or(0, BTreeMap::len)
    }

    /// Of a tenant that has so many that were cancelled, the one that was so first.
    pub(crate) fn cancelled_first(&self, tenant: &Tenant, if_at_least: usize) -> Option<&Arc<str>> {
        let cancelled = self.cancelled.get(tenant).filter(|all| all.len() >= if_at_least)?;
        cancelled.first().map(|(_, name)| name)
    }
}

/// Everything that a subscription is for.
fn interests(spec: &SubscriptionSpec) -> Vec<Interest> {
    let wanted = &spec.spec.wanted;
    let within = match (&wanted.scope, spec.spec.garden) {
        (ScopeId::Global, _) => Within::Global,
        (ScopeId::One(scope), _) => Within::Scope(*scope),
        (ScopeId::Garden(_), Some(garden)) => Within::Garden(garden),
        // A garden that there is not has no events.
        (ScopeId::Garden(_), None) => return Vec::new(),
    };
    let entity = match &wanted.target {
        Target::Entity(entity) => Some(entity.clone()),
        Target::Scope(_) => None,
    };
    let of_kind = |kind| Interest { kind, entity: entity.clone(), within };
    wanted.filter.kinds().map(of_kind).collect()
}

/// The first subscriptions that an event is for. If looking for more of them takes too many steps,
/// those that were found until then: `through` says how far. It always comes further.
pub(crate) fn matching(
    index: &Indexes,
    query: &EventQuery<'_>,
    steps: &mut Steps,
) -> MatchingHooks {
    let (subscriptions, known) = (index.of::<SubscriptionIndex>(), index.of::<HookIndex>());
    let FactSubject { scope, garden, entity } = query.subject;
    let withins = [Within::Global, Within::Scope(*scope)];
    let withins = withins.into_iter().chain(garden.map(Within::Garden));
    let entities = [None, Some(entity.clone())];
    let lists = withins.flat_map(|within| entities.clone().map(|entity| (within, entity)));
    let begin = (Bound::Excluded(query.after), Bound::Unbounded);
    let mut lists: Vec<_> = lists
        .filter_map(|(within, entity)| {
            let interest = Interest { kind: query.kind, entity, within };
            let ids = subscriptions.by_interest.get(&(query.tenant.clone(), interest))?;
            Some(ids.range(begin).peekable())
        })
        .collect();
    let mut found = MatchingHooks { complete: true, ..MatchingHooks::after(query.after) };
    loop {
        // Each is in one of a few lists: the oldest of their firsts is the next.
        let next = lists.iter_mut().filter_map(|list| list.peek().copied().copied()).min();
        let Some(id) = next else { return found };
        if found.hooks.len() == query.limit || steps.is_exceeded() {
            found.complete = false;
            return found;
        }
        for list in &mut lists {
            list.next_if(|it| **it == id);
        }
        steps.count(1);
        found.through = id;
        let hook = known.get(id).filter(|hook| (query.accepts)(hook));
        found.hooks.extend(hook.cloned().map(MatchingHook::from));
    }
}
