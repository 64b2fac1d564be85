//! Where reminders go, and what is said.

use std::sync::Arc;

use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryNotification, DeliveryTarget, OpenSecret, RefusedDelivery, ReplayMark,
    TargetError,
};
use reveille_kernel::outbound::EncodedRequest;

use super::rules::{FACE, ReminderSpec};
use super::schema::decode_spec;

/// Puts reminders into words.
pub(super) struct ReminderEncoder;

impl DeliveryEncoder for ReminderEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        _: OpenSecret<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        let spec = decode_spec(&hook.spec)?;
        let address = format!("https://e{}.reminders.test/{}", spec.endpoint, hook.tenant);
        Ok(Arc::new(Endpoint { spec, address }))
    }
}

struct Endpoint {
    spec: ReminderSpec,
    address: String,
}

impl DeliveryTarget for Endpoint {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        let DeliveryNotification { attempt, event, payload, .. } = notification;
        if let Some(why) = self.spec.refusal(*attempt, payload.len()) {
            return Err(RefusedDelivery { why, text: "not like this".into() });
        }
        let again = notification.replay.as_ref().map_or(String::new(), again);
        let body = [format!("{event} ({attempt}{again}): ").as_bytes(), payload].concat();
        Ok(EncodedRequest { headers: Vec::new(), body: body.into() })
    }
}

/// What a reminder says of the replay that has made it.
pub(crate) fn again(mark: &ReplayMark) -> String {
    let ReplayMark { id, reason, at, count } = mark;
    format!(", again {count} by {id} since {at:?}: {reason:?}")
}
