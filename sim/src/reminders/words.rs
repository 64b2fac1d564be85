//! What is said: the encoder is asked as a server asks it, and its words are held against what was set.

use std::sync::Arc;

use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::policy::Refusal;
use reveille_core::secret::SealBroken;
use reveille_core::signature::verify_ed25519;
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::send;
use reveille_engine::effect::{DeliveryAttempt, EventPayload};
use reveille_engine::encoder::{
    DeliveryNotification, ReplayMark, SecretSource, SecretUnavailable, Signer, TargetContext,
};

use super::Reminders;
use super::face::ReminderSpec;
use super::model::HookModel;
use crate::base::{CheckResult, violation};

/// Reminders have secrets of their own.
struct NoSecrets;

impl SecretSource for NoSecrets {
    fn signing(&self, _: &Tenant, _: &str, _: Millis) -> Result<Vec<String>, SecretUnavailable> {
        Err(SecretUnavailable::Missing)
    }
}

impl Reminders {
    /// The face's encoder says what was set, to whom it was set for.
    pub(super) fn check_request(
        &self,
        hook: &Arc<Hook>,
        attempt: &DeliveryAttempt,
        event: EventPayload,
    ) -> CheckResult<Option<Refusal>> {
        let notification = self.notification(hook, attempt, event)?;
        let target = self.with_context(|world, context| world.encoders.target(hook, context));
        let target = target.map_err(|error| violation(error.to_string()))?;
        let number = attempt.attempt;
        let text_len = self.text_of(&notification.event)?.len();
        let said = match target.encode(&notification) {
            Ok(request) => {
                let body = std::str::from_utf8(&request.body).unwrap_or_default();
                self.check_words(attempt, &notification.event, body)?;
                None
            }
            Err(refused) => Some(refused.why),
        };
        let is_right = |spec: &ReminderSpec| {
            let address = format!("https://e{}.reminders.test/{}", spec.endpoint, hook.tenant);
            target.address() == address && spec.refusal(number, text_len) == said
        };
        if !self.followed_specs(hook, attempt.id).iter().any(is_right) {
            let address = target.address();
            return Err(violation(format!("{attempt:?} to {address}, and {said:?} is refused")));
        }
        Ok(said)
    }

    pub(super) fn notification(
        &self,
        hook: &Arc<Hook>,
        attempt: &DeliveryAttempt,
        event: EventPayload,
    ) -> CheckResult<DeliveryNotification> {
        let EventPayload { id: event, payload, .. } = event;
        let (now, hook) = (self.base.now, hook.clone());
        let (id, attempt) = (attempt.id, attempt.attempt);
        let replay = send::replay_mark(&self.base.reader(), &hook.tenant, id);
        let replay = replay.map_err(|error| violation(error.to_string()))?;
        let known = self.mark_of(id);
        if replay != known {
            return Err(violation(format!("{id:?} is made by {known:?}, and says {replay:?}")));
        }
        let (wall, traceparent) = (now, None);
        Ok(DeliveryNotification {
            hook,
            id,
            attempt,
            event,
            payload,
            now,
            wall,
            replay,
            traceparent,
        })
    }

    /// What a delivery knows of the replay that has made it.
    fn mark_of(&self, id: DeliveryId) -> Option<ReplayMark> {
        let replay = self.seen.deliveries.get(&id)?.replay?;
        let known = &self.seen.replays[&replay];
        let (reason, at) = (known.reason.clone(), Some(known.begun_at));
        Some(ReplayMark { id: replay, reason, at, count: id.no.round })
    }

    /// Asks the encoder with what it gets from a server.
    pub(super) fn with_context<T>(
        &self,
        ask: impl FnOnce(&Reminders, &TargetContext<'_>) -> T,
    ) -> T {
        let signer: Arc<dyn Signer> = self.signing_keys.clone();
        let secrets: Arc<dyn SecretSource> = Arc::new(NoSecrets);
        let open = &|_: &_| Err(SealBroken);
        ask(self, &TargetContext { open, signer: &signer, secrets: &secrets })
    }

    /// What a reminder that has come says.
    pub(super) fn text_of(&self, event: &Arc<str>) -> CheckResult<&str> {
        match self.durable.came.get(event) {
            Some((_, reminder)) => Ok(&reminder.text),
            None => Err(violation(format!("{event} has not come"))),
        }
    }

    /// Whoever is told finds what was set, signed with the key that the server signs with now.
    pub(super) fn check_words(
        &self,
        attempt: &DeliveryAttempt,
        event: &Arc<str>,
        message: &str,
    ) -> CheckResult {
        let wrong = |what: String| Err(violation(format!("{attempt:?} says {message:?}: {what}")));
        let (id, number) = (attempt.id, attempt.attempt);
        let DeliveryId { hook, no } = id;
        let id = format!("{}.{}.{}", hook.0, no.event.0, no.round);
        let expected = format!("{id}|{number}|{event}|{}", self.text_of(event)?);
        let Some((words, signature)) = message.rsplit_once('|') else {
            return wrong("it is not signed".into());
        };
        if words != expected {
            return wrong(format!("not {expected:?}"));
        }
        let key = self.signing_keys.current_key().public();
        let seconds = self.base.now.0 / 1_000;
        match verify_ed25519(&key, signature, words.as_bytes(), seconds, 0) {
            Ok(()) => Ok(()),
            Err(error) => wrong(error.to_string()),
        }
    }

    /// The wishes that a delivery may follow: those of the version that matched, or the latest,
    /// which may be decided and not durable.
    pub(super) fn followed_specs(&self, hook: &Hook, id: DeliveryId) -> Vec<ReminderSpec> {
        let known = &self.durable.hooks[&hook.name];
        if known.spec().style.is_matched() {
            let version = self.seen.deliveries.get(&id).map(|it| it.hook_version);
            return version.and_then(|version| known.version(version)).into_iter().collect();
        }
        let decided = self.decided.hooks.get(&hook.name).map(HookModel::spec);
        decided.into_iter().chain([known.spec()]).collect()
    }
}
