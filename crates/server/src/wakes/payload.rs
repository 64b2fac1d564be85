//! What the endpoint of a consumer is sent.

use reveille_core::consumer::WakeId;
use reveille_engine::encoder::WakeNotification;
use serde::Serialize;

use crate::http::subscription::{AckedOffset, consumer_name, encode_payload, serialize_display};

#[derive(Serialize)]
struct WakePayload<'a> {
    consumer_id: &'a str,
    epoch: u64,
    #[serde(serialize_with = "serialize_display")]
    wake_id: WakeId,
    primary_stream: &'a str,
    streams: Vec<StreamPayload<'a>>,
    triggered_by: Vec<&'a str>,
    callback: String,
    token: &'a str,
}

#[derive(Serialize)]
struct StreamPayload<'a> {
    path: &'a str,
    offset: AckedOffset,
}

/// The payload of a wake; `base_url` is where its callbacks go.
pub(crate) fn encode_wake(base_url: &str, notification: &WakeNotification) -> Vec<u8> {
    let Some(primary) = &notification.primary else { return b"null".to_vec() };
    let name = consumer_name(&notification.subscription, primary);
    let streams = notification.streams.iter();
    let streams =
        streams.map(|it| StreamPayload { path: it.path.as_str(), offset: AckedOffset(it.acked) });
    let pending = notification.streams.iter().filter(|it| it.is_pending());
    encode_payload(&WakePayload {
        consumer_id: &name,
        epoch: notification.epoch,
        wake_id: notification.wake_id,
        primary_stream: primary.as_str(),
        streams: streams.collect(),
        triggered_by: pending.map(|it| it.path.as_str()).collect(),
        callback: format!("{base_url}/callback/{name}"),
        token: &notification.token,
    })
}
