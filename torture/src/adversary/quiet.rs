//! The quiet tenant: it comes on a new connection each time, and wants every stream that it makes
//! to wake its handler and every event to be delivered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use harness::http::{Connection, Request};
use serde_json::json;

use super::endpoint::Endpoint;

/// From one visit to the next.
const PAUSE: Duration = Duration::from_millis(25);
/// What was promised has come by then: the longest a lease of an attempt may be lost for.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Of a hundred visits so many are served, whatever others do.
const SERVED_PERCENT_MIN: usize = 90;

pub(super) struct QuietTenant {
    server: SocketAddr,
    authorization: String,
    endpoint: Endpoint,
    visits: AtomicUsize,
    /// Streams and events that were acknowledged.
    promised: Mutex<Vec<Promise>>,
    /// Documents that were acknowledged.
    documents: Mutex<Vec<String>>,
}

#[derive(Clone)]
struct Promise {
    /// What the endpoint is told.
    what: String,
    at: Instant,
}

/// What came of a while.
pub(super) struct Report {
    /// What the attack says of itself.
    pub(super) attack: String,
    pub(super) tried: usize,
    pub(super) served: usize,
    /// From opening a connection to the answer, of those that were served.
    pub(super) p99: Duration,
}

impl Report {
    pub(super) fn per_second(&self, within: Duration) -> f64 {
        let tried = u32::try_from(self.tried).unwrap_or(u32::MAX);
        f64::from(tried) / within.as_secs_f64().max(0.001)
    }
}

impl QuietTenant {
    pub(super) fn new(
        server: SocketAddr,
        key: &str,
        endpoint: &Endpoint,
    ) -> anyhow::Result<QuietTenant> {
        let tenant = QuietTenant {
            server,
            authorization: format!("Bearer {key}"),
            endpoint: endpoint.clone_handle(),
            visits: AtomicUsize::new(0),
            promised: Mutex::default(),
            documents: Mutex::default(),
        };
        let webhook = json!({ "webhook": format!("http://{}/quiet/wake", endpoint.address) });
        let status =
            tenant.ask("PUT", "/quiet/*?subscription=quiet", webhook.to_string().as_bytes())?;
        ensure!(status == 201, "the quiet tenant's subscription: {status}");
        let hook = json!({ "workerId": "quiet", "pattern": "quiet.*", "rpcMethod": "tick",
                           "maxRetries": 20 });
        let status = tenant.ask("POST", "/subscriptions/subscribe", hook.to_string().as_bytes())?;
        ensure!(status == 200, "the quiet tenant's hook: {status}");
        Ok(tenant)
    }

    fn ask(&self, method: &str, target: &str, body: &[u8]) -> std::io::Result<u16> {
        let headers =
            [("authorization", &*self.authorization), ("content-type", "application/json")];
        let request = Request { method, target, headers: &headers, body };
        Ok(Connection::open(self.server)?.send(request)?.status)
    }

    /// Comes and goes for as long as something else is done.
    pub(super) fn run_while(
        &self,
        attack: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<Report> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let visiting = scope.spawn(|| self.visit_until(&stop));
            let attack = attack();
            stop.store(true, Ordering::SeqCst);
            let (tried, mut waited) = visiting.join().map_err(|_| anyhow!("a thread failed"))?;
            let attack = attack?;
            waited.sort_unstable();
            let served = waited.len();
            ensure!(
                served * 100 >= tried * SERVED_PERCENT_MIN,
                "{attack}: the quiet tenant was served {served} times of {tried}"
            );
            let p99 = waited.get(served.saturating_sub(1) * 99 / 100).copied().unwrap_or_default();
            Ok(Report { attack, tried, served, p99 })
        })
    }

    fn visit_until(&self, stop: &AtomicBool) -> (usize, Vec<Duration>) {
        let (mut tried, mut waited) = (0, Vec::new());
        while !stop.load(Ordering::SeqCst) {
            let number = self.visits.fetch_add(1, Ordering::SeqCst);
            let path = format!("/quiet/{number}");
            let event = format!("quiet-event-{number}");
            let body = json!({ "events": [{ "id": &event, "type": "quiet.tick" }] }).to_string();
            for (method, target, body, what) in
                [("PUT", &*path, &b"[1]"[..], &path), ("POST", "/ingest", body.as_bytes(), &event)]
            {
                tried += 1;
                let started = Instant::now();
                if let Ok(200 | 201) = self.ask(method, target, body) {
                    waited.push(started.elapsed());
                    let promise = Promise { what: what.clone(), at: Instant::now() };
                    self.promises().push(promise);
                }
            }
            let document = format!("/api/v1/quiet/{number}");
            let body = json!({ "doc": { "n": number } }).to_string();
            let query = json!({ "collection": "quiet", "limit": 5 }).to_string();
            let requests = [("PUT", &*document, body), ("POST", "/api/v1/query", query)];
            for (method, target, body) in requests {
                tried += 1;
                let started = Instant::now();
                if let Ok(200) = self.ask(method, target, body.as_bytes()) {
                    waited.push(started.elapsed());
                    if method == "PUT" {
                        lock(&self.documents).push(document.clone());
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
        (tried, waited)
    }

    fn promises(&self) -> MutexGuard<'_, Vec<Promise>> {
        lock(&self.promised)
    }

    /// Waits until everything that was promised has come.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        let until = Instant::now() + SETTLE_MAX;
        for promise in self.promises().clone() {
            while self.endpoint.seen_at(&promise.what).is_none() {
                let (what, since) = (&promise.what, promise.at.elapsed());
                ensure!(Instant::now() < until, "nobody was told of {what} within {since:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Every stream and document that was acknowledged is there.
    pub(super) fn check_kept(&self, server: SocketAddr) -> anyhow::Result<()> {
        let mut connection = Connection::open(server)?;
        let headers = [("authorization", &*self.authorization)];
        for promise in self.promises().iter().filter(|it| it.what.starts_with('/')) {
            let request =
                Request { method: "GET", target: &promise.what, headers: &headers, body: &[] };
            let answer = connection.send(request)?;
            ensure!(answer.status == 200 && answer.body == b"[1]", "{} is lost", promise.what);
        }
        for document in lock(&self.documents).iter() {
            let request = Request { method: "GET", target: document, headers: &headers, body: &[] };
            let status = connection.send(request)?.status;
            ensure!(status == 200, "{document} is lost: {status}");
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
