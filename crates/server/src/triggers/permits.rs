//! What may be done only so often at once, and by one tenant only so often of that.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reveille_core::Tenant;

use super::error::Error;

/// Requests that are on their way because somebody wants to see what an endpoint answers.
const PROBES_MAX: usize = 64;
/// Those of one tenant.
const PROBES_PER_TENANT_MAX: usize = 8;

/// Backtests at once: each keeps a processor busy for as long as it may take.
const BACKTESTS_MAX: usize = 4;
/// Those of one tenant.
const BACKTESTS_PER_TENANT_MAX: usize = 1;

/// Those that are held, by tenant.
#[derive(Debug)]
pub(crate) struct Permits {
    max: usize,
    per_tenant_max: usize,
    held: Mutex<HashMap<Tenant, usize>>,
}

/// One of them.
pub(super) struct Permit<'p> {
    permits: &'p Permits,
    tenant: Tenant,
}

impl Permits {
    /// For requests to endpoints that are no deliveries.
    pub(crate) fn of_probes() -> Permits {
        Permits::new(PROBES_MAX, PROBES_PER_TENANT_MAX)
    }

    pub(crate) fn of_backtests() -> Permits {
        Permits::new(BACKTESTS_MAX, BACKTESTS_PER_TENANT_MAX)
    }

    fn new(max: usize, per_tenant_max: usize) -> Permits {
        Permits { max, per_tenant_max, held: Mutex::default() }
    }

    pub(super) fn take(&self, tenant: &Tenant) -> Result<Permit<'_>, Error> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.get(tenant).copied().unwrap_or(0);
        if own >= self.per_tenant_max || held.values().sum::<usize>() >= self.max {
            return Err(Error::TooManyAtOnce);
        }
        held.insert(tenant.clone(), own + 1);
        Ok(Permit { permits: self, tenant: tenant.clone() })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut held = self.permits.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.get_mut(&self.tenant) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                held.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_only_so_many_and_gives_them_back() {
        let permits = Permits::new(3, 2);
        let [acme, beta] = ["acme", "beta"].map(|name| Tenant::parse(name).unwrap());
        let mut held: Vec<_> = (0..2).map(|_| permits.take(&acme).unwrap()).collect();
        assert!(matches!(permits.take(&acme), Err(Error::TooManyAtOnce)));
        let other = permits.take(&beta).unwrap();
        assert!(matches!(permits.take(&beta), Err(Error::TooManyAtOnce)), "all are held");
        drop(other);
        held.pop();
        drop(permits.take(&acme).unwrap());
        drop(held);
        assert!(permits.held.lock().unwrap().is_empty());
    }
}
