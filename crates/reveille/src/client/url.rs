//! The address of a server: `http[s]://HOST[:PORT]`, perhaps with a path in front of all others.

use std::fmt;
use std::str::FromStr;

use http::Uri;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    is_secure: bool,
    /// Host and port, as they are written.
    authority: String,
    /// Without brackets.
    host: String,
    port: Option<u16>,
    /// In front of every path; empty for most.
    base: String,
}

impl Url {
    /// A path and query, both already percent-encoded, as they are asked for on a connection.
    pub(crate) fn target(&self, target: &str) -> Uri {
        let joined = format!("{}{target}", self.base);
        let joined = if joined.starts_with('/') { joined } else { format!("/{joined}") };
        joined.parse().expect("the base and the path have been checked, and the query is encoded")
    }

    /// Whether what is said is for nobody else to hear.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// The value of the header `Host`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(if self.is_secure { 443 } else { 80 })
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        parse(text).ok_or_else(|| {
            "a server's URL is written like http://127.0.0.1:4437 or https://example.com".to_owned()
        })
    }
}

fn parse(text: &str) -> Option<Url> {
    let uri: Uri = text.parse().ok().filter(|_| !text.contains('#'))?;
    let is_secure = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let authority = uri.authority()?.as_str();
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    // A password in a URL would be shown in every message.
    if host.is_empty() || authority.contains('@') || uri.query().is_some() {
        return None;
    }
    Some(Url {
        text: text.trim_end_matches('/').to_owned(),
        is_secure,
        authority: authority.to_owned(),
        host: host.to_owned(),
        port: uri.port_u16(),
        base: uri.path().trim_end_matches('/').to_owned(),
    })
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
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

/// The same for one segment of a path.
pub(crate) fn encode_segment(text: &str) -> String {
    encode(text).replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_http_or_https_and_a_base() {
        let check = |text: &str, host: &str, port: u16, target: &str| {
            let url = text.parse::<Url>().unwrap();
            assert_eq!((url.host(), url.port()), (host, port), "{text}");
            assert_eq!(url.is_secure(), text.starts_with("https"), "{text}");
            assert_eq!(url.target("/a?b=c"), target, "{text}");
        };
        check("http://127.0.0.1:4437", "127.0.0.1", 4437, "/a?b=c");
        check("http://localhost/", "localhost", 80, "/a?b=c");
        check("http://[::1]:80/base/", "::1", 80, "/base/a?b=c");
        check("https://example.com", "example.com", 443, "/a?b=c");
        check("https://example.com:8443/x", "example.com", 8443, "/x/a?b=c");
        assert_eq!("http://a".parse::<Url>().unwrap().target(""), "/");
        assert_eq!("http://a/jwks.json".parse::<Url>().unwrap().target(""), "/jwks.json");
        for bad in [
            "",
            "127.0.0.1:4437",
            "localhost",
            "ftp://a",
            "http://",
            "https://",
            "http://a/?b",
            "http://a b",
            "http://a/#b",
            "http://user:password@a",
        ] {
            assert!(bad.parse::<Url>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(encode("/a-b/c_d.e~1"), "/a-b/c_d.e~1");
        assert_eq!(encode("/a%20b&c=d+e"), "/a%2520b%26c%3Dd%2Be");
        assert_eq!(encode("é ?#"), "%C3%A9%20%3F%23");
        assert_eq!(encode_segment("s:/a b"), "s%3A%2Fa%20b");
    }
}
