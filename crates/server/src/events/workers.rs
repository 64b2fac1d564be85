//! Where workers are called, and what they are sent.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use reveille_core::Millis;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::event::hook::{EventHookSpec, FACE};
use reveille_core::event::worker::{Binding, WorkerTemplate};
use reveille_core::secret::SealedSecret;
use reveille_core::signature::standard::StandardSecret;
use reveille_engine::deliveries::replay::replay_name;
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryNotification, DeliveryTarget, RefusedDelivery, TargetContext,
    TargetError,
};
use reveille_engine::events::delivery_name;
use reveille_engine::events::hook::read_spec;
use reveille_kernel::outbound::EncodedRequest;

use crate::http::trace::TRACEPARENT;

const DELIVERY_ID: HeaderName = HeaderName::from_static("x-events-delivery-id");
const REPLAY: HeaderName = HeaderName::from_static("x-events-replay");
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
    /// Whether there is a binding of this name.
    pub(super) fn has_binding(&self, name: &str) -> bool {
        self.bindings.iter().any(|binding| &*binding.name == name)
    }

    /// Where deliveries of such a hook go: to the binding, if there is one of that name.
    pub(super) fn address(&self, spec: &EventHookSpec) -> String {
        let is_named = |binding: &&Binding| spec.binding.as_ref() == Some(&binding.name);
        match self.bindings.iter().find(is_named) {
            Some(binding) => binding.url(&spec.method),
            None => self.template.url(&spec.worker, &spec.method),
        }
    }
}

/// Puts deliveries of typed events into words.
#[derive(Debug, Clone)]
pub(crate) struct EventEncoder {
    pub(crate) workers: Workers,
}

impl DeliveryEncoder for EventEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        let spec = read_spec(hook)?;
        let address = self.workers.address(&spec);
        let open = |sealed: &SealedSecret| {
            let text = (context.open)(sealed).map_err(|_| TargetError::Secret)?;
            Ok::<_, TargetError>(StandardSecret::parse(&text).ok())
        };
        let secret = spec.secret.as_ref().map(open).transpose()?.flatten();
        let former = match &spec.former.secret {
            Some((sealed, until)) => open(sealed)?.map(|secret| (secret, *until)),
            None => None,
        };
        let worker = spec.binding.as_deref().unwrap_or(spec.worker.as_str());
        let receiver = format!("{worker}/{}", spec.method.as_str());
        Ok(Arc::new(WorkerTarget { address, receiver, secret, former }))
    }
}

/// The worker of a hook.
struct WorkerTarget {
    address: String,
    /// Its name, or that of its binding, and what is called there.
    receiver: String,
    secret: Option<StandardSecret>,
    /// The secret before it, and until when it is valid, too.
    former: Option<(StandardSecret, Millis)>,
}

impl DeliveryTarget for WorkerTarget {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn receiver(&self) -> String {
        self.receiver.clone()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        let DeliveryNotification { id, attempt, event, payload, now, wall, .. } = notification;
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
        if let Some(replay) = &notification.replay {
            add(REPLAY, replay_name(replay.id));
        }
        if let Some(traceparent) = &notification.traceparent {
            add(TRACEPARENT, traceparent.clone());
        }
        if let Some(secret) = &self.secret {
            let seconds = wall.0 / 1_000;
            // The older one first: whoever looks at the first alone still has that one.
            let former = self.former.as_ref().filter(|(_, until)| *now < *until);
            let secrets = former.map(|(secret, _)| secret).into_iter().chain([secret]);
            let signatures = secrets.map(|it| it.signature(event, seconds, payload));
            add(WEBHOOK_SIGNATURE, signatures.collect::<Vec<_>>().join(" "));
            add(WEBHOOK_TIMESTAMP, seconds.to_string());
            add(WEBHOOK_ID, event.as_ref().to_owned());
        }
        Ok(EncodedRequest { headers, body: payload.clone() })
    }
}
