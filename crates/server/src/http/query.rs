//! The query of a URL: known parameters come once; unknown ones are ignored, as the protocol of
//! streams wants it, or refused by faces that ask for it.

use super::error::RequestError;
use super::known;

/// The parameters of a request.
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(raw: Option<&str>) -> Query {
        let raw = raw.unwrap_or_default();
        let pairs = raw.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Query { pairs: pairs.map(|(name, value)| (decode(name), decode(value))).collect() }
    }

    /// A parameter that may be given once.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, RequestError> {
        let mut values = self.pairs.iter().filter(|(known, _)| known == name);
        let first = values.next().map(|(_, value)| value.as_str());
        match values.next() {
            Some(_) => {
                Err(RequestError::Query(format!("the parameter `{name}` is given more than once")))
            }
            None => Ok(first),
        }
    }

    /// Where a page begins: `after`, which some know as `cursor`.
    pub(crate) fn after_or_cursor(&self) -> Result<Option<&str>, RequestError> {
        match (self.get("after")?, self.get("cursor")?) {
            (Some(_), Some(_)) => {
                let why = "`after` and `cursor` are the same: give one of them";
                Err(RequestError::Query(why.into()))
            }
            (after, cursor) => Ok(after.or(cursor)),
        }
    }

    /// Whether there are no parameters.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Refuses parameters of other names.
    pub(crate) fn check_known(&self, known: &[&str]) -> Result<(), RequestError> {
        match self.pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(RequestError::Query(known::describe("parameter", name, known))),
        }
    }
}

/// Whether a parameter of one of these names is given, however it is encoded.
pub(crate) fn has_any(raw: &str, names: &[&str]) -> bool {
    // Nearly no request has any: that is told without reading the query.
    if !raw.contains('%') && !names.iter().any(|name| raw.contains(name)) {
        return false;
    }
    let mut given = raw.split('&').map(|pair| decode(pair.split('=').next().unwrap_or(pair)));
    given.any(|name| names.contains(&name.as_str()))
}

fn decode(text: &str) -> String {
    unescape(text, true)
}

/// Undoes the percent-encoding of a part of a path, where a plus is a plus.
pub(crate) fn decode_path(text: &str) -> String {
    unescape(text, false)
}

/// Undoes percent-encoding; what is not valid stays as it is and is refused by whoever reads it.
fn unescape(text: &str, plus_is_space: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let hex = after.first_chunk::<2>().and_then(|[high, low]| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
        });
        match (byte, hex) {
            (b'%', Some(value)) => {
                out.push(value);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_come_once() {
        let query = Query::parse(Some("offset=%2D1&x&live=sse&y=a+b&z=%zz&w=%"));
        assert_eq!(query.get("offset"), Ok(Some("-1")));
        assert_eq!(query.get("x"), Ok(Some("")));
        assert_eq!(query.get("y"), Ok(Some("a b")));
        assert_eq!(query.get("z"), Ok(Some("%zz")));
        assert_eq!(query.get("w"), Ok(Some("%")));
        assert_eq!(query.get("absent"), Ok(None));
        assert!(Query::parse(Some("offset=1&offset=2")).get("offset").is_err());
        assert_eq!(
            Query::parse(Some("limit=1&after=%2D")).check_known(&["after", "limit"]),
            Ok(())
        );
        let said = "unknown parameter `limt`; did you mean `limit`?";
        let refused = Query::parse(Some("limt=1")).check_known(&["after", "limit"]);
        assert_eq!(refused, Err(RequestError::Query(said.to_owned())));
    }
}
