//! When a stream ends by itself, and how clients say so.

use std::sync::Arc;

use crate::limits::TTL_SECONDS_MAX;
use crate::time::Millis;

/// When a stream ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// A number of seconds after it was last read or written.
    Ttl(u64),
    /// At a moment; the text is what the creator sent.
    At(Millis, Arc<str>),
}

/// The headers do not say when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExpiryError {
    /// Not a plain number of seconds.
    #[error("Stream-TTL is a number of seconds from 0 to {TTL_SECONDS_MAX}, without leading zeros")]
    Ttl,
    /// Not a timestamp.
    #[error("Stream-Expires-At is an RFC 3339 timestamp such as 2030-01-01T00:00:00Z")]
    ExpiresAt,
    /// One of them must give way.
    #[error("Stream-TTL and Stream-Expires-At exclude each other")]
    Both,
}

impl Expiry {
    /// Reads the two headers.
    pub fn parse(ttl: Option<&str>, expires_at: Option<&str>) -> Result<Expiry, ExpiryError> {
        match (ttl, expires_at) {
            (None, None) => Ok(Expiry::Never),
            (Some(_), Some(_)) => Err(ExpiryError::Both),
            (Some(ttl), None) => plain_number(ttl)
                .filter(|seconds| *seconds <= TTL_SECONDS_MAX)
                .map(Expiry::Ttl)
                .ok_or(ExpiryError::Ttl),
            (None, Some(text)) => Millis::parse_rfc3339(text)
                .map(|at| Expiry::At(at, text.into()))
                .ok_or(ExpiryError::ExpiresAt),
        }
    }
}

/// A non-negative integer as the protocol writes it: digits only, no leading zeros.
pub fn plain_number(text: &str) -> Option<u64> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_plain_numbers() {
        assert_eq!(Expiry::parse(Some("0"), None), Ok(Expiry::Ttl(0)));
        assert_eq!(Expiry::parse(Some("3600"), None), Ok(Expiry::Ttl(3600)));
        for bad in ["", "+1", "-1", "01", "1.0", "1e3", "abc", " 1", "99999999999999999999"] {
            assert_eq!(Expiry::parse(Some(bad), None), Err(ExpiryError::Ttl), "{bad:?}");
        }
    }

    #[test]
    fn moments_keep_their_text_and_exclude_lifetimes() {
        let text = "1970-01-01T00:00:01Z";
        let expected = Expiry::At(Millis(1_000), text.into());
        assert_eq!(Expiry::parse(None, Some(text)), Ok(expected));
        assert_eq!(Expiry::parse(None, Some("soon")), Err(ExpiryError::ExpiresAt));
        assert_eq!(Expiry::parse(Some("1"), Some(text)), Err(ExpiryError::Both));
    }
}
