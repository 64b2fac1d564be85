//! Everything durable, against the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::audit::{ChainCheck, ChainHead};
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::FACE;
use reveille_schema::audit::split_row_value;
use reveille_schema::{Record, keys, record};

use super::Triggers;
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, violation};

impl Triggers {
    pub(super) fn audit_all(&mut self) -> CheckResult {
        for tenant in self.tenants.clone() {
            for hook in self.hooks(&tenant)?.values() {
                self.audit_hook(hook)?;
            }
            self.audit_chain(&tenant)?;
        }
        Ok(())
    }

    /// The triggers of a tenant that are durable.
    pub(super) fn hooks(&self, tenant: &Tenant) -> CheckResult<BTreeMap<HookId, Arc<Hook>>> {
        let found = self.pairs(keys::hooks_of(FACE, tenant))?;
        let hook = |(_, value): &(Bytes, Bytes)| {
            let hook = record::decode_hook(value).map_err(unreadable)?;
            Ok((hook.id, Arc::new(hook)))
        };
        found.iter().map(hook).collect()
    }

    pub(super) fn pairs(&self, (from, to): (Bytes, Bytes)) -> CheckResult<Vec<(Bytes, Bytes)>> {
        self.base.reader().range(&from, &to, usize::MAX).map_err(unreadable)
    }

    /// A trigger has a delivery of every change that it is owed, by the version that was in force,
    /// unless its turn is still to come, and of no other.
    fn audit_hook(&self, hook: &Arc<Hook>) -> CheckResult {
        let Some(known) = self.durable.tenants.get(&hook.tenant) else { return Ok(()) };
        let waiting = self.pairs(keys::fan_outs(FACE, &hook.tenant))?;
        let waiting: BTreeMap<EventNo, u64> = waiting
            .iter()
            .filter_map(|(key, told)| {
                Some((keys::parse_event(key)?, record::decode_u64(told).ok()?))
            })
            .collect();
        let mut begun: BTreeMap<EventNo, u64> = BTreeMap::new();
        for (key, value) in self.pairs(keys::deliveries(hook.id))? {
            let id = keys::parse_delivery(&key).ok_or_else(|| violation("no delivery"))?;
            let record = record::decode_delivery(&value).map_err(unreadable)?;
            begun.insert(id.no.event, record.hook_version);
        }
        for (at, change) in known.changes.iter().enumerate() {
            let key = keys::change_place(&hook.tenant, at as u64 + 1);
            let place = self.base.reader().get(&key).map_err(unreadable)?;
            let Some(place) = place else {
                return Err(violation(format!("change {} has no place", at + 1)));
            };
            let no = EventNo(record::decode_u64(&place).map_err(unreadable)?);
            let is_to_come = waiting.get(&no).is_some_and(|told| *told < hook.id.0);
            let (owed, begun) = (change.owed.get(&hook.id), begun.remove(&no));
            if owed != begun.as_ref() && !(is_to_come && begun.is_none()) {
                return Err(violation(format!(
                    "{} has change {} by {begun:?} and is owed it by {owed:?}: {change:?}",
                    hook.name,
                    at + 1
                )));
            }
        }
        match begun.first_key_value() {
            None => Ok(()),
            Some(extra) => Err(violation(format!("{} has {extra:?} of no change", hook.name))),
        }
    }

    /// The audit log hangs together.
    fn audit_chain(&self, tenant: &Tenant) -> CheckResult {
        let chain = Some(tenant.clone());
        let head = self.base.reader().get(&keys::audit_head(&chain)).map_err(unreadable)?;
        let Some(head) = head else { return Ok(()) };
        let head = ChainHead::decode(&head).map_err(unreadable)?;
        let mut check = ChainCheck::new(head);
        let broken = |error| violation(format!("the audit log: {error}"));
        for (seq, (_, value)) in (0..).zip(self.pairs(keys::audit_rows(&chain, 0, u64::MAX))?) {
            let split = split_row_value(&value).ok_or_else(|| violation("a row is cut short"))?;
            let (hash, row) = split;
            check.row(seq, row, hash).map_err(broken)?;
        }
        check.end().map_err(broken)
    }
}
