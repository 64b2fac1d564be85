//! The name of a stream: the raw, still percent-encoded path of its URL.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limits::PATH_BYTES_MAX;

/// A stream's path as the client wrote it: `/a%20b` and `/a b` are not the same stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamPath(Arc<str>);

/// The path cannot name a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`, or is `/` alone.
    #[error("a stream path begins with `/` and names something after it")]
    Empty,
    /// It is longer than a key may be.
    #[error("a stream path is at most {PATH_BYTES_MAX} bytes long")]
    TooLong,
    /// It has a byte that no URL path has.
    #[error("a stream path is printable ASCII without spaces; percent-encode everything else")]
    BadByte,
}

impl StreamPath {
    /// Reads a raw URL path.
    pub fn parse(raw: &str) -> Result<StreamPath, PathError> {
        if raw.len() < 2 || !raw.starts_with('/') {
            return Err(PathError::Empty);
        }
        if raw.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if !raw.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#') {
            return Err(PathError::BadByte);
        }
        Ok(StreamPath(raw.into()))
    }

    /// The path as it stands in the URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the stream is the server's own (`/_events/…`): nobody else writes it.
    pub fn is_internal(&self) -> bool {
        self.0.starts_with("/_")
    }
}

/// Paths are found in maps by their text.
impl Borrow<str> for StreamPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_raw() {
        assert_eq!(StreamPath::parse("/a%2Fb").unwrap().as_str(), "/a%2Fb");
        assert_eq!(StreamPath::parse("/"), Err(PathError::Empty));
        assert_eq!(StreamPath::parse("a"), Err(PathError::Empty));
        assert_eq!(StreamPath::parse("/a b"), Err(PathError::BadByte));
        assert_eq!(StreamPath::parse("/a\u{e9}"), Err(PathError::BadByte));
        assert_eq!(StreamPath::parse(&format!("/{}", "x".repeat(2048))), Err(PathError::TooLong));
    }
}
