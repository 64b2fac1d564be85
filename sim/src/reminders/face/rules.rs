//! What a hook for reminders wishes, and the rules that follow from that.

use reveille_core::delivery::hook::FaceId;
use reveille_core::delivery::policy::{Backoff, Jitter, Order, Policy, StatusSet};

/// Far from the numbers of real faces.
pub(crate) const FACE: FaceId = FaceId(0xe0);

/// What the owner of a hook wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReminderSpec {
    /// One bit for each topic.
    pub(crate) topics: u8,
    /// Which of the endpoints is told.
    pub(crate) endpoint: u8,
}

impl ReminderSpec {
    /// Whether it is for reminders of this topic.
    pub(crate) fn wants(self, topic: u8) -> bool {
        self.topics & (1 << topic) != 0
    }
}

/// Unlike that of events in everything: few attempts, pauses that chance shortens, refusals that are
/// final, endpoints that end the hook, an order for each subject.
pub(crate) fn policy() -> Policy {
    let backoff = Backoff { base_ms: 2_000, cap_ms: 3_000, jitter: Jitter::Shortened };
    Policy {
        refused: StatusSet::Final4xx,
        ends: Some(410),
        order: Order::Lanes,
        ..Policy::new(4_000, 3, backoff)
    }
}

/// Reminders of one subject come one after another. Two subjects may share a lane.
pub(crate) fn lane_of(subject: &str) -> u64 {
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    subject.bytes().fold(0xcbf2_9ce4_8422_2325, hash) % 5
}
