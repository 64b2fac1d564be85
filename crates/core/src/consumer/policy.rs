//! What differs between subscriptions: the policy that a consumer follows, as data.

use crate::time::Millis;

/// The two ways in which subscriptions are spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// A consumer for every stream that matches a pattern, with epochs and callbacks.
    Webhooks,
    /// One consumer for a whole subscription, with generations and leases (`__ds`).
    Leases,
}

/// How a consumer learns that there is work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeBy {
    /// A request to its endpoint.
    Webhook,
    /// An event in a stream that workers watch; whoever claims first has the work.
    Pull,
}

/// What a webhook's answer `{"done": true}` acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncDone {
    /// Everything up to the tail at the time of the answer.
    #[default]
    Tail,
    /// What the wake announced; the rest is announced by the next one.
    Snapshot,
}

/// How long to wait before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// 200 ms doubling to 30 s, up to a second more; from the eleventh retry on a minute, up to
    /// five seconds more.
    Webhooks,
    /// A second doubling to a minute, a fifth more or less.
    Leases,
    /// As a subscription's owner chose, up to a tenth less.
    Doubling { initial_ms: u64, max_ms: u64 },
}

impl Schedule {
    /// The pause before retry number `retry`, which begins at 1. `random` is any number.
    pub fn delay_ms(self, retry: u32, random: u64) -> u64 {
        match self {
            Schedule::Webhooks if retry <= 10 => {
                let base = 100_u64.checked_shl(retry).unwrap_or(u64::MAX).min(30_000);
                base + random % 1_001
            }
            Schedule::Webhooks => 60_000 + random % 5_001,
            Schedule::Leases => {
                let doublings = retry.saturating_sub(1).min(6);
                let base = (1_000_u64 << doublings).min(60_000);
                base - base / 5 + random % (2 * base / 5 + 1)
            }
            Schedule::Doubling { initial_ms, max_ms } => {
                let factor = 1_u64.checked_shl(retry.saturating_sub(1)).unwrap_or(u64::MAX);
                let base = initial_ms.saturating_mul(factor).min(max_ms);
                base - random % (base / 10 + 1)
            }
        }
    }
}

/// The rules that one consumer follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub dialect: Dialect,
    /// How it is woken.
    pub wake_by: WakeBy,
    /// An attempt without any sign of life for this long is followed by another.
    pub waking_timeout_ms: u64,
    /// A consumer that is working is taken for dead after this long without a callback.
    pub lease_ms: u64,
    /// The pauses between attempts.
    pub schedule: Schedule,
    /// Multiplies the pauses, in thousandths.
    pub retry_scale_milli: u64,
    /// Failing without interruption for this long removes the consumer.
    pub give_up_after_ms: Option<u64>,
    /// A consumer that was given up can be brought back for this long.
    pub keep_given_up_ms: u64,
    /// What a synchronous `done` acknowledges.
    pub sync_done: SyncDone,
    /// At least this long from one wake to the next, unless events would wait too long for it.
    pub min_interval_ms: u64,
    /// Events may wait this long to be announced together.
    pub max_delay_ms: Option<u64>,
    /// Nobody is told for now: what is pending waits.
    pub is_paused: bool,
}

impl Policy {
    /// When the next attempt is due after `failed` of them.
    pub(super) fn retry_at(&self, now: Millis, failed: u32, random: u64) -> Millis {
        let delay = self.schedule.delay_ms(failed, random);
        now + delay.saturating_mul(self.retry_scale_milli) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_webhook_schedule_is_the_specifications() {
        let bases: Vec<u64> = (1..=12).map(|n| Schedule::Webhooks.delay_ms(n, 0)).collect();
        let expected =
            [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000, 60_000, 60_000];
        assert_eq!(bases, expected);
        assert_eq!(Schedule::Webhooks.delay_ms(1, 1_000), 1_200);
        assert_eq!(Schedule::Webhooks.delay_ms(11, 5_000), 65_000);
        assert_eq!(Schedule::Webhooks.delay_ms(u32::MAX, 5_001), 60_000);
    }

    #[test]
    fn the_lease_schedule_doubles_to_a_minute_give_or_take_a_fifth() {
        let span = |n| {
            let low = Schedule::Leases.delay_ms(n, 0);
            let base = low + low / 4;
            (low, Schedule::Leases.delay_ms(n, 2 * base / 5))
        };
        assert_eq!(span(1), (800, 1_200));
        assert_eq!(span(2), (1_600, 2_400));
        assert_eq!(span(7), (48_000, 72_000));
        assert_eq!(span(4_000), (48_000, 72_000));
    }

    #[test]
    fn a_chosen_schedule_doubles_to_its_end_and_never_beyond() {
        let chosen = Schedule::Doubling { initial_ms: 100, max_ms: 1_000 };
        let longest: Vec<u64> = (1..=6).map(|n| chosen.delay_ms(n, 0)).collect();
        assert_eq!(longest, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(chosen.delay_ms(1, 10), 90);
        assert_eq!(chosen.delay_ms(1, 11), 100);
        assert_eq!(chosen.delay_ms(u32::MAX, 100), 900);
        let long = Schedule::Doubling { initial_ms: 3_600_000, max_ms: 86_400_000 };
        assert_eq!(long.delay_ms(63, 0), 86_400_000);
    }
}
