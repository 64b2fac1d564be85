//! A request of this world, and what its outcome means to whoever sent it.

use super::Wakes;
use super::action::{Action, TokenAction, WakeAnswer, WakeError, WakeResult};
use super::engine;
use super::oracle::Expectation;
use crate::base::{CheckResult, Decision, Origin, Outcome, Request, WorldCall, violation};

/// More than any command adds to a batch.
const WEIGHT: u64 = 12_000;

pub(super) struct WakeRequest {
    asked: TokenAction,
    sender: Sender,
    /// What must become of it, as far as that was known when it was decided.
    expectation: Expectation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Anybody,
    /// Attempts that have ended, by the number of their group.
    Endpoint(u64),
    /// Somebody who was woken.
    Agent(u64),
}

impl WakeRequest {
    pub(super) fn new(asked: TokenAction, sender: Sender) -> WakeRequest {
        WakeRequest { asked, sender, expectation: Expectation::default() }
    }

    /// Whoever was told that something is in a stream relies on it for as long as that lives.
    fn record_acknowledgment(&self, world: &mut Wakes, outcome: &WakeResult) {
        let is_appended = match outcome {
            Ok(WakeAnswer::Appended) => true,
            Ok(WakeAnswer::Heard(receipt)) => receipt.appended,
            Ok(WakeAnswer::Created(id)) => {
                let tokens = self.asked.tokens.iter().map(|(_, token)| token.clone());
                world.acknowledged.entry(*id).or_default().extend(tokens);
                return;
            }
            _ => false,
        };
        let targets = self.asked.tokens.iter().zip(&self.expectation.targets);
        for ((path, token), before) in targets.filter(|_| is_appended) {
            let Some(head) = world.seen.streams.get(path) else { continue };
            // What was there before and is there now was there when this was decided.
            if Some(head.id) == *before {
                world.acknowledged.entry(head.id).or_default().insert(token.clone());
            }
        }
    }
}

impl std::fmt::Debug for WakeRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.asked.action, self.sender)
    }
}

impl Request<Wakes> for WakeRequest {
    fn call(&self) -> WorldCall<Wakes> {
        engine::call(&self.asked.tenant, &self.asked.action)
    }

    fn weight(&self) -> u64 {
        WEIGHT
    }

    fn decided(&mut self, world: &mut Wakes, decision: &Decision<'_, Wakes>) -> CheckResult {
        self.expectation = world.expect(&self.asked, decision.now, decision.was_idle);
        if self.expectation.is_silent && decision.outcome.is_none() {
            return Err(violation(format!("S6: {self:?} changes something and comes too late")));
        }
        Ok(())
    }

    fn answered(
        self: Box<Self>,
        world: &mut Wakes,
        _origin: Origin,
        outcome: Outcome<Wakes>,
    ) -> CheckResult {
        if !matches!(outcome, Err(WakeError::Unavailable)) {
            world.check_expectation(&self.asked.action, &self.expectation, &outcome)?;
        }
        if let (Action::Claim { name, .. }, Ok(WakeAnswer::Leased(lease))) =
            (&self.asked.action, &outcome)
        {
            world.start_claim(name, lease)?;
        }
        if let (Action::RecordOutcomes(all), Ok(WakeAnswer::Recorded(done))) =
            (&self.asked.action, &outcome)
            && *done < all.len()
        {
            if *done == 0 {
                return Err(violation(format!("{self:?} comes to nothing")));
            }
            // The others were too much for one decision.
            let rest = Action::RecordOutcomes(all.iter().skip(*done).cloned().collect());
            world.send(Origin::Background, self.sender, rest);
            return Ok(());
        }
        match self.sender {
            Sender::Endpoint(group) => world.end_attempts(group),
            Sender::Agent(id) => world.answer_agent(id, &self.asked.action, &outcome),
            Sender::Anybody => {}
        }
        self.record_acknowledgment(world, &outcome);
        Ok(())
    }

    /// A report may have been sent once more, and arrive although nobody waits for its answer.
    fn interrupted(self: Box<Self>, world: &mut Wakes, _origin: Origin) {
        if matches!(self.sender, Sender::Agent(_)) && world.base.random.percent(70) {
            world.send_tokens(Origin::Background, Sender::Anybody, self.asked);
        }
    }
}
