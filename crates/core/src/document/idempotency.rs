//! Writes that are sent again under one key: what is remembered of the first, and what the next
//! is told.
//!
//! A key belongs to a tenant and to whom a token was issued, a trigger for example. What is
//! remembered stands in the batch of the write itself, so that there is never one without the
//! other.

use std::sync::Arc;

use aws_lc_rs::digest;

use super::limits::{IDEMPOTENCY_KEY_BYTES_MAX, OUTCOME_MESSAGE_BYTES_MAX};
use crate::time::Millis;

/// By which a write that is sent again is known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(Arc<str>);

/// The key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a write has an idempotency key: `Idempotency-Key`, or `idempotencyKey` in the body")]
    Missing,
    #[error("`Idempotency-Key` and `idempotencyKey` differ; send one of them, or the same")]
    Different,
    #[error("an idempotency key is printable ASCII, at least one character")]
    BadByte,
    #[error("an idempotency key is at most {IDEMPOTENCY_KEY_BYTES_MAX} bytes long")]
    TooLong,
}

/// What a body is, by which another one is told from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyHash(pub [u8; 32]);

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEnd {
    Success,
    /// A document was not there.
    NotFound,
    /// A precondition did not hold, or a document was there already.
    PreconditionFailed,
    RuleDenied,
    /// Something was wrong that shows only beside the documents, like a patch inside of a text.
    Invalid,
    Unauthenticated,
    /// The token is not for such a write, or not for such a path.
    Forbidden,
    TimedOut,
    Exhausted,
    Internal,
}

/// What is remembered of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRecord {
    pub body: BodyHash,
    pub end: WriteEnd,
    /// The sentence of a failure, without what belongs to a single op.
    pub message: Arc<str>,
    /// From then on the key is as good as new.
    pub expires: Millis,
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'r> {
    /// It is done.
    New,
    /// It ended like this, and is not done again.
    Repeated(&'r WriteRecord),
    /// The first one is still being done.
    InProgress,
    /// Something else was sent under this key.
    OtherBody,
}

impl IdempotencyKey {
    pub fn parse(text: &str) -> Result<IdempotencyKey, KeyError> {
        if text.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            return Err(KeyError::TooLong);
        }
        if text.is_empty() || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(KeyError::BadByte);
        }
        Ok(IdempotencyKey(text.into()))
    }

    /// The key of a request, which may have it in two places.
    pub fn of_request(
        header: Option<&str>,
        body: Option<&str>,
    ) -> Result<IdempotencyKey, KeyError> {
        match (header, body) {
            (None, None) => Err(KeyError::Missing),
            (Some(header), Some(body)) if header != body => Err(KeyError::Different),
            (Some(key), _) | (None, Some(key)) => IdempotencyKey::parse(key),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl BodyHash {
    /// Of the bytes as they came: the same writes written otherwise are another body.
    pub fn of(body: &[u8]) -> BodyHash {
        let hash = digest::digest(&digest::SHA256, body);
        BodyHash(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

impl WriteEnd {
    /// Whether it is remembered. What is not has applied nothing and says nothing about the
    /// documents: sending it again may well succeed.
    pub fn is_recorded(self) -> bool {
        match self {
            WriteEnd::Success
            | WriteEnd::NotFound
            | WriteEnd::PreconditionFailed
            | WriteEnd::RuleDenied
            | WriteEnd::Invalid => true,
            WriteEnd::Unauthenticated
            | WriteEnd::Forbidden
            | WriteEnd::TimedOut
            | WriteEnd::Exhausted
            | WriteEnd::Internal => false,
        }
    }
}

impl WriteRecord {
    /// What is to be remembered, if anything is.
    pub fn new(
        body: BodyHash,
        end: WriteEnd,
        message: &str,
        now: Millis,
        ttl_ms: u64,
    ) -> Option<WriteRecord> {
        let cut = message.floor_char_boundary(OUTCOME_MESSAGE_BYTES_MAX);
        let message = message.get(..cut).unwrap_or_default().into();
        end.is_recorded().then_some(WriteRecord { body, end, message, expires: now + ttl_ms })
    }
}

/// What becomes of a write whose key has this record, or is in use by a write of this body.
pub fn judge<'r>(
    body: BodyHash,
    record: Option<&'r WriteRecord>,
    in_progress: Option<BodyHash>,
    now: Millis,
) -> Verdict<'r> {
    if let Some(first) = in_progress {
        return if first == body { Verdict::InProgress } else { Verdict::OtherBody };
    }
    match record.filter(|record| now < record.expires) {
        None => Verdict::New,
        Some(record) if record.body == body => Verdict::Repeated(record),
        Some(_) => Verdict::OtherBody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_in_one_place_or_is_the_same_in_both() {
        let key =
            |header, body| IdempotencyKey::of_request(header, body).map(|it| it.0.to_string());
        assert_eq!(key(Some("k"), None), Ok("k".into()));
        assert_eq!(key(None, Some("k")), Ok("k".into()));
        assert_eq!(key(Some("k"), Some("k")), Ok("k".into()));
        assert_eq!(key(Some("k"), Some("l")), Err(KeyError::Different));
        assert_eq!(key(None, None), Err(KeyError::Missing));
        assert_eq!(key(Some(""), None), Err(KeyError::BadByte));
        assert_eq!(key(Some("\u{e9}"), None), Err(KeyError::BadByte));
        assert_eq!(key(Some(&"k".repeat(257)), None), Err(KeyError::TooLong));
    }

    #[test]
    fn what_is_sent_again_is_told_how_the_first_ended() {
        let (body, other) = (BodyHash::of(b"{}"), BodyHash::of(b"{ }"));
        let end = WriteEnd::PreconditionFailed;
        let record = WriteRecord::new(body, end, "no", Millis(10), 100).unwrap();
        assert_eq!(judge(body, None, None, Millis(10)), Verdict::New);
        assert_eq!(judge(body, Some(&record), None, Millis(109)), Verdict::Repeated(&record));
        assert_eq!(judge(other, Some(&record), None, Millis(109)), Verdict::OtherBody);
        assert_eq!(judge(body, Some(&record), None, Millis(110)), Verdict::New);
        assert_eq!(judge(other, Some(&record), None, Millis(110)), Verdict::New);
        assert_eq!(judge(body, None, Some(body), Millis(10)), Verdict::InProgress);
        assert_eq!(judge(other, None, Some(body), Millis(10)), Verdict::OtherBody);
    }

    #[test]
    fn only_what_was_decided_is_remembered() {
        let record = |end| WriteRecord::new(BodyHash::of(b""), end, "", Millis(0), 1);
        for end in [WriteEnd::Success, WriteEnd::NotFound, WriteEnd::RuleDenied, WriteEnd::Invalid]
        {
            assert!(record(end).is_some(), "{end:?}");
        }
        for end in [
            WriteEnd::Unauthenticated,
            WriteEnd::Forbidden,
            WriteEnd::TimedOut,
            WriteEnd::Exhausted,
            WriteEnd::Internal,
        ] {
            assert_eq!(record(end), None, "{end:?}");
        }
        let long = "\u{e9}".repeat(400);
        let record = WriteRecord::new(BodyHash::of(b""), WriteEnd::Invalid, &long, Millis(0), 1);
        assert_eq!(&*record.unwrap().message, &long[..512]);
    }
}
