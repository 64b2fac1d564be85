//! What the endpoint of a subscription is sent, and how streams are written there and in claims.

use reveille_core::consumer::WakeId;
use reveille_core::subscription::relative;
use reveille_engine::encoder::{NotifiedStream, WakeNotification};
use serde::Serialize;

use super::CONTROL;
use crate::http::subscription::{AckedOffset, encode_payload, serialize_display};

#[derive(Serialize)]
struct WakePayload<'a> {
    subscription_id: &'a str,
    #[serde(serialize_with = "serialize_display")]
    wake_id: WakeId,
    generation: u64,
    streams: Vec<StreamPayload<'a>>,
    callback_url: String,
    callback_token: &'a str,
}

/// A stream with work, or without.
#[derive(Serialize)]
pub(super) struct StreamPayload<'a> {
    path: &'a str,
    link_type: &'static str,
    acked_offset: AckedOffset,
    tail_offset: AckedOffset,
    has_pending: bool,
}

impl<'a> StreamPayload<'a> {
    pub(super) fn of(stream: &'a NotifiedStream) -> StreamPayload<'a> {
        StreamPayload {
            path: relative(&stream.path),
            link_type: link_type(stream.explicit),
            acked_offset: AckedOffset(stream.acked),
            tail_offset: AckedOffset(stream.tail),
            has_pending: stream.is_pending(),
        }
    }
}

/// Whether a stream was named by the subscription or is matched by its pattern.
pub(super) fn link_type(is_explicit: bool) -> &'static str {
    if is_explicit { "explicit" } else { "glob" }
}

/// The payload of a wake; `base_url` is where its callbacks go.
pub(crate) fn encode_wake(base_url: &str, notification: &WakeNotification) -> Vec<u8> {
    let id = &notification.subscription.spec.name;
    encode_payload(&WakePayload {
        subscription_id: id,
        wake_id: notification.wake_id,
        generation: notification.epoch,
        streams: notification.streams.iter().map(StreamPayload::of).collect(),
        callback_url: format!("{base_url}{CONTROL}/subscriptions/{id}/callback"),
        callback_token: &notification.token,
    })
}
