//! How many bytes of lists may be in memory at once: of all tenants, and of one.
//!
//! A page is given room for as much as a page can be, and keeps what it has become until the last
//! of its bytes has left. So a reader that takes none keeps its tenant's room, and nobody else's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reveille_core::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::doors::Clock;
use crate::error::Unavailable;
use crate::limits::{PAGE_BYTES_MAX, PAGES_BYTES, PAGES_BYTES_PER_TENANT, ROOM_WAIT};

/// The bytes that pages may take.
pub struct PageBudget {
    all: Arc<Semaphore>,
    tenants: Arc<Tenants>,
}

/// The room of each tenant that has a page, or waits for one.
type Tenants = Mutex<HashMap<Tenant, Arc<Semaphore>>>;

/// The right to hold a page in memory, given back when dropped.
#[derive(Debug)]
pub struct PagePermit {
    all: OwnedSemaphorePermit,
    own: TenantPermit,
}

/// The tenant's part of it.
#[derive(Debug)]
struct TenantPermit {
    /// `None` while this is dropped.
    permit: Option<OwnedSemaphorePermit>,
    tenant: Tenant,
    tenants: Arc<Tenants>,
}

impl Default for PageBudget {
    fn default() -> PageBudget {
        PageBudget { all: Arc::new(Semaphore::new(PAGES_BYTES)), tenants: Arc::default() }
    }
}

impl PageBudget {
    /// Waits for room for a page of a tenant's, for a while.
    pub async fn admit(
        &self,
        tenant: &Tenant,
        clock: &dyn Clock,
    ) -> Result<PagePermit, Unavailable> {
        let wait = u64::try_from(ROOM_WAIT.as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            biased;
            permit = self.acquire(tenant) => permit,
            () = clock.sleep_until(clock.now() + wait) => Err(Unavailable::Busy),
        }
    }

    /// The bytes of all pages, and what they may still become.
    pub fn held_bytes(&self) -> usize {
        PAGES_BYTES.saturating_sub(self.all.available_permits())
    }

    async fn acquire(&self, tenant: &Tenant) -> Result<PagePermit, Unavailable> {
        let room = {
            let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            let full = || Arc::new(Semaphore::new(PAGES_BYTES_PER_TENANT));
            tenants.entry(tenant.clone()).or_insert_with(full).clone()
        };
        let stopping = |_| Unavailable::Stopping;
        let bytes = u32::try_from(PAGE_BYTES_MAX).unwrap_or(u32::MAX);
        // First its own: whoever waits for that does not stand in the way of others.
        let permit = room.acquire_many_owned(bytes).await.map_err(stopping)?;
        let (tenant, tenants) = (tenant.clone(), self.tenants.clone());
        let own = TenantPermit { permit: Some(permit), tenant, tenants };
        let all = self.all.clone().acquire_many_owned(bytes).await.map_err(stopping)?;
        Ok(PagePermit { all, own })
    }
}

impl PagePermit {
    /// Gives back what is not needed for a page of so many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let unneeded = PAGE_BYTES_MAX.saturating_sub(bytes);
        drop(self.all.split(unneeded));
        drop(self.own.permit.as_mut().and_then(|own| own.split(unneeded)));
    }
}

impl Drop for TenantPermit {
    fn drop(&mut self) {
        self.permit = None;
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else of this tenant has a page or waits for one.
        if tenants.get(&self.tenant).is_some_and(|room| Arc::strong_count(room) == 1) {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::SystemClock;

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    async fn full(budget: &PageBudget, name: &str) -> Vec<PagePermit> {
        let mut held = Vec::new();
        for _ in 0..PAGES_BYTES_PER_TENANT / PAGE_BYTES_MAX {
            held.push(budget.acquire(&tenant(name)).await.unwrap());
        }
        held
    }

    fn is_ready(budget: &PageBudget, name: &str) -> bool {
        let tenant = tenant(name);
        let mut waiting = std::pin::pin!(budget.acquire(&tenant));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.as_mut().poll(&mut context).is_ready()
    }

    #[tokio::test]
    async fn a_tenant_that_reads_nothing_keeps_its_own_room_alone() {
        let budget = PageBudget::default();
        let held = full(&budget, "loud").await;
        assert_eq!(budget.held_bytes(), PAGES_BYTES_PER_TENANT);
        assert!(!is_ready(&budget, "loud"));
        assert!(is_ready(&budget, "quiet"));
        drop(held);
        assert_eq!(budget.held_bytes(), 0);
        assert!(is_ready(&budget, "loud"));
        assert!(budget.tenants.lock().unwrap().is_empty(), "who has no page is forgotten");
    }

    #[tokio::test]
    async fn all_tenants_together_have_no_more_than_all_pages() {
        let budget = PageBudget::default();
        let mut held = Vec::new();
        for name in ["a", "b", "c", "d"] {
            held.push(full(&budget, name).await);
        }
        assert_eq!(budget.held_bytes(), PAGES_BYTES);
        assert!(!is_ready(&budget, "e"));
        drop(held.pop());
        assert!(is_ready(&budget, "e"));
    }

    #[tokio::test]
    async fn a_small_page_takes_what_it_is() {
        let budget = PageBudget::default();
        let clock = SystemClock::default();
        let mut permit = budget.admit(&tenant("a"), &clock).await.unwrap();
        assert_eq!(budget.held_bytes(), PAGE_BYTES_MAX);
        permit.shrink(100);
        assert_eq!(budget.held_bytes(), 100);
        permit.shrink(PAGE_BYTES_MAX + 1);
        assert_eq!(budget.held_bytes(), 100);
        drop(permit);
        assert_eq!(budget.held_bytes(), 0);
    }
}
