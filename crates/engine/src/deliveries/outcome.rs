//! Which kind of failure it is that the sender and the courier speak of.

use reveille_core::delivery::ErrorKind;

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

/// The kind of a failure that has a status.
pub(crate) fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        300..400 => ErrorKind::Redirect,
        _ => ErrorKind::Http,
    }
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
        ];
        assert_eq!(kinds, expected);
        assert_eq!(kind_of_status(302), ErrorKind::Redirect);
        assert_eq!(kind_of_status(500), ErrorKind::Http);
    }
}
