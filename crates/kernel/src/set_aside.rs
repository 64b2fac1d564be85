//! Timers that can never be fulfilled: they are kept apart, counted and reported, so that neither
//! the others nor the next start meet them again.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_store::state::Reader;

use crate::command::{Command, Decision};
use crate::counters::Counters;
use crate::domains::{Domains, Pages};
use crate::error::{Damaged, Error, Never, Unavailable};
use crate::keys;
use crate::txn::Txn;

/// What cannot be read is tried for this long before it counts as damaged for good: a disk that fails
/// for a while must not cost an obligation.
const HOPELESS_AFTER_MS: u64 = 30_000;

/// Timers whose failures are counted at once; others wait for their turn.
const COUNTED_MAX: usize = 1_024;

/// Entries that are counted at once when a partition opens.
const COUNT_SLICE: usize = 1_024;

/// Moves a timer to where it is kept for whoever wants to know, and out of the due index.
#[derive(Debug, Clone)]
pub struct SetTimerAside {
    pub key: Bytes,
}

impl<D: Domains> Command<D> for SetTimerAside {
    /// Whether it was there.
    type Answer = bool;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_, D>) -> Decision<bool, Never> {
        let Some(value) = txn.get(&self.key)? else {
            return Ok(Ok(false));
        };
        txn.set(keys::set_aside(&self.key), value);
        txn.remove(&self.key);
        Ok(Ok(true))
    }
}

impl SetTimerAside {
    /// It is durable.
    pub(crate) fn report(&self, counters: &Counters, why: &Error<Never>) {
        let what = keys::parse_timer(&self.key).map_or(&*self.key, |(_, timer)| timer);
        tracing::error!(
            timer = %what.escape_ascii(),
            %why,
            "an obligation cannot be fulfilled and was set aside"
        );
        counters.set_aside.fetch_add(1, Ordering::Relaxed);
    }
}

/// Puts a timer that was set aside back into the due index, where it was: its time has come.
#[derive(Debug, Clone)]
pub struct RetryTimer {
    pub key: Bytes,
}

impl<D: Domains> Command<D> for RetryTimer {
    /// Whether it was there.
    type Answer = bool;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_, D>) -> Decision<bool, Never> {
        let aside = keys::set_aside(&self.key);
        let (Some(value), Some((at, timer))) = (txn.get(&aside)?, keys::parse_timer(&self.key))
        else {
            return Ok(Ok(false));
        };
        txn.set_timer_with(at, timer, value);
        txn.remove(&aside);
        Ok(Ok(true))
    }
}

impl RetryTimer {
    /// It is durable.
    pub fn report(&self, counters: &Counters) {
        let less = |count: u64| Some(count.saturating_sub(1));
        let _ = counters.set_aside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// How many timers were set aside so far.
pub(crate) fn count(reader: &Reader) -> Result<u64, Damaged> {
    let (from, to) = keys::all_set_aside();
    let mut pages = Pages::new(from, to, COUNT_SLICE);
    let mut count = 0;
    while let Some(found) = pages.next(reader)? {
        count += u64::try_from(found.len()).unwrap_or(u64::MAX);
    }
    Ok(count)
}

/// Timers that failed whenever they were tried, and since when.
#[derive(Debug, Default)]
pub(crate) struct FailingTimers {
    since: HashMap<Bytes, Millis>,
}

impl FailingTimers {
    pub(crate) fn forget(&mut self, key: &Bytes) {
        if !self.since.is_empty() {
            self.since.remove(key);
        }
    }

    /// A timer has failed. Says whether trying again is of no use.
    pub(crate) fn is_hopeless(&mut self, key: &Bytes, error: &Error<Never>, now: Millis) -> bool {
        match error {
            Error::Unavailable(Unavailable::TooLarge) => true,
            Error::Unavailable(_) => false,
            Error::Damaged(_) => {
                if self.since.len() >= COUNTED_MAX && !self.since.contains_key(key) {
                    return false;
                }
                let since = *self.since.entry(key.clone()).or_insert(now);
                now >= since + HOPELESS_AFTER_MS
            }
            Error::Rejected(never) => match *never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_hopeless_at_once_and_what_is_damaged_after_a_while() {
        let mut failing = FailingTimers::default();
        let (key, other) = (Bytes::from_static(b"key"), Bytes::from_static(b"other"));
        let large = Error::Unavailable(Unavailable::TooLarge);
        let damaged = Error::Damaged(Damaged::new("bent"));
        assert!(failing.is_hopeless(&key, &large, Millis(1)));
        assert!(!failing.is_hopeless(&key, &Error::Unavailable(Unavailable::Busy), Millis(1)));
        let later = Millis(1) + HOPELESS_AFTER_MS;
        assert!(!failing.is_hopeless(&key, &damaged, Millis(1)));
        assert!(!failing.is_hopeless(&other, &damaged, later));
        assert!(failing.is_hopeless(&key, &damaged, later));
        failing.forget(&key);
        assert!(!failing.is_hopeless(&key, &damaged, later), "it was fulfilled meanwhile");
    }
}
