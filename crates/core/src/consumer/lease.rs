//! Work that is claimed by name, and given back.

use std::sync::Arc;

use super::{Given, Phase, Rejected, Transition, WakeId};

impl Transition {
    /// Gives the work to whoever asks first.
    pub(super) fn claim(&mut self, given: &Given<'_>, worker: &Arc<str>) -> Result<(), Rejected> {
        match &self.consumer.phase {
            Phase::Live { .. } => {
                let holder = self.consumer.holder.clone().unwrap_or_else(|| "somebody".into());
                return Err(Rejected::Held { holder, generation: self.consumer.epoch });
            }
            Phase::Idle { .. } if self.consumer.is_pending(given) => self.wake(given),
            Phase::Idle { .. } => return Err(Rejected::NoPendingWork),
            Phase::Gone(_) => return Err(Rejected::Gone),
            Phase::Waking { .. } => {}
        }
        self.consumer.holder = Some(worker.clone());
        self.consumer.phase = Phase::Live { until: given.now + given.policy.lease_ms };
        Ok(())
    }

    /// Takes the work back; what is left of it is announced again.
    pub(super) fn release(
        &mut self,
        given: &Given<'_>,
        epoch: u64,
        wake_id: WakeId,
    ) -> Result<(), Rejected> {
        let live = matches!(self.consumer.phase, Phase::Live { .. });
        if !live || epoch != self.consumer.epoch || Some(wake_id) != self.consumer.wake_id {
            return Err(Rejected::Fenced);
        }
        self.rest(given);
        Ok(())
    }
}
