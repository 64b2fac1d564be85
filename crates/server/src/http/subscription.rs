//! What both dialects of subscriptions to streams share, on their routes and where an operator
//! looks at them: names, callback URLs, acknowledged offsets, wakes that are claimed.

use std::fmt::{self, Display};
use std::sync::Arc;

use http::request::Parts;
use reveille_core::consumer::{Ack, ClaimedWake, WakeId};
use reveille_core::subscription::Subscription;
use reveille_core::{Offset, StreamPath};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::fields::{FieldError, Fields};
use super::reply;

/// How it is written that nothing is acknowledged.
const NOTHING_ACKED: &str = "-1";

/// An offset up to which a stream is acknowledged, as it is written.
pub(crate) struct AckedOffset(pub(crate) Option<Offset>);

impl Display for AckedOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(offset) => offset.fmt(f),
            None => f.write_str(NOTHING_ACKED),
        }
    }
}

impl Serialize for AckedOffset {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        serialize_display(self, out)
    }
}

/// Serializes a value as the text that it displays.
pub(crate) fn serialize_display<T: Display, S: Serializer>(
    value: &T,
    out: S,
) -> Result<S::Ok, S::Error> {
    out.collect_str(value)
}

/// As many bytes as most wakes have.
const PAYLOAD_BYTES: usize = 768;

/// The payload of a wake as JSON.
pub(crate) fn encode_payload(payload: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAYLOAD_BYTES);
    serde_json::to_writer(&mut out, payload).expect("writing to memory cannot fail");
    out
}

/// The base of callback URLs, from the request that makes a subscription. Where the server has one
/// of its own there may be none.
pub(crate) fn callback_base(
    public_url: Option<&str>,
    request: &Parts,
) -> Result<Option<Arc<str>>, FieldError> {
    let base = reply::callable_base_url(request);
    if base.is_none() && public_url.is_none() {
        let message = "callback URLs are made of the header Host, which must be a host or a host \
                       and a port; send one, or start the server with --public-url";
        return Err(message.into());
    }
    Ok(base.map(Into::into))
}

/// Checks the name of a subscription that is to be made, beyond what every name must be.
pub(crate) fn check_name(name: &str) -> Result<(), FieldError> {
    if matches!(name, "." | "..") {
        let message = "a subscription id is neither `.` nor `..`: clients take them out of URLs";
        return Err(message.into());
    }
    Ok(())
}

/// The name of a consumer, as it stands in URLs and notifications.
pub(crate) fn consumer_name(subscription: &Subscription, path: &StreamPath) -> String {
    format!("{}:{}", subscription.spec.name, encode_component(path.as_str()))
}

/// How far streams are processed, in the field `acks`. `key` is the name of the field that names
/// the stream, and `path` makes a path of what stands there.
pub(crate) fn parse_acks(
    fields: &Fields<'_>,
    key: &str,
    path: impl Fn(&str) -> String,
) -> Result<Vec<Ack>, FieldError> {
    let parse = |item: &Value| -> Result<Ack, FieldError> {
        let message = || format!("`acks` must hold objects with `{key}` and `offset`, strings");
        let fields = Fields(item.as_object().ok_or_else(message)?);
        let (Some(stream), Some(offset)) = (fields.text(key)?, fields.text("offset")?) else {
            return Err(message().into());
        };
        let begin = |text| parse_offset(text).ok_or("`from` must be the offset where it began");
        let from = fields.text("from")?.map(begin).transpose()?;
        Ok(Ack { path: Arc::from(path(stream)), offset: parse_offset(offset), from })
    };
    fields.list("acks")?.iter().map(parse).collect()
}

/// The wake that is claimed in the field `wake_id`, whether there can be such a one or not.
pub(crate) fn parse_claimed_wake(fields: &Fields<'_>) -> Result<Option<ClaimedWake>, FieldError> {
    Ok(fields.text("wake_id")?.map(parse_wake_id))
}

/// `-1` is nothing; what is no offset cannot be acknowledged.
fn parse_offset(text: &str) -> Option<Option<Offset>> {
    match text {
        NOTHING_ACKED => Some(None),
        text => text.parse().ok().map(Some),
    }
}

fn parse_wake_id(text: &str) -> ClaimedWake {
    let hex = text.strip_prefix("w_").filter(|hex| hex.len() == 24).ok_or(())?;
    let mut bytes = [0; 12];
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| ())?;
        // Upper case, signs and spaces are not how we write it.
        if !pair.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(());
        }
        *byte = u8::from_str_radix(pair, 16).map_err(|_| ())?;
    }
    Ok(WakeId(bytes))
}

/// Percent-encodes like JavaScript's `encodeURIComponent`.
fn encode_component(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_encoded_as_in_javascript() {
        assert_eq!(encode_component("/agents/task-1"), "%2Fagents%2Ftask-1");
        assert_eq!(encode_component("/a%20b"), "%2Fa%2520b");
        assert_eq!(encode_component("/(a)!*'"), "%2F(a)!*'");
    }

    #[test]
    fn wake_ids_are_read_strictly() {
        let id = WakeId([0xa0; 12]);
        assert_eq!(parse_wake_id(&id.to_string()), Ok(id));
        for bad in ["", "w_", "w_A0a0a0a0a0a0a0a0a0a0a0a0", "w_+1a0a0a0a0a0a0a0a0a0a0a0", "x"] {
            assert_eq!(parse_wake_id(bad), Err(()), "{bad}");
        }
    }
}
