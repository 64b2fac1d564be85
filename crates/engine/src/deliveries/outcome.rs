//! What came of an attempt, in the words of the law: kinds of failures, and what is kept of answers.

use std::sync::Arc;

use reveille_core::delivery::outcome::hash_headers;
use reveille_core::delivery::policy::Outcome;
use reveille_core::delivery::{AttemptRecord, ErrorKind};
use reveille_deliver::courier::Answer;

/// How much of an answer is kept with the attempt.
const RESPONSE_BYTES_MAX: usize = 4 << 10;
/// The same for an attempt that failed: only the latest few of a delivery have it.
const FAILURE_BYTES_MAX: usize = 2 << 10;
/// How long an error text may be that is kept with an attempt.
pub(crate) const ERROR_BYTES_MAX: usize = 256;

/// The kind of a failure, by the word that is counted. The one place where they meet.
pub(crate) fn kind_of(word: &str) -> ErrorKind {
    match word {
        "destination" | "address_refused" => ErrorKind::Blocked,
        "unresolved" => ErrorKind::Dns,
        "tls_handshake" => ErrorKind::Tls,
        "timed_out" => ErrorKind::Timeout,
        "status" | "bad_answer" => ErrorKind::Http,
        // There is no connection, or there was one and it broke off.
        _ => ErrorKind::Connect,
    }
}

/// What an answer is to the rules of a hook, and what is kept of it.
pub(crate) fn answered(answer: &Answer, record: &mut AttemptRecord) -> Outcome {
    let Answer { status, headers, body, retry_after_s, .. } = answer;
    let (status, retry_after_s) = (*status, *retry_after_s);
    record.status = Some(status);
    let is_success = (200..300).contains(&status);
    let max = if is_success { RESPONSE_BYTES_MAX } else { FAILURE_BYTES_MAX };
    record.response = Some(beginning_of(body, max));
    record.is_cut = body.len() > max;
    if !is_success {
        record.error = Some(format!("answered {status}").into());
        record.retry_after_s = retry_after_s;
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        record.headers_hash = Some(Arc::new(hash_headers(headers)));
    }
    Outcome::Answered { status, retry_after_s }
}

fn beginning_of(body: &[u8], max: usize) -> Arc<str> {
    cut(&String::from_utf8_lossy(body.get(..max).unwrap_or(body)), max)
}

pub(crate) fn cut(text: &str, max: usize) -> Arc<str> {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::FAILURE_KINDS;

    #[test]
    fn every_word_that_is_counted_has_a_kind() {
        let kinds = FAILURE_KINDS.map(kind_of);
        let expected = [
            ErrorKind::Http,
            ErrorKind::Blocked,
            ErrorKind::Blocked,
            ErrorKind::Dns,
            ErrorKind::Connect,
            ErrorKind::Tls,
            ErrorKind::Timeout,
            ErrorKind::Connect,
            ErrorKind::Http,
            // What a face refuses to send has a kind of its own.
            ErrorKind::Connect,
        ];
        assert_eq!(kinds, expected);
    }
}
