//! How much of what is kept in memory a tenant may have, and how much each has.

use std::collections::{BTreeMap, HashMap};

use reveille_core::Tenant;

/// How many of each a tenant may have. What exists stays when there are more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Subscriptions of both dialects.
    pub subscriptions: usize,
    /// Hooks of all faces.
    pub hooks: usize,
    /// Triggers, which are hooks as well.
    pub triggers: usize,
    /// API keys: all of them are in memory.
    pub keys: usize,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas { subscriptions: 10_000, hooks: 10_000, triggers: 1_000, keys: 1_000 }
    }
}

/// How many of something each tenant has.
#[derive(Debug, Default)]
pub struct TenantCounts {
    by_tenant: HashMap<Tenant, usize>,
    /// How many tenants have so many.
    sizes: BTreeMap<usize, usize>,
}

impl TenantCounts {
    pub fn get(&self, tenant: &Tenant) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// The most that any tenant has.
    pub fn largest(&self) -> usize {
        self.sizes.last_key_value().map_or(0, |(size, _)| *size)
    }

    pub(crate) fn add(&mut self, tenant: &Tenant) {
        self.change(tenant, |count| count + 1);
    }

    pub(crate) fn remove(&mut self, tenant: &Tenant) {
        self.change(tenant, |count| count.saturating_sub(1));
    }

    fn change(&mut self, tenant: &Tenant, change: impl Fn(usize) -> usize) {
        let before = self.by_tenant.remove(tenant).unwrap_or(0);
        if let Some(tenants) = self.sizes.get_mut(&before) {
            *tenants -= 1;
            if *tenants == 0 {
                self.sizes.remove(&before);
            }
        }
        let after = change(before);
        if after > 0 {
            self.by_tenant.insert(tenant.clone(), after);
            *self.sizes.entry(after).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_known_without_a_walk() {
        let [one, two] = ["one", "two"].map(|name| Tenant::parse(name).unwrap());
        let mut counts = TenantCounts::default();
        assert_eq!((counts.get(&one), counts.largest()), (0, 0));
        for _ in 0..3 {
            counts.add(&one);
            counts.add(&two);
        }
        counts.remove(&one);
        assert_eq!((counts.get(&one), counts.get(&two), counts.largest()), (2, 3, 3));
        for _ in 0..3 {
            counts.remove(&two);
        }
        assert_eq!((counts.get(&two), counts.largest()), (0, 2));
        counts.remove(&one);
        counts.remove(&one);
        assert!(counts.by_tenant.is_empty() && counts.sizes.is_empty());
    }
}
