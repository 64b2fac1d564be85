//! Documents, their changes and what is remembered of writes, told once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_core::document::idempotency::WriteEnd;
use reveille_core::document::index::IndexDefinition;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::{Millis, Tenant};
use reveille_schema::documents::DocumentTimer;

use super::action::{Action, OpKind, Outcome, PlainOp, Refusal, Told, Transaction, object};
use crate::base::engine::AnyTimer;

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) tenants: BTreeMap<Tenant, TenantModel>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct TenantModel {
    /// By path, tombstones too.
    pub(super) documents: BTreeMap<&'static str, PlainDocument>,
    /// All that ever were: the messages, with their times.
    pub(super) changes: Vec<(Millis, Arc<str>)>,
    lsn: Option<(u64, u64)>,
    /// By key: which body, how it ended, until when that counts.
    pub(super) outcomes: BTreeMap<u8, (u8, WriteEnd, Millis)>,
    /// Those that are wanted.
    pub(super) indexes: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct PlainDocument {
    pub(super) version: u64,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
    pub(super) data: Option<BTreeMap<&'static str, String>>,
}

/// A definition as it is compared.
pub(super) fn index_name(definition: &IndexDefinition) -> String {
    format!("{definition:?}")
}

impl Model {
    pub(super) fn last_seq(&self, tenant: &Tenant) -> u64 {
        self.tenants.get(tenant).map_or(0, |tenant| tenant.changes.len() as u64)
    }

    /// What an action comes to.
    pub(super) fn apply(
        &mut self,
        action: &Action,
        now: Millis,
        ttls: &DocumentSettings,
    ) -> Outcome {
        match action {
            Action::Write(write) => {
                let of_tenant = self.tenants.entry(write.tenant.clone()).or_default();
                return of_tenant.write(write, now, ttls);
            }
            Action::Declare { tenant, definitions } => {
                let names = definitions.iter().map(index_name);
                self.tenants.entry(tenant.clone()).or_default().indexes = names.collect();
            }
            Action::Timer(timer) => {
                if let AnyTimer::Face(name) = &timer.timer
                    && let Some(DocumentTimer::PurgeTombstone(tenant, path)) =
                        DocumentTimer::decode(name)
                    && let Some(of_tenant) = self.tenants.get_mut(&tenant)
                {
                    let path = path.to_string();
                    let is_old = |it: &PlainDocument| {
                        it.data.is_none() && it.updated_at + ttls.tombstone_ttl_ms <= now
                    };
                    of_tenant.documents.retain(|at, it| **at != *path || !is_old(it));
                }
            }
            Action::Trim { .. } | Action::Sweep(_) => {}
        }
        Ok(Told::Done)
    }
}

impl TenantModel {
    fn write(&mut self, write: &Transaction, now: Millis, ttls: &DocumentSettings) -> Outcome {
        if let Some((key, body)) = write.tag
            && let Some((first, end, expires)) = self.outcomes.get(&key)
            && now < *expires
        {
            return if *first == body { Ok(Told::Repeated(*end)) } else { Err(Refusal::OtherBody) };
        }
        let (end, told) = match &write.verdict {
            Some(verdict) => {
                for (path, version) in &verdict.versions {
                    let known = self.documents.get(path.to_string().as_str());
                    if known.map(|it| it.version) != *version {
                        return Err(Refusal::Conflict);
                    }
                }
                match verdict.denied {
                    Some(at) => (WriteEnd::RuleDenied, Told::Denied(at)),
                    None => self.apply_all(write, now),
                }
            }
            None => self.apply_all(write, now),
        };
        if let Some((key, body)) = write.tag {
            self.outcomes.insert(key, (body, end, now + ttls.idempotency_ttl_ms));
        }
        Ok(told)
    }

    /// All of them, or none.
    fn apply_all(&mut self, write: &Transaction, now: Millis) -> (WriteEnd, Told) {
        let mut done = self.clone();
        let mut versions = Vec::new();
        for op in &write.ops {
            match done.apply(write, op, now) {
                Ok(version) => versions.push(version),
                Err(end) => return (end, Told::Failed(end)),
            }
        }
        *self = done;
        (WriteEnd::Success, Told::Written(versions))
    }

    fn apply(&mut self, write: &Transaction, op: &PlainOp, now: Millis) -> Result<u64, WriteEnd> {
        let Transaction { tenant, origin, .. } = write;
        let before = self.documents.get(op.path).cloned().unwrap_or_default();
        let is_live = before.data.is_some();
        match op.kind {
            OpKind::Create if is_live => return Err(WriteEnd::PreconditionFailed),
            OpKind::Patch | OpKind::Delete if !is_live => return Err(WriteEnd::NotFound),
            _ if op.version.is_some_and(|version| !is_live || version != before.version) => {
                return Err(WriteEnd::PreconditionFailed);
            }
            _ => {}
        }
        let data = match op.kind {
            OpKind::Create | OpKind::Set => Some(op.fields()),
            OpKind::Patch => before.data.clone().map(|mut data| {
                data.insert("y", op.value.to_string());
                data
            }),
            OpKind::Delete => None,
        };
        let updated_at = now.max(before.updated_at);
        let created_at = if is_live { before.created_at } else { updated_at };
        let after = PlainDocument { version: before.version + 1, created_at, updated_at, data };
        let kind = match (is_live, after.data.is_some()) {
            (false, _) => "create",
            (true, true) => "update",
            (true, false) => "delete",
        };
        let second = now.0 / 1_000;
        let lsn = match self.lsn {
            Some((last, ordinal)) if last >= second => (last, ordinal + 1),
            _ => (second, 0),
        };
        self.lsn = Some(lsn);
        let (collection, id) = op.path.rsplit_once('/').expect("a path has an id");
        let message = format!(
            "{{\"seq\":{},\"lsn\":\"{}:{}\",\"tenant\":\"{tenant}\",\"type\":\"{kind}\",\
             \"path\":\"{}\",\"collection\":\"{collection}\",\"id\":\"{id}\",\"before\":{},\
             \"after\":{},\"ts\":{}{}}}",
            self.changes.len() + 1,
            lsn.0,
            lsn.1,
            op.path,
            before.shown(collection, id),
            after.shown(collection, id),
            lsn.0,
            shown_origin(origin),
        );
        self.changes.push((now, message.into()));
        let version = after.version;
        self.documents.insert(op.path, after);
        Ok(version)
    }
}

/// What a change says of the triggers that led to it, if any did.
fn shown_origin(origin: &[&str]) -> String {
    let Some(last) = origin.last() else { return String::new() };
    let chain: Vec<_> = origin.iter().map(|trigger| format!("\"{trigger}\"")).collect();
    format!(
        ",\"origin\":{{\"trigger\":\"{last}\",\"depth\":{},\"chain\":[{}]}}",
        origin.len(),
        chain.join(",")
    )
}

impl PlainDocument {
    /// As everybody sees it, as JSON.
    pub(super) fn shown(&self, collection: &str, id: &str) -> String {
        let Some(data) = &self.data else { return "null".to_owned() };
        let data = object(data);
        let data = data.strip_prefix('{').expect("an object");
        format!(
            "{{\"id\":\"{id}\",\"collection\":\"{collection}\",\"version\":{},\"createdAt\":{},\
             \"updatedAt\":{},{data}",
            self.version, self.created_at.0, self.updated_at.0,
        )
    }
}
