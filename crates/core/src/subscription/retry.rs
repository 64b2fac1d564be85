//! How often and for how long a subscription's endpoint is tried.

use crate::consumer::Schedule;

/// The first pause, where only the longest is chosen.
const INITIAL_MS_DEFAULT: u64 = 200;
/// The longest pause, where only the first is chosen.
const MAX_MS_DEFAULT: u64 = 60_000;
const INITIAL_MS_MIN: u64 = 10;
const INITIAL_MS_MAX: u64 = 3_600_000;
const MAX_MS_MAX: u64 = 86_400_000;
const GIVE_UP_MS_MIN: u64 = 60_000;
const GIVE_UP_DAYS_MAX: u64 = 365;
const GIVE_UP_MS_MAX: u64 = GIVE_UP_DAYS_MAX * 86_400_000;

/// What a subscription's owner may choose of its retries; the rest is the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetrySettings {
    /// The pause before the first retry; each one after it is twice as long.
    pub initial_ms: Option<u64>,
    /// No pause is longer.
    pub max_ms: Option<u64>,
    /// Failing without interruption for this long ends the consumer.
    pub give_up_after_ms: Option<u64>,
}

/// Why settings cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    #[error("`retry.initial` is 10ms to 1h")]
    Initial,
    #[error(
        "`retry.max` is at least as long as `retry.initial` (200ms if that is not given), and 1d at \
         most"
    )]
    Max,
    #[error("`retry.giveUpAfter` is 1m to 365d")]
    GiveUpAfter,
}

impl RetrySettings {
    pub(super) fn check(&self) -> Result<(), RetryError> {
        let initial = self.initial_ms.unwrap_or(INITIAL_MS_DEFAULT);
        if !(INITIAL_MS_MIN..=INITIAL_MS_MAX).contains(&initial) {
            return Err(RetryError::Initial);
        }
        if self.max_ms.is_some_and(|max| !(initial..=MAX_MS_MAX).contains(&max)) {
            return Err(RetryError::Max);
        }
        let give_up = self.give_up_after_ms;
        if give_up.is_some_and(|after| !(GIVE_UP_MS_MIN..=GIVE_UP_MS_MAX).contains(&after)) {
            return Err(RetryError::GiveUpAfter);
        }
        Ok(())
    }

    /// The pauses between attempts.
    pub(super) fn schedule(&self) -> Schedule {
        if self.initial_ms.is_none() && self.max_ms.is_none() {
            return Schedule::Webhooks;
        }
        let initial_ms = self.initial_ms.unwrap_or(INITIAL_MS_DEFAULT);
        let max_ms = self.max_ms.unwrap_or(MAX_MS_DEFAULT).max(initial_ms);
        Schedule::Doubling { initial_ms, max_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(initial: u64, max: u64, give_up: u64) -> RetrySettings {
        let chosen = |ms: u64| (ms > 0).then_some(ms);
        RetrySettings {
            initial_ms: chosen(initial),
            max_ms: chosen(max),
            give_up_after_ms: chosen(give_up),
        }
    }

    #[test]
    fn settings_have_bounds() {
        let check = |initial, max, give_up, expected| {
            let settings = settings(initial, max, give_up);
            assert_eq!(settings.check(), expected, "{settings:?}");
        };
        check(0, 0, 0, Ok(()));
        check(10, 10, 60_000, Ok(()));
        check(3_600_000, 86_400_000, 365 * 86_400_000, Ok(()));
        check(9, 0, 0, Err(RetryError::Initial));
        check(3_600_001, 0, 0, Err(RetryError::Initial));
        check(1_000, 999, 0, Err(RetryError::Max));
        check(0, 199, 0, Err(RetryError::Max));
        check(0, 86_400_001, 0, Err(RetryError::Max));
        check(0, 0, 59_999, Err(RetryError::GiveUpAfter));
        check(0, 0, 365 * 86_400_000 + 1, Err(RetryError::GiveUpAfter));
    }

    #[test]
    fn what_is_not_chosen_is_as_it_was() {
        let schedule = |initial, max| settings(initial, max, 60_000).schedule();
        assert_eq!(schedule(0, 0), Schedule::Webhooks);
        assert_eq!(schedule(0, 500), Schedule::Doubling { initial_ms: 200, max_ms: 500 });
        assert_eq!(schedule(70_000, 0), Schedule::Doubling { initial_ms: 70_000, max_ms: 70_000 });
        assert_eq!(schedule(10, 0), Schedule::Doubling { initial_ms: 10, max_ms: 60_000 });
    }
}
