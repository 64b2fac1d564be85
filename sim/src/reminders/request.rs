//! A request of this world, and what its outcome means.

use reveille_engine::deliveries::DeliveryRejection;

use super::action::{Action, ReminderError, ReminderResult};
use super::{Reminders, branches};
use crate::base::{CheckResult, Decision, Origin, Outcome, Request, WorldCall, violation};

pub(super) struct ReminderRequest {
    pub(super) action: Action,
    /// The number of the attempt that it reports, if it does.
    pub(super) attempt: Option<u64>,
    /// What must become of it, where the model knows.
    expected: Option<ReminderResult>,
}

impl ReminderRequest {
    pub(super) fn new(action: Action, attempt: Option<u64>) -> ReminderRequest {
        ReminderRequest { action, attempt, expected: None }
    }

    /// Whether it is about a hook that its endpoint may have ended, which the model does not know.
    fn may_be_gone(&self, world: &Reminders) -> bool {
        match &self.action {
            Action::Activate { name, .. } | Action::End { name, .. } => world.may_be_ended(name),
            Action::ChangeHook(change) => world.may_be_ended(&change.name),
            _ => false,
        }
    }
}

impl std::fmt::Debug for ReminderRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.action.fmt(f)
    }
}

impl Request<Reminders> for ReminderRequest {
    fn call(&self) -> WorldCall<Reminders> {
        self.action.call()
    }

    fn weight(&self) -> u64 {
        if matches!(self.action, Action::Timer(_)) { 20_000 } else { 4_000 }
    }

    fn decided(
        &mut self,
        world: &mut Reminders,
        decision: &Decision<'_, Reminders>,
    ) -> CheckResult {
        if decision.outcome == Some(&Err(ReminderError::Unavailable)) {
            return Ok(());
        }
        self.expected = world.decided.apply(&self.action);
        if decision.outcome.is_none() {
            world.undurable.push(decision.batch, self.action.clone());
        }
        Ok(())
    }

    fn answered(
        self: Box<Self>,
        world: &mut Reminders,
        _: Origin,
        told: Outcome<Reminders>,
    ) -> CheckResult {
        let is_gone = told == Err(ReminderError::Rejected(DeliveryRejection::NotFound))
            && self.may_be_gone(world);
        let is_left_out =
            [Err(ReminderError::Unavailable), Err(ReminderError::NotMade)].contains(&told);
        if told == Err(ReminderError::NotMade) {
            world.base.branches.take(branches::NOT_MADE);
        }
        let is_known = is_left_out || is_gone;
        if let Some(expected) = self.expected.as_ref().filter(|_| !is_known)
            && told != *expected
        {
            return Err(violation(format!("{self:?} was told {told:?}, not {expected:?}")));
        }
        if let Err(ReminderError::Other(what)) = &told {
            return Err(violation(format!("{self:?} was told {what}")));
        }
        if let Some(attempt) = self.attempt {
            world.end_attempt(attempt, told.is_ok());
        }
        Ok(())
    }
}
