//! Gardens by their slugs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::fact::garden::{GardenNo, GardenSlug};
use reveille_kernel::error::Damaged;
use reveille_schema::facts::GardenRecord;
use reveille_schema::{Record, keys};

use crate::app::IndexPart;
use crate::records::damaged;

/// The gardens of all tenants.
#[derive(Default)]
pub struct GardenIndex {
    by_tenant: HashMap<Tenant, Gardens>,
    /// The slug of one that is not deleted.
    slugs: HashMap<(Tenant, GardenNo), Option<GardenSlug>>,
}

#[derive(Default)]
struct Gardens {
    by_slug: BTreeMap<Arc<str>, GardenNo>,
    closed: BTreeSet<GardenNo>,
}

impl IndexPart for GardenIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_gardens()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let place = keys::parse_garden(key);
        let (tenant, no) = place.ok_or_else(|| Damaged::new("the key of a garden is damaged"))?;
        let record = value.map(|value| GardenRecord::decode(value)).transpose().map_err(damaged)?;
        let gardens = self.by_tenant.entry(tenant.clone()).or_default();
        match self.slugs.remove(&(tenant.clone(), no)) {
            Some(Some(slug)) => drop(gardens.by_slug.remove(slug.as_str())),
            Some(None) => drop(gardens.closed.remove(&no)),
            None => {}
        }
        if let Some(GardenRecord { garden, closed }) = record {
            let slug = closed.is_none().then_some(garden.slug);
            match &slug {
                Some(slug) => drop(gardens.by_slug.insert(slug.to_shared(), no)),
                None => drop(gardens.closed.insert(no)),
            }
            self.slugs.insert((tenant.clone(), no), slug);
        }
        if gardens.by_slug.is_empty() && gardens.closed.is_empty() {
            self.by_tenant.remove(&tenant);
        }
        Ok(())
    }
}

impl GardenIndex {
    /// The garden of a slug.
    pub fn named(&self, tenant: &Tenant, slug: &GardenSlug) -> Option<GardenNo> {
        self.by_tenant.get(tenant)?.by_slug.get(slug.as_str()).copied()
    }

    /// Whether a garden is there, and not deleted.
    pub fn is_open(&self, tenant: &Tenant, no: GardenNo) -> bool {
        matches!(self.slugs.get(&(tenant.clone(), no)), Some(Some(_)))
    }

    /// How many gardens a tenant has, and how many that were deleted have still left something.
    pub fn counts(&self, tenant: &Tenant) -> (usize, usize) {
        let gardens = self.by_tenant.get(tenant);
        gardens.map_or((0, 0), |it| (it.by_slug.len(), it.closed.len()))
    }
}
