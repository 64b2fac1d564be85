//! What triggers come to that is no delivery, counted since the start.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use reveille_core::delivery::hook::HookId;

use crate::app::Part;

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
}

/// Triggers that are counted by themselves; there are no more of a hundred tenants.
const COUNTED_MAX: usize = 100_000;

impl Part for TriggerMetrics {}

impl TriggerMetrics {
    pub(crate) fn failed(&self, hook: HookId, count: u64) {
        self.count(hook, |totals| totals.evaluation_errors += count);
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
