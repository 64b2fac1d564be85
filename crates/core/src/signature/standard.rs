//! Signatures after Standard Webhooks, which many libraries verify.
//!
//! | header              | value                                                                |
//! |---------------------|----------------------------------------------------------------------|
//! | `webhook-id`        | the message's id, the same for every attempt                         |
//! | `webhook-timestamp` | seconds since 1970, of this attempt                                  |
//! | `webhook-signature` | `v1,` and the base64 of HMAC-SHA256 over `<id>.<timestamp>.<body>`   |
//!
//! The secret is `whsec_` and the base64 of the key. A header may hold several signatures with
//! spaces between them, while one secret takes over from another; one that is right is enough.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::check_time;

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1,";
/// Fewer bytes could be guessed; more are hashed to no more than these.
const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;
/// More signatures than anybody rotates secrets, and no more work than they are worth.
const SIGNATURES_MAX: usize = 16;

/// A secret that messages are signed with.
#[derive(Clone)]
pub struct StandardSecret(hmac::Key);

/// The text is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret is `{PREFIX}` and the base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, with padding"
)]
pub struct SecretError;

/// Why a message cannot be trusted, and what to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StandardError {
    /// The timestamp is no number.
    #[error("`webhook-timestamp` is not a whole number of seconds since 1970")]
    BadTimestamp,
    /// Signed too long ago, or in the future.
    #[error(transparent)]
    Time(super::SignatureError),
    /// There is no signature that can be judged.
    #[error("`webhook-signature` has none that begins with `{VERSION}`; pass it on unchanged")]
    VersionMissing,
    /// Another secret, or other bytes.
    #[error(
        "`webhook-signature` does not match; check that the raw bytes of the body are verified, not \
         JSON that was parsed and written again, and that `webhook-id`, `webhook-timestamp` and the \
         secret are whole"
    )]
    Mismatch,
}

impl StandardSecret {
    /// Reads a secret.
    pub fn parse(text: &str) -> Result<StandardSecret, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError)?;
        if encoded.len() > KEY_BYTES_MAX * 2 {
            return Err(SecretError);
        }
        let key = STANDARD.decode(encoded).map_err(|_| SecretError)?;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(SecretError);
        }
        Ok(StandardSecret(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The text of the secret that these bytes make.
    pub fn text(key: &[u8; 32]) -> String {
        format!("{PREFIX}{}", STANDARD.encode(key))
    }

    /// The value of `webhook-signature`.
    pub fn signature(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let tag = self.tag(id, &timestamp_s.to_string(), body);
        format!("{VERSION}{}", STANDARD.encode(tag))
    }

    /// Whether the headers `webhook-id`, `webhook-timestamp` and `webhook-signature` were made with
    /// this secret and body, around `now_s`.
    pub fn verify(
        &self,
        headers: StandardHeaders<'_>,
        body: &[u8],
        now_s: u64,
        tolerance_s: u64,
    ) -> Result<(), StandardError> {
        let StandardHeaders { id, timestamp, signature } = headers;
        let plain = timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let timestamp_s = timestamp.parse().ok().filter(|_| plain);
        let timestamp_s = timestamp_s.ok_or(StandardError::BadTimestamp)?;
        check_time(timestamp_s, now_s, tolerance_s).map_err(StandardError::Time)?;
        let known = |part: &str| part.strip_prefix(VERSION).map(|value| STANDARD.decode(value));
        let mut signatures = signature.split(' ').filter_map(known).take(SIGNATURES_MAX).peekable();
        if signatures.peek().is_none() {
            return Err(StandardError::VersionMissing);
        }
        let tag = self.tag(id, timestamp, body);
        let right =
            |bytes: Vec<u8>| constant_time::verify_slices_are_equal(tag.as_ref(), &bytes).is_ok();
        if signatures.flatten().any(right) { Ok(()) } else { Err(StandardError::Mismatch) }
    }

    fn tag(&self, id: &str, timestamp: &str, body: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            context.update(part);
        }
        context.sign()
    }
}

/// Says that there is a secret, and nothing of it.
impl fmt::Debug for StandardSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandardSecret(..)")
    }
}

/// The headers of a message, as they came.
#[derive(Debug, Clone, Copy)]
pub struct StandardHeaders<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signature: &'a str,
}

#[cfg(test)]
mod tests;
