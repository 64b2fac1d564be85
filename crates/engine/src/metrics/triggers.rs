//! What triggers come to that is no delivery, counted since the start.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::replay::ReplayResult;

use super::Distribution;
use crate::app::Part;
use crate::effect::TriggerAttempt;

/// By trigger; those of a trigger that has ended stay until the process ends.
#[derive(Debug, Default)]
pub struct TriggerMetrics(Mutex<HashMap<HookId, TriggerTotals, foldhash::fast::RandomState>>);

/// What has come of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerTotals {
    /// Changes of which a condition came to nothing.
    pub evaluation_errors: u64,
    /// Versions that were rolled back because they missed their objective.
    pub rollbacks: u64,
    /// Attempts, by [`ATTEMPT_STATUSES`].
    pub attempts: [u64; ATTEMPT_STATUSES.len()],
    /// Those of them that were not the first of their delivery.
    pub retries: u64,
    /// Deliveries that replays have made and that have ended, by [`ReplayResult::ALL`].
    pub replays: [u64; ReplayResult::ALL.len()],
    /// How long attempts took.
    pub duration: Distribution,
}

/// What attempts were answered: the kind of the status, or nothing.
pub const ATTEMPT_STATUSES: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "error"];

impl TriggerTotals {
    /// Adds what has come of another one.
    pub fn add(&mut self, other: &TriggerTotals) {
        self.evaluation_errors += other.evaluation_errors;
        self.rollbacks += other.rollbacks;
        for (sum, count) in self.attempts.iter_mut().zip(other.attempts) {
            *sum += count;
        }
        self.retries += other.retries;
        for (sum, count) in self.replays.iter_mut().zip(other.replays) {
            *sum += count;
        }
        self.duration.merge(&other.duration);
    }
}

/// Triggers that are counted by themselves; there are no more of a hundred tenants.
const COUNTED_MAX: usize = 100_000;

impl Part for TriggerMetrics {}

impl TriggerMetrics {
    pub(crate) fn failed(&self, hook: HookId, count: u64) {
        self.count(hook, |totals| totals.evaluation_errors += count);
    }

    pub(crate) fn attempted(&self, attempt: TriggerAttempt) {
        let TriggerAttempt { hook, status, took_ms, number, replayed } = attempt;
        let status = match status {
            Some(200..=299) => 0,
            Some(300..=399) => 1,
            Some(400..=499) => 2,
            Some(_) => 3,
            None => 4,
        };
        self.count(hook, |totals| {
            if let Some(count) = totals.attempts.get_mut(status) {
                *count += 1;
            }
            totals.retries += u64::from(number > 1);
            for (known, count) in ReplayResult::ALL.iter().zip(&mut totals.replays) {
                *count += u64::from(replayed == Some(*known));
            }
            totals.duration.add(took_ms);
        });
    }

    pub(crate) fn rolled_back(&self, hook: HookId) {
        self.count(hook, |totals| totals.rollbacks += 1);
    }

    /// What has come of a trigger.
    pub fn of(&self, hook: HookId) -> TriggerTotals {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        totals.get(&hook).copied().unwrap_or_default()
    }

    fn count(&self, hook: HookId, count: impl FnOnce(&mut TriggerTotals)) {
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if totals.len() >= COUNTED_MAX && !totals.contains_key(&hook) {
            totals.clear();
        }
        count(totals.entry(hook).or_default());
    }
}
