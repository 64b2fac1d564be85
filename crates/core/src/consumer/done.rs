//! The end of a wake, and patience with those who say that they are done and have done nothing.
//!
//! Work that is left is told again at once (L3). A handler that acknowledges nothing would be told
//! of the same work for ever, as fast as it answers: after a few such ends in a row there is a
//! pause before each further wake, until an ack moves or something is appended.

use super::{Given, Phase, Policy, Transition};

/// So many ends in a row that acknowledge nothing are followed by the next wake at once.
pub const FRUITLESS_FREE: u32 = 5;
/// The pause after the next one; it doubles with each.
const PAUSE_MS: u64 = 1_000;
/// No pause is longer.
const PAUSE_MS_MAX: u64 = 60_000;

impl Policy {
    /// How long to wait before the next wake, after so many fruitless ends in a row.
    pub(super) fn fruitless_pause_ms(&self, fruitless: u32) -> u64 {
        let Some(doublings) = fruitless.checked_sub(FRUITLESS_FREE + 1) else { return 0 };
        let pause = PAUSE_MS.saturating_mul(1 << doublings.min(6)).min(PAUSE_MS_MAX);
        pause.saturating_mul(self.retry_scale_milli) / 1_000
    }
}

impl Transition {
    /// The consumer says that it is done; `acked` is whether an ack moved with it.
    pub(super) fn done(&mut self, given: &Given<'_>, acked: bool) {
        let is_fruitless = !acked && self.consumer.is_pending(given);
        let fruitless = self.consumer.fruitless_dones.saturating_add(1);
        self.consumer.fruitless_dones = if is_fruitless { fruitless } else { 0 };
        let pause = given.policy.fruitless_pause_ms(self.consumer.fruitless_dones);
        if pause == 0 || given.policy.is_paused {
            self.rest(given);
            return;
        }
        self.consumer.holder = None;
        self.consumer.pending_since = Some(given.now);
        let at = self.wake_time(given, given.now).max(given.now + pause);
        self.consumer.phase = Phase::Idle { wake_at: Some(at) };
    }

    /// Whether it waits because it said too often that it was done.
    pub(super) fn is_held_back(&self) -> bool {
        matches!(self.consumer.phase, Phase::Idle { wake_at: Some(_) })
            && self.consumer.fruitless_dones > FRUITLESS_FREE
    }
}
