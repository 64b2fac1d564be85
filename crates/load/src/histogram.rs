//! Latencies in buckets no wider than 1/128 of their value, and the percentiles over them.
//!
//! ```text
//! 0 .. 255 µs      one bucket per microsecond
//! 2^e .. 2^(e+1)   128 buckets each, for e = 8 .. 35
//! ```

use std::fmt;
use std::time::Duration;

use serde::Serialize;

const EXACT: u64 = 256;
const BUCKETS_PER_POWER: u64 = 128;
const POWER_FIRST: u32 = 8;
const POWER_LAST: u32 = 35;

/// What is said about a set of latencies. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Half were at most this.
    pub p50: u64,
    /// 99 % were at most this.
    pub p99: u64,
    /// 99.9 % were at most this.
    pub p999: u64,
    /// The worst, exact.
    pub max: u64,
    /// The arithmetic mean.
    pub mean: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    /// Grows to the largest bucket used: most runs never see a minute.
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.record_us(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    fn record_us(&mut self, us: u64) {
        let bucket = bucket_of(us);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(us);
        self.max = self.max.max(us);
    }

    pub(crate) fn absorb(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// `None` when nothing was recorded: there is no percentile of nothing.
    pub(crate) fn summary(&self) -> Option<Latency> {
        let mean = self.sum.checked_div(self.count)?;
        Some(Latency {
            count: self.count,
            p50: self.per_mille(500),
            p99: self.per_mille(990),
            p999: self.per_mille(999),
            max: self.max,
            mean,
        })
    }

    /// The nearest-rank percentile: the smallest recorded value that at least this share of the
    /// values does not exceed, rounded up to the end of its bucket.
    fn per_mille(&self, share: u64) -> u64 {
        let rank = (self.count * share).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_end(bucket).min(self.max);
            }
        }
        self.max
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {}   p99 {}   p99.9 {}   max {}",
            millis(self.p50),
            millis(self.p99),
            millis(self.p999),
            millis(self.max)
        )
    }
}

fn millis(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

fn bucket_of(us: u64) -> usize {
    let us = us.min((1 << (POWER_LAST + 1)) - 1);
    let bucket = if us < EXACT {
        us
    } else {
        let power = us.ilog2();
        let part = us >> (power - POWER_FIRST + 1);
        EXACT + u64::from(power - POWER_FIRST) * BUCKETS_PER_POWER + part - BUCKETS_PER_POWER
    };
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// The largest value that falls into the bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).unwrap_or(u64::MAX);
    let Some(above) = bucket.checked_sub(EXACT) else {
        return bucket;
    };
    let width = 2 << (above / BUCKETS_PER_POWER);
    let part = BUCKETS_PER_POWER + above % BUCKETS_PER_POWER;
    (part + 1) * width - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.record_us(value);
        }
        histogram
    }

    #[test]
    fn small_values_are_exact() {
        let latency = histogram(1..=200).summary().unwrap();
        assert_eq!(
            latency,
            Latency { count: 200, p50: 100, p99: 198, p999: 200, max: 200, mean: 100 }
        );
    }

    #[test]
    fn one_value_is_every_percentile() {
        let latency = histogram([5_000_003]).summary().unwrap();
        assert_eq!((latency.p50, latency.p999, latency.max), (5_000_003, 5_000_003, 5_000_003));
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Histogram::default().summary(), None);
    }

    #[test]
    fn one_outlier_in_a_thousand_is_beyond_the_999th_per_mille() {
        let latency = histogram((0..999).map(|_| 10).chain([90_000])).summary().unwrap();
        assert_eq!((latency.p999, latency.max), (10, 90_000));
        let latency = histogram((0..998).map(|_| 10).chain([90_000, 90_000])).summary().unwrap();
        assert_eq!(latency.p999, 90_000);
    }

    #[test]
    fn percentiles_agree_with_a_sorted_list_to_one_percent() {
        // A multiplicative walk visits every power of two from microseconds to minutes.
        let mut state = 1u64;
        let mut values: Vec<u64> = (0..20_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % (1 << (4 + (state >> 59)))
            })
            .collect();
        let latency = histogram(values.iter().copied()).summary().unwrap();
        values.sort_unstable();
        for (share, got) in [(500, latency.p50), (990, latency.p99), (999, latency.p999)] {
            let exact = values[values.len() * share / 1000 - 1];
            assert!(got >= exact, "p{share}: {got} is under {exact}");
            assert!(got - exact <= exact / 100 + 1, "p{share}: {got} is far over {exact}");
        }
    }

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        let last = bucket_of(u64::MAX);
        for bucket in 0..last {
            let end = bucket_end(bucket);
            assert_eq!(bucket_of(end), bucket, "end of {bucket}");
            assert_eq!(bucket_of(end + 1), bucket + 1, "start after {bucket}");
        }
        assert_eq!(last, 256 + 28 * 128 - 1);
    }

    #[test]
    fn absorbing_is_the_same_as_recording() {
        let mut one = histogram(0..1_000);
        one.absorb(&histogram((0..9_000).map(|value| value * 7)));
        let both = histogram((0..1_000).chain((0..9_000).map(|value| value * 7)));
        assert_eq!(one.summary(), both.summary());
    }
}
