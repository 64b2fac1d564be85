//! Content types: stored as given, compared by their essence.

use std::fmt;
use std::sync::Arc;

use crate::limits::CONTENT_TYPE_BYTES_MAX;

/// A stream's `Content-Type`, exactly as its creator wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType(Arc<str>);

/// How a stream's bytes are framed for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Messages of a JSON array (`application/json`).
    Json,
    /// Text that fits into an event stream as it is (`text/*`).
    Text,
    /// Anything else: base64 in event streams.
    Binary,
}

impl ContentType {
    /// What a stream has whose creator named none.
    pub fn octet_stream() -> ContentType {
        ContentType("application/octet-stream".into())
    }

    /// What a stream of JSON messages has.
    pub fn json() -> ContentType {
        ContentType("application/json".into())
    }

    /// Reads a header's value; `None` if it is empty, too long, or has no `type/subtype`.
    pub fn parse(text: &str) -> Option<ContentType> {
        let text = text.trim();
        if text.len() > CONTENT_TYPE_BYTES_MAX {
            return None;
        }
        let (kind, subtype) = essence(text).split_once('/')?;
        let token = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+*'%`|~".contains(&b))
        };
        (token(kind) && token(subtype)).then(|| ContentType(text.into()))
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both name the same media type; case and parameters do not count.
    pub fn same_media(&self, other: &ContentType) -> bool {
        essence(&self.0).eq_ignore_ascii_case(essence(&other.0))
    }

    /// How bytes of this type are framed.
    pub fn framing(&self) -> Framing {
        let essence = essence(&self.0);
        let text = essence.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
        if essence.eq_ignore_ascii_case("application/json") {
            Framing::Json
        } else if text {
            Framing::Text
        } else {
            Framing::Binary
        }
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn essence(text: &str) -> &str {
    text.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn essence_decides() {
        let plain = ContentType::parse("text/plain").unwrap();
        let charset = ContentType::parse("Text/Plain; charset=utf-8").unwrap();
        assert!(plain.same_media(&charset));
        assert_eq!(charset.as_str(), "Text/Plain; charset=utf-8");
        assert_eq!(charset.framing(), Framing::Text);
        assert_eq!(ContentType::parse("application/JSON;x=1").unwrap().framing(), Framing::Json);
        assert_eq!(ContentType::octet_stream().framing(), Framing::Binary);
    }

    #[test]
    fn malformed_types_are_none() {
        for bad in ["", " ", "text", "/", "text/", "/plain", "te xt/plain", "a/b/c", ";charset=x"] {
            assert_eq!(ContentType::parse(bad), None, "{bad:?}");
        }
    }
}
