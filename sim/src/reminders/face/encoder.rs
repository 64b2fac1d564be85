//! Where reminders go, and what is said. Whatever is said is signed in the server's name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use reveille_core::ContentType;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::signature::Ed25519Key;
use reveille_core::trigger::token::TriggerKey;
use reveille_engine::encoder::{
    AppendTarget, DeliveryEncoder, DeliveryNotification, DeliveryTarget, EncodedAppend,
    RefusedDelivery, Signer, TargetContext, TargetError,
};
use reveille_kernel::outbound::EncodedRequest;

use super::rules::{FACE, ReminderSpec};
use super::schema::decode_spec;

/// The server's keys: one signs, until another one does.
#[derive(Default)]
pub(crate) struct SigningKeys(AtomicU8);

impl SigningKeys {
    pub(crate) fn replace(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Signer for SigningKeys {
    fn current_key(&self) -> Ed25519Key {
        Ed25519Key::from_seed([self.0.load(Ordering::Relaxed); 32])
    }

    fn trigger_key(&self) -> TriggerKey {
        TriggerKey::new(self.current_key())
    }
}

/// Puts reminders into words.
pub(super) struct ReminderEncoder;

impl DeliveryEncoder for ReminderEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        let (spec, signer) = (decode_spec(&hook.spec)?, context.signer.clone());
        let address = format!("https://e{}.reminders.test/{}", spec.endpoint, hook.tenant);
        Ok(Arc::new(Endpoint { spec, address, signer }))
    }

    fn append_target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn AppendTarget>, TargetError> {
        Ok(Arc::new(Mailbox { spec: decode_spec(&hook.spec)?, signer: context.signer.clone() }))
    }
}

struct Endpoint {
    spec: ReminderSpec,
    address: String,
    signer: Arc<dyn Signer>,
}

impl DeliveryTarget for Endpoint {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        let body = signed(&*self.signer, &words(self.spec, notification)?, notification);
        Ok(EncodedRequest { headers: Vec::new(), body: body.into() })
    }
}

/// The stream of whoever does not want to be called.
struct Mailbox {
    spec: ReminderSpec,
    signer: Arc<dyn Signer>,
}

impl AppendTarget for Mailbox {
    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedAppend, RefusedDelivery> {
        let words = words(self.spec, notification)?;
        let message = signed(&*self.signer, &words, notification);
        let body = Bytes::from(format!("\"{message}\""));
        let (path, content_type) = (self.spec.path(), ContentType::json());
        Ok(EncodedAppend { path, content_type, body })
    }
}

/// Which attempt of which delivery it is, what it is about, and the text: nothing in it needs to be
/// escaped.
fn words(
    spec: ReminderSpec,
    notification: &DeliveryNotification,
) -> Result<String, RefusedDelivery> {
    let DeliveryNotification { id, attempt, event, payload, .. } = notification;
    if let Some(why) = spec.refusal(*attempt, payload.len()) {
        return Err(RefusedDelivery { why, text: "not like this".into() });
    }
    let text = String::from_utf8_lossy(payload);
    let (hook, event_no, round) = (id.hook.0, id.no.event.0, id.no.round);
    Ok(format!("{hook}.{event_no}.{round}|{attempt}|{event}|{text}"))
}

fn signed(signer: &dyn Signer, words: &str, notification: &DeliveryNotification) -> String {
    let seconds = notification.wall.0 / 1_000;
    format!("{words}|{}", signer.current_key().header(seconds, words.as_bytes()))
}
