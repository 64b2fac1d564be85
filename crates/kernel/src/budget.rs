//! How many bytes of requests may be in memory at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::doors::Clock;
use crate::error::Unavailable;
use crate::limits::{LARGE_BODIES_BYTES, ROOM_WAIT, SMALL_BODIES_BYTES, SMALL_BODY_BYTES};

/// Permits are counted in units of this many bytes.
const UNIT: usize = 1 << 10;

/// The bytes that bodies may take.
pub struct Budget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// The right to hold a body in memory, given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            small: Arc::new(Semaphore::new(SMALL_BODIES_BYTES / UNIT)),
            large: Arc::new(Semaphore::new(LARGE_BODIES_BYTES / UNIT)),
        }
    }
}

impl Budget {
    /// Waits for room for a body of this size, for a while.
    pub async fn admit(&self, bytes: usize, clock: &dyn Clock) -> Result<Permit, Unavailable> {
        let small = bytes <= SMALL_BODY_BYTES;
        let (pool, all) = if small {
            (&self.small, SMALL_BODIES_BYTES)
        } else {
            (&self.large, LARGE_BODIES_BYTES)
        };
        // A body larger than the pool takes all of it.
        let units = u32::try_from(bytes.div_ceil(UNIT).min(all / UNIT)).unwrap_or(u32::MAX);
        if let Ok(permit) = pool.clone().try_acquire_many_owned(units) {
            return Ok(Permit { _permit: permit });
        }
        let wait = u64::try_from(ROOM_WAIT.as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            biased;
            permit = pool.clone().acquire_many_owned(units) => match permit {
                Ok(permit) => Ok(Permit { _permit: permit }),
                Err(_) => Err(Unavailable::Stopping),
            },
            () = clock.sleep_until(clock.now() + wait) => Err(Unavailable::Busy),
        }
    }
}
