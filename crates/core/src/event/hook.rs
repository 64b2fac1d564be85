//! Hooks for typed events: what their owners wish, and which rules follow from that.

mod diff;

use std::sync::Arc;

pub use diff::hook_diff;

use super::EventPattern;
use super::worker::{RpcMethod, WorkerId};
use crate::Millis;
use crate::delivery::hook::FaceId;
use crate::delivery::id::EventNo;
use crate::delivery::policy::{Backoff, DeliveryLimits, Jitter, Order, Policy};
use crate::limits::FORMER_PATTERNS_MAX;
use crate::rate::Rate;
use crate::secret::SealedSecret;

/// The face of typed events.
pub const FACE: FaceId = FaceId(0x04);

/// Events whose type matches, to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHookSpec {
    pub pattern: EventPattern,
    pub worker: WorkerId,
    /// By which binding, if there is one of that name.
    pub binding: Option<Arc<str>>,
    /// What is called there.
    pub method: RpcMethod,
    /// How often a delivery is tried in all; none is as good as one.
    pub max_retries: u32,
    /// How long an attempt may take.
    pub timeout_ms: u64,
    /// Signs deliveries.
    pub secret: Option<SealedSecret>,
    /// Whether events are delivered one after another.
    pub ordered: bool,
    /// When it is tried again, and for how long.
    pub retry: Retry,
    /// How much is sent at once.
    pub limits: DeliveryLimits,
    /// What it was before, as far as that still counts.
    pub former: FormerSpec,
}

/// When deliveries are tried again, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The pause after the first failure; each further one is twice as long.
    pub initial_ms: u64,
    /// The longest pause.
    pub max_ms: u64,
    /// One that fails when it is older than this is tried no more.
    pub give_up_after_ms: Option<u64>,
}

/// The schedule of those who ask for no other.
impl Default for Retry {
    fn default() -> Retry {
        Retry { initial_ms: 1_000, max_ms: 300_000, give_up_after_ms: None }
    }
}

/// At most so much is added to a pause at random.
const JITTER_MS: u64 = 1_000;

/// What was changed about a hook, and still counts for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FormerSpec {
    /// The secret that was replaced, and until when it is valid beside the new one.
    pub secret: Option<(SealedSecret, Millis)>,
    /// The first event that the pattern is for; `None` if it never was another.
    pub pattern_since: Option<EventNo>,
    /// Patterns before this one, oldest first, while events of their time are still being told.
    pub patterns: Vec<FormerPattern>,
}

/// A pattern that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerPattern {
    pub pattern: EventPattern,
    /// The first event that it is not for.
    pub until: EventNo,
}

/// A hook's pattern was changed too often while events from before are still being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPatterns;

/// What may be changed about a hook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookUpdate {
    pub max_retries: Option<u32>,
    pub timeout_ms: Option<u64>,
    /// What is called.
    pub method: Option<RpcMethod>,
    pub worker: Option<WorkerId>,
    /// By which binding, or by none.
    pub binding: Option<Option<Arc<str>>>,
    /// For the events that come from now on.
    pub pattern: Option<EventPattern>,
    /// What signs from now on, if anything does.
    pub secret: Option<Option<SealedSecret>>,
    pub retry: Option<Retry>,
    /// So many attempts on their way, or as many as there are.
    pub concurrency: Option<Option<u32>>,
    /// So many in a second, or as many as there are.
    pub rate: Option<Option<Rate>>,
}

/// What no two hooks of a tenant may have alike.
pub type Identity = (WorkerId, EventPattern, RpcMethod);

impl EventHookSpec {
    /// What tells it from all others of its tenant.
    pub fn identity(&self) -> Identity {
        (self.worker.clone(), self.pattern.clone(), self.method.clone())
    }

    /// The rules that deliveries follow.
    pub fn policy(&self) -> Policy {
        let Retry { initial_ms, max_ms, .. } = self.retry;
        // Who asks for short pauses wants short ones.
        let jitter = Jitter::Added { ms: initial_ms.min(JITTER_MS) };
        let backoff = Backoff { base_ms: initial_ms, cap_ms: max_ms, jitter };
        Policy {
            order: if self.ordered { Order::Lanes } else { Order::None },
            give_up_after_ms: self.retry.give_up_after_ms,
            limits: self.limits,
            ..Policy::new(self.timeout_ms, self.max_retries, backoff)
        }
    }

    /// The same with some of it changed.
    #[must_use]
    pub fn edited(&self, edit: &HookUpdate) -> EventHookSpec {
        let mut former = self.former.clone();
        if edit.secret.is_some() {
            // Whoever sets a secret wants that one; two at once are for a rotation.
            former.secret = None;
        }
        EventHookSpec {
            max_retries: edit.max_retries.unwrap_or(self.max_retries),
            timeout_ms: edit.timeout_ms.unwrap_or(self.timeout_ms),
            method: edit.method.as_ref().unwrap_or(&self.method).clone(),
            worker: edit.worker.as_ref().unwrap_or(&self.worker).clone(),
            binding: edit.binding.as_ref().unwrap_or(&self.binding).clone(),
            pattern: edit.pattern.as_ref().unwrap_or(&self.pattern).clone(),
            secret: edit.secret.as_ref().unwrap_or(&self.secret).clone(),
            retry: edit.retry.unwrap_or(self.retry),
            limits: DeliveryLimits {
                concurrency: edit.concurrency.unwrap_or(self.limits.concurrency),
                rate: edit.rate.unwrap_or(self.limits.rate),
                ..self.limits
            },
            former,
            ..self.clone()
        }
    }

    /// The same as what comes after another, whose pattern was for the events before `next`. Of
    /// those from `oldest` on not everybody was told yet; `None` if everybody was.
    pub fn following(
        mut self,
        before: &EventHookSpec,
        next: EventNo,
        oldest: Option<EventNo>,
    ) -> Result<EventHookSpec, TooManyPatterns> {
        let patterns = &mut self.former.patterns;
        patterns.retain(|it| oldest.is_some_and(|oldest| oldest < it.until));
        if self.pattern != before.pattern {
            self.former.pattern_since = Some(next);
            if oldest.is_some() {
                patterns.push(FormerPattern { pattern: before.pattern.clone(), until: next });
            }
        }
        if patterns.len() > FORMER_PATTERNS_MAX {
            return Err(TooManyPatterns);
        }
        Ok(self)
    }

    /// The pattern that an event is matched with; `None` if it was another, which is forgotten.
    pub fn pattern_at(&self, event: EventNo) -> Option<&EventPattern> {
        let FormerSpec { patterns, pattern_since, .. } = &self.former;
        let former = patterns.iter().find(|it| event < it.until).map(|it| &it.pattern);
        let is_current = pattern_since.is_none_or(|since| since <= event);
        former.or_else(|| is_current.then_some(&self.pattern))
    }

    /// All patterns that events may be matched with.
    pub fn patterns(&self) -> impl Iterator<Item = &EventPattern> {
        self.former.patterns.iter().map(|it| &it.pattern).chain([&self.pattern])
    }

    /// The same with a new secret; the one before it is valid, too, until a time.
    #[must_use]
    pub fn with_rotated_secret(
        &self,
        secret: SealedSecret,
        until: Option<Millis>,
    ) -> EventHookSpec {
        let mut spec = EventHookSpec { secret: Some(secret), ..self.clone() };
        spec.former.secret = self.secret.clone().zip(until);
        spec
    }
}

#[cfg(test)]
mod tests;
