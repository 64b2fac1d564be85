//! The connector: opens sockets, and asks the guard about each address it connects to.
//!
//! **Invariant:** there is one call of `connect`, and the address in it was checked on the line
//! before. Literals, names that resolve to something else the second time, and the second and
//! third address of a name all come through here.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::courier::SendError;
use crate::destination::{Host, Origin, Rules};
use crate::resolve::{ADDRESSES_MAX, Resolve};
use crate::transport::Transport;

/// Opens sockets.
pub(crate) struct Connector {
    rules: Rules,
    resolver: Arc<dyn Resolve>,
    tls: TlsConnector,
}

impl Connector {
    /// A connector that trusts the authorities that browsers trust, and these.
    pub(crate) fn new(
        rules: Rules,
        resolver: Arc<dyn Resolve>,
        more_roots: Vec<CertificateDer<'static>>,
    ) -> Result<Connector, rustls::Error> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for root in more_roots {
            roots.add(root)?;
        }
        // The provider is passed rather than taken from the process, where another library may
        // have installed another one.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Connector { rules, resolver, tls: TlsConnector::from(Arc::new(config)) })
    }

    pub(crate) async fn connect(&self, origin: &Origin) -> Result<Transport, SendError> {
        let addresses = match &origin.host {
            Host::Literal(literal) => vec![SocketAddr::new(*literal, origin.port)],
            Host::Name(name) => self.resolver.resolve(name, origin.port).await?,
        };
        let socket = self.dial(&origin.host, &addresses).await?;
        match &origin.tls {
            None => Ok(Transport::plain(socket)),
            Some(name) => {
                let handshake = self.tls.connect(name.clone(), socket).await;
                handshake.map(Transport::tls).map_err(|_| SendError::TlsHandshake)
            }
        }
    }

    /// Tries the addresses in order. One that is refused is passed over: it says nothing about
    /// the others.
    async fn dial(&self, host: &Host, addresses: &[SocketAddr]) -> Result<TcpStream, SendError> {
        let mut error = SendError::Unresolved;
        for address in addresses.iter().take(ADDRESSES_MAX) {
            if !self.rules.is_allowed(host, address.ip()) {
                if error == SendError::Unresolved {
                    error = SendError::AddressRefused(address.ip());
                }
                continue;
            }
            if let Ok(socket) = TcpStream::connect(address).await {
                // A socket that cannot be tuned still works.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            error = SendError::NoConnection;
        }
        Err(error)
    }
}
