//! Rollout: a version for some of the documents, for as long as it keeps to its objective.

use aws_lc_rs::digest;

use crate::document::path::DocumentPath;
use crate::tenant::Tenant;
use crate::time::Millis;

/// Which share of the documents a version is for, and what it must not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollout {
    /// From 0 to 100.
    pub percent: u8,
    pub slo: Option<Slo>,
}

/// An objective: when it is missed, the version is rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slo {
    /// So many attempts of a million may fail.
    pub max_error_ppm: Option<u32>,
    /// So long 95 of 100 attempts may take.
    pub max_p95_latency_ms: Option<u64>,
    /// The time that is looked back upon.
    pub window_ms: u64,
    /// With fewer attempts nothing is said.
    pub min_samples: u32,
}

/// The attempts of the last while, counted. It belongs to one version: another begins with an empty
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SloWindow {
    /// Oldest first.
    pub slots: Vec<SloSlot>,
}

/// The attempts of a part of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SloSlot {
    /// When it began.
    pub from: Millis,
    pub samples: u32,
    pub failed: u32,
    /// That took longer than 95 of 100 may.
    pub slow: u32,
}

/// How an objective was missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    #[error("{failed} of {samples} attempts failed")]
    Errors { failed: u32, samples: u32 },
    #[error("{slow} of {samples} attempts took longer than {max_ms} ms")]
    Latency { slow: u32, samples: u32, max_ms: u64 },
}

/// Parts of a window. The oldest goes as a whole, so it looks back by up to a tenth more or less.
const SLOTS: u64 = 10;
const MILLION: u64 = 1_000_000;

impl Default for Rollout {
    fn default() -> Rollout {
        Rollout { percent: 100, slo: None }
    }
}

impl Rollout {
    /// Whether the version is for this document: always the same, and still so when the percentage
    /// grows.
    pub fn covers(&self, tenant: &Tenant, path: &DocumentPath) -> bool {
        match self.percent {
            0 => false,
            1..100 => place(tenant, path) < u64::from(self.percent),
            100.. => true,
        }
    }

    /// Whether it is for all documents.
    pub fn is_full(&self) -> bool {
        self.percent >= 100
    }
}

/// A number below 100 that a document has for ever.
fn place(tenant: &Tenant, path: &DocumentPath) -> u64 {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in [tenant.as_str(), "\0", path.collection().as_str(), "/", path.id().as_str()] {
        hash.update(part.as_bytes());
    }
    let hash = hash.finish();
    hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) % 100
}

impl Slo {
    fn slot_ms(&self) -> u64 {
        (self.window_ms / SLOTS).max(1)
    }
}

impl SloWindow {
    /// Counts an attempt.
    pub fn record(&mut self, slo: &Slo, now: Millis, is_ok: bool, took_ms: u64) {
        let slot_ms = slo.slot_ms();
        self.slots.retain(|slot| now.since(slot.from) < slo.window_ms.max(slot_ms));
        let from = Millis(now.0 - now.0 % slot_ms);
        // A clock that was set back counts on where it was.
        let is_new = self.slots.last().is_none_or(|slot| slot.from < from);
        if is_new {
            self.slots.push(SloSlot { from, ..SloSlot::default() });
        }
        let Some(slot) = self.slots.last_mut() else { return };
        slot.samples = slot.samples.saturating_add(1);
        slot.failed = slot.failed.saturating_add(u32::from(!is_ok));
        let is_slow = slo.max_p95_latency_ms.is_some_and(|max| took_ms > max);
        slot.slow = slot.slow.saturating_add(u32::from(is_slow));
    }

    /// How the objective is missed now, if it is.
    pub fn breach(&self, slo: &Slo, now: Millis) -> Option<Breach> {
        let recent = |slot: &&SloSlot| now.since(slot.from) < slo.window_ms.max(slo.slot_ms());
        let sum = self.slots.iter().filter(recent).fold(SloSlot::default(), SloSlot::plus);
        let SloSlot { samples, failed, slow, .. } = sum;
        if samples < slo.min_samples.max(1) {
            return None;
        }
        if let Some(ppm) = slo.max_error_ppm
            && u64::from(failed) * MILLION > u64::from(ppm) * u64::from(samples)
        {
            return Some(Breach::Errors { failed, samples });
        }
        let max_ms = slo.max_p95_latency_ms?;
        // The 95th of 100 took longer than it may if more than five did.
        let is_slow = u64::from(slow) * 20 > u64::from(samples);
        is_slow.then_some(Breach::Latency { slow, samples, max_ms })
    }
}

impl SloSlot {
    /// Both counted together.
    #[must_use]
    pub fn plus(self, other: &SloSlot) -> SloSlot {
        SloSlot {
            from: self.from,
            samples: self.samples.saturating_add(other.samples),
            failed: self.failed.saturating_add(other.failed),
            slow: self.slow.saturating_add(other.slow),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant() -> Tenant {
        Tenant::parse("acme").unwrap()
    }

    fn path(number: u32) -> DocumentPath {
        DocumentPath::parse(&format!("orders/o{number}")).unwrap()
    }

    fn covers(percent: u8, number: u32) -> bool {
        Rollout { percent, slo: None }.covers(&tenant(), &path(number))
    }

    #[test]
    fn rol_2_a_share_of_the_documents_is_about_that_large() {
        for percent in [1, 10, 50, 90] {
            let covered = (0..10_000).filter(|number| covers(percent, *number)).count();
            let expected = usize::from(percent) * 100;
            assert!(covered.abs_diff(expected) < 150 + expected / 20, "{percent} %: {covered}");
        }
        assert!((0..1_000).all(|number| !covers(0, number) && covers(100, number)));
        let other = Tenant::parse("beta").unwrap();
        let half = Rollout { percent: 50, slo: None };
        let differs =
            (0..100).any(|it| half.covers(&tenant(), &path(it)) != half.covers(&other, &path(it)));
        assert!(differs, "tenants do not share their luck");
    }

    proptest! {
        #[test]
        fn rol_2_who_is_covered_stays_covered_when_the_share_grows(
            number in any::<u32>(), less in 0_u8..=100, more in 0_u8..=100,
        ) {
            prop_assume!(less <= more);
            prop_assert!(!covers(less, number) || covers(more, number));
        }
    }

    const SLO: Slo = Slo {
        max_error_ppm: Some(50_000),
        max_p95_latency_ms: Some(2_000),
        window_ms: 300_000,
        min_samples: 20,
    };

    fn window(samples: u32, failed: u32, slow: u32) -> SloWindow {
        let mut window = SloWindow::default();
        for number in 0..samples {
            let took_ms = if number < slow { 2_001 } else { 2_000 };
            window.record(&SLO, Millis(u64::from(number)), number >= failed, took_ms);
        }
        window
    }

    #[test]
    fn rol_3_more_failures_than_allowed_are_a_breach() {
        let now = Millis(1_000);
        assert_eq!(window(100, 5, 0).breach(&SLO, now), None);
        let breach = window(100, 6, 0).breach(&SLO, now);
        assert_eq!(breach, Some(Breach::Errors { failed: 6, samples: 100 }));
        assert_eq!(breach.unwrap().to_string(), "6 of 100 attempts failed");
        assert_eq!(window(19, 19, 19).breach(&SLO, now), None, "too few to say");
        let no_errors = Slo { max_error_ppm: None, ..SLO };
        assert_eq!(window(100, 100, 0).breach(&no_errors, now), None);
        let none_at_all = Slo { max_error_ppm: Some(0), ..SLO };
        assert!(window(100, 1, 0).breach(&none_at_all, now).is_some());
    }

    #[test]
    fn rol_3_a_p95_that_is_too_long_is_a_breach() {
        let now = Millis(1_000);
        assert_eq!(window(100, 0, 5).breach(&SLO, now), None);
        let expected = Breach::Latency { slow: 6, samples: 100, max_ms: 2_000 };
        assert_eq!(window(100, 0, 6).breach(&SLO, now), Some(expected));
        let any_latency = Slo { max_p95_latency_ms: None, ..SLO };
        assert_eq!(window(100, 0, 100).breach(&any_latency, now), None);
    }

    #[test]
    fn rol_3_what_is_older_than_the_window_does_not_count() {
        let bad = window(100, 100, 0);
        assert!(bad.breach(&SLO, Millis(299_999)).is_some());
        assert_eq!(bad.breach(&SLO, Millis(300_000)), None);
    }

    proptest! {
        #[test]
        fn rol_3_a_window_stays_small(
            steps in prop::collection::vec((0_u64..400_000, any::<bool>(), 0_u64..4_000), 0..200),
            back in 0_u64..1_000_000,
        ) {
            let (mut window, mut now) = (SloWindow::default(), 1_000_000);
            for (number, (step, is_ok, took_ms)) in steps.iter().enumerate() {
                now += step;
                if number == 50 { now = now.saturating_sub(back); }
                window.record(&SLO, Millis(now), *is_ok, *took_ms);
                prop_assert!(window.slots.len() <= 11, "{}", window.slots.len());
                prop_assert!(window.slots.windows(2).all(|it| it[0].from < it[1].from));
            }
        }
    }
}
