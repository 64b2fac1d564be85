//! What somebody may do to a consumer who looks after it: wake it, move it, bring it back.

use std::sync::Arc;

use super::{Given, Phase, Rejected, RemovalReason, Stage, Transition};
use crate::offset::{Offset, ReadFrom};
use crate::path::StreamPath;

impl Transition {
    /// Tells the consumer now, whatever it waits for. Who is at work is left alone, unless that is
    /// to end: then somebody else is told, under a new epoch.
    pub(super) fn wake_now(&mut self, given: &Given<'_>, force: bool) -> Result<(), Rejected> {
        self.check_not_gone()?;
        if given.policy.is_paused {
            return Err(Rejected::SubscriptionPaused);
        }
        let phase = self.consumer.phase.clone();
        if matches!(phase, Phase::Live { .. }) && !force {
            return Err(Rejected::AtWork { epoch: self.consumer.epoch });
        }
        if !self.consumer.is_pending(given) {
            return Err(Rejected::NothingPending);
        }
        match phase {
            Phase::Waking { attempt, stage: Stage::Paused { .. } } if !force => {
                self.tell(given, attempt.saturating_add(1));
            }
            // It is being told.
            Phase::Waking { stage: Stage::Sent { .. }, .. } if !force => {}
            _ => self.wake(given),
        }
        Ok(())
    }

    /// Moves the consumer in a stream that it follows, or in all. Whoever works for it is fenced
    /// off, and what there is to do from there on is told.
    pub(super) fn seek(
        &mut self,
        given: &Given<'_>,
        stream: Option<&StreamPath>,
        to: ReadFrom,
    ) -> Result<(), Rejected> {
        self.check_not_gone()?;
        let mut found = false;
        for link in &mut self.consumer.links {
            if stream.is_some_and(|stream| *stream != link.path) {
                continue;
            }
            found = true;
            let tail = (given.tail)(link);
            let out_of_range = || Rejected::OutOfRange { path: link.path.as_str().into(), tail };
            link.acked = match to {
                ReadFrom::Start => None,
                ReadFrom::Now => tail,
                ReadFrom::At(offset) if Some(offset) <= tail => Some(offset),
                ReadFrom::At(_) => return Err(out_of_range()),
            };
        }
        if !found {
            let path = stream.map_or("", |stream| stream.as_str());
            return Err(Rejected::NotFollowed { path: Arc::from(path) });
        }
        self.consumer.failing_since = None;
        self.consumer.fruitless_dones = 0;
        let is_pending = self.consumer.is_pending(given);
        if is_pending && !given.policy.is_paused {
            self.wake(given);
            return Ok(());
        }
        // Who was never woken has nobody to be fenced off.
        self.consumer.epoch += u64::from(self.consumer.wake_id.take().is_some());
        self.consumer.phase = Phase::Idle { wake_at: None };
        // While the subscription is paused it rests with its work.
        self.consumer.pending_since = is_pending.then_some(given.now);
        self.consumer.holder = None;
        Ok(())
    }

    /// A consumer that was given up goes on where it stood.
    pub(super) fn revive(&mut self, given: &Given<'_>) -> Result<(), Rejected> {
        if self.consumer.phase != Phase::Gone(RemovalReason::Failed) {
            return Err(Rejected::NotGivenUp);
        }
        self.begin_again();
        match self.consumer.is_pending(given) {
            true if given.policy.is_paused => self.consumer.pending_since = Some(given.now),
            true => self.wake(given),
            false => {}
        }
        Ok(())
    }

    /// What was given up has been kept for long enough: the consumer begins anew, with whatever
    /// comes next.
    pub(super) fn forget_given_up(&mut self, given: &Given<'_>) {
        self.begin_again();
        for link in &mut self.consumer.links {
            let tail: Option<Offset> = (given.tail)(link);
            link.acked = link.acked.max(tail);
        }
        if self.consumer.is_pending(given) {
            self.wake_or_collect(given);
        }
    }

    fn begin_again(&mut self) {
        self.consumer.phase = Phase::Idle { wake_at: None };
        self.consumer.given_up = None;
        self.consumer.failing_since = None;
        self.consumer.pending_since = None;
        self.consumer.holder = None;
    }

    fn check_not_gone(&self) -> Result<(), Rejected> {
        match self.consumer.phase {
            Phase::Gone(RemovalReason::Failed) => Err(Rejected::GivenUp),
            Phase::Gone(RemovalReason::Unsubscribed) => Err(Rejected::Gone),
            Phase::Idle { .. } | Phase::Waking { .. } | Phase::Live { .. } => Ok(()),
        }
    }
}
