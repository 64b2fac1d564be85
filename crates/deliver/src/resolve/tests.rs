//! How long names are remembered, how many, and how often the name servers are asked.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Answers with a new address each time, or with none for names that begin with `gone`, or never
/// for names that begin with `slow`.
struct CountingLookup {
    asked: Arc<AtomicU64>,
    ttl_ms: u64,
}

impl Lookup for CountingLookup {
    fn lookup(&self, host: &str) -> LookupFuture {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let (gone, slow, ttl_ms) =
            (host.starts_with("gone"), host.starts_with("slow"), self.ttl_ms);
        let short = host.starts_with("short") && asked == 1;
        Box::pin(async move {
            tokio::task::yield_now().await;
            if slow {
                std::future::pending::<()>().await;
            }
            if short {
                return Err(SendError::Shortage);
            }
            let address = IpAddr::from(u32::try_from(asked).unwrap().to_be_bytes());
            let addresses = if gone { Vec::new() } else { vec![address] };
            Ok(FoundAddresses { addresses, ttl_ms })
        })
    }
}

struct Fixture {
    cache: ResolverCache<CountingLookup>,
    asked: Arc<AtomicU64>,
    now_ms: Arc<AtomicU64>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with_ttl(FOUND_MS_MAX)
    }

    fn with_ttl(ttl_ms: u64) -> Fixture {
        let (asked, now_ms) = (Arc::default(), Arc::new(AtomicU64::new(1_000_000)));
        let clock = now_ms.clone();
        let now: Now = Arc::new(move || clock.load(Ordering::Relaxed));
        let lookup = CountingLookup { asked: Arc::clone(&asked), ttl_ms };
        Fixture { cache: ResolverCache::new(lookup, now), asked, now_ms }
    }

    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        self.cache.resolve(&"quiet".into(), host, port)
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
    let fixture = Fixture::with_ttl(3_600_000);
    let first = fixture.resolve("a.example", 80).await.unwrap();
    fixture.pass(FOUND_MS_MAX - 1);
    let second = fixture.resolve("a.example", 443).await.unwrap();
    assert_eq!((first[0].ip(), second[0].port()), (second[0].ip(), 443));
    assert_eq!(fixture.asked(), 1);
    fixture.pass(1);
    let third = fixture.resolve("a.example", 80).await.unwrap();
    assert_ne!(third[0].ip(), first[0].ip());
    assert_eq!(fixture.asked(), 2);
}

#[tokio::test]
async fn a_name_is_remembered_for_as_long_as_its_servers_say() {
    for (ttl_ms, kept_ms) in [(0, FOUND_MS_MIN), (7_000, 7_000)] {
        let fixture = Fixture::with_ttl(ttl_ms);
        fixture.resolve("a.example", 80).await.unwrap();
        fixture.pass(kept_ms - 1);
        fixture.resolve("a.example", 80).await.unwrap();
        assert_eq!(fixture.asked(), 1, "{ttl_ms}");
        fixture.pass(1);
        fixture.resolve("a.example", 80).await.unwrap();
        assert_eq!(fixture.asked(), 2, "{ttl_ms}");
    }
}

#[tokio::test]
async fn that_a_name_has_no_address_is_remembered_for_five_seconds() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        assert_eq!(fixture.resolve("gone.example", 80).await, Err(SendError::Unresolved));
    }
    assert_eq!(fixture.asked(), 1);
    fixture.pass(UNRESOLVED_MS);
    assert_eq!(fixture.resolve("gone.example", 80).await, Err(SendError::Unresolved));
    assert_eq!(fixture.asked(), 2);
}

#[tokio::test]
async fn what_we_ran_short_of_is_not_remembered_as_an_answer() {
    let fixture = Fixture::new();
    assert_eq!(fixture.resolve("short.example", 80).await, Err(SendError::Shortage));
    assert!(fixture.resolve("short.example", 80).await.is_ok());
}

#[tokio::test]
async fn those_who_wait_for_a_name_ask_once_and_survive_the_first() {
    let fixture = Fixture::new();
    let mut first = fixture.resolve("a.example", 80);
    let second = fixture.resolve("a.example", 80);
    let third = fixture.resolve("a.example", 80);
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
async fn a_tenant_whose_names_are_slow_waits_alone() {
    let fixture = Fixture::new();
    let loud: Arc<str> = "loud".into();
    let mut slow: Vec<ResolveFuture> = (0..500)
        .map(|number| fixture.cache.resolve(&loud, &format!("slow-{number}.example"), 80))
        .collect();
    // One of them is a name that another tenant calls, too.
    slow.push(fixture.cache.resolve(&loud, "a.example", 80));
    std::future::poll_fn(|cx| {
        assert!(slow.iter_mut().all(|it| it.as_mut().poll(cx).is_pending()));
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(fixture.asked(), u64::try_from(LOOKUPS_MAX / 2).unwrap());
    assert!(fixture.resolve("a.example", 80).await.is_ok());
}

#[tokio::test]
async fn no_more_names_are_remembered_than_the_limit() {
    let fixture = Fixture::new();
    for name in 0..NAMES_MAX + 10 {
        fixture.resolve(&format!("{name}.example"), 80).await.unwrap();
        fixture.pass(1);
    }
    assert_eq!(fixture.cache.state.lock().len(), NAMES_MAX);
    let asked = fixture.asked();
    fixture.resolve("9.example", 80).await.unwrap();
    assert_eq!(fixture.asked(), asked + 1, "the oldest were forgotten");
    fixture.pass(FOUND_MS_MAX);
    fixture.resolve("fresh.example", 80).await.unwrap();
    assert_eq!(fixture.cache.state.lock().len(), 1, "and all that are too old when room is needed");
}

#[tokio::test]
async fn this_machine_is_known_without_name_servers() {
    let resolver = NameResolver::new(Arc::new(|| 0), NameServers::These(Vec::new()));
    let tenant = "a".into();
    let found = resolver.resolve(&tenant, "localhost", 4437).await.unwrap();
    assert!(!found.is_empty());
    assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 4437));
    let unknown = resolver.resolve(&tenant, "no-such-name.invalid", 80).await;
    assert_eq!(unknown, Err(SendError::Unresolved));
}
