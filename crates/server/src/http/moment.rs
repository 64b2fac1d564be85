//! Moments in queries and bodies, as people write them.

use reveille_core::Millis;

use super::error::RequestError;
use super::query::Query;

/// A moment: milliseconds since 1970, or RFC 3339.
pub(crate) fn parse(text: &str) -> Option<Millis> {
    match text.parse() {
        Ok(ms) => Some(Millis(ms)),
        Err(_) => Millis::parse_rfc3339(text),
    }
}

/// What is wrong with a moment of this name.
pub(crate) fn message(name: &str) -> String {
    format!("`{name}` is a time like 2026-01-31T12:00:00Z, or milliseconds since 1970")
}

/// A moment that a query may name.
pub(crate) fn of_query(query: &Query, name: &str) -> Result<Option<Millis>, RequestError> {
    let Some(text) = query.get(name)? else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| RequestError::Query(message(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_number_or_a_date() {
        assert_eq!(parse("1500"), Some(Millis(1_500)));
        assert_eq!(parse("1970-01-01T00:00:01.5Z"), Some(Millis(1_500)));
        for wrong in ["", "-1", "yesterday", "1970-01-01", "99999999999999999999999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
