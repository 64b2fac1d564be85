//! A request of this world, and what its outcome means to whoever sent it.

use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::wakes::WakeTimer;

use super::Deliveries;
use super::action::{Action, DeliveryError, DeliveryResult};
use super::engine;
use crate::base::engine::AnyTimer;
use crate::base::{CheckResult, Decision, Origin, Outcome, Request, WorldCall, violation};

pub(super) struct DeliveryRequest {
    action: Action,
    /// The number of the attempt that it reports, if it does.
    attempt: Option<u64>,
    /// What must become of it, where the model knows.
    expected: Option<DeliveryResult>,
}

impl DeliveryRequest {
    pub(super) fn new(action: Action, attempt: Option<u64>) -> DeliveryRequest {
        DeliveryRequest { action, attempt, expected: None }
    }

    /// It is not on its way any more.
    fn end(&self, world: &mut Deliveries) {
        if matches!(self.action, Action::CreateHook { .. }) {
            world.hooks_asked -= 1;
        }
    }

    /// Whoever is answered at once is told of nothing that a crash could undo.
    fn check_rests_on_durable(&self, world: &Deliveries) -> CheckResult {
        let mut after = world.durable.clone();
        if after.apply(&self.action) == self.expected && after == world.durable {
            return Ok(());
        }
        Err(violation(format!("{self:?} was answered, and what it rests on is not durable")))
    }
}

impl std::fmt::Debug for DeliveryRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.action.fmt(f)
    }
}

impl Request<Deliveries> for DeliveryRequest {
    fn call(&self) -> WorldCall<Deliveries> {
        engine::call(&self.action)
    }

    fn weight(&self) -> u64 {
        match &self.action {
            Action::Ingest(_) => 40_000,
            Action::Timer(timer) => match timer.timer {
                AnyTimer::Wake(WakeTimer::Consumer(_))
                | AnyTimer::Delivery(
                    DeliveryTimer::Delivery(_) | DeliveryTimer::DeliveryGroup(_),
                ) => 4_000,
                _ => 20_000,
            },
            _ => 4_000,
        }
    }

    fn decided(
        &mut self,
        world: &mut Deliveries,
        decision: &Decision<'_, Deliveries>,
    ) -> CheckResult {
        if decision.outcome == Some(&Err(DeliveryError::Unavailable)) {
            return Ok(());
        }
        self.expected = world.decided.apply(&self.action);
        if matches!(self.action, Action::Trim { .. }) {
            world.decided.trimmed = world.trims_asked;
        }
        if decision.outcome.is_some() {
            return self.check_rests_on_durable(world);
        }
        world.undurable.push(decision.batch, self.action.clone());
        Ok(())
    }

    fn answered(
        self: Box<Self>,
        world: &mut Deliveries,
        origin: Origin,
        told: Outcome<Deliveries>,
    ) -> CheckResult {
        self.end(world);
        let is_unavailable = told == Err(DeliveryError::Unavailable);
        if let Some(expected) = &self.expected
            && !is_unavailable
            && told != *expected
        {
            return Err(violation(format!("{self:?} was told {told:?}, not {expected:?}")));
        }
        if let (Action::CreateTextStream { tenant, .. }, Ok(_)) = (&self.action, &told) {
            world.unfit.insert(tenant.clone());
        }
        if let Some(attempt) = self.attempt {
            world.end_attempt(attempt, &self.action, told.is_ok());
        }
        if origin == Origin::Client && is_unavailable {
            world.repeat_if_named(self.action);
        }
        Ok(())
    }

    fn interrupted(self: Box<Self>, world: &mut Deliveries, origin: Origin) {
        self.end(world);
        if origin == Origin::Client {
            world.repeat_if_named(self.action);
        }
    }
}
