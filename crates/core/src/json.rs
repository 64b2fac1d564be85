//! JSON mode: a body becomes messages, messages become an array again.
//!
//! A message is stored as its raw bytes followed by one comma. A range of a JSON stream is thus
//! wire-ready: `[`, the stored bytes without their last comma, `]`.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::JSON_DEPTH_MAX;

/// The body cannot be stored in a JSON stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or more than one value.
    #[error("the body is not valid JSON")]
    Invalid,
    /// Readers could not parse it.
    #[error("the body is nested deeper than {JSON_DEPTH_MAX} arrays and objects")]
    TooDeep,
    /// An array of no messages has nothing to append.
    #[error("an empty array appends nothing; send at least one message")]
    EmptyArray,
}

/// Frames a body for storage: an array is flattened by one level, anything else is one message.
/// Message bytes are kept as they were sent.
pub fn frame(body: &[u8]) -> Result<Bytes, JsonError> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'[') {
        let mut framed = BytesMut::with_capacity(body.len() + 1);
        let mut input = serde_json::Deserializer::from_slice(body);
        let messages = MessagesSeed(&mut framed).deserialize(&mut input);
        messages.and_then(|()| input.end()).map_err(|_| JsonError::Invalid)?;
        if framed.is_empty() {
            return Err(JsonError::EmptyArray);
        }
        check_depth(body)?;
        Ok(framed.freeze())
    } else {
        let message: &RawValue = serde_json::from_slice(body).map_err(|_| JsonError::Invalid)?;
        check_depth(body)?;
        let mut framed = BytesMut::with_capacity(body.len() + 1);
        put(&mut framed, message);
        Ok(framed.freeze())
    }
}

fn check_depth(body: &[u8]) -> Result<(), JsonError> {
    if is_too_deep(body) { Err(JsonError::TooDeep) } else { Ok(()) }
}

/// Whether JSON, which must be valid, is nested deeper than [`JSON_DEPTH_MAX`].
pub fn is_too_deep(json: &[u8]) -> bool {
    // Every level has a byte that begins it: most bodies are too short to be looked at.
    if json.len() <= JSON_DEPTH_MAX {
        return false;
    }
    let mut depth = 0usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' if depth == JSON_DEPTH_MAX => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

/// Goes on behind a string that has begun.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// Frames the messages of an array while it is read: a list of them would take many times what they
/// take.
struct MessagesSeed<'b>(&'b mut BytesMut);

impl<'de> DeserializeSeed<'de> for MessagesSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MessagesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        while let Some(message) = seq.next_element::<&RawValue>()? {
            put(self.0, message);
        }
        Ok(())
    }
}

fn put(framed: &mut BytesMut, message: &RawValue) {
    framed.put_slice(message.get().as_bytes());
    framed.put_u8(b',');
}

/// The length of the first `count` messages of framed bytes, `None` if there are fewer.
pub fn prefix_len(framed: &[u8], count: u64) -> Option<u64> {
    let mut at = 0usize;
    for _ in 0..count {
        let rest = framed.get(at..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
        values.next()?.ok()?;
        at += values.byte_offset() + 1;
    }
    u64::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(body: &str, expected: Result<&str, JsonError>) {
        let framed = frame(body.as_bytes());
        assert_eq!(framed.as_deref(), expected.map(str::as_bytes).as_deref(), "{body}");
    }

    #[test]
    fn arrays_are_flattened_once() {
        check(r#"{"a": 1}"#, Ok(r#"{"a": 1},"#));
        check("[1, [2, 3] , \"x\"]", Ok("1,[2, 3],\"x\","));
        check(" [[]] ", Ok("[],"));
        check("null", Ok("null,"));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        check("", Err(JsonError::Invalid));
        check("{", Err(JsonError::Invalid));
        check("1 2", Err(JsonError::Invalid));
        check("[1,]", Err(JsonError::Invalid));
        check("[1", Err(JsonError::Invalid));
        check("[]", Err(JsonError::EmptyArray));
        check(" [ ] ", Err(JsonError::EmptyArray));
        assert_eq!(frame(b"\"\xff\""), Err(JsonError::Invalid));
    }

    #[test]
    fn a_deeply_nested_value_is_no_danger() {
        let deep = "[".repeat(1_000_000);
        check(&deep, Err(JsonError::Invalid));
    }

    #[test]
    fn so_deep_and_no_deeper() {
        let nested = |open: &str, close: &str, depth| {
            let value = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            frame(value.as_bytes()).map(drop)
        };
        for (open, close, levels) in
            [("[", "]", 1), ("{\"a\":", "}", 1), ("[{\"]}\\\"[\": ", "}]", 2)]
        {
            let depth = JSON_DEPTH_MAX / levels;
            assert_eq!(nested(open, close, depth), Ok(()), "{open}");
            assert_eq!(nested(open, close, depth + 1), Err(JsonError::TooDeep), "{open}");
            assert_eq!(nested(open, close, 100_000), Err(JsonError::TooDeep), "{open}");
        }
        // One after another is not one in another, and what stands in a text is nothing.
        let flat = format!("[{}1]", "[],{},".repeat(1_000));
        assert_eq!(frame(flat.as_bytes()).map(drop), Ok(()));
        let text = format!("\"{}\\\\\"", "[{\\\"".repeat(1_000));
        assert_eq!(frame(text.as_bytes()).map(drop), Ok(()));
    }

    #[test]
    fn prefixes_are_counted_in_messages() {
        let framed = frame(br#"["a,b", {"x":[1,2]}, 3]"#).unwrap();
        assert_eq!(prefix_len(&framed, 0), Some(0));
        assert_eq!(prefix_len(&framed, 1), Some(6));
        assert_eq!(prefix_len(&framed, 2), Some(18));
        assert_eq!(prefix_len(&framed, 3), Some(20));
        assert_eq!(prefix_len(&framed, 4), None);
    }

    proptest! {
        #[test]
        fn framed_messages_read_back_as_the_same_array(words in prop::collection::vec(".*", 1..8)) {
            let body = serde_json::to_vec(&words).unwrap();
            let framed = frame(&body).unwrap();
            let mut wire = vec![b'['];
            wire.extend_from_slice(&framed[..framed.len() - 1]);
            wire.push(b']');
            prop_assert_eq!(serde_json::from_slice::<Vec<String>>(&wire).unwrap(), words.clone());
            let count = u64::try_from(words.len()).unwrap();
            prop_assert_eq!(prefix_len(&framed, count), u64::try_from(framed.len()).ok());
        }
    }
}
