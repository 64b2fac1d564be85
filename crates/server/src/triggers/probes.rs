//! Requests to endpoints that are no deliveries: how many there may be at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reveille_core::Tenant;

use super::error::Error;

/// Requests that are on their way because somebody wants to see what an endpoint answers.
const PROBES_MAX: usize = 64;
/// Those of one tenant.
const PROBES_PER_TENANT_MAX: usize = 8;

/// Those that are on their way, by tenant.
#[derive(Debug, Default)]
pub(crate) struct Probes(Mutex<HashMap<Tenant, usize>>);

/// The right to one of them.
pub(super) struct ProbePermit<'p> {
    probes: &'p Probes,
    tenant: Tenant,
}

impl Probes {
    pub(super) fn begin(&self, tenant: &Tenant) -> Result<ProbePermit<'_>, Error> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = running.get(tenant).copied().unwrap_or(0);
        if own >= PROBES_PER_TENANT_MAX || running.values().sum::<usize>() >= PROBES_MAX {
            return Err(Error::TooManyProbes);
        }
        running.insert(tenant.clone(), own + 1);
        Ok(ProbePermit { probes: self, tenant: tenant.clone() })
    }
}

impl Drop for ProbePermit<'_> {
    fn drop(&mut self) {
        let mut running = self.probes.0.lock().unwrap_or_else(PoisonError::into_inner);
        match running.get_mut(&self.tenant) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                running.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_only_so_many_and_gives_them_back() {
        let probes = Probes::default();
        let (acme, beta) = (Tenant::parse("acme").unwrap(), Tenant::parse("beta").unwrap());
        let mut held: Vec<_> =
            (0..PROBES_PER_TENANT_MAX).map(|_| probes.begin(&acme).unwrap()).collect();
        assert!(matches!(probes.begin(&acme), Err(Error::TooManyProbes)));
        drop(probes.begin(&beta).unwrap());
        held.pop();
        drop(probes.begin(&acme).unwrap());
        drop(held);
        assert!(probes.0.lock().unwrap().is_empty());
    }
}
