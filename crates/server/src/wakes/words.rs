//! The words of both dialects: what a consumer's endpoint is sent, and what its answer means.

use std::fmt::Display;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use reveille_core::Offset;
use reveille_core::consumer::{Dialect, WakeId};
use reveille_core::delivery::hook::Hook;
use reveille_core::signature;
use reveille_core::subscription::relative;
use reveille_engine::encoder::{
    DeliveryNotification, EncodedRequest, Encoder, NotifiedStream, WakeNotification,
};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::consumer_name;
use super::fields::NOTHING_ACKED;
use crate::events::{self, Workers};

const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// As many bytes as most wakes have.
const BODY_BYTES: usize = 768;

/// Puts notices into words.
#[derive(Debug, Clone)]
pub struct Words {
    /// The base of callback URLs; if absent, the address by which a subscription was made.
    pub public_url: Option<Arc<str>>,
    /// Where the workers are that events are delivered to.
    pub workers: Workers,
}

impl Encoder for Words {
    fn address(&self, hook: &Hook) -> String {
        self.workers.address(hook)
    }

    fn encode_delivery(&self, notification: &DeliveryNotification) -> EncodedRequest {
        events::encode_delivery(notification)
    }

    fn encode_wake(&self, notification: &WakeNotification) -> EncodedRequest {
        let body = match notification.subscription.spec.dialect {
            Dialect::Webhooks => self.wake(notification),
            Dialect::Leases => self.lease_wake(notification),
        };
        let seconds = notification.now.0 / 1_000;
        let signature = match &notification.subscription.secret {
            Some(secret) => signature::hmac_header(secret, seconds, &body),
            None => notification.signing.header(seconds, &body),
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
        EncodedRequest { headers, body: body.into() }
    }

    fn is_done(&self, body: &[u8]) -> bool {
        let body: Option<Value> = serde_json::from_slice(body).ok();
        body.is_some_and(|body| body.get("done") == Some(&Value::Bool(true)))
    }
}

/// A wake in the words of the first dialect.
#[derive(Serialize)]
struct Wake<'a> {
    consumer_id: &'a str,
    epoch: u64,
    wake_id: Shown<WakeId>,
    primary_stream: &'a str,
    streams: Vec<WakeBodyStream<'a>>,
    triggered_by: Vec<&'a str>,
    callback: String,
    token: &'a str,
}

#[derive(Serialize)]
struct WakeBodyStream<'a> {
    path: &'a str,
    offset: Acked,
}

/// A wake in the words of the lease dialect.
#[derive(Serialize)]
struct LeaseWake<'a> {
    subscription_id: &'a str,
    wake_id: Shown<WakeId>,
    generation: u64,
    streams: Vec<LeaseStream<'a>>,
    callback_url: String,
    callback_token: &'a str,
}

/// A stream as the lease dialect writes it.
#[derive(Serialize)]
pub(crate) struct LeaseStream<'a> {
    path: &'a str,
    link_type: &'static str,
    acked_offset: Acked,
    tail_offset: Acked,
    has_pending: bool,
}

/// Something that is written as it is shown.
struct Shown<T>(T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

/// An acknowledged place.
struct Acked(Option<Offset>);

impl Serialize for Acked {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(offset) => out.collect_str(offset),
            None => out.serialize_str(NOTHING_ACKED),
        }
    }
}

impl Words {
    fn base<'a>(&'a self, notification: &'a WakeNotification) -> &'a str {
        let base = self.public_url.as_ref().or(notification.subscription.spec.base_url.as_ref());
        base.map_or("", |base| base.trim_end_matches('/'))
    }

    fn wake(&self, notification: &WakeNotification) -> Vec<u8> {
        let Some(primary) = &notification.primary else { return b"null".to_vec() };
        let name = consumer_name(&notification.subscription, primary);
        let streams = notification.streams.iter();
        let streams =
            streams.map(|it| WakeBodyStream { path: it.path.as_str(), offset: Acked(it.acked) });
        let pending = notification.streams.iter().filter(|it| it.is_pending());
        written(&Wake {
            consumer_id: &name,
            epoch: notification.epoch,
            wake_id: Shown(notification.wake_id),
            primary_stream: primary.as_str(),
            streams: streams.collect(),
            triggered_by: pending.map(|it| it.path.as_str()).collect(),
            callback: format!("{}/callback/{name}", self.base(notification)),
            token: &notification.token,
        })
    }

    fn lease_wake(&self, notification: &WakeNotification) -> Vec<u8> {
        let id = &notification.subscription.spec.name;
        let base = self.base(notification);
        written(&LeaseWake {
            subscription_id: id,
            wake_id: Shown(notification.wake_id),
            generation: notification.epoch,
            streams: notification.streams.iter().map(lease_stream).collect(),
            callback_url: format!("{base}/v1/stream/__ds/subscriptions/{id}/callback"),
            callback_token: &notification.token,
        })
    }
}

fn written(wake: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(BODY_BYTES);
    serde_json::to_writer(&mut out, wake).expect("words are written to memory");
    out
}

/// A stream as the lease dialect writes it.
pub(crate) fn lease_stream(stream: &NotifiedStream) -> LeaseStream<'_> {
    LeaseStream {
        path: relative(&stream.path),
        link_type: if stream.explicit { "explicit" } else { "glob" },
        acked_offset: Acked(stream.acked),
        tail_offset: Acked(stream.tail),
        has_pending: stream.is_pending(),
    }
}
