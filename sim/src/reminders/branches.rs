//! The branches that the runs of this world must take.

use reveille_core::delivery::hook::{FIRST_VERSION, Hook};
use reveille_core::delivery::policy::{Outcome, Refusal};
use reveille_core::delivery::replay::LetterAction;
use reveille_core::delivery::{DeadReason, DropReason, ErrorKind, Phase, Verdict};
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::record::DeliveryRecord;

use super::Reminders;
use super::appends::DecidedAppends;
use super::snapshot::Snapshot;
use crate::base::engine::{AnyTimer, Timer};

/// An attempt that was begun is not made after all.
pub(super) const NOT_MADE: &str = "append: not made";
/// A gate that was open when a delivery was put into words has closed before it was appended.
pub(super) const CLOSED_MEANWHILE: &str = "append: the gate closed meanwhile";
pub(super) const STREAM_MADE: &str = "append: it makes its stream";
const FAN_OUT_SLICE: &str = "fan-out: a further slice";
const REPLAY_SLICE: &str = "replay: a slice";
const REPLAY_LETTER: &str = "replay: a letter is made again";
const DISCARDED: &str = "replay: letters are discarded";
const RETRY: &str = "replay: of one letter alone";
pub(super) const GATE_OPEN: &str = "gate: open";
const GATE_CLOSED: &str = "gate: closed";
const GATE_CANCELLED: &str = "gate: cancelled";
const FIRST: &str = "version: the first";
const LATEST: &str = "version: the latest";
const FORMER: &str = "version: one before the latest";

/// All of them.
pub(super) fn all() -> Vec<String> {
    let rest = [
        NOT_MADE,
        CLOSED_MEANWHILE,
        STREAM_MADE,
        FAN_OUT_SLICE,
        REPLAY_SLICE,
        REPLAY_LETTER,
        DISCARDED,
        RETRY,
        GATE_OPEN,
        GATE_CLOSED,
        GATE_CANCELLED,
        FIRST,
        LATEST,
        FORMER,
    ];
    let verdicts = ["delivered", "failed", "failed for", "dead", "dropped", "ends"];
    let verdicts = verdicts.map(|it| format!("verdict: {it}"));
    let refusals =
        [Refusal::PayloadTooLarge, Refusal::HeadersTooLarge, Refusal::SecretMissing].map(refusal);
    let outcomes = [
        Outcome::Answered { status: 200, retry_after_s: None },
        Outcome::Appended,
        Outcome::Unreadable,
        Outcome::Failed(ErrorKind::Timeout),
        Outcome::Failed(ErrorKind::Blocked),
        Outcome::Failed(ErrorKind::StreamClosed),
        Outcome::Failed(ErrorKind::StreamMismatch),
    ];
    // Nothing here is the doing of triggers.
    let dead = DeadReason::ALL.into_iter().filter(|why| *why != DeadReason::LoopGuard);
    rest.map(String::from)
        .into_iter()
        .chain(verdicts)
        .chain(dead.map(|why| format!("dead: {}", why.code())))
        .chain(DropReason::ALL.map(|why| format!("dropped: {}", why.code())))
        .chain(refusals)
        .chain(outcomes.into_iter().filter_map(outcome))
        .collect()
}

pub(super) fn verdict(verdict: Verdict) -> String {
    let word = match verdict {
        Verdict::Delivered => "delivered",
        Verdict::Failed => "failed",
        Verdict::FailedFor { .. } => "failed for",
        Verdict::Dead(_) => "dead",
        Verdict::Dropped(_) => "dropped",
        Verdict::Ends => "ends",
    };
    format!("verdict: {word}")
}

fn refusal(why: Refusal) -> String {
    let word = match why {
        Refusal::PayloadTooLarge => "the payload is too large",
        Refusal::HeadersTooLarge => "the headers are too large",
        Refusal::SecretMissing => "the secret is missing",
        Refusal::Unreadable => "the payload cannot be read",
    };
    format!("refusal: {word}")
}

/// What an attempt has come to; refusals are counted where they are made.
fn outcome(outcome: Outcome) -> Option<String> {
    let word = match outcome {
        Outcome::Answered { .. } => "answered",
        Outcome::Appended => "appended",
        Outcome::Unreadable => "unreadable",
        Outcome::Failed(kind) => kind.code(),
        Outcome::Refused(_) => return None,
    };
    Some(format!("outcome: {word}"))
}

impl Reminders {
    pub(super) fn take_outcome(&mut self, it: Outcome, means: Verdict) {
        let branches = &mut self.base.branches;
        match it {
            Outcome::Refused(why) => branches.take(&refusal(why)),
            _ => outcome(it).iter().for_each(|name| branches.take(name)),
        }
        branches.take(&verdict(means));
    }

    pub(super) fn take_gate(&mut self, ends_hook: bool) {
        self.base.branches.take(if ends_hook { GATE_CANCELLED } else { GATE_CLOSED });
    }

    pub(super) fn take_version(&mut self, current: &Hook, followed: &Hook) {
        self.base.branches.take(match followed.version {
            version if version < current.version => FORMER,
            FIRST_VERSION => FIRST,
            _ => LATEST,
        });
    }

    pub(super) fn take_timer(&mut self, timer: &Timer) {
        match timer.timer {
            AnyTimer::Delivery(DeliveryTimer::FanOut(..)) => self.base.branches.take(FAN_OUT_SLICE),
            AnyTimer::Delivery(DeliveryTimer::Replay(..)) => self.base.branches.take(REPLAY_SLICE),
            _ => {}
        }
    }

    /// What a batch has brought.
    pub(super) fn take_changes(&mut self, now: &Snapshot, decided: &DecidedAppends) {
        for (id, replay) in &now.replays {
            let before = self.seen.replays.get(id).map_or(0, |it| it.made);
            if replay.selection.action == LetterAction::Discard && replay.made > before {
                self.base.branches.take(DISCARDED);
            }
        }
        for (id, after) in &now.deliveries {
            let before = self.seen.deliveries.get(id);
            let had_ended = before.is_some_and(|it| it.delivery.ended_at().is_some());
            if before.is_none() && id.no.round > 0 {
                let name = if after.replay.is_some() { REPLAY_LETTER } else { RETRY };
                self.base.branches.take(name);
            }
            if !had_ended {
                self.take_end(after, decided.closed.contains(id));
            }
        }
    }

    fn take_end(&mut self, after: &DeliveryRecord, has_closed: bool) {
        let branches = &mut self.base.branches;
        match after.delivery.phase {
            Phase::Dead { why, .. } => branches.take(&format!("dead: {}", why.code())),
            Phase::Dropped { why, .. } => {
                branches.take(&format!("dropped: {}", why.code()));
                if has_closed {
                    branches.take(CLOSED_MEANWHILE);
                }
            }
            _ => {}
        }
    }
}
