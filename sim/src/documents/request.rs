//! A request of this world, and what its outcome means.

use super::Documents;
use super::action::{Action, Outcome, Refusal};
use crate::base::{self, CheckResult, Decision, Origin, Request, WorldCall, violation};

pub(super) struct DocumentRequest {
    action: Action,
    /// What must become of it.
    expected: Option<Outcome>,
    /// The last change of its tenant once it was decided: whoever is answered finds it there.
    seq: u64,
}

impl DocumentRequest {
    pub(super) fn new(action: Action) -> DocumentRequest {
        DocumentRequest { action, expected: None, seq: 0 }
    }
}

impl std::fmt::Debug for DocumentRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.action.fmt(f)
    }
}

impl Request<Documents> for DocumentRequest {
    fn call(&self) -> WorldCall<Documents> {
        self.action.call()
    }

    fn weight(&self) -> u64 {
        match &self.action {
            Action::Write(write) => 2_000 + 4_000 * write.ops.len() as u64,
            _ => 20_000,
        }
    }

    fn decided(
        &mut self,
        world: &mut Documents,
        decision: &Decision<'_, Documents>,
    ) -> CheckResult {
        if decision.outcome == Some(&Err(Refusal::Unavailable)) {
            return Ok(());
        }
        let ttls = world.ttls();
        self.expected = Some(world.decided.apply(&self.action, decision.now, &ttls));
        if let Action::Write(write) = &self.action {
            self.seq = world.decided.last_seq(&write.tenant);
        }
        if decision.outcome.is_none() {
            world.undurable.push(decision.batch, (self.action.clone(), decision.now));
        }
        Ok(())
    }

    fn answered(
        self: Box<Self>,
        world: &mut Documents,
        _: Origin,
        told: base::Outcome<Documents>,
    ) -> CheckResult {
        if told == Err(Refusal::Unavailable) {
            return Ok(());
        }
        if self.expected.as_ref() != Some(&told) {
            let Self { action, expected, .. } = *self;
            return Err(violation(format!("{action:?} is {told:?} and not {expected:?}")));
        }
        match &self.action {
            Action::Write(write) if world.durable.last_seq(&write.tenant) < self.seq => {
                Err(violation(format!("{:?} is answered and not durable", self.action)))
            }
            _ => Ok(()),
        }
    }
}
