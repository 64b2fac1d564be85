//! The hooks of a partition, in memory, by number and by name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::{keys, record};

use crate::app::{IndexPart, Txn};
use crate::quota::TenantCounts;
use crate::records::damaged;

/// All hooks.
#[derive(Default)]
pub struct HookIndex {
    by_id: HashMap<HookId, Arc<Hook>>,
    /// Tenants may have hooks of the same name.
    by_name: HashMap<(FaceId, Arc<str>), BTreeSet<HookId>>,
    by_key: HashMap<Bytes, HookId>,
    by_age: BTreeSet<HookAge>,
    /// Of one tenant they are numbered in the order in which they were made.
    by_tenant: HashMap<Tenant, BTreeSet<HookId>>,
    counts: TenantCounts,
}

/// A hook's place among all hooks, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookAge {
    pub created_at: Millis,
    pub id: HookId,
}

impl HookAge {
    pub fn of(hook: &Hook) -> HookAge {
        HookAge { created_at: hook.created_at, id: hook.id }
    }
}

impl IndexPart for HookIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if let Some(before) = self.by_key.remove(key).and_then(|id| self.by_id.remove(&id)) {
            let name = (before.face, before.name.clone());
            if let Some(ids) = self.by_name.get_mut(&name) {
                ids.remove(&before.id);
                if ids.is_empty() {
                    self.by_name.remove(&name);
                }
            }
            self.by_age.remove(&HookAge::of(&before));
            if let Some(ids) = self.by_tenant.get_mut(&before.tenant) {
                ids.remove(&before.id);
                if ids.is_empty() {
                    self.by_tenant.remove(&before.tenant);
                }
            }
            self.counts.remove(&before.tenant);
        }
        if let Some(value) = value {
            let hook = Arc::new(record::decode_hook(value).map_err(damaged)?);
            self.by_key.insert(key.clone(), hook.id);
            self.by_name.entry((hook.face, hook.name.clone())).or_default().insert(hook.id);
            self.by_age.insert(HookAge::of(&hook));
            self.by_tenant.entry(hook.tenant.clone()).or_default().insert(hook.id);
            self.counts.add(&hook.tenant);
            self.by_id.insert(hook.id, hook);
        }
        Ok(())
    }
}

impl HookIndex {
    /// What a decision knows of hooks.
    pub fn of_txn<'a>(txn: &Txn<'a>) -> &'a HookIndex {
        txn.index().of()
    }

    /// The hook of this number.
    pub fn get(&self, id: HookId) -> Option<&Arc<Hook>> {
        self.by_id.get(&id)
    }

    /// The hook of this name, whosever it is, for a face that draws the names of its hooks itself; of
    /// several the oldest.
    pub fn named(&self, face: FaceId, name: &str) -> Option<&Arc<Hook>> {
        self.by_id.get(self.by_name.get(&(face, name.into()))?.first()?)
    }

    /// A tenant's hook of this name.
    pub fn of_tenant(&self, face: FaceId, tenant: &Tenant, name: &str) -> Option<&Arc<Hook>> {
        self.by_id.get(self.by_key.get(&keys::hook(face, tenant, name))?)
    }

    /// A tenant's hook of this name, of the first of these faces that has one.
    pub fn of_faces(
        &self,
        mut faces: impl Iterator<Item = FaceId>,
        tenant: &Tenant,
        name: &str,
    ) -> Option<&Arc<Hook>> {
        faces.find_map(|face| self.of_tenant(face, tenant, name))
    }

    /// The youngest hooks of a tenant, or of all, that are older than one; at most so many.
    pub fn older(
        &self,
        tenant: Option<&Tenant>,
        than: Option<HookAge>,
        limit: usize,
    ) -> Vec<Arc<Hook>> {
        let hook = |id: &HookId| self.by_id.get(id).cloned();
        match (tenant, than) {
            (None, None) => {
                self.by_age.iter().rev().take(limit).filter_map(|age| hook(&age.id)).collect()
            }
            (None, Some(than)) => {
                let older = self.by_age.range(..than).rev();
                older.take(limit).filter_map(|age| hook(&age.id)).collect()
            }
            (Some(tenant), than) => {
                let Some(ids) = self.by_tenant.get(tenant) else { return Vec::new() };
                let end = than.map_or(HookId(u64::MAX), |than| than.id);
                ids.range(..end).rev().take(limit).filter_map(hook).collect()
            }
        }
    }

    /// The oldest hooks of a tenant from a number on; at most so many.
    pub fn from(&self, tenant: &Tenant, first: HookId, limit: usize) -> Vec<Arc<Hook>> {
        let Some(ids) = self.by_tenant.get(tenant) else { return Vec::new() };
        ids.range(first..).take(limit).filter_map(|id| self.by_id.get(id).cloned()).collect()
    }

    /// The hooks of a tenant, or of all, oldest first.
    pub fn of(&self, tenant: Option<&Tenant>) -> Vec<Arc<Hook>> {
        let mine = |hook: &&Arc<Hook>| tenant.is_none_or(|tenant| hook.tenant == *tenant);
        let mut all: Vec<Arc<Hook>> = self.by_id.values().filter(mine).cloned().collect();
        all.sort_by_key(|hook| hook.id);
        all
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
