//! The least that deliveries can cost: the courier of the server posts an envelope again and again,
//! and nothing is decided, written down or tried again.
//!
//! `cargo run --release -p reveille-deliver --example plain_loop -- ADDRESS HOOKS IN_FLIGHT`
//!
//! It calls `http://ADDRESS/live/m0` and so on until it is killed, and waits for whoever answers
//! there, such as `reveille bench deliveries --loop --sink ADDRESS`.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use reveille_deliver::client::HttpCourier;
use reveille_deliver::courier::{Courier, EarlyAnswer, Request};
use reveille_deliver::destination::{Destination, Rules};
use reveille_deliver::resolve::{NameResolver, NameServers};

/// As many threads as the server has at least.
const THREADS_MIN: usize = 2;
/// Whoever does not answer is called again at this pace.
const PAUSE: Duration = Duration::from_millis(10);
const ULID: &str = "01JD0000000000000000000000";
const RULES: Rules = Rules { allow_http_loopback: true, private_networks: Vec::new() };

struct Loop {
    courier: HttpCourier,
    /// One for each hook, called in turn.
    requests: Vec<Request>,
    next: AtomicUsize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: plain_loop ADDRESS HOOKS IN_FLIGHT";
    let (Some(address), Some(hooks), Some(in_flight)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(usage.into());
    };
    let (hooks, in_flight): (usize, usize) = (hooks.parse()?, in_flight.parse()?);
    let threads = std::thread::available_parallelism().map_or(THREADS_MIN, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(THREADS_MIN))
        .enable_all()
        .build()?;
    println!("listening on http://{address} (calling it, {in_flight} in flight)");
    runtime.block_on(call(&address, hooks.max(1), in_flight))
}

async fn call(address: &str, hooks: usize, in_flight: usize) -> Result<(), Box<dyn Error>> {
    let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(|| {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
    });
    let resolver = Arc::new(NameResolver::new(now.clone(), NameServers::System));
    let mut requests = Vec::new();
    for hook in 0..hooks {
        requests.push(request(&format!("http://{address}/live/m{hook}"))?);
    }
    let courier = HttpCourier::new(RULES, resolver, now);
    let shared = Arc::new(Loop { courier, requests, next: AtomicUsize::new(0) });
    let callers: Vec<_> = (0..in_flight).map(|_| tokio::spawn(forever(shared.clone()))).collect();
    for caller in callers {
        caller.await?;
    }
    Ok(())
}

/// A delivery in the form in which the server sends it.
fn request(url: &str) -> Result<Request, Box<dyn Error>> {
    let headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HeaderName::from_static("x-events-attempt"), HeaderValue::from_static("1")),
        (HeaderName::from_static("x-events-delivery-id"), HeaderValue::from_static(ULID)),
    ];
    let destination = Destination::parse(url, &RULES)?;
    let (tenant, early) = ("bench".into(), EarlyAnswer::default());
    Ok(Request { tenant, destination, headers, body: envelope(), early })
}

/// The envelope of an event of 100 bytes.
fn envelope() -> Bytes {
    let (kind, at) = ("bench.0000000000000", "2026-01-01T00:00:00.000Z");
    let mut event = format!(r#"{{"type":"{kind}","n":1000000,"text":""#);
    event.push_str(&"x".repeat(100 - event.len() - 2));
    let payload = event + r#"""#;
    let text = format!(
        r#"{{"id":"{ULID}","type":"{kind}","ts":"{at}","payload":{payload},"ts":"{at}"}}}}"#
    );
    text.into()
}

async fn forever(shared: Arc<Loop>) {
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let hook = number.checked_rem(shared.requests.len()).unwrap_or(0);
        let Some(request) = shared.requests.get(hook) else { return };
        let answer = shared.courier.post(request.clone()).await;
        if answer.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
