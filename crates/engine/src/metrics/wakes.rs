//! What is counted of waking consumers.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use reveille_kernel::outbox::OutboundGauges;

use super::Population;
use crate::app::Part;
use crate::effect::{ActivityChange, ConsumerActivity, ConsumerTrouble};

/// Why attempts fail: the endpoint's status, an address that is not allowed any more, or what the
/// courier says.
pub const FAILURE_KINDS: [&str; 10] = [
    "status",
    "destination",
    "address_refused",
    "unresolved",
    "no_connection",
    "tls_handshake",
    "timed_out",
    "broken",
    "bad_answer",
    "refused",
];

/// Upper bounds of a distribution's buckets, in milliseconds; one more holds the rest.
pub const BOUNDS_MS: [u64; 14] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000];
const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// With success; the consumer works.
    Accepted,
    /// With success; the consumer is done.
    Done,
    /// With a failure of this kind.
    Failed(&'static str),
}

/// Counters since the start, and consumers at this moment.
#[derive(Debug, Default)]
pub struct WakeMetrics {
    wakes: AtomicU64,
    accepted: AtomicU64,
    done: AtomicU64,
    failed: [AtomicU64; FAILURE_KINDS.len()],
    delay: Histogram,
    duration: Histogram,
    collecting: AtomicI64,
    waking: AtomicI64,
    live: AtomicI64,
    fruitless: AtomicU64,
    silent: AtomicU64,
    given_up: AtomicU64,
}

/// Times, by how long they were.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ms: AtomicU64,
}

/// A distribution at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distribution {
    /// How many fell into each bucket.
    pub buckets: [u64; BUCKETS],
    /// All of them together, in milliseconds.
    pub sum_ms: u64,
}

/// Telling at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct WakeSnapshot {
    /// Wakes that were begun.
    pub wakes: u64,
    /// Attempts that were answered with success, the consumer being at work.
    pub accepted: u64,
    /// Attempts that were answered with success, the consumer being done.
    pub done: u64,
    /// Attempts that failed, by [`FAILURE_KINDS`].
    pub failed: [u64; FAILURE_KINDS.len()],
    /// From a wake's decision until its first attempt was sent.
    pub delay: Distribution,
    /// How long attempts took.
    pub duration: Distribution,
    /// Consumers whose events are collected.
    pub collecting: u64,
    /// Consumers that are being told.
    pub waking: u64,
    /// Consumers at work.
    pub live: u64,
    /// Ends of wakes that acknowledged nothing and were followed by a pause.
    pub fruitless: u64,
    /// Consumers that took a wake on and were not heard of again in time.
    pub silent: u64,
    /// Consumers that were given up.
    pub given_up: u64,
    /// Attempts that wait or are on their way.
    pub traffic: OutboundGauges,
    /// Subscriptions.
    pub subscriptions: Population,
}

impl Part for WakeMetrics {}

impl WakeMetrics {
    /// An attempt is sent, so long after its wake was decided.
    pub fn sent(&self, delay_ms: u64) {
        self.delay.add(delay_ms);
    }

    /// An attempt has ended.
    pub fn attempted(&self, how: AttemptResult, took_ms: u64) {
        self.duration.add(took_ms);
        let counter = match how {
            AttemptResult::Accepted => Some(&self.accepted),
            AttemptResult::Done => Some(&self.done),
            AttemptResult::Failed(kind) => {
                let known = FAILURE_KINDS.iter().position(|known| *known == kind);
                known.and_then(|index| self.failed.get(index))
            }
        };
        debug_assert!(counter.is_some(), "{how:?} is a kind that has a counter");
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A consumer has moved.
    pub fn moved(&self, moved: &ActivityChange) {
        self.count(moved.from, -1);
        self.count(moved.to, 1);
        self.wakes.fetch_add(moved.woken.into(), Ordering::Relaxed);
    }

    /// A consumer is in trouble.
    pub fn complained(&self, trouble: ConsumerTrouble) {
        let counter = match trouble {
            ConsumerTrouble::Fruitless => &self.fruitless,
            ConsumerTrouble::Silent => &self.silent,
            ConsumerTrouble::GivenUp => &self.given_up,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A consumer was found that is busy already.
    pub fn found(&self, activity: ConsumerActivity) {
        self.count(activity, 1);
    }

    fn count(&self, activity: ConsumerActivity, by: i64) {
        let gauge = match activity {
            ConsumerActivity::None => return,
            ConsumerActivity::Collecting => &self.collecting,
            ConsumerActivity::Waking => &self.waking,
            ConsumerActivity::Live => &self.live,
        };
        gauge.fetch_add(by, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn snapshot(&self, traffic: OutboundGauges, subscriptions: Population) -> WakeSnapshot {
        let gauge = |gauge: &AtomicI64| u64::try_from(gauge.load(Ordering::Relaxed)).unwrap_or(0);
        WakeSnapshot {
            wakes: self.wakes.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.each_ref().map(|counter| counter.load(Ordering::Relaxed)),
            delay: self.delay.snapshot(),
            duration: self.duration.snapshot(),
            collecting: gauge(&self.collecting),
            waking: gauge(&self.waking),
            live: gauge(&self.live),
            fruitless: self.fruitless.load(Ordering::Relaxed),
            silent: self.silent.load(Ordering::Relaxed),
            given_up: self.given_up.load(Ordering::Relaxed),
            traffic,
            subscriptions,
        }
    }
}

impl Distribution {
    pub(super) fn add(&mut self, ms: u64) {
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
        self.sum_ms += ms;
    }

    pub(super) fn merge(&mut self, other: &Distribution) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
        self.sum_ms += other.sum_ms;
    }
}

impl Histogram {
    pub(super) fn add(&self, ms: u64) {
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ms.fetch_add(ms, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Distribution {
        Distribution {
            buckets: self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed)),
            sum_ms: self.sum_ms.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use reveille_deliver::courier::SendError;

    use super::*;

    #[test]
    fn times_fall_into_the_bucket_whose_bound_they_do_not_exceed() {
        let metrics = WakeMetrics::default();
        for ms in [0, 1, 2, 3, 30_000, 30_001] {
            metrics.sent(ms);
        }
        let delay = metrics.snapshot(OutboundGauges::default(), Population::default()).delay;
        assert_eq!(delay.buckets, [2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(delay.sum_ms, 60_007);
    }

    #[test]
    fn every_failure_of_the_courier_has_a_counter() {
        let any = std::net::Ipv4Addr::LOCALHOST.into();
        for error in [
            SendError::AddressRefused(any),
            SendError::Unresolved,
            SendError::NoConnection,
            SendError::TlsHandshake,
            SendError::TimedOut,
            SendError::Broken,
            SendError::BadAnswer,
        ] {
            assert!(FAILURE_KINDS.contains(&error.kind()), "{}", error.kind());
        }
    }
}
