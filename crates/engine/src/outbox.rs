//! The outbox: consumers that are to be told, in whose turn it is.
//!
//! Nothing here must survive a crash: every attempt also has an entry in the due index, and one
//! that is not made is noticed there.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use reveille_core::subscription::SubscriptionId;
use reveille_store::keys::ConsumerKey;
use tokio::sync::Notify;

use crate::effect::Told;
use crate::limits::{OUTBOUND_PER_SUBSCRIPTION, OUTBOX_MAX};

/// Attempts that wait or are on their way.
pub struct Outbox {
    queues: Mutex<Queues>,
    /// There may be something to send.
    pub(crate) ready: Notify,
}

struct Queues {
    /// How many may be on their way, quick ones and slow ones each.
    concurrency: usize,
    waiting: HashMap<SubscriptionId, VecDeque<Told>>,
    /// Subscriptions with something that may be sent, each once.
    turns: VecDeque<SubscriptionId>,
    known: HashMap<ConsumerKey, Vec<Known>>,
    under_way: HashMap<SubscriptionId, usize>,
    queued: usize,
    quick: usize,
    slow: usize,
    dropped: u64,
}

struct Known {
    epoch: u64,
    attempt: u32,
    sent: bool,
}

/// What is going on, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Attempts that wait for their turn.
    pub queued: usize,
    /// Attempts that were sent a moment ago.
    pub quick: usize,
    /// Attempts that have been open for a while.
    pub slow: usize,
    /// Attempts for which there was no room; the due index brings them back.
    pub dropped: u64,
}

impl Default for Outbox {
    fn default() -> Outbox {
        let queues = Queues {
            concurrency: 4_096,
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            known: HashMap::new(),
            under_way: HashMap::new(),
            queued: 0,
            quick: 0,
            slow: 0,
            dropped: 0,
        };
        Outbox { queues: Mutex::new(queues), ready: Notify::new() }
    }
}

impl Outbox {
    /// Sets how many attempts may be under way.
    pub fn set_concurrency(&self, concurrency: usize) {
        self.lock().concurrency = concurrency.max(1);
    }

    /// Adds an attempt, unless it is there already.
    pub fn push(&self, told: Told) {
        let mut queues = self.lock();
        if queues.queued >= OUTBOX_MAX {
            queues.dropped += 1;
            return;
        }
        let known = queues.known.entry(told.consumer.clone()).or_default();
        if known.iter().any(|it| it.epoch == told.epoch && it.attempt == told.attempt) {
            return;
        }
        known.push(Known { epoch: told.epoch, attempt: told.attempt, sent: false });
        let subscription = told.consumer.subscription;
        let open = queues.may_send(subscription);
        let waiting = queues.waiting.entry(subscription).or_default();
        waiting.push_back(told);
        let first = waiting.len() == 1;
        queues.queued += 1;
        if first && open {
            queues.turns.push_back(subscription);
        }
        drop(queues);
        self.ready.notify_one();
    }

    /// The next attempt to make, if one may be made now.
    pub fn next(&self) -> Option<Told> {
        let mut queues = self.lock();
        if queues.quick >= queues.concurrency {
            return None;
        }
        let subscription = queues.turns.pop_front()?;
        let waiting = queues.waiting.get_mut(&subscription)?;
        let told = waiting.pop_front()?;
        let more = !waiting.is_empty();
        if !more {
            queues.waiting.remove(&subscription);
        }
        queues.queued -= 1;
        queues.quick += 1;
        *queues.under_way.entry(subscription).or_default() += 1;
        if more && queues.may_send(subscription) {
            queues.turns.push_back(subscription);
        }
        let known = queues.known.get_mut(&told.consumer);
        let same = |it: &&mut Known| it.epoch == told.epoch && it.attempt == told.attempt;
        if let Some(known) = known.and_then(|all| all.iter_mut().find(same)) {
            known.sent = true;
        }
        Some(told)
    }

    /// An attempt has been open for a while: it makes room for quick ones, if those that are slow
    /// leave any. Says whether it counts as slow now.
    pub fn slows(&self) -> bool {
        let mut queues = self.lock();
        let room = queues.slow < queues.concurrency;
        if room {
            queues.quick -= 1;
            queues.slow += 1;
            drop(queues);
            self.ready.notify_one();
        }
        room
    }

    /// An attempt has ended.
    pub fn ended(&self, told: &Told, was_slow: bool) {
        let mut queues = self.lock();
        if was_slow {
            queues.slow -= 1;
        } else {
            queues.quick -= 1;
        }
        let subscription = told.consumer.subscription;
        let was_full = !queues.may_send(subscription);
        if let Some(count) = queues.under_way.get_mut(&subscription) {
            *count -= 1;
            if *count == 0 {
                queues.under_way.remove(&subscription);
            }
        }
        if was_full && queues.waiting.contains_key(&subscription) {
            queues.turns.push_back(subscription);
        }
        if let Some(known) = queues.known.get_mut(&told.consumer) {
            known.retain(|it| it.epoch != told.epoch || it.attempt != told.attempt);
            if known.is_empty() {
                queues.known.remove(&told.consumer);
            }
        }
        drop(queues);
        self.ready.notify_one();
    }

    /// Attempts of a consumer that are really on their way: epoch and number.
    pub fn in_flight(&self, consumer: &ConsumerKey) -> Vec<(u64, u32)> {
        let queues = self.lock();
        let known = queues.known.get(consumer).into_iter().flatten();
        known.filter(|it| it.sent).map(|it| (it.epoch, it.attempt)).collect()
    }

    /// What is going on.
    pub fn traffic(&self) -> Traffic {
        let queues = self.lock();
        let Queues { queued, quick, slow, dropped, .. } = *queues;
        Traffic { queued, quick, slow, dropped }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn may_send(&self, subscription: SubscriptionId) -> bool {
        self.under_way.get(&subscription).is_none_or(|count| *count < OUTBOUND_PER_SUBSCRIPTION)
    }
}

#[cfg(test)]
mod tests {
    use reveille_core::StreamPath;

    use super::*;

    fn told(subscription: u64, path: &str) -> Told {
        let path = Some(StreamPath::parse(path).unwrap());
        let subscription = SubscriptionId(subscription);
        Told { consumer: ConsumerKey { subscription, path }, epoch: 1, attempt: 1 }
    }

    #[test]
    fn subscriptions_take_turns() {
        let outbox = Outbox::default();
        for path in ["/a", "/b", "/c"] {
            outbox.push(told(1, path));
        }
        outbox.push(told(2, "/x"));
        outbox.push(told(2, "/x"));
        let order: Vec<u64> =
            std::iter::from_fn(|| outbox.next()).map(|it| it.consumer.subscription.0).collect();
        assert_eq!(order, [1, 2, 1, 1]);
        assert_eq!(outbox.in_flight(&told(2, "/x").consumer), [(1, 1)]);
    }

    #[test]
    fn a_subscription_that_hangs_holds_its_own_attempts_alone() {
        let outbox = Outbox::default();
        for n in 0..=OUTBOUND_PER_SUBSCRIPTION {
            outbox.push(told(1, &format!("/{n}")));
        }
        let sent: Vec<Told> = std::iter::from_fn(|| outbox.next()).collect();
        assert_eq!(sent.len(), OUTBOUND_PER_SUBSCRIPTION);
        outbox.push(told(2, "/x"));
        assert_eq!(outbox.next(), Some(told(2, "/x")));
        assert_eq!(outbox.next(), None);
        outbox.ended(&sent[0], false);
        assert!(outbox.next().is_some());
        assert_eq!(outbox.next(), None);
    }

    #[test]
    fn slow_attempts_make_room_for_quick_ones() {
        let outbox = Outbox::default();
        outbox.set_concurrency(1);
        for id in 1..=3 {
            outbox.push(told(id, "/a"));
        }
        let first = outbox.next().unwrap();
        assert_eq!(outbox.next(), None);
        assert!(outbox.slows());
        assert!(outbox.next().is_some());
        assert!(!outbox.slows(), "the slow pool has a limit too");
        outbox.ended(&first, true);
        assert_eq!(outbox.next(), None);
        let traffic = Traffic { queued: 1, quick: 1, slow: 0, dropped: 0 };
        assert_eq!(outbox.traffic(), traffic);
    }
}
