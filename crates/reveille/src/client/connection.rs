//! The connection to a server: TCP, TLS where the URL says so, and one request after another on it.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::root_cause;
use super::tls::{self, TlsProblem};
use super::url::Url;
use crate::clock;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Silent connections are probed, so that a machine that vanished is noticed.
const PROBE_AFTER: Duration = Duration::from_secs(20);

/// A server's address, and the connection that was used last.
pub(crate) struct Connection {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Requests are made one after another, so one connection is enough.
    idle: RefCell<Option<SendRequest<Full<Bytes>>>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// Nobody was reached.
    NoConnection(String),
    /// Somebody was reached whom we cannot trust, or not understand.
    Tls(TlsProblem),
    /// The connection ended before there was an answer.
    Lost(String),
}

impl Connection {
    pub(crate) fn new(url: &Url, tls: Option<(TlsConnector, ServerName<'static>)>) -> Connection {
        Connection { host: url.host().to_owned(), port: url.port(), tls, idle: RefCell::default() }
    }

    /// Sends a request. One that finds its connection closed before it could be written goes out on
    /// a new one; every other failure is the caller's to judge.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        let idle = self.idle.take();
        if let Some(mut sender) = idle
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.idle.replace(Some(sender));
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(SendError::Lost(root_cause(error.error()))),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| SendError::Lost(root_cause(&error)))?;
        self.idle.replace(Some(sender));
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, SendError> {
        let socket =
            self.dial().await.map_err(|error| SendError::NoConnection(error.to_string()))?;
        let Some((connector, name)) = &self.tls else { return handshake(socket).await };
        let secured = connector.connect(name.clone(), socket);
        match clock::within(CONNECT_WITHIN, secured).await {
            Some(Ok(socket)) => handshake(socket).await,
            Some(Err(error)) => Err(match tls::problem(&error) {
                Some(problem) => SendError::Tls(problem),
                None => SendError::NoConnection(error.to_string()),
            }),
            None => Err(SendError::NoConnection("no TLS handshake in 10 s".to_owned())),
        }
    }

    /// Tries the addresses of the host in order; one that is silent leaves time for the others.
    async fn dial(&self) -> io::Result<TcpStream> {
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let share = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut error = io::Error::other("the name has no address");
        for address in addresses {
            match clock::within(CONNECT_WITHIN / share, TcpStream::connect(address)).await {
                Some(Ok(socket)) => {
                    tune(&socket);
                    return Ok(socket);
                }
                Some(Err(refused)) => error = refused,
                None => error = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(error)
    }
}

/// A socket that cannot be tuned still works.
fn tune(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, PROBE_AFTER);
}

async fn handshake(
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, SendError> {
    let (sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .map_err(|error| SendError::Lost(root_cause(&error)))?;
    // Whoever waits for an answer is told how the connection ended.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
