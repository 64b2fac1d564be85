//! The client: a courier that sends over HTTP/1.1, with and without TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::Full;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::connection::{Connection, EndpointResponse, ExchangeError};
use crate::connector::Connector;
use crate::courier::{Answer, Courier, Request, ResponseFuture, SendError, is_good};
use crate::destination::{Origin, Rules};
use crate::pool::Pool;
use crate::resolve::{Now, Resolve};

/// Who we say we are.
const USER_AGENT: &str = concat!("reveille/", env!("CARGO_PKG_VERSION"));

/// Headers about the connection or the framing of the body: ours to write, not the caller's.
const OWN_HEADERS: &[HeaderName] = &[
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The certificates of an authority cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    #[error("it is not PEM with certificates (-----BEGIN CERTIFICATE-----)")]
    NotPem,
    #[error("there is no certificate in it")]
    Empty,
    #[error("certificate {0} in it is none that an authority can have")]
    BadCertificate(usize),
}

/// Certificate authorities, as they are trusted beside those that browsers trust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads certificates in PEM, one after another.
    pub fn from_pem(pem: &[u8]) -> Result<Authorities, AuthorityError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let found = found.map_err(|_| AuthorityError::NotPem)?;
        if found.is_empty() {
            return Err(AuthorityError::Empty);
        }
        let mut store = RootCertStore::empty();
        for (number, certificate) in (1..).zip(&found) {
            let added = store.add(certificate.clone());
            added.map_err(|_| AuthorityError::BadCertificate(number))?;
        }
        Ok(Authorities(found))
    }
}

/// Sends requests over the network.
pub struct HttpCourier {
    state: Arc<CourierState>,
}

struct CourierState {
    connector: Connector,
    pool: Pool,
    now: Now,
    retries: AtomicU64,
}

impl HttpCourier {
    /// A courier that trusts the authorities that browsers trust. `now` is in milliseconds since
    /// 1970.
    pub fn new(
        rules: Rules,
        resolver: Arc<dyn Resolve>,
        now: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> HttpCourier {
        HttpCourier::trusting(rules, resolver, now, Authorities::default())
    }

    /// A courier that also trusts these authorities.
    pub fn trusting(
        rules: Rules,
        resolver: Arc<dyn Resolve>,
        now: Arc<dyn Fn() -> u64 + Send + Sync>,
        authorities: Authorities,
    ) -> HttpCourier {
        let connector = Connector::new(rules, resolver, authorities.0)
            .expect("the certificates were read, and the provider has the default versions of TLS");
        HttpCourier::with_connector(connector, now)
    }

    /// At most so many connections at once, those that wait for another request included.
    pub fn with_connections_max(self, max: usize) -> HttpCourier {
        self.state.pool.set_connections_max(max);
        self
    }

    /// How many requests were sent a second time, because the idle connection that they were sent
    /// on turned out to be closed.
    pub fn retries(&self) -> u64 {
        self.state.retries.load(Ordering::Relaxed)
    }

    /// How many connections wait for another request.
    pub fn idle_connections(&self) -> usize {
        self.state.pool.idle_count()
    }

    /// Closes connections that waited too long. Every request does this too; it is for the quiet
    /// time after the last one.
    pub fn close_expired(&self) {
        self.state.pool.sweep();
    }

    fn with_connector(connector: Connector, now: Now) -> HttpCourier {
        let (pool, retries) = (Pool::new(now.clone()), AtomicU64::new(0));
        HttpCourier { state: Arc::new(CourierState { connector, pool, now, retries }) }
    }
}

impl Courier for HttpCourier {
    fn post(&self, request: Request) -> ResponseFuture {
        let state = self.state.clone();
        Box::pin(async move { state.post(&request).await })
    }
}

impl CourierState {
    async fn post(&self, request: &Request) -> Result<Answer, SendError> {
        let origin = request.destination.origin();
        let _permit = self.pool.acquire(origin).await?;
        let response = match self.pool.take(origin) {
            Some(connection) => match self.send(origin, connection, request).await {
                Err(ExchangeError { is_stale: true, .. }) => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                    self.send_on_new_connection(origin, request).await
                }
                result => result,
            },
            None => self.send_on_new_connection(origin, request).await,
        };
        response.map(|response| self.answer(response)).map_err(|error| error.error)
    }

    async fn send_on_new_connection(
        &self,
        origin: &Origin,
        request: &Request,
    ) -> Result<EndpointResponse, ExchangeError> {
        let transport = match self.connector.connect(&request.tenant, origin).await {
            // Connections that wait for a request have what one that is needed now lacks.
            Err(SendError::Shortage) if self.pool.close_idle() => {
                self.connector.connect(&request.tenant, origin).await
            }
            connected => connected,
        }?;
        let connection = Connection::open(transport).await?;
        self.send(origin, connection, request).await
    }

    /// Sends over this connection, and keeps it only if the exchange came to its end.
    async fn send(
        &self,
        origin: &Origin,
        mut connection: Connection,
        request: &Request,
    ) -> Result<EndpointResponse, ExchangeError> {
        let when_head_comes = |status, headers: &HeaderMap| {
            request.early.set(status, headers, retry_after_s(headers, (self.now)()));
        };
        let response = connection.exchange(to_wire(request), when_head_comes).await?;
        if !response.is_truncated {
            self.pool.put(origin, connection);
        }
        Ok(response)
    }

    fn answer(&self, response: EndpointResponse) -> Answer {
        let retry_after_s = retry_after_s(&response.headers, (self.now)());
        let EndpointResponse { status, headers, body, is_truncated } = response;
        let headers = if is_good(status) { HeaderMap::new() } else { headers };
        Answer { status, headers, body, truncated: is_truncated, retry_after_s }
    }
}

fn to_wire(request: &Request) -> http::Request<Full<Bytes>> {
    let mut headers = HeaderMap::with_capacity(request.headers.len() + 3);
    headers.insert(header::HOST, request.destination.authority().clone());
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(request.body.len()));
    for (name, value) in &request.headers {
        if !OWN_HEADERS.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT));
    let mut wire = http::Request::new(Full::new(request.body.clone()));
    *wire.method_mut() = Method::POST;
    *wire.uri_mut() = request.destination.target().clone();
    *wire.headers_mut() = headers;
    wire
}

/// RFC 9110 §10.2.3: seconds, or a date. What is neither is as good as absent.
fn retry_after_s(headers: &HeaderMap, now_ms: u64) -> Option<u64> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are "not for a very long time".
        return Some(value.parse().unwrap_or(u64::MAX));
    }
    let at = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(at.as_secs().saturating_sub(now_ms / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let check = |value: &str, expected: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            assert_eq!(retry_after_s(&headers, 784_111_700_000), expected, "{value}");
        };
        check("0", Some(0));
        check(" 120 ", Some(120));
        check("99999999999999999999999", Some(u64::MAX));
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(77));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(0));
        check("", None);
        check("-1", None);
        check("1.5", None);
        check("soon", None);
        assert_eq!(retry_after_s(&HeaderMap::new(), 0), None);
    }
}
