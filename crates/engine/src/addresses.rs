//! Where attempts go, and whatever else is found out once for a hook or a subscription, not once for
//! each attempt.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reveille_deliver::destination::Destination;

/// Those whose address is remembered; where there are more, remembering begins anew.
const REMEMBERED_MAX: usize = 10_000;

type Known<I, T, A> = HashMap<I, (Arc<T>, A), foldhash::fast::RandomState>;

/// Addresses by id, each with whose it is as it was then.
pub(crate) struct Addresses<I, T, A = Destination> {
    known: Mutex<Known<I, T, A>>,
}

impl<I, T, A> Default for Addresses<I, T, A> {
    fn default() -> Addresses<I, T, A> {
        Addresses { known: Mutex::default() }
    }
}

impl<I: Eq + Hash, T, A: Clone> Addresses<I, T, A> {
    /// An address: as it is remembered, or as it is found out.
    pub(crate) fn of<E>(
        &self,
        id: I,
        whose: &Arc<T>,
        find: impl FnOnce() -> Result<A, E>,
    ) -> Result<A, E> {
        // One that was changed is another one in memory.
        if let Some((it, address)) = self.lock().get(&id)
            && Arc::ptr_eq(it, whose)
        {
            return Ok(address.clone());
        }
        let address = find()?;
        let mut known = self.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(id, (whose.clone(), address.clone()));
        Ok(address)
    }

    fn lock(&self) -> MutexGuard<'_, Known<I, T, A>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
