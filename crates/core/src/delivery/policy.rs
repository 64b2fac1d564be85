//! What differs between faces: the rules that a delivery follows, as data.

mod rule;

pub use rule::{Action, BadCodes, Outcome, Refusal, Rule, When};

use super::outcome::{AttemptRecord, DeadReason, DropReason, ErrorKind};
use crate::rate::Rate;
use crate::time::Millis;

/// The rules that deliveries of one hook follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// One attempt may take this long.
    pub timeout_ms: u64,
    /// How often it is tried in all; none is as good as one.
    pub attempts: u32,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// What outcomes mean, the first that fits before what follows.
    pub rules: Vec<Rule>,
    /// Statuses that no repetition changes.
    pub refused: StatusSet,
    /// The status by which an endpoint ends the hook.
    pub ends: Option<u16>,
    /// Whether an endpoint that is busy (429, 503) may say how long the next attempt is put off, up
    /// to the longest pause.
    pub retry_after: bool,
    /// When a delivery is given up because nothing will change; `None`: it never is.
    pub poison: Option<Poison>,
    /// In which order.
    pub order: Order,
    /// Which version of its hook a delivery follows.
    pub versions: Versions,
    /// One that fails when it is older than this is tried no more, even if attempts are left.
    pub give_up_after_ms: Option<u64>,
    /// How an attempt is made. A hook keeps the one that it was made with.
    pub transport: Transport,
    /// How much of it there may be at once. What waits for that uses up no attempt.
    pub limits: DeliveryLimits,
    /// What becomes of its dead letters when the hook ends.
    pub letters: Letters,
}

/// How an attempt is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A request to an endpoint.
    Http,
    /// An append to a stream of the hook's tenant, in the step that writes down what came of it.
    Append,
}

/// How much is sent at once. The limits of a hook as it is count, whichever version of it a delivery
/// follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryLimits {
    /// So many attempts of the hook are on their way at most; none is as good as one.
    pub concurrency: Option<u32>,
    /// So often they begin at most.
    pub rate: Option<Rate>,
    /// Whether they count among those of which a tenant may have only so many on their way.
    pub per_tenant: bool,
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

/// Which version of its hook a delivery follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// The hook as it is now: what its owner changes holds for what waits, too.
    Current,
    /// The hook as it was when the delivery began.
    Matched,
}

/// What becomes of dead letters when their hook ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// They go with it.
    GoWithHook,
    /// They stay for as long as deliveries are kept, to be looked at and discarded.
    OutliveHook,
}

/// Some statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusSet {
    /// None.
    Empty,
    /// Those from 400 to 499 but for the ones that ask for patience: 408, 425 and 429.
    Final4xx,
}

/// So many attempts, one after another, that each fail as quickly as this and in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poison {
    pub attempts: u32,
    pub within_ms: u64,
}

/// What an attempt's end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was accepted.
    Delivered,
    /// It failed, and may be tried again.
    Failed,
    /// The same, but not before so long, for which the endpoint has asked.
    FailedFor { ms: u64 },
    /// It is tried no more.
    Dead(DeadReason),
    /// It is not owed any more.
    Dropped(DropReason),
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

impl Poison {
    /// Whether these attempts, the last of which has just failed, say that nothing will change.
    pub(super) fn is_in(self, attempts: &[AttemptRecord]) -> bool {
        let Poison { attempts: count, within_ms } = self;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Some(first) = attempts.len().checked_sub(count).filter(|_| count > 0) else {
            return false;
        };
        let latest = attempts.get(first..).unwrap_or_default();
        let asks = |it: &AttemptRecord| {
            it.status == Some(429) || it.status == Some(503) && it.retry_after_s.is_some()
        };
        // Without what signs it nothing was sent: that says nothing about who it is for.
        let was_sent = |it: &AttemptRecord| it.kind != Some(ErrorKind::Secret);
        let failed = |it: &AttemptRecord| {
            it.error.is_some() && it.took_ms <= within_ms && !asks(it) && was_sent(it)
        };
        let is_alike = |one: &AttemptRecord, next: &AttemptRecord| {
            (one.status, one.kind) == (next.status, next.kind)
        };
        latest.iter().all(failed)
            && latest.iter().zip(latest.iter().skip(1)).all(|(one, next)| is_alike(one, next))
    }
}

impl Policy {
    /// Rules by which whatever fails is tried again, in no order.
    pub fn new(timeout_ms: u64, attempts: u32, backoff: Backoff) -> Policy {
        Policy {
            timeout_ms,
            attempts,
            backoff,
            rules: Vec::new(),
            refused: StatusSet::Empty,
            ends: None,
            retry_after: false,
            poison: None,
            order: Order::None,
            versions: Versions::Current,
            give_up_after_ms: None,
            transport: Transport::Http,
            limits: DeliveryLimits::default(),
            letters: Letters::GoWithHook,
        }
    }

    /// What an outcome means.
    pub fn judge(&self, outcome: Outcome) -> Verdict {
        if let Outcome::Answered { status: 200..=299, .. } | Outcome::Appended = outcome {
            return Verdict::Delivered;
        }
        match self.rules.iter().find(|rule| rule.when.fits(outcome)).map(|rule| rule.action) {
            Some(Action::Retry) => self.retry(outcome),
            Some(Action::Dead) => Verdict::Dead(outcome.dead_reason()),
            Some(Action::Drop) => Verdict::Dropped(DropReason::Status),
            Some(Action::End) => Verdict::Ends,
            None => self.judge_plainly(outcome),
        }
    }

    /// What an outcome means for which there is no rule.
    fn judge_plainly(&self, outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Answered { status, .. } if self.ends == Some(status) => Verdict::Ends,
            Outcome::Answered { status, .. } if self.refused.contains(status) => {
                Verdict::Dead(DeadReason::Refused)
            }
            // It would be the same the next time.
            Outcome::Refused(
                Refusal::PayloadTooLarge | Refusal::HeadersTooLarge | Refusal::Unreadable,
            ) => Verdict::Dead(outcome.dead_reason()),
            // What is closed is never opened again, and a stream keeps its type.
            Outcome::Failed(ErrorKind::StreamClosed | ErrorKind::StreamMismatch) => {
                Verdict::Dead(outcome.dead_reason())
            }
            _ => self.retry(outcome),
        }
    }

    fn retry(&self, outcome: Outcome) -> Verdict {
        match outcome {
            Outcome::Answered { status: 429 | 503, retry_after_s: Some(seconds) }
                if self.retry_after =>
            {
                let ms = seconds.saturating_mul(1_000).min(self.backoff.cap_ms);
                Verdict::FailedFor { ms }
            }
            _ => Verdict::Failed,
        }
    }

    /// Why a delivery is dead whose last attempt was this.
    pub(super) fn reason_of_last(attempt: Option<&AttemptRecord>) -> DeadReason {
        match attempt.and_then(|it| it.kind) {
            Some(ErrorKind::Secret) => DeadReason::SecretMissing,
            Some(ErrorKind::Blocked) => DeadReason::Blocked,
            _ => DeadReason::Exhausted,
        }
    }

    /// The time at which a delivery that began then is tried for the last time, if there is one.
    pub(super) fn last_attempt_at(&self, began_at: Millis) -> Option<Millis> {
        self.give_up_after_ms.map(|ms| began_at + ms)
    }

    /// How long an attempt is taken for under way without a look.
    pub(super) fn lease_ms(&self) -> u64 {
        self.timeout_ms.saturating_add(LEASE_MARGIN_MS)
    }
}

#[cfg(test)]
mod tests;
