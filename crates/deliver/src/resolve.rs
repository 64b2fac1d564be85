//! Names become addresses, and stay known for a short while.
//!
//! ```text
//! resolve ─▶ known? ─▶ a place among the lookups, by tenant (places) ─▶ one lookup for all who wait
//!                         the hosts file (hosts), this machine, the name servers (dns)
//! ```

mod dns;
mod hosts;
mod places;

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::courier::SendError;
use crate::timer;
pub use dns::NameServers;
use dns::SystemLookup;
use places::LookupPlaces;

#[cfg(test)]
mod tests;

/// How many addresses of a name are looked at.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// How many names are remembered.
const NAMES_MAX: usize = 4_096;

/// How long the addresses of a name are remembered at most: short, because they may move.
const FOUND_MS_MAX: u64 = 30_000;

/// And at least, whatever the name servers say: a name is called again and again.
const FOUND_MS_MIN: u64 = 1_000;

/// How long it is remembered that a name has none: shorter, because somebody is waiting for it.
const UNRESOLVED_MS: u64 = 5_000;

/// How many names are looked for at once. Each takes a few descriptors while name servers are
/// silent: two questions, each asked up to three times.
const LOOKUPS_MAX: usize = 32;

/// How long a lookup may take.
const LOOKUP_MS_MAX: u64 = 5_000;

/// How long somebody waits to be looked for. Whoever waits for longer has not been looked for: that
/// says nothing about the name.
const WAIT_MS_MAX: u64 = 400;

const _: () = assert!(FOUND_MS_MIN < UNRESOLVED_MS && UNRESOLVED_MS < FOUND_MS_MAX);

/// Milliseconds since 1970, from the caller's clock.
pub(crate) type Now = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Addresses on their way.
pub type ResolveFuture = Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, SendError>> + Send>>;

/// Turns names into addresses.
///
/// It is no guard: what it answers is checked by the connector, and literal addresses never come
/// here.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a name, in the order in which to try them. Tenants share the lookups.
    fn resolve(&self, tenant: &Arc<str>, host: &str, port: u16) -> ResolveFuture;
}

/// Asks the hosts file and the name servers, and remembers the answers for a short while.
pub struct NameResolver {
    cache: ResolverCache<SystemLookup>,
}

impl NameResolver {
    /// A resolver that knows nothing yet. `now` is in milliseconds since 1970. Without name servers
    /// only what is in the hosts file, and this machine, is found.
    pub fn new(now: Arc<dyn Fn() -> u64 + Send + Sync>, servers: NameServers) -> NameResolver {
        let lookup = SystemLookup::new(Path::new(hosts::SYSTEM_PATH), servers);
        NameResolver { cache: ResolverCache::new(lookup, now) }
    }
}

impl Resolve for NameResolver {
    fn resolve(&self, tenant: &Arc<str>, host: &str, port: u16) -> ResolveFuture {
        self.cache.resolve(tenant, host, port)
    }
}

/// Finds the addresses of names, however long that takes.
trait Lookup: Send + Sync + 'static {
    fn lookup(&self, host: &str) -> LookupFuture;
}

type LookupFuture = Pin<Box<dyn Future<Output = Result<FoundAddresses, SendError>> + Send>>;

/// The addresses of a name, and how long they are good for.
struct FoundAddresses {
    addresses: Vec<IpAddr>,
    ttl_ms: u64,
}

/// Remembers what was found, and looks once for all who wait for a name.
struct ResolverCache<L> {
    state: Arc<CacheState<L>>,
}

struct CacheState<L> {
    lookup: L,
    names: Mutex<HashMap<Arc<str>, CacheEntry>>,
    places: Arc<LookupPlaces>,
    now: Now,
}

/// What is known of a name; empty while it is being looked for. When the one who looks is dropped,
/// the next who waits takes over.
type CacheEntry = Arc<OnceCell<CachedAddresses>>;

struct CachedAddresses {
    addresses: Result<Vec<IpAddr>, SendError>,
    until_ms: u64,
}

impl<L: Lookup> ResolverCache<L> {
    fn new(lookup: L, now: Now) -> ResolverCache<L> {
        let places = LookupPlaces::new(LOOKUPS_MAX);
        ResolverCache {
            state: Arc::new(CacheState { lookup, names: Mutex::default(), places, now }),
        }
    }

    fn resolve(&self, tenant: &Arc<str>, host: &str, port: u16) -> ResolveFuture {
        if let Some(known) = self.state.known(host) {
            return Box::pin(std::future::ready(known.with_port(port)));
        }
        let (state, tenant, host) = (self.state.clone(), tenant.clone(), host.to_owned());
        Box::pin(async move { state.find(&tenant, &host, port).await })
    }
}

impl<L: Lookup> CacheState<L> {
    /// What is known of a name.
    fn known(&self, host: &str) -> Option<CachedAddresses> {
        let now_ms = (self.now)();
        let names = self.lock();
        let known = names.get(host)?.get().filter(|known| now_ms < known.until_ms)?;
        Some(CachedAddresses { addresses: known.addresses.clone(), until_ms: known.until_ms })
    }

    /// Looks for a name, in a place of the tenant's own even if another one looks for the same name:
    /// nobody waits for the places of others.
    async fn find(
        &self,
        tenant: &Arc<str>,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, SendError> {
        let place = timer::within_ms(WAIT_MS_MAX, self.places.take(tenant)).await;
        let _place = place.ok_or(SendError::Shortage)?;
        let entry = self.entry(host);
        let known = entry.get_or_try_init(|| async {
            let found = timer::within_ms(LOOKUP_MS_MAX, self.lookup.lookup(host)).await;
            match found.unwrap_or(Err(SendError::Unresolved)) {
                // That is no answer, and the next one asks again.
                Err(SendError::Shortage) => Err(SendError::Shortage),
                found => Ok(CachedAddresses::new(found, (self.now)())),
            }
        });
        known.await?.with_port(port)
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
    fn new(found: Result<FoundAddresses, SendError>, now_ms: u64) -> CachedAddresses {
        let found = found.and_then(|found| match found.addresses.is_empty() {
            true => Err(SendError::Unresolved),
            false => Ok(found),
        });
        let kept_ms = match &found {
            Ok(found) => found.ttl_ms.clamp(FOUND_MS_MIN, FOUND_MS_MAX),
            Err(_) => UNRESOLVED_MS,
        };
        let addresses = found.map(|mut found| {
            found.addresses.truncate(ADDRESSES_MAX);
            found.addresses
        });
        CachedAddresses { addresses, until_ms: now_ms.saturating_add(kept_ms) }
    }

    fn with_port(&self, port: u16) -> Result<Vec<SocketAddr>, SendError> {
        let addresses = self.addresses.clone()?;
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// What is still being looked for is fresh.
fn is_fresh(entry: &CacheEntry, now_ms: u64) -> bool {
    entry.get().is_none_or(|known| now_ms < known.until_ms)
}

/// Forgets what is too old, and if nothing is, the name that will be soonest. A name that is being
/// looked for goes last; those who wait for it keep their entry.
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
