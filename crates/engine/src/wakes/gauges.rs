//! Subscriptions whose consumers have work, fail or were given up, in memory, for those who look after
//! them.
//!
//! What a consumer contributes follows from its record alone. Whoever changes the record says what it
//! contributed before and does now, so that nothing is kept of a consumer; after a start those that
//! contribute anything are found in the due index, or have a key of their own. Idle ones cost nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use reveille_core::Millis;
use reveille_core::consumer::{Phase, RemovalReason};
use reveille_core::subscription::SubscriptionId;
use reveille_schema::record::ConsumerRecord;

use crate::app::Part;
use crate::effect::{ConsumerLoad, LoadChange};
use crate::ranking::{Load, Ranking, Worst};

/// What a consumer contributes, by its record.
pub fn load_of(record: &ConsumerRecord) -> ConsumerLoad {
    let consumer = &record.consumer;
    // One whose timer was taken out is of no use any more.
    if record.timer_at.is_none() && consumer.deadline().is_some() {
        return ConsumerLoad::default();
    }
    let pending_since = match consumer.phase {
        Phase::Idle { .. } => consumer.pending_since,
        Phase::Waking { .. } | Phase::Live { .. } => consumer.woken_at,
        Phase::Gone(_) => None,
    };
    let is_gone = matches!(consumer.phase, Phase::Gone(_));
    let failed = consumer.phase == Phase::Gone(RemovalReason::Failed);
    ConsumerLoad {
        pending_since,
        failing_since: consumer.failing_since.filter(|_| !is_gone),
        is_given_up: failed && consumer.given_up.is_some(),
    }
}

/// Whether a consumer contributes although no timer looks at it: then a key says so.
pub(crate) fn rests(record: &ConsumerRecord) -> bool {
    record.timer_at.is_none() && load_of(record) != ConsumerLoad::default()
}

/// The consumers of a subscription that somebody may want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionLoad {
    /// With work that is not done: collected, told, being worked on, or put off by a pause.
    pub pending: u64,
    /// Since when the one has it that has had it for longest.
    pub pending_since: Option<Millis>,
    pub failing: u64,
    /// Since when the first of these fails.
    pub failing_since: Option<Millis>,
    pub given_up: u64,
}

/// The same of several subscriptions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionLoadSum {
    pub subscriptions: u64,
    pub pending: u64,
    pub failing: u64,
    pub given_up: u64,
}

impl Load for SubscriptionLoad {
    type Sum = SubscriptionLoadSum;

    fn is_idle(&self) -> bool {
        *self == SubscriptionLoad::default()
    }

    fn rank(&self) -> (bool, u64) {
        (self.failing + self.given_up > 0, self.pending + self.given_up)
    }

    fn add_to(&self, sum: &mut SubscriptionLoadSum) {
        sum.merge(&SubscriptionLoadSum::from(*self));
    }

    fn take_from(&self, sum: &mut SubscriptionLoadSum) {
        sum.subscriptions = sum.subscriptions.saturating_sub(1);
        sum.pending = sum.pending.saturating_sub(self.pending);
        sum.failing = sum.failing.saturating_sub(self.failing);
        sum.given_up = sum.given_up.saturating_sub(self.given_up);
    }
}

impl From<SubscriptionLoad> for SubscriptionLoadSum {
    fn from(load: SubscriptionLoad) -> SubscriptionLoadSum {
        let SubscriptionLoad { pending, failing, given_up, .. } = load;
        SubscriptionLoadSum { subscriptions: 1, pending, failing, given_up }
    }
}

impl SubscriptionLoadSum {
    /// Both together.
    pub fn merge(&mut self, other: &SubscriptionLoadSum) {
        self.subscriptions += other.subscriptions;
        self.pending += other.pending;
        self.failing += other.failing;
        self.given_up += other.given_up;
    }
}

/// All subscriptions whose consumers contribute anything.
#[derive(Default)]
pub struct SubscriptionGauges(Mutex<Loads>);

impl Part for SubscriptionGauges {}

#[derive(Default)]
struct Loads {
    moments: HashMap<SubscriptionId, Moments>,
    ranking: Ranking<SubscriptionId, SubscriptionLoad>,
}

/// Since when consumers of a subscription have work, and since when they fail.
#[derive(Default)]
struct Moments {
    pending: Times,
    failing: Times,
    given_up: u64,
}

/// Times, and how often there is each. To the second: those that began together take one place.
#[derive(Default)]
struct Times {
    count: u64,
    by_second: BTreeMap<u64, u64>,
}

impl Times {
    fn add(&mut self, at: Option<Millis>) {
        let Some(at) = at else { return };
        self.count += 1;
        *self.by_second.entry(at.0 / 1_000).or_default() += 1;
    }

    fn remove(&mut self, at: Option<Millis>) {
        let Some(second) = at.map(|at| at.0 / 1_000) else { return };
        let Some(count) = self.by_second.get_mut(&second) else { return };
        *count -= 1;
        self.count -= 1;
        if *count == 0 {
            self.by_second.remove(&second);
        }
    }

    fn first(&self) -> Option<Millis> {
        self.by_second.first_key_value().map(|(second, _)| Millis(second * 1_000))
    }
}

impl SubscriptionGauges {
    fn lock(&self) -> MutexGuard<'_, Loads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A consumer contributes something else.
    pub fn changed(&self, change: &LoadChange) {
        self.lock().change(change);
    }

    /// A consumer was found that contributes something already.
    pub(crate) fn found(&self, subscription: SubscriptionId, to: ConsumerLoad) {
        self.changed(&LoadChange { subscription, from: ConsumerLoad::default(), to });
    }

    /// What the consumers of a subscription contribute.
    pub fn of(&self, id: SubscriptionId) -> SubscriptionLoad {
        self.lock().ranking.get(id).copied().unwrap_or_default()
    }

    /// The subscriptions that are worst off, at most so many, and the rest.
    pub fn worst(&self, limit: usize) -> Worst<SubscriptionId, SubscriptionLoad> {
        self.lock().ranking.worst(limit)
    }
}

impl Loads {
    fn change(&mut self, change: &LoadChange) {
        let LoadChange { subscription, from, to } = change;
        let moments = self.moments.entry(*subscription).or_default();
        moments.pending.remove(from.pending_since);
        moments.failing.remove(from.failing_since);
        moments.given_up = moments.given_up.saturating_sub(from.is_given_up.into());
        moments.pending.add(to.pending_since);
        moments.failing.add(to.failing_since);
        moments.given_up += u64::from(to.is_given_up);
        let load = SubscriptionLoad {
            pending: moments.pending.count,
            pending_since: moments.pending.first(),
            failing: moments.failing.count,
            failing_since: moments.failing.first(),
            given_up: moments.given_up,
        };
        if load.is_idle() {
            self.moments.remove(subscription);
        }
        self.ranking.set(*subscription, load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(at: u64) -> ConsumerLoad {
        ConsumerLoad { pending_since: Some(Millis(at)), ..ConsumerLoad::default() }
    }

    #[test]
    fn the_oldest_counts_until_it_is_done() {
        let (gauges, id) = (SubscriptionGauges::default(), SubscriptionId(1));
        let change = |from, to| gauges.changed(&LoadChange { subscription: id, from, to });
        let idle = ConsumerLoad::default();
        for at in [5_000, 7_000, 5_999] {
            change(idle, pending(at));
        }
        let load = gauges.of(id);
        assert_eq!((load.pending, load.pending_since), (3, Some(Millis(5_000))));
        change(pending(5_000), idle);
        assert_eq!(gauges.of(id).pending_since, Some(Millis(5_000)), "another one of that second");
        let failing = ConsumerLoad { failing_since: Some(Millis(9_000)), ..pending(5_999) };
        change(pending(5_999), failing);
        let given_up = ConsumerLoad { is_given_up: true, ..idle };
        change(failing, given_up);
        let load = gauges.of(id);
        assert_eq!((load.pending, load.pending_since), (1, Some(Millis(7_000))));
        assert_eq!((load.failing, load.failing_since, load.given_up), (0, None, 1));
        // What was never counted takes nothing away.
        change(pending(1), idle);
        change(pending(7_000), idle);
        change(given_up, idle);
        assert_eq!(gauges.of(id), SubscriptionLoad::default());
        assert!(gauges.lock().moments.is_empty());
    }

    #[test]
    fn those_who_are_worst_off_come_first() {
        let gauges = SubscriptionGauges::default();
        let idle = ConsumerLoad::default();
        let failing = ConsumerLoad { failing_since: Some(Millis(1_000)), ..pending(1_000) };
        for (id, load, times) in [(1, pending(1_000), 5), (2, failing, 1), (3, pending(2_000), 7)] {
            for _ in 0..times {
                let subscription = SubscriptionId(id);
                gauges.changed(&LoadChange { subscription, from: idle, to: load });
            }
        }
        let worst = gauges.worst(2);
        let ids: Vec<u64> = worst.first.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [2, 3]);
        let others = SubscriptionLoadSum { subscriptions: 1, pending: 5, failing: 0, given_up: 0 };
        assert_eq!(worst.others, others);
    }
}
