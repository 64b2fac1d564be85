//! How often the holders of tokens ask: so many times in a second, each by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reveille_core::rate::{Rate, RateMeter};
use reveille_core::{Millis, Tenant};

/// Holders that are remembered, twice as many at most.
const HOLDERS_KEPT_MAX: usize = 8_192;

/// Of every holder of tokens who asked lately how much of its rate is used up.
#[derive(Default)]
pub(crate) struct CallRates(Mutex<Generations>);

/// Those who asked since the last change of generations, and those before them. Whoever is forgotten
/// has not asked while thousands of others did, and finds its burst again.
#[derive(Default)]
struct Generations {
    new: Meters,
    old: Meters,
}

type Meters = HashMap<(Tenant, Arc<str>), RateMeter>;

impl CallRates {
    /// Lets a call through now, or says when one may come again.
    pub(crate) fn try_take(
        &self,
        tenant: &Tenant,
        holder: &str,
        rate: Rate,
        now: Millis,
    ) -> Result<(), Millis> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Generations { new, old } = &mut *guard;
        let key = (tenant.clone(), Arc::from(holder));
        let known = old.remove(&key);
        if !new.contains_key(&key) && new.len() >= HOLDERS_KEPT_MAX {
            *old = std::mem::take(new);
        }
        let meter = new.entry(key).or_insert_with(|| known.unwrap_or_default());
        meter.try_take(rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_has_a_rate_of_its_own() {
        let rates = CallRates::default();
        let (acme, beta) = (Tenant::parse("acme").unwrap(), Tenant::parse("beta").unwrap());
        let rate = Rate { per_s: 2, burst: 2 };
        for (tenant, holder) in [(&acme, "a"), (&acme, "b"), (&beta, "a")] {
            for _ in 0..2 {
                assert_eq!(rates.try_take(tenant, holder, rate, Millis(10)), Ok(()));
            }
            let next = rates.try_take(tenant, holder, rate, Millis(10));
            assert_eq!(next, Err(Millis(510)));
        }
        assert_eq!(rates.try_take(&acme, "a", rate, Millis(510)), Ok(()));
    }

    #[test]
    fn many_holders_are_forgotten_and_those_who_ask_are_not() {
        let rates = CallRates::default();
        let acme = Tenant::parse("acme").unwrap();
        let rate = Rate { per_s: 1, burst: 1 };
        for number in 0..3 * HOLDERS_KEPT_MAX {
            let _ = rates.try_take(&acme, "busy", rate, Millis(0));
            let other = rates.try_take(&acme, &format!("t{number}"), rate, Millis(0));
            assert_eq!(other, Ok(()));
        }
        assert_eq!(rates.try_take(&acme, "busy", rate, Millis(0)), Err(Millis(1_000)));
        let guard = rates.0.lock().unwrap();
        assert!(guard.new.len() <= HOLDERS_KEPT_MAX && guard.old.len() <= HOLDERS_KEPT_MAX);
    }
}
