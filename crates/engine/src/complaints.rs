//! Endpoints that keep failing are complained about, but not more often than anybody wants to read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reveille_core::Millis;

/// From one complaint about a subscription to the next.
const EVERY_MS: u64 = 60_000;
/// Subscriptions whose last complaint is remembered; while all of these are recent, the others
/// wait.
const REMEMBERED_MAX: usize = 10_000;

/// When each subscription or hook was last complained about; they have their numbers from one
/// sequence.
#[derive(Default)]
pub(crate) struct Complaints {
    last: Mutex<HashMap<u64, Millis>>,
}

impl Complaints {
    /// Whether to complain about a subscription or a hook now.
    pub(crate) fn is_due(&self, source: u64, now: Millis) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.get(&source).is_some_and(|at| now.since(*at) < EVERY_MS) {
            return false;
        }
        if last.len() >= REMEMBERED_MAX {
            last.retain(|_, at| now.since(*at) < EVERY_MS);
        }
        if last.len() >= REMEMBERED_MAX {
            return false;
        }
        last.insert(source, now);
        true
    }
}

/// The part of an address that says who is called; the rest is nobody else's business.
pub(crate) fn host_of(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_address_operators_are_told_the_host_alone() {
        for (address, host) in [
            ("https://billing.workers.dev/rpc/on?key=secret", "billing.workers.dev"),
            ("http://127.0.0.1:3000", "127.0.0.1:3000"),
            ("http://[::1]:9/hook#x", "[::1]:9"),
            ("https://a?token=1", "a"),
            ("https://me:secret@a.example/@x", "a.example"),
        ] {
            assert_eq!(host_of(address), host, "{address}");
        }
    }

    #[test]
    fn a_subscription_is_complained_about_once_a_minute() {
        let complaints = Complaints::default();
        let due = |id, at| complaints.is_due(id, Millis(at));
        assert!(due(1, 0));
        assert!(!due(1, 59_999));
        assert!(due(2, 59_999));
        assert!(due(1, 60_000));
        assert!(!due(1, 60_001));
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let complaints = Complaints::default();
        let due = |id: usize, at| complaints.is_due(id as u64, Millis(at));
        assert!((0..REMEMBERED_MAX).all(|id| due(id, 0)));
        assert!(!due(REMEMBERED_MAX, 1));
        assert!(due(REMEMBERED_MAX, EVERY_MS));
    }
}
