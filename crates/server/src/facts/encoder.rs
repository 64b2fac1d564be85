//! Where events are delivered, and what stands around them.
//!
//! What is delivered was put into its envelope in the look in which it was allowed: nothing is added
//! here but headers. An agent is woken with two names, and asks for the rest itself.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::policy::Refusal;
use reveille_core::fact::FACE;
use reveille_core::fact::envelope::wake_message;
use reveille_core::fact::subscription::{Channel, event_id};
use reveille_core::fact::wake::WakeTemplate;
use reveille_core::{ContentType, StreamPath};
use reveille_engine::Damaged;
use reveille_engine::encoder::{
    AppendTarget, DeliveryEncoder, DeliveryNotification, DeliveryTarget, EncodedAppend,
    RefusedDelivery, Signer, TargetContext, TargetError,
};
use reveille_engine::facts::read_spec;
use reveille_kernel::outbound::EncodedRequest;

use crate::http::trace::TRACEPARENT;

const ATTEMPT: HeaderName = HeaderName::from_static("stigmem-attempt");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Puts deliveries of facts into words.
#[derive(Debug, Clone)]
pub(crate) struct FactEncoder {
    pub(crate) wake_template: Option<WakeTemplate>,
}

impl DeliveryEncoder for FactEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        match read_spec(hook)?.wanted.channel {
            Channel::Webhook(url) => Ok(Arc::new(Endpoint { url, signer: context.signer.clone() })),
            Channel::Wake(_) => Err(Damaged("an agent is not called".to_owned()).into()),
        }
    }

    fn append_target(
        &self,
        hook: &Hook,
        _context: &TargetContext<'_>,
    ) -> Result<Arc<dyn AppendTarget>, TargetError> {
        let Channel::Wake(agent) = read_spec(hook)?.wanted.channel else {
            return Err(Damaged("an endpoint has no stream".to_owned()).into());
        };
        let path = self.wake_template.as_ref().map(|template| template.path(&agent)).transpose();
        let path = path.map_err(|error| Damaged(format!("the agent {agent:?}: {error}")))?;
        let content_type = ContentType::parse("application/json")
            .ok_or_else(|| Damaged("JSON is a content type".to_owned()))?;
        Ok(Arc::new(Agent { path, content_type }))
    }
}

/// The endpoint of a subscription.
struct Endpoint {
    url: Arc<str>,
    signer: Arc<dyn Signer>,
}

impl DeliveryTarget for Endpoint {
    fn address(&self) -> String {
        self.url.to_string()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        let DeliveryNotification { id, attempt, payload, wall, traceparent, .. } = notification;
        let signature = self.signer.current_key().header(wall.0 / 1_000, payload);
        let mut headers = vec![
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ATTEMPT, HeaderValue::from(*attempt)),
        ];
        let texts = [
            (IDEMPOTENCY_KEY, Some(event_id(id.hook, id.no.event))),
            (WEBHOOK_SIGNATURE, Some(signature)),
            (TRACEPARENT, traceparent.clone()),
        ];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
                headers.push((name, value));
            }
        }
        Ok(EncodedRequest { headers, body: payload.clone() })
    }
}

/// The stream of an agent, while the server wakes any.
struct Agent {
    path: Option<StreamPath>,
    content_type: ContentType,
}

impl AppendTarget for Agent {
    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedAppend, RefusedDelivery> {
        let DeliveryNotification { hook, id, .. } = notification;
        let Some(path) = self.path.clone() else {
            // As with a secret: once the operator has said where, the next attempt is made.
            let text = "this server wakes nobody any more; start it with --wake-stream-template";
            return Err(RefusedDelivery { why: Refusal::SecretMissing, text: text.to_owned() });
        };
        let body = wake_message(&hook.name, id.hook, id.no.event).to_string();
        Ok(EncodedAppend { path, content_type: self.content_type.clone(), body: body.into() })
    }
}
