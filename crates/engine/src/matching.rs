//! What finding out whom something is for may cost.
//!
//! Patterns are the tenant's, and so are paths and types: together they can be made to take long,
//! and everybody else waits meanwhile. So steps are counted. What is not found within a decision's
//! steps is left to slices, as what is too many for one batch is; and whoever takes many steps pays
//! for them in its share of the processors.

use std::sync::{Arc, OnceLock};

use reveille_core::Tenant;
use reveille_core::steps::Steps;
use reveille_kernel::fairness::{Fairness, TAKEN_IN};

use crate::app::{Part, Txn};
use crate::effect::Effect;
use crate::limits::MATCH_STEPS_ALWAYS;

/// Steps that cost about as much as taking an append in.
const STEPS_PER_APPEND: usize = 1_024;

/// The steps that a search may take now: what is left to this decision, and always a few, which
/// are enough for patterns and paths that mean no harm.
pub(crate) fn steps_left(txn: &Txn<'_>) -> Steps {
    let max = txn.domains().settings.match_steps;
    let left = max.saturating_sub(txn.scratch.match_steps);
    Steps::new(left.max(MATCH_STEPS_ALWAYS.min(max)))
}

/// Counts the steps of a search for this decision, and for its tenant.
pub(crate) fn spend(txn: &mut Txn<'_>, tenant: &Tenant, steps: usize) {
    let before = txn.scratch.match_steps;
    txn.scratch.match_steps += steps;
    let whole = |steps: usize| steps / STEPS_PER_APPEND;
    let work = whole(txn.scratch.match_steps) - whole(before);
    if work > 0 {
        let work = u64::try_from(work).unwrap_or(u64::MAX) * TAKEN_IN;
        txn.effect(Effect::CountWork { tenant: tenant.clone(), work });
    }
}

/// The shares of tenants, for work that no request of theirs waits for. Without them nothing is
/// counted.
#[derive(Default)]
pub(crate) struct Shares(OnceLock<Arc<Fairness>>);

impl Part for Shares {}

impl Shares {
    pub(crate) fn follow(&self, fairness: &Arc<Fairness>) {
        // They are the same for as long as the process lives.
        let _ = self.0.set(fairness.clone());
    }

    /// The same for a search that was no part of a decision.
    pub(crate) fn count_steps(&self, tenant: &Tenant, steps: usize) {
        let work = u64::try_from(steps / STEPS_PER_APPEND).unwrap_or(u64::MAX);
        if work > 0 {
            self.count(tenant, work.saturating_mul(TAKEN_IN));
        }
    }

    pub(crate) fn count(&self, tenant: &Tenant, work: u64) {
        if let Some(fairness) = self.0.get() {
            fairness.count(tenant, work);
        }
    }
}
