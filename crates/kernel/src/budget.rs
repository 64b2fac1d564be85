//! How many bytes of requests may be in memory at once, and how many of them one tenant's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reveille_core::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::doors::Clock;
use crate::error::Unavailable;
use crate::limits::{
    BODIES_TENANT_PART, LARGE_BODIES_BYTES, ROOM_WAIT, SMALL_BODIES_BYTES, SMALL_BODY_BYTES,
};

/// Permits are counted in units of this many bytes.
const UNIT: usize = 1 << 10;
/// Tenants that are remembered although nothing of theirs is in memory.
const TENANTS_KEPT: usize = 1_024;

/// The bytes that bodies may take.
pub struct Budget {
    small: Pool,
    large: Pool,
}

/// The right to hold a body in memory, given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _share: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

/// Room that tenants share; none has more of it than its part.
struct Pool {
    room: Arc<Semaphore>,
    shares: Mutex<HashMap<Tenant, Arc<Semaphore>>>,
    /// What one tenant has at most, in units.
    share_units: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { small: Pool::new(SMALL_BODIES_BYTES), large: Pool::new(LARGE_BODIES_BYTES) }
    }
}

impl Budget {
    /// Waits for room for so many bytes of a tenant's, for a while.
    pub async fn admit(
        &self,
        tenant: &Tenant,
        bytes: usize,
        clock: &dyn Clock,
    ) -> Result<Permit, Unavailable> {
        let pool = if bytes <= SMALL_BODY_BYTES { &self.small } else { &self.large };
        // What is larger than a tenant's part takes all of that.
        let units = bytes.div_ceil(UNIT).min(pool.share_units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = pool.share(tenant);
        if let Some(permit) = pool.try_take(&share, units) {
            return Ok(permit);
        }
        let wait = u64::try_from(ROOM_WAIT.as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            biased;
            permit = pool.take(share, units) => permit,
            () = clock.sleep_until(clock.now() + wait) => Err(Unavailable::Busy),
        }
    }
}

impl Pool {
    fn new(bytes: usize) -> Pool {
        Pool {
            room: Arc::new(Semaphore::new(bytes / UNIT)),
            shares: Mutex::default(),
            share_units: bytes / UNIT / BODIES_TENANT_PART,
        }
    }

    fn share(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(tenant) {
            return share.clone();
        }
        if shares.len() >= TENANTS_KEPT {
            // Whoever holds or waits for a permit holds the semaphore too.
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(self.share_units));
        shares.insert(tenant.clone(), share.clone());
        share
    }

    fn try_take(&self, share: &Arc<Semaphore>, units: u32) -> Option<Permit> {
        let share = share.clone().try_acquire_many_owned(units).ok()?;
        let room = self.room.clone().try_acquire_many_owned(units).ok()?;
        Some(Permit { _share: share, _room: room })
    }

    /// First of the tenant's own part: whoever waits for that keeps nothing from others.
    async fn take(&self, share: Arc<Semaphore>, units: u32) -> Result<Permit, Unavailable> {
        let stopping = |_| Unavailable::Stopping;
        let share = share.acquire_many_owned(units).await.map_err(stopping)?;
        let room = self.room.clone().acquire_many_owned(units).await.map_err(stopping)?;
        Ok(Permit { _share: share, _room: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::SystemClock;

    /// A clock whose time is always up.
    struct Impatient;

    impl Clock for Impatient {
        fn now(&self) -> reveille_core::Millis {
            reveille_core::Millis(0)
        }

        fn sleep_until(&self, _: reveille_core::Millis) -> crate::doors::Sleep {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn no_tenant_takes_the_room_of_another() {
        let budget = Budget::default();
        let (loud, quiet) = (Tenant::parse("loud").unwrap(), Tenant::parse("quiet").unwrap());
        for size in [1, SMALL_BODY_BYTES, 10 << 20] {
            let mut held = Vec::new();
            while let Ok(permit) = budget.admit(&loud, size, &Impatient).await {
                held.push(permit);
            }
            assert!(held.len() > 2, "{} of {size}", held.len());
            assert!(budget.admit(&quiet, size, &Impatient).await.is_ok());
            held.pop();
            assert!(budget.admit(&loud, size, &Impatient).await.is_ok());
        }
        // More than there is becomes what there is.
        let all = budget.admit(&loud, 1 << 30, &SystemClock::default()).await;
        assert!(all.is_ok() && budget.admit(&loud, 1 << 20, &Impatient).await.is_err());
    }
}
