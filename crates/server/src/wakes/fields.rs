//! Reading JSON bodies field by field: what is wrong is named.

use std::sync::Arc;

use reveille_core::consumer::{Ack, ClaimedWake, WakeId};
use reveille_core::limits::CONSUMER_LINKS_MAX;
use reveille_core::time::parse_period_ms;
use reveille_core::{Offset, StreamPath};
use reveille_engine::limits::{EXPLICIT_STREAMS_MAX, NOTICE_STREAMS_MAX};
use serde_json::{Map, Value};

/// A JSON object, and what is wrong with it.
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

/// What is wrong, for whoever sent it.
pub(crate) type Wrong = String;

/// Entries of a list: each costs time while others wait for the decision, and nobody follows, names
/// or is told of more streams at once.
const LIST_MAX: usize = CONSUMER_LINKS_MAX;

const _: () = assert!(LIST_MAX >= EXPLICIT_STREAMS_MAX && LIST_MAX >= NOTICE_STREAMS_MAX);

/// Whether a list of that name may have as many entries.
pub(crate) fn check_count(name: &str, count: usize) -> Result<(), Wrong> {
    if count > LIST_MAX {
        return Err(format!("`{name}` has {count} entries; {LIST_MAX} are the most"));
    }
    Ok(())
}

/// The body as an object.
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Wrong> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the body must be a JSON object".into()),
        Err(error) => Err(format!("the body is not valid JSON: {error}")),
    }
}

impl<'a> Fields<'a> {
    /// A field that is there; `null` is as good as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, Wrong> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` must be a string")),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Wrong> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("`{name}` must be true or false")),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Wrong> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => {
                let wrong = || format!("`{name}` must be a whole number, not negative");
                value.as_u64().map(Some).ok_or_else(wrong)
            }
        }
    }

    /// A length of time: `"500ms"`, `"45s"`, or milliseconds as a number.
    pub(crate) fn period_ms(&self, name: &str) -> Result<Option<u64>, Wrong> {
        let wrong = || {
            format!("`{name}` must be a time like \"500ms\", \"45s\" or \"10m\", or milliseconds")
        };
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => parse_period_ms(text).map(Some).ok_or_else(wrong),
            Some(value) => value.as_u64().map(Some).ok_or_else(wrong),
        }
    }

    /// A list of no more than [`LIST_MAX`] entries.
    pub(crate) fn list(&self, name: &str) -> Result<&'a [Value], Wrong> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => check_count(name, items.len()).map(|()| items.as_slice()),
            Some(_) => Err(format!("`{name}` must be an array")),
        }
    }

    /// A list of stream paths.
    pub(crate) fn paths(&self, name: &str) -> Result<Vec<StreamPath>, Wrong> {
        let read = |item: &Value| {
            let text = item.as_str().ok_or_else(|| format!("`{name}` must hold strings"))?;
            StreamPath::parse(text).map_err(|error| format!("`{name}`: {error}"))
        };
        self.list(name)?.iter().map(read).collect()
    }

    /// How far streams are processed; `key` is the name of the field that names the stream.
    pub(crate) fn acks(&self, key: &str, path: impl Fn(&str) -> String) -> Result<Vec<Ack>, Wrong> {
        let read = |item: &Value| {
            let wrong = || format!("`acks` must hold objects with `{key}` and `offset`, strings");
            let fields = Fields(item.as_object().ok_or_else(wrong)?);
            let (Some(stream), Some(offset)) = (fields.text(key)?, fields.text("offset")?) else {
                return Err(wrong());
            };
            let began = |text| offset_of(text).ok_or("`from` must be the offset where it began");
            let from = fields.text("from")?.map(began).transpose()?;
            Ok(Ack { path: Arc::from(path(stream)), offset: offset_of(offset), from })
        };
        self.list("acks")?.iter().map(read).collect()
    }

    /// The wake that is claimed, whatever it says.
    pub(crate) fn wake_id(&self) -> Result<Option<ClaimedWake>, Wrong> {
        Ok(self.text("wake_id")?.map(wake_id_of))
    }
}

/// `-1` is nothing; what is no offset cannot be acknowledged.
fn offset_of(text: &str) -> Option<Option<Offset>> {
    match text {
        "-1" => Some(None),
        text => text.parse().ok().map(Some),
    }
}

fn wake_id_of(text: &str) -> ClaimedWake {
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

/// How it is written that nothing is acknowledged.
pub(crate) const NOTHING_ACKED: &str = "-1";

/// An acknowledged place, as it is written.
pub(crate) fn acked_text(acked: Option<Offset>) -> String {
    acked.map_or_else(|| NOTHING_ACKED.to_owned(), |offset| offset.to_string())
}

/// Percent-encodes like JavaScript's `encodeURIComponent`.
pub(crate) fn encode_component(text: &str) -> String {
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
        assert_eq!(wake_id_of(&id.to_string()), Ok(id));
        for bad in ["", "w_", "w_A0a0a0a0a0a0a0a0a0a0a0a0", "w_+1a0a0a0a0a0a0a0a0a0a0a0", "x"] {
            assert_eq!(wake_id_of(bad), Err(()), "{bad}");
        }
    }
}
