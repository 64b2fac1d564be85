//! How long names are remembered, how many, and how often the resolver below is asked.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Answers with a new address each time, or with none for names that begin with `gone`.
#[derive(Default)]
struct CountingResolver {
    asked: Arc<AtomicU64>,
}

impl Resolve for CountingResolver {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let gone = host.starts_with("gone");
        Box::pin(async move {
            tokio::task::yield_now().await;
            let address = IpAddr::from(u32::try_from(asked).unwrap().to_be_bytes());
            if gone { Ok(Vec::new()) } else { Ok(vec![SocketAddr::new(address, port)]) }
        })
    }
}

struct Fixture {
    cache: ResolverCache<CountingResolver>,
    asked: Arc<AtomicU64>,
    now_ms: Arc<AtomicU64>,
}

impl Fixture {
    fn new() -> Fixture {
        let (asked, now_ms) = (Arc::default(), Arc::new(AtomicU64::new(1_000_000)));
        let clock = now_ms.clone();
        let now: Now = Arc::new(move || clock.load(Ordering::Relaxed));
        let cache = ResolverCache::new(CountingResolver { asked: Arc::clone(&asked) }, now);
        Fixture { cache, asked, now_ms }
    }

    fn pass(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_name_is_remembered_for_thirty_seconds() {
    let fixture = Fixture::new();
    let first = fixture.cache.resolve("a.example", 80).await.unwrap();
    fixture.pass(FOUND_MS - 1);
    let second = fixture.cache.resolve("a.example", 443).await.unwrap();
    assert_eq!((first[0].ip(), second[0].port()), (second[0].ip(), 443));
    assert_eq!(fixture.asked(), 1);
    fixture.pass(1);
    let third = fixture.cache.resolve("a.example", 80).await.unwrap();
    assert_ne!(third[0].ip(), first[0].ip());
    assert_eq!(fixture.asked(), 2);
}

#[tokio::test]
async fn that_a_name_has_no_address_is_remembered_for_five_seconds() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        assert_eq!(fixture.cache.resolve("gone.example", 80).await, Err(SendError::Unresolved));
    }
    assert_eq!(fixture.asked(), 1);
    fixture.pass(UNRESOLVED_MS);
    assert_eq!(fixture.cache.resolve("gone.example", 80).await, Err(SendError::Unresolved));
    assert_eq!(fixture.asked(), 2);
}

#[tokio::test]
async fn those_who_wait_for_a_name_ask_once_and_survive_the_first() {
    let fixture = Fixture::new();
    let mut first = fixture.cache.resolve("a.example", 80);
    let second = fixture.cache.resolve("a.example", 80);
    let third = fixture.cache.resolve("a.example", 80);
    // The first begins to ask and is dropped, as by a deadline.
    std::future::poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(first);
    let (second, third) = tokio::join!(second, third);
    assert_eq!(second.unwrap(), third.unwrap());
    assert_eq!(fixture.asked(), 2, "the first, and one for the two others");
}

#[tokio::test]
async fn no_more_names_are_remembered_than_the_limit() {
    let fixture = Fixture::new();
    for name in 0..NAMES_MAX + 10 {
        fixture.cache.resolve(&format!("{name}.example"), 80).await.unwrap();
        fixture.pass(1);
    }
    assert_eq!(fixture.cache.lock().len(), NAMES_MAX);
    let asked = fixture.asked();
    fixture.cache.resolve("9.example", 80).await.unwrap();
    assert_eq!(fixture.asked(), asked + 1, "the oldest were forgotten");
    fixture.pass(FOUND_MS);
    fixture.cache.resolve("fresh.example", 80).await.unwrap();
    assert_eq!(fixture.cache.lock().len(), 1, "and all that are too old when room is needed");
}

#[tokio::test]
async fn the_system_knows_this_machine() {
    let resolver = SystemResolver::new(Arc::new(|| 0));
    let found = resolver.resolve("localhost", 4437).await.unwrap();
    assert!(!found.is_empty());
    assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 4437));
    let unknown = resolver.resolve("no-such-name.invalid", 80).await;
    assert_eq!(unknown, Err(SendError::Unresolved));
}
