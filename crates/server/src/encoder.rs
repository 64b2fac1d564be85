//! The encoders of everything that is sent: of wakes, whose dialects make their payloads and which are
//! signed here, and of deliveries, face by face.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use reveille_core::consumer::Dialect;
use reveille_core::signature;
use reveille_engine::encoder::{DeliveryEncoders, Encoder, WakeNotification};
use reveille_kernel::outbound::EncodedRequest;
use serde_json::Value;

use crate::events::{EventEncoder, Workers};
use crate::facts::{FactEncoder, FactSettings};
use crate::http::trace::TRACEPARENT;
use crate::triggers::TriggerEncoder;
use crate::{ds_subscriptions, wakes};

const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The encoders of all faces that deliver.
pub fn delivery_encoders(workers: Workers, facts: &FactSettings) -> DeliveryEncoders {
    let facts = FactEncoder { wake_template: facts.wake_template.clone() };
    DeliveryEncoders::default().with(EventEncoder { workers }).with(TriggerEncoder).with(facts)
}

/// Encodes wakes in the dialect of whoever gets them.
#[derive(Debug, Clone)]
pub struct PayloadEncoder {
    /// The base of callback URLs; if absent, the address by which a subscription was made.
    pub public_url: Option<Arc<str>>,
}

impl PayloadEncoder {
    fn base_url<'a>(&'a self, notification: &'a WakeNotification) -> &'a str {
        let base = self.public_url.as_ref().or(notification.subscription.spec.base_url.as_ref());
        base.map_or("", |base| base.trim_end_matches('/'))
    }
}

impl Encoder for PayloadEncoder {
    fn encode_wake(&self, notification: &WakeNotification) -> EncodedRequest {
        let base_url = self.base_url(notification);
        let payload = match notification.subscription.spec.dialect {
            Dialect::Webhooks => wakes::encode_wake(base_url, notification),
            Dialect::Leases => ds_subscriptions::encode_wake(base_url, notification),
        };
        let seconds = notification.wall.0 / 1_000;
        let signature = match &notification.secret {
            Some(secret) => {
                // Whoever reads one signature reads the first: it is by the secret that they had.
                let previous = notification.previous_secret.as_deref();
                let secrets = previous.into_iter().chain([secret.as_str()]);
                signature::hmac_header_of(secrets, seconds, &payload)
            }
            None => notification.signing.header(seconds, &payload),
        };
        let mut headers = Vec::with_capacity(3);
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
        let texts =
            [(WEBHOOK_SIGNATURE, Some(signature)), (TRACEPARENT, notification.traceparent.clone())];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
                headers.push((name, value));
            }
        }
        EncodedRequest { headers, body: payload.into() }
    }

    fn is_done(&self, body: &[u8]) -> bool {
        let body: Option<Value> = serde_json::from_slice(body).ok();
        body.is_some_and(|body| body.get("done") == Some(&Value::Bool(true)))
    }
}
