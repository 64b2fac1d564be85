//! The connector: opens sockets, and asks the guard about each address it connects to.
//!
//! **Invariant:** there is one call of `connect`, and the address in it was checked on the line
//! before. Literals, names that resolve to something else the second time, and the second and
//! third address of a name all come through here.
//!
//! The addresses of a name are tried in their order. One that has not answered after a moment is
//! not waited for: the next is tried beside it, and whichever is there first is taken.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::courier::SendError;
use crate::destination::{Host, Origin, Rules};
use crate::resolve::{ADDRESSES_MAX, Resolve};
use crate::shortage::is_shortage;
use crate::timer;
use crate::transport::Transport;

/// How long an address is waited for before the next one is tried too (RFC 8305 §5).
const STAGGER_MS: u64 = 250;

/// How many addresses of a name are tried at once; when there are more, the oldest try is given up.
/// Each is a descriptor, and whoever owns the name says how many addresses there are.
const DIALS_MAX: usize = 2;

/// An address that is being connected to.
type Dial<'a> = Pin<Box<dyn Future<Output = Result<TcpStream, SendError>> + Send + 'a>>;

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

    pub(crate) async fn connect(
        &self,
        tenant: &Arc<str>,
        origin: &Origin,
    ) -> Result<Transport, SendError> {
        let addresses = match &origin.host {
            Host::Literal(literal) => vec![SocketAddr::new(*literal, origin.port)],
            Host::Name(name) => self.resolver.resolve(tenant, name, origin.port).await?,
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

    /// Connects to the first of the addresses that can be connected to. One that is refused is
    /// passed over: it says nothing about the others.
    async fn dial(&self, host: &Host, addresses: &[SocketAddr]) -> Result<TcpStream, SendError> {
        let mut addresses = addresses.iter().take(ADDRESSES_MAX);
        let mut dials: VecDeque<Dial<'_>> = VecDeque::new();
        let mut error = SendError::Unresolved;
        loop {
            let next = addresses.next();
            if let Some(address) = next {
                if dials.len() == DIALS_MAX {
                    dials.pop_front();
                    error = SendError::NoConnection;
                }
                dials.push_back(Box::pin(self.connect_to(host, *address)));
            } else if dials.is_empty() {
                return Err(error);
            }
            let patience = async {
                match next {
                    Some(_) => timer::sleep_ms(STAGGER_MS).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                dialed = first_of(&mut dials) => match dialed {
                    Ok(socket) => return Ok(socket),
                    Err(SendError::Shortage) => return Err(SendError::Shortage),
                    Err(SendError::AddressRefused(address)) => {
                        if error == SendError::Unresolved {
                            error = SendError::AddressRefused(address);
                        }
                    }
                    Err(other) => error = other,
                },
                () = patience => {}
            }
        }
    }

    async fn connect_to(&self, host: &Host, address: SocketAddr) -> Result<TcpStream, SendError> {
        if !self.rules.is_allowed(host, address.ip()) {
            return Err(SendError::AddressRefused(address.ip()));
        }
        let socket = TcpStream::connect(address).await.map_err(|error| {
            match is_shortage(&error, &address) {
                true => SendError::Shortage,
                false => SendError::NoConnection,
            }
        })?;
        // A socket that cannot be tuned still works.
        let _ = socket.set_nodelay(true);
        Ok(socket)
    }
}

/// What comes of the first of these that has an end, which is removed.
async fn first_of(dials: &mut VecDeque<Dial<'_>>) -> Result<TcpStream, SendError> {
    poll_fn(|cx| {
        for at in 0..dials.len() {
            let Some(dial) = dials.get_mut(at) else { break };
            if let Poll::Ready(dialed) = dial.as_mut().poll(cx) {
                dials.remove(at);
                return Poll::Ready(dialed);
            }
        }
        Poll::Pending
    })
    .await
}
