//! What is counted of delivering events.

use std::sync::atomic::{AtomicU64, Ordering};

use reveille_core::delivery::replay::ReplayResult;
use reveille_core::delivery::{DeadReason, Verdict};

use super::Population;
use super::wakes::{Distribution, FAILURE_KINDS, Histogram};
use crate::app::Part;

/// Counters since the start.
#[derive(Debug, Default)]
pub struct DeliveryMetrics {
    ingested: AtomicU64,
    delivered: AtomicU64,
    failed: [AtomicU64; FAILURE_KINDS.len()],
    delay: Histogram,
    duration: Histogram,
    died: [AtomicU64; DeadReason::ALL.len()],
    replayed: [AtomicU64; ReplayResult::ALL.len()],
}

/// Delivering at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeliverySnapshot {
    /// Events that were taken in.
    pub ingested: u64,
    /// Attempts that were answered with success.
    pub delivered: u64,
    /// Attempts that failed, by [`FAILURE_KINDS`].
    pub failed: [u64; FAILURE_KINDS.len()],
    /// From taking an event in until its first attempt was sent.
    pub delay: Distribution,
    /// How long attempts took.
    pub duration: Distribution,
    /// Hooks.
    pub hooks: Population,
    /// Dead letters that there have come to be, by [`DeadReason::ALL`].
    pub died: [u64; DeadReason::ALL.len()],
    /// What replays have come to, by [`ReplayResult::ALL`].
    pub replayed: [u64; ReplayResult::ALL.len()],
}

impl Part for DeliveryMetrics {}

impl DeliveryMetrics {
    /// Events were taken in.
    pub fn ingested(&self, events: u64) {
        self.ingested.fetch_add(events, Ordering::Relaxed);
    }

    /// A first attempt is sent, so long after its event came.
    pub fn sent(&self, delay_ms: u64) {
        self.delay.add(delay_ms);
    }

    /// An attempt has ended.
    pub fn attempted(&self, verdict: Verdict, kind: &'static str, took_ms: u64) {
        self.duration.add(took_ms);
        let counter = match verdict {
            Verdict::Delivered => Some(&self.delivered),
            _ => {
                let known = FAILURE_KINDS.iter().position(|known| *known == kind);
                known.and_then(|index| self.failed.get(index))
            }
        };
        debug_assert!(counter.is_some(), "{kind} is a kind that has a counter");
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A delivery has become a dead letter.
    pub fn died(&self, why: DeadReason) {
        let place = DeadReason::ALL.iter().position(|known| *known == why);
        if let Some(counter) = place.and_then(|place| self.died.get(place)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Deliveries that a replay was to make have come to this.
    pub fn replayed(&self, result: ReplayResult, count: u64) {
        let place = ReplayResult::ALL.iter().position(|known| *known == result);
        if let Some(counter) = place.and_then(|place| self.replayed.get(place)) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub fn snapshot(&self, hooks: Population) -> DeliverySnapshot {
        DeliverySnapshot {
            ingested: self.ingested.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            failed: self.failed.each_ref().map(|counter| counter.load(Ordering::Relaxed)),
            delay: self.delay.snapshot(),
            duration: self.duration.snapshot(),
            hooks,
            died: self.died.each_ref().map(|counter| counter.load(Ordering::Relaxed)),
            replayed: self.replayed.each_ref().map(|counter| counter.load(Ordering::Relaxed)),
        }
    }
}
