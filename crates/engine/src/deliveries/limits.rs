//! The limits of hooks, for whoever sends: a fold over hooks as they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::policy::DeliveryLimits;
use reveille_kernel::error::Damaged;
use reveille_kernel::outbox::{Outbox, SourceLimits};
use reveille_schema::{keys, record};

use crate::app::Part;
use crate::effect::{Attempt, AttemptSource};
use crate::records::damaged;

/// Tells the outbox of hooks that have limits. A former version of a hook has none: what follows it
/// waits with everything else of the hook.
pub(crate) struct HookLimits {
    outbox: Arc<Outbox<Attempt>>,
    /// Hooks that have any.
    limited: Mutex<HashMap<Bytes, HookId>>,
}

impl HookLimits {
    pub(crate) fn of(outbox: Arc<Outbox<Attempt>>) -> HookLimits {
        HookLimits { outbox, limited: Mutex::default() }
    }

    fn set(&self, id: HookId, limits: SourceLimits) {
        self.outbox.set_limits(AttemptSource::Hook(id), limits);
    }
}

impl Part for HookLimits {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks()]
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let hook = value.map(|value| record::decode_hook(value)).transpose().map_err(damaged)?;
        let limits = hook.map(|hook| (hook.id, hook.policy.limits));
        let limits = limits.filter(|(_, limits)| *limits != DeliveryLimits::default());
        let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match limits {
            Some((id, _)) => limited.insert(key.clone(), id),
            None => limited.remove(key),
        };
        // Another hook may have its name now.
        if let Some(before) = before.filter(|it| limits.is_none_or(|(id, _)| id != *it)) {
            self.set(before, SourceLimits::default());
        }
        if let Some((id, limits)) = limits {
            self.set(id, source_limits(limits));
        }
        Ok(())
    }
}

fn source_limits(limits: DeliveryLimits) -> SourceLimits {
    let DeliveryLimits { concurrency, rate, per_tenant } = limits;
    let concurrency = concurrency.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    SourceLimits { concurrency, rate, per_tenant }
}
