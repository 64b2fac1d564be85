//! Where the deliveries of hooks go: found out once for a hook, not once for each delivery.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reveille_core::delivery::hook::{Hook, HookId};
use reveille_deliver::destination::{Destination, DestinationError};

/// Hooks whose address is remembered; where there are more, remembering begins anew.
const REMEMBERED_MAX: usize = 10_000;

/// Addresses of hooks, each with the hook as it was then.
#[derive(Default)]
pub(crate) struct Addresses {
    known: Mutex<HashMap<HookId, (Arc<Hook>, Destination)>>,
}

impl Addresses {
    /// The address of a hook: as it is remembered, or as it is found out.
    pub(crate) fn of(
        &self,
        hook: &Arc<Hook>,
        find: impl FnOnce() -> Result<Destination, DestinationError>,
    ) -> Result<Destination, DestinationError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A hook that was changed is another one in memory.
        if let Some((it, address)) = known.get(&hook.id)
            && Arc::ptr_eq(it, hook)
        {
            return Ok(address.clone());
        }
        let address = find()?;
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(hook.id, (hook.clone(), address.clone()));
        Ok(address)
    }
}
