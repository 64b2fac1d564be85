//! The triggers of each tenant, in memory: those that a change may be for are found by where its
//! document is.
//!
//! What a tenant has is shared with whoever looks at a write away from the lock: they take it as it
//! is, and the decision sees by the very same pointers what has stayed as it was.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::FACE;
use reveille_core::document::path::DocumentPath;
use reveille_core::trigger::Definition;
use reveille_kernel::error::Damaged;
use reveille_schema::triggers::{StoredDefinition, TriggerRecord};
use reveille_schema::{Record, keys, record};

use crate::app::{IndexPart, Txn};
use crate::records::damaged;

/// All triggers, and how many secrets each tenant has.
#[derive(Default)]
pub struct TriggerIndex {
    by_tenant: HashMap<Tenant, Arc<TenantTriggers>>,
    by_key: HashMap<Bytes, (Tenant, HookId)>,
    secrets: HashMap<Tenant, usize>,
    secret_keys: BTreeSet<Bytes>,
}

/// What one tenant has: nobody's patterns are looked at for another's changes.
#[derive(Debug, Clone, Default)]
pub struct TenantTriggers {
    entries: BTreeMap<HookId, Arc<TriggerEntry>>,
    /// By the collection or document that a pattern without wildcards names.
    by_place: HashMap<Arc<str>, BTreeSet<HookId>>,
    /// Those with wildcards.
    wild: BTreeSet<HookId>,
}

/// A trigger, with all that changes may be held against.
#[derive(Debug)]
pub struct TriggerEntry {
    pub hook: Arc<Hook>,
    pub record: TriggerRecord,
    pub current: Epoch,
    /// What was in force before, for changes that are still being told; oldest first.
    former: Vec<(EventNo, Epoch)>,
    /// What runs dry beside it.
    pub candidate: Option<Arc<Definition>>,
    /// Changes of which the condition was false, since the start: a thousand triggers may be asked
    /// about one write, so each counts for itself, and nobody waits for another.
    missed: Arc<AtomicU64>,
}

/// What is in force at some time.
#[derive(Debug, Clone)]
pub struct Epoch {
    pub version: u64,
    pub definition: Arc<Definition>,
    /// Whom the documents follow that the version is not for.
    pub stable: Option<(u64, Arc<Definition>)>,
}

/// The definition of a trigger, of the version that a hook is.
pub fn definition_of(hook: &Hook) -> Result<Arc<Definition>, Damaged> {
    let record = TriggerRecord::decode(&hook.spec).map_err(damaged)?;
    read_definition(&record.definition)
}

/// A definition as it is stored.
pub(super) fn read_definition(stored: &[u8]) -> Result<Arc<Definition>, Damaged> {
    let definition = Definition::from_stored(stored);
    definition.map(Arc::new).map_err(|error| Damaged(format!("a stored trigger: {error}")))
}

impl IndexPart for TriggerIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks(), keys::all_trigger_secrets()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if let Some((tenant, _)) = keys::parse_trigger_secret(key) {
            self.follow_secret(tenant, key, value.is_some());
            return Ok(());
        }
        let hook = value.map(|value| record::decode_hook(value)).transpose().map_err(damaged)?;
        let hook = hook.filter(|hook| hook.face == FACE);
        let before = self.by_key.remove(key);
        let removed = before.and_then(|(tenant, id)| {
            let triggers = Arc::make_mut(self.by_tenant.get_mut(&tenant)?);
            triggers.remove(id)
        });
        if let Some(hook) = hook {
            let (tenant, id) = (hook.tenant.clone(), hook.id);
            let entry = TriggerEntry::read(hook, removed.as_deref())?;
            let triggers = self.by_tenant.entry(tenant.clone()).or_default();
            Arc::make_mut(triggers).insert(Arc::new(entry));
            self.by_key.insert(key.clone(), (tenant, id));
        } else if let Some(removed) = removed {
            let tenant = &removed.hook.tenant;
            if self.by_tenant.get(tenant).is_some_and(|it| it.entries.is_empty()) {
                self.by_tenant.remove(tenant);
            }
        }
        Ok(())
    }
}

impl TriggerIndex {
    /// What a decision knows of triggers.
    pub(super) fn of_txn<'a>(txn: &Txn<'a>) -> &'a TriggerIndex {
        txn.index().of()
    }

    /// What a tenant has; `None` if it has no triggers.
    pub fn of_tenant(&self, tenant: &Tenant) -> Option<&Arc<TenantTriggers>> {
        self.by_tenant.get(tenant)
    }

    /// The tenants that have any.
    pub fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.by_tenant.keys()
    }

    /// How many triggers a tenant has.
    pub fn count(&self, tenant: &Tenant) -> usize {
        self.by_tenant.get(tenant).map_or(0, |triggers| triggers.entries.len())
    }

    /// How many secrets a tenant has.
    pub fn secret_count(&self, tenant: &Tenant) -> usize {
        self.secrets.get(tenant).copied().unwrap_or(0)
    }

    /// A trigger of a tenant.
    pub fn get(&self, tenant: &Tenant, id: HookId) -> Option<&Arc<TriggerEntry>> {
        self.by_tenant.get(tenant)?.entries.get(&id)
    }

    fn follow_secret(&mut self, tenant: Tenant, key: &Bytes, is_there: bool) {
        let changed = match is_there {
            true => self.secret_keys.insert(key.clone()),
            false => self.secret_keys.remove(key),
        };
        if !changed {
            return;
        }
        let count = self.secrets.entry(tenant.clone()).or_default();
        *count = if is_there { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.secrets.remove(&tenant);
        }
    }
}

impl TenantTriggers {
    pub fn get(&self, id: HookId) -> Option<&Arc<TriggerEntry>> {
        self.entries.get(&id)
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<TriggerEntry>> {
        self.entries.values()
    }

    /// Those that changes of a document may be for, that come after one; in their order.
    pub(super) fn candidates(&self, path: &DocumentPath, after: HookId) -> Vec<&Arc<TriggerEntry>> {
        let bounds = (Bound::Excluded(after), Bound::Unbounded);
        let named = |place: &str| self.by_place.get(place).map(|ids| ids.range(bounds));
        let of_collection = named(path.collection().as_str());
        let of_document = named(&path.to_string());
        let named = of_collection.into_iter().chain(of_document).flatten();
        let mut ids: Vec<HookId> = named.chain(self.wild.range(bounds)).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids.iter().filter_map(|id| self.entries.get(id)).collect()
    }

    fn insert(&mut self, entry: Arc<TriggerEntry>) {
        let id = entry.hook.id;
        for definition in entry.definitions() {
            match definition.collection.literal() {
                Some(place) => {
                    self.by_place.entry(place.into()).or_default().insert(id);
                }
                None => {
                    self.wild.insert(id);
                }
            }
        }
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: HookId) -> Option<Arc<TriggerEntry>> {
        let entry = self.entries.remove(&id)?;
        for definition in entry.definitions() {
            let Some(place) = definition.collection.literal() else { continue };
            if let Some(ids) = self.by_place.get_mut(place) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_place.remove(place);
                }
            }
        }
        self.wild.remove(&id);
        Some(entry)
    }
}

impl TriggerEntry {
    /// A trigger as its hook keeps it.
    pub(super) fn of(hook: Hook) -> Result<TriggerEntry, Damaged> {
        TriggerEntry::read(hook, None)
    }

    /// The same. What it has in common with what it was before is not read again: reading a
    /// condition takes long.
    fn read(hook: Hook, before: Option<&TriggerEntry>) -> Result<TriggerEntry, Damaged> {
        let record = TriggerRecord::decode(&hook.spec).map_err(damaged)?;
        let read = |stored: &Bytes| match before.and_then(|before| before.known(stored)) {
            Some(known) => Ok(known),
            None => read_definition(stored),
        };
        let stable = |stored: &Option<StoredDefinition>| match stored {
            Some(it) => read(&it.definition).map(|definition| Some((it.version, definition))),
            None => Ok(None),
        };
        let current = Epoch {
            version: hook.version,
            definition: read(&record.definition)?,
            stable: stable(&record.stable)?,
        };
        let mut former = Vec::with_capacity(record.former.len());
        for it in &record.former {
            let definition = read(&it.current.definition)?;
            let version = it.current.version;
            former.push((it.until, Epoch { version, definition, stable: stable(&it.stable)? }));
        }
        let candidate = record.candidate.as_ref().map(|it| read(&it.definition)).transpose()?;
        let missed = before.map(|before| before.missed.clone()).unwrap_or_default();
        Ok(TriggerEntry { hook: Arc::new(hook), record, current, former, candidate, missed })
    }

    /// Its condition was false of a change.
    pub(super) fn count_miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so since the start.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// What in force was when a change came, which one that comes now finds in force, too, unless it
    /// is asked for one of before; `None` if that is not known any more.
    pub(super) fn epoch_at(&self, at: Option<EventNo>) -> Option<&Epoch> {
        let Some(at) = at else { return Some(&self.current) };
        if self.record.since <= at {
            return Some(&self.current);
        }
        self.former.iter().find(|(until, _)| at < *until).map(|(_, epoch)| epoch)
    }

    /// Whether changes of then become deliveries.
    pub(super) fn is_sending_at(&self, at: Option<EventNo>) -> bool {
        match at {
            Some(at) => self.hook.was_active_at(at),
            None => self.hook.is_active(),
        }
    }

    /// What runs dry for changes of then.
    pub(super) fn dry_at(&self, at: Option<EventNo>) -> Option<&Arc<Definition>> {
        let has_begun = |since: EventNo| at.is_none_or(|at| since <= at);
        if self.record.dry_since.is_some_and(has_begun) {
            return Some(&self.current.definition);
        }
        let begun = self.record.candidate.as_ref().is_some_and(|it| has_begun(it.since));
        self.candidate.as_ref().filter(|_| begun)
    }

    /// All definitions that are asked about changes of then.
    pub(super) fn read_at(&self, at: Option<EventNo>) -> impl Iterator<Item = &Arc<Definition>> {
        let epoch = self.epoch_at(at).filter(|_| self.is_sending_at(at));
        let of_epoch = epoch.into_iter().flat_map(Epoch::definitions);
        of_epoch.chain(self.dry_at(at))
    }

    /// Whether a change that comes now makes it ask a condition.
    pub(super) fn asks(&self) -> bool {
        self.read_at(None).any(|definition| definition.condition.is_some())
    }

    /// Whether holding it against a change that comes now takes no more than that.
    pub(super) fn is_compiled(&self) -> bool {
        self.read_at(None).all(|definition| definition.is_compiled())
    }

    fn known(&self, stored: &Bytes) -> Option<Arc<Definition>> {
        if *stored == self.record.definition {
            return Some(self.current.definition.clone());
        }
        let of_stable = |stable: &Option<StoredDefinition>| {
            stable.as_ref().is_some_and(|it| it.definition == *stored)
        };
        if of_stable(&self.record.stable) {
            return self.current.stable.as_ref().map(|(_, definition)| definition.clone());
        }
        if self.record.candidate.as_ref().is_some_and(|it| it.definition == *stored) {
            return self.candidate.clone();
        }
        let mut former = self.record.former.iter().zip(&self.former);
        former.find_map(|(record, (_, epoch))| {
            let is_it = record.current.definition == *stored;
            is_it.then(|| epoch.definition.clone())
        })
    }

    /// All that changes may be held against.
    fn definitions(&self) -> impl Iterator<Item = &Arc<Definition>> {
        let epochs = self.former.iter().map(|(_, epoch)| epoch).chain([&self.current]);
        epochs.flat_map(Epoch::definitions).chain(&self.candidate)
    }
}

impl Epoch {
    /// Those that documents follow.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Arc<Definition>> {
        let stable = self.stable.as_ref().map(|(_, definition)| definition);
        [&self.definition].into_iter().chain(stable)
    }
}
