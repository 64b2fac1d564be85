//! Destinations: URLs that were checked when somebody gave them to us.
//!
//! The check here is for early and clear refusals; the guard that nothing passes is asked by the
//! connector, for the address that is then connected to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;

use crate::address;
pub use crate::network::{Network, NetworkError};

#[cfg(test)]
mod tests;

/// The longest URL that is accepted, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// RFC 1035 §2.3.4: the longest name, and the longest label of one, in bytes.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// What an operator allows beyond the public internet over TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether this machine may be called, with or without TLS, by one of its loopback names.
    pub allow_http_loopback: bool,
    /// Private networks that may be called, by address also without TLS.
    pub private_networks: Vec<Network>,
}

impl Rules {
    /// The guard: whether to connect to this address for the sake of this host.
    ///
    /// Loopback hosts and loopback addresses belong together: a public name that resolves to this
    /// machine is an attempt to reach what listens only here, and `localhost` is allowed to go
    /// without TLS only because it stays here.
    pub(crate) fn is_allowed(&self, host: &Host, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if host.is_loopback() || address.is_loopback() {
            return self.allow_http_loopback && host.is_loopback() && address.is_loopback();
        }
        // Connecting to 0.0.0.0 or :: reaches this machine, whatever network it is listed in.
        if address.is_unspecified() {
            return false;
        }
        address::is_public(address) || self.is_in_private_network(address)
    }

    fn is_in_private_network(&self, address: IpAddr) -> bool {
        self.private_networks.iter().any(|network| network.contains(address))
    }
}

/// A URL that requests may be sent to.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    parts: Arc<UrlParts>,
}

/// A URL taken apart once, so that sending does not have to.
#[derive(PartialEq, Eq)]
struct UrlParts {
    text: String,
    origin: Origin,
    /// Path and query, as they go into the request line.
    target: Uri,
    /// Host and port, as they go into the `host` header.
    authority: HeaderValue,
}

/// What connections are shared by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The name that the certificate must be for; without one there is no TLS.
    pub(crate) tls: Option<ServerName<'static>>,
    pub(crate) host: Host,
    pub(crate) port: u16,
}

/// The host of a URL: a literal address, or a name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    Literal(IpAddr),
    Name(Arc<str>),
}

/// Why a URL cannot be a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// It is too long.
    #[error("the URL is longer than {URL_BYTES_MAX} bytes; use a shorter one")]
    TooLong,
    /// It has a character that a URL cannot have.
    #[error("the URL has a character that must be percent-encoded, such as a space or a backslash")]
    BadCharacter,
    /// It is not absolute, or not HTTP.
    #[error("the URL must begin with https://")]
    BadScheme,
    /// It carries credentials.
    #[error("the URL must not have a user or password before the host; send them in a header")]
    UserInfo,
    /// It has a fragment.
    #[error("the URL must not have a fragment; remove the # and what follows it")]
    Fragment,
    /// There is no host.
    #[error("the URL has no host; write it as https://example.com/path")]
    NoHost,
    /// The host is not written in ASCII.
    #[error("the host must be ASCII; write an international name in its xn-- form")]
    HostNotAscii,
    /// The host is neither a name nor an address.
    #[error("the host is neither a name nor an address; check it for slips")]
    BadHost,
    /// The host is a number, which some would take for an address.
    #[error("the host looks like an IPv4 address; write it as four decimal numbers")]
    UnusualAddress,
    /// The port is not one.
    #[error("the port must be a number from 1 to 65535")]
    BadPort,
    /// The path or query is malformed.
    #[error("the path or query of the URL is malformed; percent-encode special characters")]
    BadPath,
    /// The host is this machine, and that is not allowed.
    #[error("the host is this machine; calling it must be allowed in the server's settings")]
    Loopback,
    /// The host is an address that is not public.
    #[error("the address {0} is not public; use a public one or have its network allowed")]
    AddressRefused(IpAddr),
    /// It would go without TLS to somewhere else.
    #[error("http is only for this machine and for addresses in allowed networks; use https")]
    Insecure,
}

impl Destination {
    /// Checks a URL. What is accepted is kept as it was written.
    pub fn parse(text: &str, rules: &Rules) -> Result<Destination, DestinationError> {
        if text.len() > URL_BYTES_MAX {
            return Err(DestinationError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(DestinationError::BadScheme)?;
        let https = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(DestinationError::BadScheme),
        };
        let (authority, target) = match rest.find(['/', '?', '#']) {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(DestinationError::UserInfo);
        }
        if target.contains('#') {
            return Err(DestinationError::Fragment);
        }
        let (host, port) = split_port(authority)?;
        let port = port.unwrap_or(if https { 443 } else { 80 });
        let host = Host::parse(host)?;
        check_host(&host, https, rules)?;
        let tls = if https { Some(host.server_name()?) } else { None };
        let authority = HeaderValue::from_str(&authority.to_ascii_lowercase())
            .map_err(|_| DestinationError::BadHost)?;
        let target = parse_target(target)?;
        let origin = Origin { tls, host, port };
        let parts = UrlParts { text: text.to_owned(), origin, target, authority };
        Ok(Destination { parts: Arc::new(parts) })
    }

    /// The URL, as it was written.
    pub fn as_str(&self) -> &str {
        &self.parts.text
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.parts.origin
    }

    pub(crate) fn target(&self) -> &Uri {
        &self.parts.target
    }

    pub(crate) fn authority(&self) -> &HeaderValue {
        &self.parts.authority
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({})", self.as_str())
    }
}

impl Host {
    fn parse(text: &str) -> Result<Host, DestinationError> {
        if text.is_empty() {
            return Err(DestinationError::NoHost);
        }
        if !text.is_ascii() {
            return Err(DestinationError::HostNotAscii);
        }
        if let Some(literal) = text.strip_prefix('[') {
            let literal = literal.strip_suffix(']').ok_or(DestinationError::BadHost)?;
            let literal: Ipv6Addr = literal.parse().map_err(|_| DestinationError::BadHost)?;
            return Ok(Host::Literal(IpAddr::V6(literal)));
        }
        if let Ok(literal) = text.parse::<Ipv4Addr>() {
            return Ok(Host::Literal(IpAddr::V4(literal)));
        }
        if text.bytes().any(|byte| matches!(byte, b' ' | b'\\') || byte.is_ascii_control()) {
            return Err(DestinationError::BadCharacter);
        }
        if text.rsplit('.').next().is_some_and(is_number) {
            return Err(DestinationError::UnusualAddress);
        }
        if text.len() > NAME_BYTES_MAX || !text.split('.').all(is_label) {
            return Err(DestinationError::BadHost);
        }
        Ok(Host::Name(text.to_ascii_lowercase().into()))
    }

    /// Whether this is one of the names of this machine. An address of it that is written in
    /// another way, such as `[::ffff:127.0.0.1]`, is not.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Host::Literal(literal) => literal.is_loopback(),
            Host::Name(name) => **name == *"localhost",
        }
    }

    fn server_name(&self) -> Result<ServerName<'static>, DestinationError> {
        match self {
            Host::Literal(literal) => Ok(ServerName::IpAddress((*literal).into())),
            Host::Name(name) => {
                ServerName::try_from(name.to_string()).map_err(|_| DestinationError::BadHost)
            }
        }
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), DestinationError> {
    // The colons of a v6 address are inside its brackets.
    let after_literal = authority.rfind(']').map_or(0, |end| end + 1);
    let Some(colon) = authority.rfind(':').filter(|colon| *colon >= after_literal) else {
        return Ok((authority, None));
    };
    let (host, port) = authority.split_at(colon);
    let port = port.trim_start_matches(':');
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port != 0);
    Ok((host, Some(port.ok_or(DestinationError::BadPort)?)))
}

fn check_host(host: &Host, https: bool, rules: &Rules) -> Result<(), DestinationError> {
    if host.is_loopback() {
        return if rules.allow_http_loopback { Ok(()) } else { Err(DestinationError::Loopback) };
    }
    let literal = match host {
        Host::Literal(literal) => Some(*literal),
        Host::Name(_) => None,
    };
    if let Some(literal) = literal.filter(|literal| !rules.is_allowed(host, *literal)) {
        return Err(DestinationError::AddressRefused(literal));
    }
    if https || literal.is_some_and(|literal| rules.is_in_private_network(literal)) {
        Ok(())
    } else {
        Err(DestinationError::Insecure)
    }
}

/// Path and query in the form of a request line.
fn parse_target(target: &str) -> Result<Uri, DestinationError> {
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(DestinationError::BadCharacter);
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    // `Uri` reads `//host/path` as a path only when it is told that there is no authority.
    let target = format!("{slash}{target}");
    Uri::builder().path_and_query(target).build().map_err(|_| DestinationError::BadPath)
}

/// Whether the last label of a name makes resolvers take the whole for an address: `2130706433`,
/// `0x7f.1`, `127.1` and `0177.0.0.1` are all this machine to `inet_aton`. No top-level domain is
/// a number.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_label(label: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !label.is_empty() && label.len() <= LABEL_BYTES_MAX && label.bytes().all(allowed)
}
