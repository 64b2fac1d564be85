//! What the answer to a webhook means for the consumer that it woke.

use std::collections::BTreeMap;

use super::{
    AnnouncedOffset, Answer, Consumer, Dialect, Given, GivenUp, Phase, RemovalReason, Stage,
    SyncDone, Transition, WakeBy,
};
use crate::offset::Offset;
use crate::path::StreamPath;
use crate::stream::StreamId;

impl Transition {
    /// Answers of wakes that are over, or of attempts that were given up, change nothing.
    pub(super) fn answered(
        &mut self,
        given: &Given<'_>,
        epoch: u64,
        attempt: u32,
        answer: &Answer,
    ) {
        // Work that waits to be claimed is sent to nobody.
        if epoch != self.consumer.epoch || given.policy.wake_by == WakeBy::Pull {
            return;
        }
        match (answer, self.consumer.phase.clone()) {
            (Answer::Accepted, Phase::Waking { stage, .. }) => {
                self.consumer.failing_since = None;
                self.accepted(given, stage);
            }
            (Answer::Accepted, Phase::Live { until }) => {
                // It claimed by callback before its answer came.
                self.consumer.failing_since = None;
                if given.policy.dialect == Dialect::Webhooks {
                    let until = until.max(given.now + given.policy.lease_ms);
                    self.consumer.phase = Phase::Live { until };
                }
            }
            (Answer::Done(announced), Phase::Waking { .. } | Phase::Live { .. }) => {
                self.consumer.failing_since = None;
                let acked = self.consumer.acknowledge_all(given, announced);
                self.done(given, acked);
            }
            (Answer::Failed, Phase::Waking { attempt: current, stage: Stage::Sent { .. } })
                if attempt == current =>
            {
                self.failed(given, current);
            }
            (Answer::Accepted | Answer::Done(_) | Answer::Failed, _) => {}
        }
    }

    fn accepted(&mut self, given: &Given<'_>, stage: Stage) {
        let until = match (given.policy.dialect, stage) {
            // The lease began with the wake; being polite does not prolong it.
            (Dialect::Leases, Stage::Sent { until }) => until,
            (Dialect::Leases, Stage::Paused { .. }) | (Dialect::Webhooks, _) => {
                given.now + given.policy.lease_ms
            }
        };
        self.consumer.phase = Phase::Live { until };
    }

    /// An attempt came to nothing: pause, and after too long a time give up for good.
    pub(super) fn failed(&mut self, given: &Given<'_>, attempt: u32) {
        if given.policy.is_paused {
            return self.put_off(given);
        }
        let since = *self.consumer.failing_since.get_or_insert(given.now);
        let policy = given.policy;
        if policy.give_up_after_ms.is_some_and(|after| given.now.since(since) >= after) {
            self.consumer.phase = Phase::Gone(RemovalReason::Failed);
            self.consumer.fruitless_dones = 0;
            let until = given.now + policy.keep_given_up_ms;
            self.consumer.given_up = Some(GivenUp { at: given.now, until });
            return;
        }
        let until = policy.retry_at(given.now, attempt, given.random);
        self.consumer.phase = Phase::Waking { attempt, stage: Stage::Paused { until } };
    }
}

impl Consumer {
    /// Says whether anything was acknowledged that was not before.
    fn acknowledge_all(&mut self, given: &Given<'_>, announced: &[AnnouncedOffset]) -> bool {
        let mut moved = false;
        let tails: BTreeMap<(&StreamPath, Option<StreamId>), Offset> =
            announced.iter().map(|it| ((&it.path, it.stream), it.tail)).collect();
        for link in &mut self.links {
            let tail = (given.tail)(link);
            let to = match given.policy.sync_done {
                SyncDone::Tail => tail,
                SyncDone::Snapshot => tails.get(&(&link.path, link.stream)).copied().min(tail),
            };
            moved |= to > link.acked;
            link.acked = link.acked.max(to);
        }
        moved
    }
}
