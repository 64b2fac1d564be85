//! The address of a server: `http://HOST[:PORT]`, perhaps with a path in front of all others.

use std::fmt;
use std::str::FromStr;

use http::Uri;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    /// The URL of a path and query, both already percent-encoded.
    pub(crate) fn to(&self, target: &str) -> Uri {
        let joined = format!("{}{target}", self.0);
        joined.parse().expect("the base and the path have been checked, and the query is encoded")
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        if text.starts_with("https://") {
            return Err("https is not supported by these commands yet; use http://".to_owned());
        }
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            uri.scheme_str() == Some("http")
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.query().is_none()
        });
        match uri {
            Some(_) if !text.contains('#') => Ok(Url(text.trim_end_matches('/').to_owned())),
            _ => Err("a server's URL is written like http://127.0.0.1:4437".to_owned()),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A query parameter's value with everything encoded that could be mistaken for something else.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_plain_http_and_a_base() {
        let check = |text: &str, uri: &str| {
            assert_eq!(text.parse::<Url>().unwrap().to("/a?b=c").to_string(), uri);
        };
        check("http://127.0.0.1:4437", "http://127.0.0.1:4437/a?b=c");
        check("http://localhost/", "http://localhost/a?b=c");
        check("http://[::1]:80/base/", "http://[::1]:80/base/a?b=c");
        for bad in
            ["", "127.0.0.1:4437", "localhost", "ftp://a", "http://", "http://a/?b", "http://a b"]
        {
            assert!(bad.parse::<Url>().is_err(), "{bad:?}");
        }
        let sentence = "https://a".parse::<Url>().unwrap_err();
        assert!(sentence.contains("https is not supported"), "{sentence}");
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(encode("/a-b/c_d.e~1"), "/a-b/c_d.e~1");
        assert_eq!(encode("/a%20b&c=d+e"), "/a%2520b%26c%3Dd%2Be");
        assert_eq!(encode("é ?#"), "%C3%A9%20%3F%23");
    }
}
