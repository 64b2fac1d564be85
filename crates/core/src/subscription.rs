//! A subscription: who is to be told of which streams, and how.

mod change;
mod retry;

use std::sync::Arc;

pub use change::{NewSecret, SubscriptionChange};
pub use retry::{RetryError, RetrySettings};

use crate::consumer::{Dialect, Policy, Schedule, SyncDone, WakeBy};
use crate::limits::{DESCRIPTION_BYTES_MAX, SUBSCRIPTION_NAME_BYTES_MAX};
use crate::offset::{Offset, ReadFrom};
use crate::path::StreamPath;
use crate::pattern::Pattern;
use crate::secret::SealedSecret;
use crate::stream::{Head, StreamId};
use crate::tenant::Tenant;
use crate::time::Millis;

/// One incarnation of a subscription, from the same numbers as streams have: the larger of two is
/// the younger. One that is deleted and created again gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// A subscription as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// This incarnation.
    pub id: SubscriptionId,
    pub tenant: Tenant,
    /// When it was made.
    pub created_at: Millis,
    /// Signs its webhooks, in the dialect where every subscription has a secret of its own.
    pub secret: Option<SealedSecret>,
    /// The secret before that one, for as long as both sign.
    pub previous_secret: Option<PreviousSecret>,
    /// The id of the key by which it was made, if the server asked for one.
    pub created_by: Option<Arc<str>>,
    /// The id of the key by which it was changed last.
    pub changed_by: Option<Arc<str>>,
    /// Since when nobody is told, by the wall clock.
    pub paused_at: Option<Millis>,
    /// When its consumers were last made to look again whether they are to be told: the time of the
    /// timer by which they do so.
    pub reviewed_at: Option<Millis>,
    /// What it was asked to be.
    pub spec: SubscriptionSpec,
}

/// A secret that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousSecret {
    pub sealed: SealedSecret,
    /// Until when it signs, by the wall clock.
    pub until: Millis,
}

/// What makes a subscription: asked for twice alike, it is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSpec {
    pub dialect: Dialect,
    /// Its name among those of its tenant and dialect.
    pub name: Arc<str>,
    /// The streams it is for.
    pub pattern: Option<Pattern>,
    /// Streams it is for by name, as they were asked for at first.
    pub streams: Vec<StreamPath>,
    /// Who is told.
    pub target: Target,
    /// For people.
    pub description: Option<Arc<str>>,
    /// How long a worker may be silent, if the dialect lets that be chosen.
    pub lease_ms: Option<u64>,
    /// When and how wakes are made.
    pub coalescing: Coalescing,
    /// How those that fail are made again.
    pub retry: RetrySettings,
    /// Where it begins in streams that are older than it is.
    pub start: ReadFrom,
    /// The address by which the creator reached the server: callbacks are to come back there.
    pub base_url: Option<Arc<str>>,
}

/// When wakes are made, and what a synchronous `done` means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coalescing {
    /// At least this long from one wake to the next, unless events would wait too long for it.
    pub min_interval_ms: u64,
    /// Events may wait this long to be announced together.
    pub max_delay_ms: Option<u64>,
    /// A condition under which they wait no longer.
    pub wake_if: Option<Arc<str>>,
    /// What a synchronous `done` acknowledges.
    pub sync_done: SyncDone,
}

/// Who is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An endpoint.
    Webhook(Arc<str>),
    /// Workers that watch a stream.
    Pull(StreamPath),
}

/// What a server lets its operator choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timings {
    /// One webhook request.
    pub webhook_timeout_ms: u64,
    /// An unclaimed wake, until the next attempt.
    pub waking_timeout_ms: u64,
    /// A consumer without a callback, until it is taken for dead.
    pub liveness_timeout_ms: u64,
    /// Callback tokens.
    pub token_ttl_ms: u64,
    /// Continuous failure, until the consumer is removed.
    pub give_up_after_ms: u64,
    /// How long a consumer that was given up can be brought back.
    pub keep_given_up_ms: u64,
    /// Multiplies retry delays, in thousandths.
    pub retry_scale_milli: u64,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            webhook_timeout_ms: 30_000,
            waking_timeout_ms: 10_000,
            liveness_timeout_ms: 45_000,
            token_ttl_ms: 3_600_000,
            give_up_after_ms: 3 * 86_400_000,
            keep_given_up_ms: 30 * 86_400_000,
            retry_scale_milli: 1_000,
        }
    }
}

/// A lease that nobody chose.
pub const LEASE_MS_DEFAULT: u64 = 30_000;
/// A lease is at least this long.
pub const LEASE_MS_MIN: u64 = 1_000;
/// A lease is at most this long.
pub const LEASE_MS_MAX: u64 = 600_000;

/// The request cannot become a subscription.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionSpecError {
    #[error(
        "a subscription id is 1 to {SUBSCRIPTION_NAME_BYTES_MAX} letters, digits, `-`, `_`, `.` or `~`"
    )]
    Name,
    /// The description.
    #[error("a description is at most {DESCRIPTION_BYTES_MAX} bytes long")]
    Description,
    /// A condition without an end.
    #[error("`wake_if` needs a `max_delay`: nothing may wait for ever")]
    Endless,
    #[error(transparent)]
    Retry(#[from] RetryError),
}

/// The event that tells workers of a wake.
pub fn wake_event(
    subscription: &Subscription,
    generation: u64,
    cause: Option<&StreamPath>,
    now: Millis,
) -> String {
    let event = serde_json::json!({
        "type": "wake",
        "subscription_id": &*subscription.spec.name,
        "stream": cause.map(relative),
        "generation": generation,
        "ts": now.0,
    });
    event.to_string()
}

/// Where the streams of the lease dialect live: its paths are relative to this.
pub const STREAM_ROOT: &str = "/v1/stream/";

/// A path as the lease dialect writes it.
pub fn relative(path: &StreamPath) -> &str {
    path.as_str().strip_prefix(STREAM_ROOT).unwrap_or(path.as_str())
}

/// Whether a subscription can have this name.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    (1..=SUBSCRIPTION_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

impl SubscriptionSpec {
    /// Checks what a type cannot.
    pub fn check(&self) -> Result<(), SubscriptionSpecError> {
        if !is_name(&self.name) {
            return Err(SubscriptionSpecError::Name);
        }
        let long = |text: &Arc<str>| text.len() > DESCRIPTION_BYTES_MAX;
        if self.description.as_ref().is_some_and(long) {
            return Err(SubscriptionSpecError::Description);
        }
        if self.coalescing.wake_if.is_some() && self.coalescing.max_delay_ms.is_none() {
            return Err(SubscriptionSpecError::Endless);
        }
        Ok(self.retry.check()?)
    }

    /// Whether both ask for the same subscription.
    pub fn is_same(&self, other: &SubscriptionSpec) -> bool {
        let described = match self.dialect {
            // A description is a label there, and part of the configuration here.
            Dialect::Webhooks => true,
            Dialect::Leases => self.description == other.description,
        };
        let SubscriptionSpec {
            dialect,
            name,
            pattern,
            streams,
            target,
            lease_ms,
            coalescing,
            retry,
            start,
            ..
        } = self;
        described
            && *dialect == other.dialect
            && *name == other.name
            && *pattern == other.pattern
            && *streams == other.streams
            && *target == other.target
            && *lease_ms == other.lease_ms
            && *coalescing == other.coalescing
            && *retry == other.retry
            && *start == other.start
    }
}

impl Subscription {
    /// The rules that its consumers follow.
    pub fn policy(&self, timings: &Timings) -> Policy {
        let SubscriptionSpec { dialect, target, lease_ms, coalescing, retry, .. } = &self.spec;
        let wake_by = match target {
            Target::Webhook(_) => WakeBy::Webhook,
            Target::Pull(_) => WakeBy::Pull,
        };
        let base = Policy {
            dialect: *dialect,
            wake_by,
            waking_timeout_ms: timings.waking_timeout_ms,
            lease_ms: timings.liveness_timeout_ms,
            schedule: retry.schedule(),
            retry_scale_milli: timings.retry_scale_milli,
            give_up_after_ms: Some(retry.give_up_after_ms.unwrap_or(timings.give_up_after_ms)),
            // Neither a token nor an answer that is under way may meet one that begins anew.
            keep_given_up_ms: timings
                .keep_given_up_ms
                .max(timings.token_ttl_ms)
                .max(timings.webhook_timeout_ms),
            sync_done: coalescing.sync_done,
            min_interval_ms: coalescing.min_interval_ms,
            max_delay_ms: coalescing.max_delay_ms,
            is_paused: self.paused_at.is_some(),
        };
        match dialect {
            Dialect::Webhooks => base,
            Dialect::Leases => Policy {
                lease_ms: lease_ms.unwrap_or(LEASE_MS_DEFAULT),
                schedule: Schedule::Leases,
                give_up_after_ms: None,
                sync_done: SyncDone::Snapshot,
                ..base
            },
        }
    }

    /// The secret that signs beside the current one at a time of the wall clock.
    pub fn previous_secret(&self, wall: Millis) -> Option<&SealedSecret> {
        let previous = self.previous_secret.as_ref().filter(|it| wall < it.until);
        previous.map(|it| &it.sealed)
    }

    /// Whether a stream is younger than the subscription: then nothing of it was ever processed.
    pub fn is_older_than(&self, stream: StreamId) -> bool {
        self.id.0 < stream.0
    }

    /// How far a stream counts as processed of which nobody was told yet; `before` is where it ended
    /// when the subscription began. A shorter one is begun at its tail, a trimmed one where it
    /// begins now, and one that is younger than the subscription at its beginning.
    pub fn start_in(&self, head: &Head, before: Option<Offset>) -> Option<Offset> {
        match self.spec.start {
            _ if self.is_older_than(head.id) => None,
            ReadFrom::Start => None,
            ReadFrom::Now => before,
            ReadFrom::At(offset) => before.map(|before| offset.max(head.first).min(before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::create::tests::new_head;

    fn subscription(start: ReadFrom) -> Subscription {
        let spec = SubscriptionSpec {
            dialect: Dialect::Webhooks,
            name: "s".into(),
            pattern: Pattern::parse("/a").ok(),
            streams: Vec::new(),
            target: Target::Webhook("https://example.com/".into()),
            description: None,
            lease_ms: None,
            coalescing: Coalescing::default(),
            retry: RetrySettings::default(),
            start,
            base_url: None,
        };
        Subscription {
            id: SubscriptionId(5),
            tenant: Tenant::default_tenant(),
            created_at: Millis(0),
            secret: None,
            previous_secret: None,
            created_by: None,
            changed_by: None,
            paused_at: None,
            reviewed_at: None,
            spec,
        }
    }

    #[test]
    fn a_subscription_begins_where_it_says_in_streams_that_are_older() {
        let head = |id: u64, first: u64| Head {
            id: StreamId(id),
            first: Offset::new(first),
            ..new_head("text/plain")
        };
        let begins = |start, id, first, before: u64| {
            subscription(start).start_in(&head(id, first), Some(Offset::new(before)))
        };
        let at = |position| Some(Offset::new(position));
        for (start, old, trimmed, short) in [
            (ReadFrom::Now, at(9), at(9), at(2)),
            (ReadFrom::Start, None, None, None),
            (ReadFrom::At(Offset::new(4)), at(4), at(6), at(2)),
        ] {
            assert_eq!(begins(start, 4, 0, 9), old, "{start:?}");
            assert_eq!(begins(start, 4, 6, 9), trimmed, "{start:?}");
            assert_eq!(begins(start, 4, 0, 2), short, "{start:?}");
            assert_eq!(begins(start, 6, 0, 9), None, "{start:?}: it is younger");
        }
    }
}
