//! The name servers, asked by hickory: nothing here blocks a thread.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::{RuntimeProvider, TokioRuntimeProvider};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;

use super::hosts::HostsFile;
use super::{FOUND_MS_MAX, FoundAddresses, Lookup, LookupFuture};
use crate::courier::SendError;
use crate::shortage::is_shortage;
use crate::timer;

/// How long one question to a name server is waited for, and how often it is asked again.
const ANSWER_MS_MAX: u64 = 2_000;
const REPETITIONS: usize = 1;

/// How long the addresses of the other kind are waited for when those of one kind are known.
const OTHER_KIND_MS: u64 = 100;

/// How many records of an answer are looked at.
const RECORDS_MAX: usize = 64;

/// Who is asked for names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameServers {
    /// Those of `/etc/resolv.conf`, in its domains.
    System,
    /// These, and names are taken as they are.
    These(Vec<SocketAddr>),
}

/// Looks in the hosts file, then at this machine's own names, then asks the name servers.
pub(super) struct SystemLookup {
    hosts: HostsFile,
    servers: Option<Servers>,
}

#[derive(Clone)]
struct Servers {
    resolver: Resolver<Sockets>,
    shortages: Arc<AtomicU64>,
}

impl SystemLookup {
    pub(super) fn new(hosts: &Path, servers: NameServers) -> SystemLookup {
        SystemLookup { hosts: HostsFile::new(hosts), servers: Servers::new(servers) }
    }
}

impl Lookup for SystemLookup {
    fn lookup(&self, host: &str) -> LookupFuture {
        let mut known = self.hosts.find(host);
        if known.is_empty() && is_this_machine(host) {
            known = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        if !known.is_empty() {
            let found = FoundAddresses { addresses: known, ttl_ms: FOUND_MS_MAX };
            return Box::pin(std::future::ready(Ok(found)));
        }
        let (Some(servers), Ok(name)) = (self.servers.clone(), Name::from_str_relaxed(host)) else {
            return Box::pin(std::future::ready(Err(SendError::Unresolved)));
        };
        Box::pin(async move { servers.find(name).await })
    }
}

/// RFC 6761 §6.3: nobody is asked for these.
fn is_this_machine(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

impl Servers {
    fn new(servers: NameServers) -> Option<Servers> {
        let (config, options) = match servers {
            NameServers::System => match read_system_conf() {
                Ok(system) => system,
                Err(error) => {
                    tracing::warn!(%error, "/etc/resolv.conf cannot be used: webhooks are found by address, as localhost and in /etc/hosts alone; --name-servers names servers to ask");
                    return None;
                }
            },
            NameServers::These(servers) => {
                let servers = servers.into_iter().map(name_server).collect();
                (ResolverConfig::from_name_servers(servers), ResolverOpts::default())
            }
        };
        let shortages = Arc::new(AtomicU64::new(0));
        let sockets = Sockets { tokio: TokioRuntimeProvider::new(), shortages: shortages.clone() };
        let mut builder = Resolver::builder_with_config(config, sockets);
        *builder.options_mut() = options;
        let options = builder.options_mut();
        options.timeout = options.timeout.min(Duration::from_millis(ANSWER_MS_MAX));
        options.attempts = REPETITIONS;
        // What was found is remembered here, by name and for both kinds of addresses at once.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        // One server after another: each question is a descriptor.
        options.num_concurrent_reqs = 1;
        match builder.build() {
            Ok(resolver) => Some(Servers { resolver, shortages }),
            Err(error) => {
                tracing::warn!(%error, "no name server can be asked");
                None
            }
        }
    }

    /// The addresses of a name: of either kind, and of both if the second comes soon after the first.
    async fn find(&self, name: Name) -> Result<FoundAddresses, SendError> {
        let shortages = self.shortages.load(Ordering::Relaxed);
        let mut v4 = Box::pin(self.ask(name.clone(), RecordType::A));
        let mut v6 = Box::pin(self.ask(name, RecordType::AAAA));
        let (first, other) = tokio::select! {
            found = &mut v4 => (found, v6),
            found = &mut v6 => (found, v4),
        };
        let second = match first {
            Some(_) => timer::within_ms(OTHER_KIND_MS, other).await.flatten(),
            None => other.await,
        };
        let found: Vec<FoundAddresses> = first.into_iter().chain(second).collect();
        let ttl_ms = found.iter().map(|it| it.ttl_ms).min();
        match ttl_ms {
            Some(ttl_ms) => {
                let addresses = found.into_iter().flat_map(|it| it.addresses);
                Ok(FoundAddresses { addresses: interleave(addresses), ttl_ms })
            }
            None if self.shortages.load(Ordering::Relaxed) > shortages => Err(SendError::Shortage),
            None => Err(SendError::Unresolved),
        }
    }

    /// The addresses of one kind, if there are any. That there are none, and that nobody says so, is
    /// the same to us.
    async fn ask(&self, name: Name, kind: RecordType) -> Option<FoundAddresses> {
        let answer = self.resolver.lookup(name, kind).await;
        let answer =
            answer.inspect_err(|error: &NetError| tracing::debug!(%error, "a name")).ok()?;
        let records = || answer.answers().iter().take(RECORDS_MAX);
        let addresses: Vec<IpAddr> = records().filter_map(|it| it.data.ip_addr()).collect();
        let ttl_s = records().map(|it| it.ttl).min().unwrap_or(0);
        let found = FoundAddresses { addresses, ttl_ms: u64::from(ttl_s) * 1_000 };
        (!found.addresses.is_empty()).then_some(found)
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let with_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = vec![with_port(ConnectionConfig::udp()), with_port(ConnectionConfig::tcp())];
    NameServerConfig::new(address.ip(), true, connections)
}

/// The first of one kind, the first of the other, and so on: when one kind of network does not work,
/// the second address is of the one that does.
fn interleave(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.partition(IpAddr::is_ipv4);
    let (mut v4, mut v6) = (v4.into_iter(), v6.into_iter());
    let pairs = std::iter::from_fn(|| match (v4.next(), v6.next()) {
        (None, None) => None,
        pair => Some(pair),
    });
    pairs.flat_map(|(v4, v6)| v4.into_iter().chain(v6)).collect()
}

/// Sockets as tokio opens them; what we run short of is counted, because the errors that come back
/// do not tell.
#[derive(Clone)]
struct Sockets {
    tokio: TokioRuntimeProvider,
    shortages: Arc<AtomicU64>,
}

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl Sockets {
    fn counted<T: 'static>(&self, opening: Opening<T>, server: SocketAddr) -> Opening<T> {
        let shortages = self.shortages.clone();
        Box::pin(async move {
            opening.await.inspect_err(|error| {
                if is_shortage(error, &server) {
                    shortages.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
    }
}

impl RuntimeProvider for Sockets {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = <TokioRuntimeProvider as RuntimeProvider>::Timer;
    type Udp = <TokioRuntimeProvider as RuntimeProvider>::Udp;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.tokio.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        from: Option<SocketAddr>,
        wait: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        self.counted(self.tokio.connect_tcp(server, from, wait), server)
    }

    fn bind_udp(&self, from: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        self.counted(self.tokio.bind_udp(from, server), server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_kinds_take_turns() {
        let check = |given: &[&str], expected: &[&str]| {
            let parse = |all: &[&str]| all.iter().map(|it| it.parse().unwrap()).collect::<Vec<_>>();
            assert_eq!(interleave(parse(given).into_iter()), parse(expected));
        };
        check(&["::1", "::2", "::3", "1.1.1.1"], &["1.1.1.1", "::1", "::2", "::3"]);
        check(&["1.1.1.1", "1.1.1.2", "::1"], &["1.1.1.1", "::1", "1.1.1.2"]);
        check(&[], &[]);
    }

    #[test]
    fn this_machine_has_names_of_its_own() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost.", true),
            ("a.localhost", true),
            ("localhosts", false),
        ] {
            assert_eq!(is_this_machine(host), expected, "{host}");
        }
    }
}
