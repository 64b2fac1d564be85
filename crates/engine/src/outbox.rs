//! The outbox: attempts that are to be made, in whose turn it is.
//!
//! ```text
//! turns ─▶ a wake's subscription ─▶ its consumers
//!      ─▶ a tenant ─▶ turns ─▶ a hook ─▶ its deliveries
//! ```
//!
//! Nothing here must survive a crash: every attempt also has an entry in the due index, and one
//! that is not made is noticed there. A hook with more deliveries than may wait in memory goes on
//! with those in the state when there is room again.

mod queues;
mod window;

use std::sync::{Mutex, MutexGuard, PoisonError};

use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::subscription::SubscriptionId;
use reveille_schema::keys::ConsumerKey;
use tokio::sync::Notify;

use crate::effect::{DeliveryAttempt, WakeAttempt};
use queues::Queues;

/// An attempt that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// A consumer is to be told.
    Wake(WakeAttempt),
    /// An event is to be delivered.
    Delivery(DeliveryAttempt),
}

/// What became of an attempt that was brought to the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushResult {
    /// It waits for its turn.
    Waits,
    /// It was there already.
    Known,
    /// There is no room for it.
    LeftOut,
}

/// What an attempt is about: there are not two alike under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AttemptKey {
    Consumer(ConsumerKey),
    Delivery(DeliveryId),
}

/// Whose attempts are limited together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Subscription(SubscriptionId),
    Hook(HookId),
}

/// Who takes turns with whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Group {
    Subscription(SubscriptionId),
    Tenant(Tenant),
}

impl Attempt {
    fn about(&self) -> AttemptKey {
        match self {
            Attempt::Wake(told) => AttemptKey::Consumer(told.consumer.clone()),
            Attempt::Delivery(job) => AttemptKey::Delivery(job.id),
        }
    }

    fn source(&self) -> Source {
        match self {
            Attempt::Wake(told) => Source::Subscription(told.consumer.subscription),
            Attempt::Delivery(job) => Source::Hook(job.id.hook),
        }
    }

    fn group(&self) -> Group {
        match self {
            Attempt::Wake(told) => Group::Subscription(told.consumer.subscription),
            Attempt::Delivery(job) => Group::Tenant(job.tenant.clone()),
        }
    }

    /// Which wake, and which attempt.
    fn number(&self) -> (u64, u32) {
        match self {
            Attempt::Wake(told) => (told.epoch, told.attempt),
            Attempt::Delivery(job) => (0, job.attempt),
        }
    }
}

/// Attempts that wait or are on their way.
pub struct Outbox {
    queues: Mutex<Queues>,
    /// There may be something to send.
    pub(crate) ready: Notify,
}

/// What is going on, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboundGauges {
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
        Outbox { queues: Mutex::new(Queues::new(4_096)), ready: Notify::new() }
    }
}

impl Outbox {
    /// Sets how many attempts may be under way.
    pub fn set_concurrency(&self, concurrency: usize) {
        self.lock().set_concurrency(concurrency);
    }

    /// Sets how many deliveries of one hook may wait in memory; see
    /// [`WAITING_PER_HOOK`](crate::limits::WAITING_PER_HOOK).
    pub fn set_waiting_per_hook(&self, most: usize) {
        self.lock().set_waiting_per_hook(most);
    }

    /// Adds attempts, except those that are there already.
    pub fn push_all(&self, attempts: Vec<Attempt>) {
        if attempts.is_empty() {
            return;
        }
        {
            let mut queues = self.lock();
            for attempt in attempts {
                queues.push(attempt);
            }
        }
        self.ready.notify_one();
    }

    /// Adds an attempt, unless it is there already.
    pub fn push(&self, attempt: Attempt) {
        self.try_push(attempt);
    }

    /// The same; says what became of it.
    pub fn try_push(&self, attempt: Attempt) -> PushResult {
        let pushed = self.lock().push(attempt);
        if pushed == PushResult::Waits {
            self.ready.notify_one();
        }
        pushed
    }

    /// The next attempt to make, if one may be made now.
    pub fn next(&self) -> Option<Attempt> {
        self.lock().next()
    }

    /// The next attempts to make, at most so many. Tenants that may not deliver now keep their
    /// turns.
    pub fn next_few(&self, most: usize, mut may: impl FnMut(&Tenant) -> bool) -> Vec<Attempt> {
        self.lock().next_few(most, &mut may)
    }

    /// A hook that may have more in memory, and the delivery to go on from.
    pub fn next_refill(&self) -> Option<(HookId, DeliveryNo)> {
        self.lock().next_refill()
    }

    /// An attempt has been open for a while: it makes room for quick ones, if those that are slow
    /// leave any. Says whether it counts as slow now.
    pub fn slows(&self, attempt: &Attempt) -> bool {
        let slow = self.lock().slows(attempt);
        if slow {
            self.ready.notify_one();
        }
        slow
    }

    /// An answer came, after so long if it was a good one, or none will: the next attempt may be
    /// made, although what came of this one is still to be written down. Returns it, for whoever
    /// made this one to go on with.
    pub fn answered(
        &self,
        attempt: &Attempt,
        was_slow: bool,
        took_ms: Option<u64>,
        mut may: impl FnMut(&Tenant) -> bool,
    ) -> Option<Attempt> {
        let (next, more) = {
            let mut queues = self.lock();
            queues.answered(attempt, was_slow, took_ms);
            (queues.next_few(1, &mut may).pop(), queues.has_more())
        };
        if more {
            self.ready.notify_one();
        }
        next
    }

    /// An attempt has ended, and what came of it is written down.
    pub fn ended(&self, attempt: &Attempt, was_slow: bool) {
        self.lock().ended(attempt, was_slow);
        self.ready.notify_one();
    }

    /// The same for several attempts whose answers had come.
    pub fn all_ended(&self, attempts: &[Attempt]) {
        let mut queues = self.lock();
        for attempt in attempts {
            queues.ended(attempt, false);
        }
        drop(queues);
        self.ready.notify_one();
    }

    /// Attempts of a consumer that are really on their way: epoch and number.
    pub fn in_flight(&self, consumer: &ConsumerKey) -> Vec<(u64, u32)> {
        self.lock().sent(&AttemptKey::Consumer(consumer.clone()))
    }

    /// Whether an attempt of a delivery waits for its turn or is on its way.
    pub fn has_delivery(&self, id: DeliveryId) -> bool {
        self.lock().knows(&AttemptKey::Delivery(id))
    }

    /// Whether an attempt of a delivery is on its way.
    pub fn is_sent(&self, id: DeliveryId) -> bool {
        !self.lock().sent(&AttemptKey::Delivery(id)).is_empty()
    }

    /// What is going on.
    pub fn traffic(&self) -> OutboundGauges {
        self.lock().traffic()
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
