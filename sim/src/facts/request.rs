//! A request of this world, and what its outcome means.

use super::Facts;
use super::action::{Action, Answer, Refusal};
use super::endpoint::{APPENDED, CANCELLED_MEANWHILE};
use super::engine;
use super::model::Expected;
use crate::base::{CheckResult, Decision, Origin, Outcome, Request, WorldCall, violation};

pub(super) struct FactRequest {
    action: Action,
    /// The number of the attempt that it reports, if it does.
    attempt: Option<u64>,
    /// What must become of it.
    expected: Option<Result<(), Refusal>>,
    /// What the gate must say in the step of an append.
    gate: Option<Expected>,
}

impl FactRequest {
    pub(super) fn new(action: Action, attempt: Option<u64>) -> FactRequest {
        FactRequest { action, attempt, expected: None, gate: None }
    }

    /// Whoever is answered at once is told of nothing that a crash could undo.
    fn check_rests_on_durable(&self, world: &Facts) -> CheckResult {
        let is_made_anew = matches!(self.action, Action::Subscribe { .. });
        let mut after = world.durable.clone();
        let told = after.apply(&self.action);
        let changes = after.events != world.durable.events
            || after.gardens != world.durable.gardens
            || after.tokens != world.durable.tokens;
        if Some(told) == self.expected && (is_made_anew || !changes) {
            return Ok(());
        }
        Err(violation(format!("{self:?} was answered, and what it rests on is not durable")))
    }
}

impl std::fmt::Debug for FactRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.action.fmt(f)
    }
}

impl Request<Facts> for FactRequest {
    fn call(&self) -> WorldCall<Facts> {
        engine::call(&self.action)
    }

    fn weight(&self) -> u64 {
        match &self.action {
            Action::Say { .. } | Action::Timer(_) => 40_000,
            _ => 8_000,
        }
    }

    fn decided(&mut self, world: &mut Facts, decision: &Decision<'_, Facts>) -> CheckResult {
        if decision.outcome == Some(&Err(Refusal::Unavailable)) {
            return Ok(());
        }
        if let Action::Append(append) = &self.action {
            let ruling = world.ruling_of(&world.decided, append.id);
            if ruling == Some(Expected::Cancel) {
                world.base.branches.take(CANCELLED_MEANWHILE);
                world.may_end.insert(append.id.hook);
            }
            self.gate = ruling;
        }
        if decision.outcome.is_some() {
            self.expected = Some(world.decided.clone().apply(&self.action));
            return self.check_rests_on_durable(world);
        }
        self.expected = Some(world.decided.apply(&self.action));
        world.undurable.push(decision.batch, self.action.clone());
        Ok(())
    }

    fn answered(
        self: Box<Self>,
        world: &mut Facts,
        _: Origin,
        told: Outcome<Facts>,
    ) -> CheckResult {
        if let Some(attempt) = self.attempt {
            world.end_attempt(attempt, told.is_ok());
        }
        if told == Err(Refusal::Unavailable) {
            return Ok(());
        }
        if told == Ok(Answer::Appended(true)) {
            world.base.branches.take(APPENDED);
        }
        if told == Ok(Answer::Appended(true)) && self.gate != Some(Expected::Deliver) {
            return Err(violation(format!(
                "{self:?} is appended, and its gate is {:?}",
                self.gate
            )));
        }
        if self.expected.as_ref() != Some(&told.clone().map(drop)) {
            let Self { action, expected, .. } = *self;
            return Err(violation(format!("{action:?} is {told:?} and not {expected:?}")));
        }
        Ok(())
    }
}
