//! What differs between faces: the rules that a delivery follows, as data.

/// The rules that deliveries of one hook follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// One attempt may take this long.
    pub timeout_ms: u64,
    /// How often it is tried in all; none is as good as one.
    pub attempts: u32,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// Statuses that no repetition changes.
    pub refused: StatusSet,
    /// The status by which an endpoint ends the hook.
    pub ends: Option<u16>,
    /// In which order.
    pub order: Order,
}

/// Pauses that grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure; each further one doubles it.
    pub base_ms: u64,
    /// No pause is longer than this, but for what is added at random.
    pub cap_ms: u64,
    pub jitter: Jitter,
}

/// What chance makes of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// At most this much is added.
    Added { ms: u64 },
    /// It is shortened by at most half.
    Shortened,
}

/// In which order the deliveries of a hook are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As it comes: one that fails is overtaken.
    None,
    /// One after another wherever events have the same lane.
    Lanes,
}

/// Some statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusSet {
    /// None.
    Empty,
    /// Those from 400 to 499 but for the ones that ask for patience: 408, 425 and 429.
    Final4xx,
}

/// What an attempt's end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was accepted.
    Delivered,
    /// It failed, and may be tried again.
    Failed,
    /// It was refused for good.
    Refused,
    /// The endpoint wants nothing more of this hook.
    Ends,
}

/// An attempt that waits for its turn has this long on top of the time that it may take.
const LEASE_MARGIN_MS: u64 = 15_000;

impl Backoff {
    /// The pause after failed attempt `number`, which begins at 1. `random` is any number.
    pub fn delay_ms(self, number: u32, random: u64) -> u64 {
        let doublings = number.saturating_sub(1);
        let grown = 1_u64.checked_shl(doublings).and_then(|by| self.base_ms.checked_mul(by));
        let pause = grown.unwrap_or(u64::MAX).min(self.cap_ms);
        match self.jitter {
            Jitter::Added { ms } => pause.saturating_add(random % ms.saturating_add(1)),
            Jitter::Shortened => pause - random % (pause / 2 + 1),
        }
    }
}

impl StatusSet {
    fn contains(self, status: u16) -> bool {
        match self {
            StatusSet::Empty => false,
            StatusSet::Final4xx => {
                (400..500).contains(&status) && !matches!(status, 408 | 425 | 429)
            }
        }
    }
}

impl Policy {
    /// What an answer with this status means.
    pub fn judge(&self, status: u16) -> Verdict {
        match status {
            200..=299 => Verdict::Delivered,
            _ if self.ends == Some(status) => Verdict::Ends,
            _ if self.refused.contains(status) => Verdict::Refused,
            _ => Verdict::Failed,
        }
    }

    /// How long an attempt is taken for under way without a look.
    pub(super) fn lease_ms(&self) -> u64 {
        self.timeout_ms.saturating_add(LEASE_MARGIN_MS)
    }
}
