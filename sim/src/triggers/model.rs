//! Documents and their changes, told once more: whom each change is owed, by conditions that are
//! written a second time.

use std::collections::BTreeMap;

use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::document::path::DocumentPath;
use reveille_core::trigger::Definition;
use reveille_engine::triggers::index::TriggerIndex;

use crate::base::engine::Engine;

/// What a condition comes to, given a document's number before and after.
type Holds = fn(Option<u64>, u64) -> bool;

/// Conditions, with what they mean. A definition's label says which one it has.
pub(super) const CONDITIONS: [(&str, Holds); 6] = [
    ("true", |_, _| true),
    ("event.document.v > 3", |_, after| after > 3),
    ("event.before != null && event.before.v < event.document.v", |before, after| {
        before.is_some_and(|before| before < after)
    }),
    ("event.document.missing == 1", |_, _| false),
    ("event.type == 'create' && event.timestamp > 0", |before, _| before.is_none()),
    ("event.changed.exists(it, it == 'v')", |before, after| before != Some(after)),
];

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) tenants: BTreeMap<Tenant, TenantModel>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct TenantModel {
    /// The number that each document has.
    pub(super) documents: BTreeMap<DocumentPath, u64>,
    /// The first has the seq 1.
    pub(super) changes: Vec<ChangeModel>,
}

/// A change, and whom it is owed by which version.
#[derive(Debug, Clone)]
pub(super) struct ChangeModel {
    pub(super) tenant: Tenant,
    pub(super) path: DocumentPath,
    pub(super) value: u64,
    pub(super) owed: BTreeMap<HookId, u64>,
}

impl Model {
    pub(super) fn seq(&self, tenant: &Tenant) -> u64 {
        self.tenants.get(tenant).map_or(0, |it| it.changes.len() as u64)
    }

    /// The change that a write is, as it is decided now.
    pub(super) fn change(
        &self,
        engine: &Engine,
        tenant: &Tenant,
        path: &DocumentPath,
        value: u64,
    ) -> ChangeModel {
        let known = self.tenants.get(tenant);
        let before = known.and_then(|it| it.documents.get(path)).copied();
        let mut owed = BTreeMap::new();
        let partition = engine.shared().lock();
        let triggers = partition.index.of::<TriggerIndex>().of_tenant(tenant);
        for entry in triggers.into_iter().flat_map(|it| it.all()) {
            let (epoch, hook) = (&entry.current, &entry.hook);
            let (version, definition) = match &epoch.stable {
                _ if epoch.definition.rollout.covers(tenant, path) => {
                    (epoch.version, &epoch.definition)
                }
                Some((version, definition)) => (*version, definition),
                None => continue,
            };
            if hook.is_active() && is_for(definition, path, before, value) {
                owed.insert(hook.id, version);
            }
        }
        ChangeModel { tenant: tenant.clone(), path: path.clone(), value, owed }
    }

    pub(super) fn apply(&mut self, change: ChangeModel) {
        let of_tenant = self.tenants.entry(change.tenant.clone()).or_default();
        of_tenant.documents.insert(change.path.clone(), change.value);
        of_tenant.changes.push(change);
    }
}

fn is_for(definition: &Definition, path: &DocumentPath, before: Option<u64>, after: u64) -> bool {
    let label = definition.label.as_deref().expect("every definition of this world has one");
    let which: usize = label.parse().expect("a number");
    let is_there = match definition.collection.as_str() {
        "rooms" => path.collection().as_str() == "rooms",
        "us*" => path.collection().as_str() == "users",
        "rooms/1" => path.to_string() == "rooms/1",
        other => panic!("no trigger is for {other}"),
    };
    is_there && CONDITIONS[which].1(before, after)
}
