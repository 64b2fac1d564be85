//! The words of both dialects: what a consumer's endpoint is sent, and what its answer means.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use reveille_core::consumer::Dialect;
use reveille_core::delivery::hook::Hook;
use reveille_core::signature;
use reveille_core::subscription::relative;
use reveille_engine::herald::{Dispatch, Herald, Message, Notice, NoticeStream};
use serde_json::{Value, json};

use super::consumer_name;
use super::fields::acked_text;
use crate::events::{self, Workers};

const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Puts notices into words.
#[derive(Debug, Clone)]
pub struct Words {
    /// The base of callback URLs; if absent, the address by which a subscription was made.
    pub public_url: Option<Arc<str>>,
    /// Where the workers are that events are delivered to.
    pub workers: Workers,
}

impl Herald for Words {
    fn address(&self, hook: &Hook) -> String {
        self.workers.address(hook)
    }

    fn letter(&self, dispatch: &Dispatch) -> Message {
        events::letter(dispatch)
    }

    fn message(&self, notice: &Notice) -> Message {
        let body = match notice.subscription.asked.dialect {
            Dialect::Webhooks => self.wake(notice),
            Dialect::Leases => self.lease_wake(notice),
        };
        let body = body.to_string();
        let seconds = notice.now.0 / 1_000;
        let signature = match &notice.subscription.secret {
            Some(secret) => signature::hmac_header(secret, seconds, body.as_bytes()),
            None => notice.signing.header(seconds, body.as_bytes()),
        };
        let mut headers =
            vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let texts =
            [(WEBHOOK_SIGNATURE, Some(signature)), (TRACEPARENT, notice.traceparent.clone())];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
                headers.push((name, value));
            }
        }
        Message { headers, body: body.into() }
    }

    fn is_done(&self, body: &[u8]) -> bool {
        let body: Option<Value> = serde_json::from_slice(body).ok();
        body.is_some_and(|body| body.get("done") == Some(&Value::Bool(true)))
    }
}

impl Words {
    fn base(&self, notice: &Notice) -> String {
        let base = self.public_url.as_ref().or(notice.subscription.asked.base_url.as_ref());
        base.map_or_else(String::new, |base| base.trim_end_matches('/').to_owned())
    }

    fn wake(&self, notice: &Notice) -> Value {
        let Some(primary) = &notice.primary else { return Value::Null };
        let name = consumer_name(&notice.subscription, primary);
        let stream =
            |it: &NoticeStream| json!({ "path": it.path.as_str(), "offset": acked_text(it.acked) });
        let pending = notice.streams.iter().filter(|it| it.is_pending());
        json!({
            "consumer_id": name,
            "epoch": notice.epoch,
            "wake_id": notice.wake_id.to_string(),
            "primary_stream": primary.as_str(),
            "streams": notice.streams.iter().map(stream).collect::<Vec<_>>(),
            "triggered_by": pending.map(|it| it.path.as_str()).collect::<Vec<_>>(),
            "callback": format!("{}/callback/{name}", self.base(notice)),
            "token": notice.token,
        })
    }

    fn lease_wake(&self, notice: &Notice) -> Value {
        let id = &notice.subscription.asked.name;
        let base = self.base(notice);
        json!({
            "subscription_id": &**id,
            "wake_id": notice.wake_id.to_string(),
            "generation": notice.epoch,
            "streams": notice.streams.iter().map(lease_stream).collect::<Vec<_>>(),
            "callback_url": format!("{base}/v1/stream/__ds/subscriptions/{id}/callback"),
            "callback_token": notice.token,
        })
    }
}

/// A stream as the lease dialect writes it.
pub(crate) fn lease_stream(stream: &NoticeStream) -> Value {
    json!({
        "path": relative(&stream.path),
        "link_type": if stream.explicit { "explicit" } else { "glob" },
        "acked_offset": acked_text(stream.acked),
        "tail_offset": acked_text(stream.tail),
        "has_pending": stream.is_pending(),
    })
}
