//! A request of this world, and what its outcome means.

use super::Triggers;
use super::action::{Action, Refusal};
use crate::base::{CheckResult, Decision, Origin, Outcome, Request, WorldCall, violation};

pub(super) struct TriggerRequest {
    action: Action,
    /// The number of the attempt that it reports, if it does.
    attempt: Option<u64>,
    /// The last change of its tenant once it was decided: whoever is answered finds it there.
    seq: u64,
}

impl TriggerRequest {
    pub(super) fn new(action: Action, attempt: Option<u64>) -> TriggerRequest {
        TriggerRequest { action, attempt, seq: 0 }
    }
}

impl std::fmt::Debug for TriggerRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.action.fmt(f)
    }
}

impl Request<Triggers> for TriggerRequest {
    fn call(&self) -> WorldCall<Triggers> {
        self.action.call()
    }

    fn weight(&self) -> u64 {
        match &self.action {
            Action::Write { .. } => 20_000,
            Action::RecordOutcome(_) | Action::Hold { .. } => 4_000,
            _ => 40_000,
        }
    }

    fn decided(&mut self, world: &mut Triggers, decision: &Decision<'_, Triggers>) -> CheckResult {
        if let Action::Write { tenant, path, value, .. } = &self.action
            && decision.outcome.is_none()
        {
            let change = world.decided.change(world.base.engine(), tenant, path, *value);
            world.decided.apply(change.clone());
            world.undurable.push(decision.batch, change);
            self.seq = world.decided.seq(tenant);
        }
        Ok(())
    }

    fn answered(
        self: Box<Self>,
        world: &mut Triggers,
        _: Origin,
        told: Outcome<Triggers>,
    ) -> CheckResult {
        if let Some(attempt) = self.attempt {
            world.end_attempt(attempt);
        }
        match (&self.action, told) {
            (_, Err(Refusal::Other(what))) => {
                Err(violation(format!("{:?} came to {what}", self.action)))
            }
            (Action::Write { tenant, .. }, Ok(_)) if world.durable.seq(tenant) < self.seq => {
                Err(violation(format!("{:?} is answered and not durable", self.action)))
            }
            _ => Ok(()),
        }
    }
}
