//! Changing a subscription in place: what is not named stays, its consumers' progress above all.

use std::sync::Arc;

use super::{PreviousSecret, RetrySettings, Subscription, SubscriptionSpecError, Target};
use crate::consumer::SyncDone;
use crate::secret::SealedSecret;
use crate::time::Millis;

/// What is to be another; `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionChange {
    /// The endpoint that is called.
    pub webhook: Option<Arc<str>>,
    /// For people, or nothing.
    pub description: Option<Option<Arc<str>>>,
    pub min_interval_ms: Option<u64>,
    pub max_delay_ms: Option<Option<u64>>,
    pub wake_if: Option<Option<Arc<str>>>,
    pub sync_done: Option<SyncDone>,
    /// All of them together.
    pub retry: Option<RetrySettings>,
    /// Whether nobody is to be told for now.
    pub paused: Option<bool>,
    pub secret: Option<NewSecret>,
    /// The id of the key by which it is changed.
    pub by: Option<Arc<str>>,
}

/// A secret that takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecret {
    pub sealed: SealedSecret,
    /// How long the one before it goes on signing as well.
    pub overlap_ms: u64,
}

impl SubscriptionChange {
    /// Whether it only stops a subscription, or lets it go on.
    pub fn is_pause_alone(&self) -> bool {
        let alone = SubscriptionChange {
            paused: self.paused,
            by: self.by.clone(),
            ..SubscriptionChange::default()
        };
        self.paused.is_some() && *self == alone
    }
}

impl Subscription {
    /// The subscription as it becomes, at a time of the wall clock.
    pub fn changed(
        &self,
        change: &SubscriptionChange,
        wall: Millis,
    ) -> Result<Subscription, SubscriptionSpecError> {
        let mut next = self.clone();
        let coalescing = &mut next.spec.coalescing;
        replace(&mut coalescing.min_interval_ms, change.min_interval_ms.as_ref());
        replace(&mut coalescing.max_delay_ms, change.max_delay_ms.as_ref());
        replace(&mut coalescing.wake_if, change.wake_if.as_ref());
        replace(&mut coalescing.sync_done, change.sync_done.as_ref());
        replace(&mut next.spec.retry, change.retry.as_ref());
        replace(&mut next.spec.description, change.description.as_ref());
        if let Some(url) = &change.webhook {
            next.spec.target = Target::Webhook(url.clone());
        }
        next.spec.check()?;
        if let Some(NewSecret { sealed, overlap_ms }) = &change.secret {
            let until = wall + *overlap_ms;
            let replaced = next.secret.replace(sealed.clone()).filter(|_| *overlap_ms > 0);
            next.previous_secret = replaced.map(|sealed| PreviousSecret { sealed, until });
        }
        next.paused_at = match change.paused {
            None => self.paused_at,
            Some(false) => None,
            Some(true) => self.paused_at.or(Some(wall)),
        };
        // Whoever only stops it for a while chooses neither what is read nor who gets it.
        if next != *self && !change.is_pause_alone() {
            next.changed_by = change.by.clone();
        }
        Ok(next)
    }

    /// Whether this makes consumers of the one before look again whether they are to be told: it
    /// goes on, is told elsewhere, or at other times.
    pub fn is_to_be_reviewed(&self, before: &Subscription) -> bool {
        let is_told_otherwise = self.spec.target != before.spec.target
            || self.spec.coalescing != before.spec.coalescing;
        self.paused_at.is_none() && (before.paused_at.is_some() || is_told_otherwise)
    }
}

fn replace<T: Clone>(place: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        *place = value.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::Dialect;
    use crate::subscription::{Coalescing, SubscriptionId, SubscriptionSpec};
    use crate::tenant::Tenant;

    const WALL: Millis = Millis(1_000);

    fn subscription() -> Subscription {
        Subscription {
            id: SubscriptionId(8),
            tenant: Tenant::default_tenant(),
            created_at: Millis(1),
            secret: Some("old".into()),
            previous_secret: None,
            created_by: Some("maker".into()),
            changed_by: None,
            paused_at: None,
            reviewed_at: None,
            spec: SubscriptionSpec {
                dialect: Dialect::Webhooks,
                name: "s".into(),
                pattern: None,
                streams: Vec::new(),
                target: Target::Webhook("https://a.example".into()),
                description: Some("first".into()),
                lease_ms: None,
                coalescing: Coalescing {
                    max_delay_ms: Some(5),
                    wake_if: Some("bytes > 1".into()),
                    ..Coalescing::default()
                },
                retry: RetrySettings::default(),
                start: crate::offset::ReadFrom::Now,
                base_url: None,
            },
        }
    }

    #[test]
    fn what_is_not_named_stays() {
        let before = subscription();
        let nothing = SubscriptionChange { by: Some("k".into()), ..SubscriptionChange::default() };
        assert_eq!(before.changed(&nothing, WALL), Ok(before.clone()));
        let change = SubscriptionChange {
            webhook: Some("https://b.example".into()),
            description: Some(None),
            by: Some("k".into()),
            ..SubscriptionChange::default()
        };
        let mut expected = before.clone();
        expected.spec.target = Target::Webhook("https://b.example".into());
        expected.spec.description = None;
        expected.changed_by = Some("k".into());
        let after = before.changed(&change, WALL).unwrap();
        assert_eq!(after, expected);
        assert!(after.is_to_be_reviewed(&before) && !before.is_to_be_reviewed(&before));
    }

    #[test]
    fn what_would_wait_for_ever_is_refused() {
        let no_end =
            SubscriptionChange { max_delay_ms: Some(None), ..SubscriptionChange::default() };
        let refused = subscription().changed(&no_end, WALL);
        assert_eq!(refused, Err(SubscriptionSpecError::Endless));
        let both = SubscriptionChange { wake_if: Some(None), ..no_end };
        let after = subscription().changed(&both, WALL).unwrap();
        assert_eq!(after.spec.coalescing, Coalescing::default());
    }

    #[test]
    fn a_pause_has_one_beginning_and_changes_no_owner() {
        let paused = |paused| SubscriptionChange {
            paused: Some(paused),
            by: Some("operator".into()),
            ..SubscriptionChange::default()
        };
        let first = subscription().changed(&paused(true), WALL).unwrap();
        assert_eq!((first.paused_at, &first.changed_by), (Some(WALL), &None));
        let again = first.changed(&paused(true), Millis(9_000)).unwrap();
        assert_eq!(again, first);
        let resumed = again.changed(&paused(false), Millis(9_000)).unwrap();
        assert_eq!(resumed, subscription());
        assert!(resumed.is_to_be_reviewed(&again) && !first.is_to_be_reviewed(&resumed));
        assert!(paused(true).is_pause_alone() && !SubscriptionChange::default().is_pause_alone());
        let more = SubscriptionChange { wake_if: Some(None), ..paused(true) };
        assert!(!more.is_pause_alone());
    }

    #[test]
    fn two_secrets_sign_until_the_overlap_has_passed() {
        let rotate = |sealed: &str, overlap_ms| SubscriptionChange {
            secret: Some(NewSecret { sealed: sealed.into(), overlap_ms }),
            ..SubscriptionChange::default()
        };
        let rotated = subscription().changed(&rotate("new", 500), WALL).unwrap();
        assert_eq!(rotated.secret, Some("new".into()));
        assert_eq!(rotated.previous_secret(Millis(1_499)), Some(&"old".into()));
        assert_eq!(rotated.previous_secret(Millis(1_500)), None);
        let again = rotated.changed(&rotate("newest", 500), Millis(1_100)).unwrap();
        assert_eq!(again.previous_secret(Millis(1_200)), Some(&"new".into()));
        let at_once = rotated.changed(&rotate("newest", 0), Millis(1_100)).unwrap();
        assert_eq!(at_once.previous_secret, None);
    }
}
