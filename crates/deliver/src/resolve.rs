//! Names become addresses, and stay known for a short while.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::courier::SendError;

#[cfg(test)]
mod tests;

/// How many addresses of a name are looked at.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// How many names are remembered.
const NAMES_MAX: usize = 4_096;

/// How long the addresses of a name are remembered: short, because they may move.
const FOUND_MS: u64 = 30_000;

/// How long it is remembered that a name has none: shorter, because somebody is waiting for it.
const UNRESOLVED_MS: u64 = 5_000;

const _: () = assert!(UNRESOLVED_MS < FOUND_MS);

/// Milliseconds since 1970, from the caller's clock.
pub(crate) type Now = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Addresses on their way.
pub type ResolveFuture = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, SendError>> + Send>>;

/// Turns names into addresses.
///
/// It is no guard: what it answers is checked by the connector, and literal addresses never come
/// here.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a name, in the order in which to try them.
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture;
}

/// Asks the operating system, and remembers the answers for a short while.
pub struct SystemResolver {
    cache: ResolverCache<SystemLookup>,
}

impl SystemResolver {
    /// A resolver that knows nothing yet. `now` is in milliseconds since 1970.
    pub fn new(now: Arc<dyn Fn() -> u64 + Send + Sync>) -> SystemResolver {
        SystemResolver { cache: ResolverCache::new(SystemLookup, now) }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        self.cache.resolve(host, port)
    }
}

struct SystemLookup;

impl Resolve for SystemLookup {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), port)).await;
            Ok(found.map_err(|_| SendError::Unresolved)?.take(ADDRESSES_MAX).collect())
        })
    }
}

/// Remembers what another resolver answered, and asks it once for all who wait for a name.
struct ResolverCache<R> {
    resolver: Arc<R>,
    names: Arc<Mutex<HashMap<Arc<str>, CacheEntry>>>,
    now: Now,
}

/// What is known of a name; empty while it is being asked for. When the one who asks is dropped,
/// the next who waits takes over.
type CacheEntry = Arc<OnceCell<CachedAddresses>>;

struct CachedAddresses {
    addresses: Result<Vec<IpAddr>, SendError>,
    until_ms: u64,
}

impl<R: Resolve> ResolverCache<R> {
    fn new(resolver: R, now: Now) -> ResolverCache<R> {
        ResolverCache { resolver: Arc::new(resolver), names: Arc::default(), now }
    }

    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        let entry = self.entry(host);
        if let Some(known) = entry.get() {
            return Box::pin(std::future::ready(known.with_port(port)));
        }
        let (resolver, now, host) = (self.resolver.clone(), self.now.clone(), host.to_owned());
        Box::pin(async move {
            let known = entry.get_or_init(|| async move {
                let found = resolver.resolve(&host, port).await;
                CachedAddresses::new(found, now())
            });
            known.await.with_port(port)
        })
    }

    /// The entry of a name, a new one if what was known of it is too old.
    fn entry(&self, host: &str) -> CacheEntry {
        let now_ms = (self.now)();
        let mut names = self.lock();
        if let Some(entry) = names.get(host).filter(|entry| is_fresh(entry, now_ms)) {
            return entry.clone();
        }
        if names.len() >= NAMES_MAX && !names.contains_key(host) {
            make_room(&mut names, now_ms);
        }
        let entry = CacheEntry::default();
        names.insert(host.into(), entry.clone());
        entry
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, CacheEntry>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedAddresses {
    fn new(found: Result<Vec<SocketAddr>, SendError>, now_ms: u64) -> CachedAddresses {
        let addresses = match found {
            Ok(found) if found.is_empty() => Err(SendError::Unresolved),
            Ok(found) => Ok(found.iter().map(SocketAddr::ip).take(ADDRESSES_MAX).collect()),
            Err(error) => Err(error),
        };
        let kept_ms = if addresses.is_ok() { FOUND_MS } else { UNRESOLVED_MS };
        CachedAddresses { addresses, until_ms: now_ms.saturating_add(kept_ms) }
    }

    fn with_port(&self, port: u16) -> Result<Vec<SocketAddr>, SendError> {
        let addresses = self.addresses.clone()?;
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// What is still being asked for is fresh.
fn is_fresh(entry: &CacheEntry, now_ms: u64) -> bool {
    entry.get().is_none_or(|known| now_ms < known.until_ms)
}

/// Forgets what is too old, and if nothing is, the name that will be soonest. A name that is being
/// asked for goes last; those who wait for it keep their entry.
fn make_room(names: &mut HashMap<Arc<str>, CacheEntry>, now_ms: u64) {
    names.retain(|_, entry| is_fresh(entry, now_ms));
    if names.len() < NAMES_MAX {
        return;
    }
    let until_ms = |entry: &CacheEntry| entry.get().map_or(u64::MAX, |known| known.until_ms);
    let soonest = names.iter().min_by_key(|(_, entry)| until_ms(entry));
    if let Some(name) = soonest.map(|(name, _)| name.clone()) {
        names.remove(&name);
    }
}
