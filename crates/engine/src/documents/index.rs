//! What memory knows for decisions: the indexes of each tenant, and which rules it has.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_kernel::error::Damaged;
use reveille_schema::documents::{IndexNo, IndexRecord, RulesRecord};
use reveille_schema::{Record, keys};

use crate::app::{IndexPart, Txn};
use crate::records::damaged;

/// What tenants have declared.
#[derive(Default)]
pub struct DocumentIndex {
    by_tenant: HashMap<Tenant, Declared>,
}

#[derive(Default)]
struct Declared {
    indexes: BTreeMap<IndexNo, IndexRecord>,
    /// The number of its rules.
    rules: Option<u64>,
}

impl IndexPart for DocumentIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_indexes(), keys::all_rules()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let unreadable = || Damaged::new("the key of an index or of rules is damaged");
        let tenant = if let Some((tenant, no)) = keys::parse_index(key) {
            let index = value.map(|value| IndexRecord::decode(value)).transpose();
            let indexes = &mut self.by_tenant.entry(tenant.clone()).or_default().indexes;
            match index.map_err(damaged)? {
                Some(index) => indexes.insert(no, index),
                None => indexes.remove(&no),
            };
            tenant
        } else {
            let tenant = keys::parse_rules(key).ok_or_else(unreadable)?;
            let version = value.map(|value| RulesRecord::decode_version(value)).transpose();
            self.by_tenant.entry(tenant.clone()).or_default().rules = version.map_err(damaged)?;
            tenant
        };
        let is_empty =
            |declared: &Declared| declared.indexes.is_empty() && declared.rules.is_none();
        if self.by_tenant.get(&tenant).is_some_and(is_empty) {
            self.by_tenant.remove(&tenant);
        }
        Ok(())
    }
}

impl DocumentIndex {
    /// As decisions see it.
    pub(super) fn of_txn<'a>(txn: &Txn<'a>) -> &'a DocumentIndex {
        txn.index().of::<DocumentIndex>()
    }

    /// The indexes of a tenant, those that are being removed too.
    pub fn indexes(&self, tenant: &Tenant) -> impl Iterator<Item = (IndexNo, &IndexRecord)> {
        let declared = self.by_tenant.get(tenant).into_iter();
        declared.flat_map(|it| it.indexes.iter().map(|(no, index)| (*no, index)))
    }

    pub(super) fn get(&self, tenant: &Tenant, no: IndexNo) -> Option<&IndexRecord> {
        self.by_tenant.get(tenant)?.indexes.get(&no)
    }

    /// Which rules a tenant has.
    pub fn rules(&self, tenant: &Tenant) -> Option<u64> {
        self.by_tenant.get(tenant)?.rules
    }
}
