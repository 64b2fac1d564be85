//! Where workers are called, and what they are sent.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use reveille_core::delivery::hook::{EventHookSpec, Hook, HookSpec};
use reveille_core::event::worker::{Binding, WorkerTemplate};
use reveille_core::signature::standard::StandardSecret;
use reveille_engine::encoder::DeliveryNotification;
use reveille_engine::events::delivery_name;
use reveille_kernel::outbound::EncodedRequest;

const DELIVERY_ID: HeaderName = HeaderName::from_static("x-events-delivery-id");
const ATTEMPT: HeaderName = HeaderName::from_static("x-events-attempt");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Where workers are, as far as the operator has said so.
const TEMPLATE: &str = "https://{workerId}.workers.dev/rpc/{rpcMethod}";

/// The addresses of workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workers {
    /// Where a worker is that no binding names.
    pub template: WorkerTemplate,
    /// Workers with a name of their own.
    pub bindings: Arc<[Binding]>,
}

impl Default for Workers {
    fn default() -> Workers {
        let template = WorkerTemplate::parse(TEMPLATE).expect("the default is an address");
        Workers { template, bindings: Arc::new([]) }
    }
}

impl Workers {
    /// Where deliveries of a hook go.
    pub(crate) fn address(&self, hook: &Hook) -> String {
        let HookSpec::Events(spec) = &hook.spec;
        self.spec_address(spec)
    }

    /// Where deliveries of such a hook go: to the binding, if there is one of that name.
    pub(super) fn spec_address(&self, spec: &EventHookSpec) -> String {
        let is_named = |binding: &&Binding| spec.binding.as_ref() == Some(&binding.name);
        match self.bindings.iter().find(is_named) {
            Some(binding) => binding.url(&spec.method),
            None => self.template.url(&spec.worker, &spec.method),
        }
    }
}

/// The request that delivers an event.
pub(crate) fn encode_delivery(notification: &DeliveryNotification) -> EncodedRequest {
    let DeliveryNotification { hook, id, attempt, event, payload, now } = notification;
    let HookSpec::Events(spec) = &hook.spec;
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (ATTEMPT, HeaderValue::from(*attempt)),
    ];
    let mut add = |name, text: String| {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.push((name, value));
        }
    };
    add(DELIVERY_ID, delivery_name(*id));
    let secret = spec.secret.as_ref().and_then(|text| StandardSecret::parse(text).ok());
    if let Some(secret) = secret {
        let seconds = now.0 / 1_000;
        add(WEBHOOK_SIGNATURE, secret.signature(event, seconds, payload));
        add(WEBHOOK_TIMESTAMP, seconds.to_string());
        add(WEBHOOK_ID, event.as_ref().to_owned());
    }
    EncodedRequest { headers, body: payload.clone() }
}
