//! What came of an attempt, and why a delivery ends without being accepted.

use std::fmt::Write as _;
use std::sync::Arc;

use aws_lc_rs::digest;

use crate::stream::Rejected;
use crate::time::Millis;

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Its number, from 1.
    pub number: u32,
    /// When it ended.
    pub at: Millis,
    /// How long it took.
    pub took_ms: u64,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// What went wrong; `None` if it was accepted.
    pub error: Option<Arc<str>>,
    /// The beginning of the answer; of failures, only the latest have theirs.
    pub response: Option<Arc<str>>,
    /// Whether the answer was longer than that.
    pub is_cut: bool,
    /// What kind of failure it was.
    pub kind: Option<ErrorKind>,
    /// SHA-256 of the answer's headers, for a failure: two answers that are alike have it alike.
    pub headers_hash: Option<Arc<[u8; 32]>>,
    /// In how many seconds the endpoint has asked to be tried again.
    pub retry_after_s: Option<u64>,
}

impl AttemptRecord {
    /// An attempt of which nothing is known yet but when it ended.
    pub fn new(number: u32, at: Millis, took_ms: u64) -> AttemptRecord {
        AttemptRecord {
            number,
            at,
            took_ms,
            status: None,
            error: None,
            response: None,
            is_cut: false,
            kind: None,
            headers_hash: None,
            retry_after_s: None,
        }
    }
}

/// What kind of failure an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The name has no address.
    Dns,
    /// Nobody answered, or the connection broke off.
    Connect,
    /// The two sides did not agree on TLS.
    Tls,
    /// It took too long.
    Timeout,
    /// The address is one that must not be called.
    Blocked,
    /// The answer leads elsewhere, and is not followed.
    Redirect,
    /// What was to be sent is too large.
    Size,
    /// What signs it is not to be had.
    Secret,
    /// It was answered, and not with success.
    Http,
    /// The stream takes nothing any more: it is closed, deleted or full.
    StreamClosed,
    /// The stream takes nothing like this.
    StreamMismatch,
}

/// Why a delivery is tried no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadReason {
    /// All attempts failed.
    Exhausted,
    /// It was refused in a way that no repetition changes.
    Refused,
    /// It failed quickly and in the same way, again and again.
    Poison,
    /// What was to be sent is too large.
    PayloadTooLarge,
    /// The headers are too large.
    HeadersTooLarge,
    /// The address is one that must not be called.
    Blocked,
    /// The answer leads elsewhere, and is not followed.
    Redirect,
    /// What signs it is not to be had.
    SecretMissing,
    /// Its hook has ended.
    HookDeleted,
    /// What was to be sent cannot be read.
    Corrupt,
    /// It has waited for too long.
    Expired,
    /// Hooks made each other go off, too many in a row.
    LoopGuard,
}

/// Why a delivery is not owed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Its gate closed.
    NotOwed,
    /// It was answered with a status for which its hook's rules say so.
    Status,
    /// Its hook was ended by the endpoint or by its gate.
    Cancelled,
}

impl ErrorKind {
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::Dns,
        ErrorKind::Connect,
        ErrorKind::Tls,
        ErrorKind::Timeout,
        ErrorKind::Blocked,
        ErrorKind::Redirect,
        ErrorKind::Size,
        ErrorKind::Secret,
        ErrorKind::Http,
        ErrorKind::StreamClosed,
        ErrorKind::StreamMismatch,
    ];

    /// What it is that a stream rejects an append.
    pub fn of_append(rejected: &Rejected) -> ErrorKind {
        match rejected {
            Rejected::Gone
            | Rejected::Closed { .. }
            | Rejected::Full
            | Rejected::PathHeld
            | Rejected::NotFound => ErrorKind::StreamClosed,
            // The others are never told to one that only appends.
            Rejected::ContentType { .. }
            | Rejected::Json(_)
            | Rejected::StreamSeq { .. }
            | Rejected::Producer(_)
            | Rejected::Exists(_)
            | Rejected::SourceNotFound
            | Rejected::SourceGone
            | Rejected::ForkOffset { .. }
            | Rejected::ForkSubOffset
            | Rejected::ForkDepth { .. }
            | Rejected::ReadOffset { .. }
            | Rejected::Trimmed { .. } => ErrorKind::StreamMismatch,
        }
    }

    /// The word that the world knows it by; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::Dns => "dns",
            ErrorKind::Connect => "connect",
            ErrorKind::Tls => "tls",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Blocked => "blocked",
            ErrorKind::Redirect => "redirect",
            ErrorKind::Size => "size",
            ErrorKind::Secret => "secret",
            ErrorKind::Http => "http",
            ErrorKind::StreamClosed => "stream_closed",
            ErrorKind::StreamMismatch => "stream_mismatch",
        }
    }
}

impl DeadReason {
    pub const ALL: [DeadReason; 12] = [
        DeadReason::Exhausted,
        DeadReason::Refused,
        DeadReason::Poison,
        DeadReason::PayloadTooLarge,
        DeadReason::HeadersTooLarge,
        DeadReason::Blocked,
        DeadReason::Redirect,
        DeadReason::SecretMissing,
        DeadReason::HookDeleted,
        DeadReason::Corrupt,
        DeadReason::Expired,
        DeadReason::LoopGuard,
    ];

    /// The word that the world knows it by; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            DeadReason::Exhausted => "EXHAUSTED",
            DeadReason::Refused => "FATAL_STATUS",
            DeadReason::Poison => "POISON",
            DeadReason::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            DeadReason::HeadersTooLarge => "HEADERS_TOO_LARGE",
            DeadReason::Blocked => "URL_BLOCKED",
            DeadReason::Redirect => "REDIRECT_REFUSED",
            DeadReason::SecretMissing => "SECRET_UNAVAILABLE",
            DeadReason::HookDeleted => "TRIGGER_DELETED",
            DeadReason::Corrupt => "QUEUE_CORRUPT",
            DeadReason::Expired => "EXPIRED",
            DeadReason::LoopGuard => "LOOP_GUARD",
        }
    }

    /// What whoever looks after it can do, in a sentence.
    pub fn advice(self) -> &'static str {
        match self {
            DeadReason::Exhausted => "every attempt failed: mend the endpoint, then replay it",
            DeadReason::Refused => {
                "it was refused with a status that is final: mend the endpoint, or have a rule for \
                 the status say otherwise, then replay it"
            }
            DeadReason::Poison => {
                "attempts failed at once and in the same way, one after another, so that no more \
                 were made; an endpoint that nobody listens at fails like that, too: mend it, then \
                 replay it (`--poison 0` leaves such failures to the retry policy)"
            }
            DeadReason::PayloadTooLarge => {
                "what was to be sent is too large, and will be: send less of it, then replay it"
            }
            DeadReason::HeadersTooLarge => {
                "the headers are too large, and will be: have fewer or shorter ones, then replay it"
            }
            DeadReason::Blocked => {
                "the address is one that must not be called: change it, or have the server allow \
                 it, then replay it"
            }
            DeadReason::Redirect => {
                "the endpoint has moved, and redirects are not followed: change the address, then \
                 replay it"
            }
            DeadReason::SecretMissing => {
                "what signs it was not to be had, and nothing is sent unsigned: make the secret, \
                 then replay it"
            }
            DeadReason::HookDeleted => {
                "whom it was for was deleted before it was delivered: discard it, once you know \
                 what it was"
            }
            DeadReason::Corrupt => {
                "what was to be sent cannot be read, and the server's log says why: discard it, \
                 once you know what it was"
            }
            DeadReason::Expired => {
                "it waited for longer than deliveries are kept, because nothing was sent to whom it \
                 is for: resume that, then replay it"
            }
            DeadReason::LoopGuard => {
                "too many triggers made each other go off, one after another: have a condition ask \
                 for `event.origin`, then discard it, or replay it: it comes without a token"
            }
        }
    }

    /// The reason of this word.
    pub fn parse(code: &str) -> Option<DeadReason> {
        DeadReason::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

impl DropReason {
    pub const ALL: [DropReason; 3] =
        [DropReason::NotOwed, DropReason::Status, DropReason::Cancelled];

    /// The word that the world knows it by; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            DropReason::NotOwed => "NOT_OWED",
            DropReason::Status => "STATUS",
            DropReason::Cancelled => "CANCELLED",
        }
    }
}

/// The hash of an answer's headers, in the order in which they came.
pub fn hash_headers<'a>(headers: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    for (name, value) in headers {
        for part in [name, b": ", value, b"\n"] {
            hash.update(part);
        }
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hash.finish().as_ref());
    bytes
}

/// A hash as it is shown.
pub fn hash_text(hash: &[u8; 32]) -> String {
    hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Failures whose answers are kept; of those before, only what is counted and compared.
const ANSWERS_KEPT: usize = 4;

/// Adds an attempt to those that were made. However many there are, the record of all of them
/// stays small: it is written anew for each.
pub(super) fn push(attempts: &mut Vec<AttemptRecord>, attempt: AttemptRecord) {
    attempts.push(attempt);
    if let Some(old) = attempts.len().checked_sub(ANSWERS_KEPT + 1)
        && let Some(attempt) = attempts.get_mut(old)
    {
        (attempt.response, attempt.is_cut) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let codes: BTreeSet<_> = DeadReason::ALL.into_iter().map(DeadReason::code).collect();
        assert_eq!(codes.len(), DeadReason::ALL.len());
        for reason in DeadReason::ALL {
            assert_eq!(DeadReason::parse(reason.code()), Some(reason));
            let advice = reason.advice();
            assert!(advice.contains("replay it") || advice.contains("discard it"), "{advice}");
        }
        assert_eq!(DeadReason::parse("exhausted"), None);
        let codes: BTreeSet<_> = ErrorKind::ALL.into_iter().map(ErrorKind::code).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        let codes: BTreeSet<_> = DropReason::ALL.into_iter().map(DropReason::code).collect();
        assert_eq!(codes.len(), DropReason::ALL.len());
    }

    #[test]
    fn headers_have_one_hash_whoever_computes_it() {
        let headers: [(&[u8], &[u8]); 2] = [(b"server", b"x"), (b"a", b"")];
        // printf 'server: x\na: \n' | sha256sum
        let expected = "sha256:c9ed04247d02913fd821d31abb7fc5829e158cd92c4d34b1eed324179253bdfa";
        assert_eq!(hash_text(&hash_headers(headers.into_iter())), expected);
        assert_ne!(hash_headers(headers.into_iter().rev()), hash_headers(headers.into_iter()));
    }

    #[test]
    fn only_the_latest_answers_are_kept() {
        let mut attempts = Vec::new();
        for number in 1..=100 {
            let response = Some("x".repeat(2_048).into());
            push(
                &mut attempts,
                AttemptRecord { response, ..AttemptRecord::new(number, Millis(0), 0) },
            );
        }
        let kept = attempts.iter().filter(|it| it.response.is_some()).map(|it| it.number);
        assert_eq!(kept.collect::<Vec<_>>(), [97, 98, 99, 100]);
        assert_eq!(attempts.len(), 100);
    }
}
