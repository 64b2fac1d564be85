//! Browsers: which names are this server's, and which pages may use what.
//!
//! Every page in a developer's browser reaches the servers on that machine. Where nobody needs a
//! key, the server itself tells its own clients from such pages:
//!
//! - A page that has a name of its own lead to this machine sends that name as its `Host`. On a
//!   loopback address requests for names that are not the server's are turned away.
//! - A page of another origin says so in `Origin`. It may use streams, as their protocol wants, and
//!   nothing else.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Request, Uri};

use super::auth::{Auth, Requirement};
use super::error::RequestError;
use super::reply;
use super::route::Face;

/// Who may be a web page, and by which names the server is known.
#[derive(Debug, Default)]
pub(crate) struct BrowserRules {
    /// Whether names that are not the server's are turned away.
    checks_host: bool,
    /// Whether pages of other origins are.
    checks_origin: bool,
    /// The URL that the world knows the server by.
    public_url: Option<Uri>,
}

impl BrowserRules {
    pub(crate) fn new(listen: SocketAddr, auth: &Auth, public_url: Option<&str>) -> BrowserRules {
        let is_open = *auth == Auth::Off;
        BrowserRules {
            checks_host: is_open && listen.ip().to_canonical().is_loopback(),
            checks_origin: is_open,
            public_url: public_url.and_then(|url| url.parse().ok()),
        }
    }

    /// Whether a request is for this server. One without a name comes from no browser.
    pub(crate) fn check_host<B>(&self, request: &Request<B>) -> Result<(), RequestError> {
        if !self.checks_host {
            return Ok(());
        }
        let in_target = request.uri().authority().map(|it| Some(it.as_str()));
        let in_headers = request.headers().get_all(HOST).iter().map(|host| host.to_str().ok());
        let mut hosts = in_headers.chain(in_target);
        if hosts.all(|host| host.is_some_and(|host| self.is_ours(host))) {
            return Ok(());
        }
        Err(RequestError::ForeignHost)
    }

    /// Whether a request may come from where it comes from.
    pub(crate) fn check_origin<B>(
        &self,
        face: Face,
        requirement: Requirement,
        request: &Request<B>,
    ) -> Result<(), RequestError> {
        // Whoever has a token was given it, and what asks for nothing tells nothing.
        let is_open = face == Face::Streams
            || matches!(requirement, Requirement::Nothing | Requirement::Token);
        if !self.checks_origin || is_open {
            return Ok(());
        }
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let is_own = origins
            .all(|origin| origin.to_str().is_ok_and(|origin| self.is_own_origin(origin, request)));
        if is_own { Ok(()) } else { Err(RequestError::CrossOrigin) }
    }

    fn is_ours(&self, host: &str) -> bool {
        if !reply::is_host(host) {
            return false;
        }
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host();
        let public = self.public_url.as_ref().and_then(Uri::host);
        is_loopback(name) || public.is_some_and(|public| public.eq_ignore_ascii_case(name))
    }

    /// Whether an origin is the one that the request itself goes to, or the world's name for it.
    fn is_own_origin<B>(&self, origin: &str, request: &Request<B>) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        let is_public = self.public_url.as_ref().is_some_and(|url| {
            let own =
                url.authority().is_some_and(|own| own.as_str().eq_ignore_ascii_case(authority));
            own && url.scheme_str().is_some_and(|own| own.eq_ignore_ascii_case(scheme))
        });
        let host = host_of(request.headers(), request.uri());
        is_public || host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
    }
}

fn host_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    host.or(uri.authority().map(Authority::as_str))
}

/// Whether a name always means the machine that it is said on.
fn is_loopback(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = address.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_loopback_however_it_is_written() {
        for name in ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1.2.3", "[::1]"] {
            assert!(is_loopback(name), "{name}");
        }
        assert!(is_loopback("[::ffff:127.0.0.1]"));
        for name in
            ["", ".", "localhost.example", "xlocalhost", "127.0.0.1.example", "[::]", "10.1"]
        {
            assert!(!is_loopback(name), "{name}");
        }
    }
}
