//! A hook: who gets a delivery of which events, and how.

use std::sync::Arc;

use bytes::Bytes;

use super::id::EventNo;
use super::policy::{Order, Policy, Versions};
use super::{Delivery, Phase};
use crate::tenant::Tenant;
use crate::time::Millis;

/// One hook, from the same numbers as streams, subscriptions and events have: a hook is older than
/// the events that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId(pub u64);

/// A face: a source of events with hooks of its own. Timers of its domain have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaceId(pub u8);

/// The version of a hook as it was made.
pub const FIRST_VERSION: u64 = 1;

/// A hook as it is kept. What it is for, and what is said to whom, is its face's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub id: HookId,
    pub tenant: Tenant,
    /// The name that the world knows it by.
    pub name: Arc<str>,
    /// When it was made.
    pub created_at: Millis,
    /// When its owner last changed it.
    pub updated_at: Millis,
    /// How often its owner has said what it is: 1 as it was made, and one more with each change.
    pub version: u64,
    /// Whether its owner has it wait. What matches meanwhile is held.
    pub paused: bool,
    /// Since when nothing is sent to it, while that is so.
    pub stopped_at: Option<Millis>,
    /// When it was active, oldest first; the last one may be open.
    pub spans: Vec<ActiveSpan>,
    /// Events from before its time that it is still to get.
    pub backfill: Option<Backfill>,
    /// Whose hook it is.
    pub face: FaceId,
    /// The rules that its deliveries follow.
    pub policy: Policy,
    /// What its owner wishes, in the words of its face, which alone reads them.
    pub spec: Bytes,
    /// The id of the key by which it was made, if the server asked for one.
    pub created_by: Option<Arc<str>>,
}

/// A hook that has ended, for the dead letters that have outlived it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedHook {
    /// As it was last.
    pub hook: Hook,
    pub ended_at: Millis,
    /// What becomes of deliveries that had no end.
    pub open: OpenDeliveries,
    /// The key up to which its deliveries were looked through; empty before the first.
    pub after: Bytes,
    /// Whether all were, and only dead letters are left.
    pub is_cleared: bool,
}

/// What becomes of deliveries that have no end when their hook has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenDeliveries {
    /// They are forgotten.
    Drop,
    /// They become dead letters, if those outlive the hook.
    Bury,
}

/// From one event to before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveSpan {
    /// The first.
    pub from: EventNo,
    /// The first that it is not for; `None` if that has not come.
    pub to: Option<EventNo>,
}

/// Events that came before a hook, and that it is to get all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backfill {
    /// The next one to look at, or any before it.
    pub next: EventNo,
}

impl Hook {
    /// Whether it is active now.
    pub fn is_active(&self) -> bool {
        self.spans.last().is_some_and(|span| span.to.is_none())
    }

    /// Whether anything is sent to it now.
    pub fn is_sending(&self) -> bool {
        self.is_active() && !self.paused
    }

    /// Since when nothing is sent to it; `None` if that is not so.
    pub fn stopped_since(&self) -> Option<Millis> {
        (!self.is_sending()).then(|| self.stopped_at.unwrap_or(self.updated_at))
    }

    /// The same hook, changed by its owner now: if nothing is sent to it any more, that begins.
    #[must_use]
    pub fn changed_at(self, now: Millis) -> Hook {
        let stopped_at = (!self.is_sending()).then(|| self.stopped_at.unwrap_or(now));
        Hook { updated_at: now, stopped_at, ..self }
    }

    /// The former version that a delivery follows which began with one; `None` if that is the
    /// hook as it is.
    pub fn follows(&self, began_with: u64) -> Option<u64> {
        let is_former = began_with < self.version && self.policy.versions == Versions::Matched;
        is_former.then_some(began_with)
    }

    /// A former version of it, with whatever is not its owner's definition as it is now.
    #[must_use]
    pub fn as_formerly(&self, former: Hook) -> Hook {
        let Hook { spans, paused, stopped_at, backfill, .. } = self.clone();
        Hook { spans, paused, stopped_at, backfill, ..former }
    }

    /// Whether it still gets events from before its time, and all in their order: until it has
    /// caught up, newer ones come to it the same way.
    pub fn is_catching_up(&self) -> bool {
        self.backfill.is_some() && self.is_ordered()
    }

    /// Whether deliveries of the same lane are made one after another.
    pub fn is_ordered(&self) -> bool {
        self.policy.order == Order::Lanes
    }

    /// The same hook with everything before event `next` behind it.
    pub fn caught_up(&self, next: EventNo) -> Hook {
        let now = self.is_active().then_some(ActiveSpan { from: next, to: None });
        Hook { backfill: None, spans: now.into_iter().collect(), ..self.clone() }
    }

    /// Whether it was active when an event came.
    pub fn was_active_at(&self, event: EventNo) -> bool {
        let within = |span: &ActiveSpan| span.from <= event && span.to.is_none_or(|to| event < to);
        self.spans.iter().any(within)
    }

    /// The same hook, active or not from event `next` on. Spans that ended before `oldest`, the
    /// oldest event that not everybody was told of, are of no interest any more.
    pub fn with_active(&self, active: bool, next: EventNo, oldest: EventNo) -> Hook {
        let mut hook = self.clone();
        if active == hook.is_active() {
            return hook;
        }
        if active {
            hook.spans.retain(|span| span.to.is_some_and(|to| to > oldest));
            hook.spans.push(ActiveSpan { from: next, to: None });
        } else if let Some(last) = hook.spans.last_mut() {
            last.to = Some(next);
        }
        hook
    }
}

/// How a delivery is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It was never tried to an end.
    Pending,
    /// It was tried, and will be again.
    Failed,
    /// It was accepted.
    Delivered,
    /// It is tried no more.
    Dead,
    /// It is not owed any more.
    Dropped,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 5] = [
        Standing::Pending,
        Standing::Failed,
        Standing::Delivered,
        Standing::Dead,
        Standing::Dropped,
    ];
}

impl Delivery {
    /// How it is counted.
    pub fn standing(&self) -> Standing {
        match self.phase {
            Phase::Delivered { .. } => Standing::Delivered,
            Phase::Dead { .. } => Standing::Dead,
            Phase::Dropped { .. } => Standing::Dropped,
            _ if self.attempts.is_empty() => Standing::Pending,
            _ => Standing::Failed,
        }
    }
}

/// The deliveries of a hook, counted. Whatever began stands somewhere:
/// `begun = pending + failed + delivered + died + dropped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryCounts {
    /// Deliveries that began, ever.
    pub begun: u64,
    /// Never tried to an end, now.
    pub pending: u64,
    /// Tried, and to be tried again, now.
    pub failed: u64,
    /// Accepted, ever.
    pub delivered: u64,
    /// Given up, ever.
    pub died: u64,
    /// Not owed any more, ever.
    pub dropped: u64,
    /// Attempts that ended, ever.
    pub attempts: u64,
    /// Dead letters that nobody has had made again, now.
    pub dead_letters: u64,
    /// Deliveries that there is a record of, now.
    pub kept: u64,
    /// Attempts that there is a record of, now.
    pub logs: u64,
    /// Since when no attempt was accepted, if the last one was not.
    pub failing_since: Option<Millis>,
}

impl DeliveryCounts {
    /// Counts a delivery that has become another, begun (`None` before) or been forgotten (`None`
    /// after).
    pub fn moved(&mut self, before: Option<&Delivery>, after: Option<&Delivery>) {
        if let Some(before) = before {
            let now = self.of(before.standing());
            if after.is_some() {
                *now = now.saturating_sub(1);
            }
            self.kept = self.kept.saturating_sub(1);
            self.logs = self.logs.saturating_sub(count(before));
        }
        if let Some(after) = after {
            *self.of(after.standing()) += 1;
            self.kept += 1;
            self.logs += count(after);
            self.begun += u64::from(before.is_none());
            self.judge(before, after);
            self.attempts += count(after).saturating_sub(before.map_or(0, count));
        }
    }

    /// Follows whether attempts are accepted.
    fn judge(&mut self, before: Option<&Delivery>, after: &Delivery) {
        let Some(last) = after.attempts.last() else { return };
        let known = before.and_then(|before| before.attempts.last()).map(|it| it.number);
        if known == Some(last.number) {
            return;
        }
        match after.phase {
            Phase::Delivered { .. } => self.failing_since = None,
            _ => self.failing_since = self.failing_since.or(Some(last.at)),
        }
    }

    fn of(&mut self, standing: Standing) -> &mut u64 {
        match standing {
            Standing::Pending => &mut self.pending,
            Standing::Failed => &mut self.failed,
            Standing::Delivered => &mut self.delivered,
            Standing::Dead => &mut self.died,
            Standing::Dropped => &mut self.dropped,
        }
    }

    /// Whether whatever began stands somewhere.
    pub fn adds_up(&self) -> bool {
        let ended = self.delivered + self.died + self.dropped;
        self.begun == self.pending + self.failed + ended
    }
}

fn count(delivery: &Delivery) -> u64 {
    u64::try_from(delivery.attempts.len()).unwrap_or(u64::MAX)
}
