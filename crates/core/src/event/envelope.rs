//! One event: what a client may send, and the envelope in which workers get it.
//!
//! ```text
//! sent      {"type":"webhook.github.push","n":1.0}
//! envelope  {"id":"01ARYZ…","type":"webhook.github.push","ts":"2026-…Z","payload":
//!              {"type":"webhook.github.push","n":1.0,"ts":"2026-…Z","_namespace":"acme"}}
//! ```
//!
//! The payload is what was sent, values character by character and in their order, with `ts` added
//! if there was none. `_namespace` is the server's to say: a client's own is left out.
//! A field that is there twice is refused, because two readers may differ on which one counts.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{EventType, EventTypeError, Ulid};
use crate::limits::{EVENT_ID_BYTES_MAX, EVENT_TS_BYTES_MAX};
use crate::time::Millis;

const NAMESPACE: &str = "_namespace";
/// About as much as an envelope adds to what was sent.
const ENVELOPE_BYTES: usize = 192;
/// How much of a field's name a refusal repeats.
const NAME_SHOWN_CHARS: usize = 64;

/// An event as a client sent it, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    pub kind: EventType,
    /// The client's own id, if it is one that can be kept.
    pub id: Option<Arc<str>>,
    /// When it happened, as the client wrote it.
    pub ts: Option<Arc<str>>,
    /// The object without its last brace.
    payload: String,
}

/// An event as it is kept and handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The client's id, or a ULID.
    pub id: Arc<str>,
    /// Whether the id is the client's.
    pub named: bool,
    pub kind: EventType,
    /// The JSON text that workers get.
    pub envelope: Bytes,
}

/// Why an event is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// It is some other value.
    #[error("an event is a JSON object")]
    NotAnObject,
    /// A field is there twice.
    #[error("the field `{0}` is there more than once")]
    Repeated(String),
    /// There is no type.
    #[error("`type` is missing")]
    TypeMissing,
    /// The type is no string.
    #[error("`type` is not a string")]
    TypeNotText,
    /// The type is a string that is no type.
    #[error("`type`: {0}")]
    Type(#[from] EventTypeError),
    /// The time is not one.
    #[error("`ts` is not a timestamp such as \"2026-01-31T12:00:00.000Z\"")]
    Ts,
}

impl RawEvent {
    /// Reads one event, a JSON object.
    pub fn parse(text: &str) -> Result<RawEvent, EventError> {
        let fields: Fields<'_> = serde_json::from_str(text).map_err(|_| EventError::NotAnObject)?;
        if let Some(name) = fields.repeated {
            return Err(EventError::Repeated(name.chars().take(NAME_SHOWN_CHARS).collect()));
        }
        let kind = string(fields.kind.ok_or(EventError::TypeMissing)?);
        let kind = EventType::parse(&kind.ok_or(EventError::TypeNotText)?)?;
        let id = fields.id.and_then(string).filter(|id| is_plain_id(id)).map(Arc::from);
        let ts = match fields.ts {
            Some(ts) => Some(string(ts).filter(|ts| is_timestamp(ts)).ok_or(EventError::Ts)?),
            None => None,
        };
        Ok(RawEvent { kind, id, ts: ts.map(Arc::from), payload: fields.payload })
    }

    /// The event as it came in at `now`, in a tenant's namespace or in none. `fresh` becomes its id
    /// if it has none.
    pub fn seal(&self, fresh: Ulid, now: Millis, namespace: Option<&str>) -> Event {
        let id = self.id.clone().unwrap_or_else(|| fresh.to_string().into());
        let came = self.ts.is_none().then(|| now.to_rfc3339());
        let ts = self.ts.as_deref().or(came.as_deref()).unwrap_or_default();
        let mut text = Vec::with_capacity(self.payload.len() + ENVELOPE_BYTES);
        put_quoted(&mut text, r#"{"id":"#, &id);
        put_quoted(&mut text, r#","type":"#, self.kind.as_str());
        put_quoted(&mut text, r#","ts":"#, ts);
        text.extend_from_slice(br#","payload":"#);
        text.extend_from_slice(self.payload.as_bytes());
        // There is a type at least, so something stands before each comma.
        if let Some(came) = &came {
            put_quoted(&mut text, r#","ts":"#, came);
        }
        if let Some(namespace) = namespace {
            put_quoted(&mut text, r#","_namespace":"#, namespace);
        }
        text.extend_from_slice(b"}}");
        Event { id, named: self.id.is_some(), kind: self.kind.clone(), envelope: text.into() }
    }
}

/// Whether an id is short and safe in keys and headers: printable ASCII, no space at its ends.
pub(super) fn is_plain_id(id: &str) -> bool {
    let printable = id.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    !id.is_empty() && id.len() <= EVENT_ID_BYTES_MAX && printable && id.trim() == id
}

fn is_timestamp(ts: &str) -> bool {
    ts.len() <= EVENT_TS_BYTES_MAX && Millis::parse_rfc3339(ts).is_some()
}

/// The string that a JSON value is.
pub(super) fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Adds a text as JSON, after what stands before it.
fn put_quoted(out: &mut Vec<u8>, before: &str, text: &str) {
    out.extend_from_slice(before.as_bytes());
    serde_json::to_writer(out, text).expect("every string can be written as JSON");
}

/// The name that a field's key says; mostly it stands there as it is.
fn name_of(key: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    let plain = key.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match plain.filter(|name| !name.contains('\\')) {
        Some(name) => Ok(Cow::Borrowed(name)),
        None => serde_json::from_str(key.get()).map(Cow::Owned),
    }
}

/// The fields of an object, gathered while it is read.
#[derive(Default)]
struct Fields<'a> {
    kind: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    ts: Option<&'a RawValue>,
    /// A field that is there twice.
    repeated: Option<String>,
    /// The object without `_namespace` and its last brace.
    payload: String,
}

impl<'a> Deserialize<'a> for Fields<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'a> Visitor<'a> for FieldsVisitor {
    type Value = Fields<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Fields<'a>, M::Error> {
        let mut fields = Fields { payload: "{".to_owned(), ..Fields::default() };
        let mut seen = BTreeSet::new();
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let name = name_of(key).map_err(serde::de::Error::custom)?;
            match &*name {
                "type" => fields.kind = Some(value),
                "id" => fields.id = Some(value),
                "ts" => fields.ts = Some(value),
                _ => {}
            }
            if name != NAMESPACE {
                if fields.payload.len() > 1 {
                    fields.payload.push(',');
                }
                fields.payload.push_str(key.get());
                fields.payload.push(':');
                fields.payload.push_str(value.get());
            }
            if let Some(name) = seen.replace(name) {
                fields.repeated = Some(name.into_owned());
            }
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests;
