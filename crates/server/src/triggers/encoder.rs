//! What a trigger's endpoint is sent: the change, a token to call back with, and signatures.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::policy::Refusal;
use reveille_core::trigger::definition::Definition;
use reveille_core::trigger::message::ChangeMessage;
use reveille_core::trigger::payload::{
    self, Attempt, Payload, PayloadError, Replay, idempotency_key,
};
use reveille_core::trigger::token::{AllowedPath, Issue, TOKEN_TTL_S, TriggerClaims};
use reveille_core::trigger::{FACE, SecretRef, TriggerId};
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::replay::replay_name;
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryNotification, DeliveryTarget, RefusedDelivery, SecretSource, Signer,
    TargetContext, TargetError,
};
use reveille_engine::events::delivery_name;
use reveille_engine::triggers::definition_of;
use reveille_engine::triggers::secrets::DEFAULT_SECRET;
use reveille_kernel::error::Damaged;
use reveille_kernel::outbound::EncodedRequest;

use crate::http::trace::TRACEPARENT;

/// Puts deliveries of triggers into words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TriggerEncoder;

impl DeliveryEncoder for TriggerEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        let damaged = |_| Damaged(format!("hook {} has a name that no trigger has", hook.id.0));
        Ok(Arc::new(TriggerTarget {
            trigger: TriggerId::parse(&hook.name).map_err(damaged)?,
            tenant: hook.tenant.clone(),
            version: hook.version,
            definition: definition_of(hook)?,
            secrets: context.secrets.clone(),
            signer: context.signer.clone(),
        }))
    }
}

/// The endpoint of one version of a trigger.
pub(super) struct TriggerTarget {
    pub(super) trigger: TriggerId,
    pub(super) tenant: Tenant,
    pub(super) version: u64,
    pub(super) definition: Arc<Definition>,
    pub(super) secrets: Arc<dyn SecretSource>,
    pub(super) signer: Arc<dyn Signer>,
}

/// One request, as far as it is not the same for all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestParts<'a> {
    pub(super) delivery_id: &'a str,
    pub(super) attempt: u32,
    /// The server's time, by which secrets are valid.
    pub(super) now: Millis,
    /// What the wall clock shows.
    pub(super) wall: Millis,
    pub(super) replay: Option<Replay<'a>>,
    /// Whether nothing has happened, and the trigger is only tried.
    pub(super) is_test: bool,
}

impl TriggerTarget {
    /// The body and the headers of a request about a change.
    pub(super) fn encode_change(
        &self,
        change: &ChangeMessage<'_>,
        parts: &RequestParts<'_>,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        // Whoever has such a letter made again after all learns of the change, and cannot go on.
        let is_loop = change.origin.is_exhausted();
        let token = (!is_loop).then(|| self.token(change, parts)).transpose()?;
        let payload = Payload {
            trigger: &self.trigger,
            version: self.version,
            definition: &self.definition,
            change,
            token: token.as_deref(),
            replay: parts.replay,
            is_test: parts.is_test,
        };
        let body = payload.encode().map_err(refusal)?;
        let key = idempotency_key(&self.tenant, &self.trigger, change.seq);
        self.sign(body, &key, parts)
    }

    /// A body with its headers.
    pub(super) fn sign(
        &self,
        body: Vec<u8>,
        idempotency_key: &str,
        parts: &RequestParts<'_>,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        let name = self.definition.secrets_ref.as_ref().map_or(DEFAULT_SECRET, SecretRef::as_str);
        let secrets = self.secrets.signing(&self.tenant, name, parts.now);
        let secrets = secrets.map_err(|why| unsigned(format!("`{name}`: {why}")))?;
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let attempt = Attempt {
            idempotency_key,
            delivery_id: parts.delivery_id,
            number: parts.attempt,
            timestamp_s: parts.wall.0 / 1_000,
            replay_id: parts.replay.map(|replay| replay.replay_id),
        };
        let headers = payload::headers(&self.definition, &attempt, &secrets, &body);
        let headers = headers.map_err(refusal)?;
        let headers = headers.into_iter().filter_map(|(name, value)| {
            // They were checked when the trigger was made.
            let name = HeaderName::try_from(name.as_ref()).ok()?;
            Some((name, HeaderValue::try_from(value.as_ref()).ok()?))
        });
        Ok(EncodedRequest { headers: headers.collect(), body: Bytes::from(body) })
    }

    /// The token for calls back (C-3): never more than the definition allows.
    fn token(
        &self,
        change: &ChangeMessage<'_>,
        parts: &RequestParts<'_>,
    ) -> Result<String, RefusedDelivery> {
        let Definition { collection, token: grant, .. } = &*self.definition;
        let paths = grant.resolve(collection, &change.path, &self.tenant);
        let paths = paths.map_err(|error| unsigned(error.to_string()))?;
        let paths: Result<Vec<AllowedPath>, _> =
            paths.iter().map(|path| AllowedPath::parse(path)).collect();
        let origin = change.origin.followed_by(self.trigger.as_str());
        let issued_at_s = parts.wall.0 / 1_000;
        let claims = TriggerClaims {
            tenant: self.tenant.clone(),
            trigger: self.trigger.to_shared(),
            scopes: grant.scopes,
            allow_paths: paths.map_err(|error| unsigned(error.to_string()))?,
            max_ops: grant.max_ops.map(u64::from),
            max_payload_kb: grant.max_payload_kb.map(u64::from),
            bypass_rules: grant.bypass_rules,
            origin: origin.map_err(|error| unsigned(error.to_string()))?,
            delivery: Some(parts.delivery_id.into()),
            issue: Issue {
                id: format!("{}.{}", parts.delivery_id, parts.attempt).into(),
                issued_at_s,
                expires_at_s: issued_at_s + TOKEN_TTL_S,
            },
        };
        let token = self.signer.trigger_key().mint(&claims);
        token.map_err(|error| unsigned(error.to_string()))
    }
}

/// What signs a request, or the token in it, is not to be had: it is tried again (DEL-5).
fn unsigned(text: String) -> RefusedDelivery {
    RefusedDelivery { why: Refusal::SecretMissing, text }
}

fn refusal(error: PayloadError) -> RefusedDelivery {
    let why = match error {
        PayloadError::TooLarge(_) => Refusal::PayloadTooLarge,
        PayloadError::HeadersTooLarge(_) => Refusal::HeadersTooLarge,
        PayloadError::Unreadable(_) => Refusal::Unreadable,
    };
    RefusedDelivery { why, text: error.to_string() }
}

impl DeliveryTarget for TriggerTarget {
    fn address(&self) -> String {
        self.definition.url.to_string()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        let DeliveryNotification { id, attempt, payload, now, wall, replay, .. } = notification;
        let change = ChangeMessage::parse(payload).map_err(|error| refusal(error.into()))?;
        let delivery_id = delivery_name(*id);
        let replay_id = replay.as_ref().map(|replay| replay_name(replay.id));
        let date = |at: Millis| Millis((wall.0 + at.0).saturating_sub(now.0)).to_rfc3339();
        let at = replay.as_ref().and_then(|replay| replay.at).map(date);
        let mark = replay.as_ref().zip(replay_id.as_deref()).map(|(replay, replay_id)| Replay {
            replay_id,
            reason: replay.reason.as_deref(),
            at: at.as_deref(),
            count: replay.count,
        });
        let parts = RequestParts {
            delivery_id: &delivery_id,
            attempt: *attempt,
            now: *now,
            wall: *wall,
            replay: mark,
            is_test: false,
        };
        let mut request = self.encode_change(&change, &parts)?;
        let traceparent = notification.traceparent.as_deref();
        if let Some(value) = traceparent.and_then(|text| HeaderValue::try_from(text).ok()) {
            request.headers.push((TRACEPARENT, value));
        }
        Ok(request)
    }
}
