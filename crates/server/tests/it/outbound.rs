//! What is sent to endpoints: shared by tenants, and what we run short of is nobody's failure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reveille_core::consumer::{Dialect, Phase};
use reveille_core::event::worker::WorkerTemplate;
use reveille_core::subscription::Timings;
use reveille_core::{StreamPath, Tenant};
use reveille_deliver::courier::SendError;
use reveille_deliver::resolve::{Resolve, ResolveFuture};
use reveille_engine::doors::SystemClock;
use serde_json::json;
use tokio::net::UdpSocket;

use crate::harness::keys::guarded_by_keys;
use crate::harness::*;

/// A server on the real clock, and two tenants in one partition.
struct Tenants {
    server: TestServer,
    loud: String,
    quiet: String,
}

impl Tenants {
    async fn start(change: impl FnOnce(&mut Setup)) -> Tenants {
        let mut setup = Setup { partitions: Some(1), ..guarded_by_keys() };
        change(&mut setup);
        let server = setup.start().await;
        let (_, loud) = server.make_key("loud", &["user"]).await;
        let (_, quiet) = server.make_key("quiet", &["user"]).await;
        Tenants { server, loud, quiet }
    }

    async fn subscribe(&self, key: &str, name: &str, pattern: &str, webhook: &str) {
        let target = format!("{pattern}?subscription={name}");
        let body = json!({ "webhook": webhook }).to_string();
        self.server.ask_as(key, "PUT", &target, &[JSON], body.as_bytes()).await.expect(201);
    }

    async fn create(&self, key: &str, path: &str) {
        self.server.ask_as(key, "PUT", path, &[JSON], b"[1]").await.expect(201);
    }

    /// What was last wrong with a consumer's endpoint.
    fn last_error(&self, tenant: &str, subscription: &str, path: &str) -> Option<Arc<str>> {
        let (tenant, engine) = (Tenant::parse(tenant).unwrap(), &self.server.engine);
        let subscription =
            engine.subscription(&tenant, Dialect::Webhooks, subscription).unwrap()?;
        let path = StreamPath::parse(path).unwrap();
        let record = engine.consumer(&subscription, Some(&path)).unwrap()?.record?;
        record.last_error.map(|(_, error)| error)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_one_tenant_that_hang_keep_nobody_waiting() {
    let tenants = Tenants::start(|setup| setup.outbound_concurrency = 16).await;
    let (hanging, mut own, mut other) =
        (Sink::start().await, Sink::start().await, Sink::start().await);
    for number in 0..6 {
        tenants
            .subscribe(&tenants.loud, &format!("hang-{number}"), "/hang/*", &hanging.url())
            .await;
    }
    tenants.subscribe(&tenants.loud, "good", "/good/*", &own.url()).await;
    tenants.subscribe(&tenants.quiet, "good", "/a/*", &other.url()).await;
    for stream in 0..20 {
        tenants.create(&tenants.loud, &format!("/hang/{stream}")).await;
    }
    // All that it can have at once, and then all that it can have for longer than a second.
    let most = async || (hanging.connections() >= 16).then_some(());
    eventually("calls that hang", most).await;
    for stream in 0..60 {
        tenants.create(&tenants.quiet, &format!("/a/{stream}")).await;
        other.next().await.done();
        tenants.create(&tenants.loud, &format!("/good/{stream}")).await;
        own.next().await.done();
        stays_for_a_moment(&tenants).await;
    }
}

/// So long that a call that hangs has become a slow one by the end of the test.
async fn stays_for_a_moment(tenants: &Tenants) {
    for _ in 0..20 {
        tenants.server.get("/health").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_broken_off_for_want_of_room_is_made_again_and_is_no_failure() {
    let setup = Setup { outbound_concurrency: 1, partitions: Some(1), ..Setup::default() };
    let server = setup.start().await;
    let (mut first, mut second) = (Sink::start().await, Sink::start().await);
    for (name, sink) in [("first", &first), ("second", &second)] {
        let body = json!({ "webhook": sink.url() }).to_string();
        let target = format!("/{name}/*?subscription={name}");
        server.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(201);
    }
    server.ask("PUT", "/first/1", &[JSON], b"[1]").await.expect(201);
    let hangs = first.next().await;
    server.ask("PUT", "/second/1", &[JSON], b"[1]").await.expect(201);
    // It has its turn when the first one has become a slow one, and there is no room for two.
    let broken_off = second.next().await;
    let is_queued = |line: &str| {
        line.starts_with("reveille_outbox{") && line.contains("\"queued\"") && line.ends_with(" 1")
    };
    eventually("the second to wait again", async || {
        let metrics = server.get("/metrics").await.expect(200).text();
        metrics.lines().any(is_queued).then_some(())
    })
    .await;
    hangs.done();
    let again = second.next().await;
    assert_eq!(again.wake(), broken_off.wake());
    again.done();
    let tenant = Tenant::default_tenant();
    let subscription = server.engine.subscription(&tenant, Dialect::Webhooks, "second");
    let subscription = subscription.unwrap().unwrap();
    let path = StreamPath::parse("/second/1").unwrap();
    let record = eventually("the wake to be done", async || {
        let record = server.engine.consumer(&subscription, Some(&path)).unwrap()?.record?;
        matches!(record.consumer.phase, Phase::Idle { .. }).then_some(record)
    })
    .await;
    assert_eq!((record.failures, record.last_error), (0, None));
}

/// Runs short of something the first times that it is asked.
struct ShortAtFirst(AtomicUsize);

const SHORTAGES: usize = 3;

impl Resolve for ShortAtFirst {
    fn resolve(&self, _tenant: &Arc<str>, _host: &str, port: u16) -> ResolveFuture {
        let is_short = self.0.fetch_add(1, Ordering::SeqCst) < SHORTAGES;
        Box::pin(async move {
            match is_short {
                true => Err(SendError::Shortage),
                false => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_run_short_of_uses_up_no_attempt() {
    let resolver = Arc::new(ShortAtFirst(AtomicUsize::new(0)));
    let asked = resolver.clone();
    let mut worker = Sink::start().await;
    let template = format!("http://localhost:{}/{{workerId}}/{{rpcMethod}}", worker.port());
    let mut setup = Setup { resolver: Some(resolver), ..Setup::default() };
    setup.workers.template = WorkerTemplate::parse(&template).unwrap();
    let server = setup.start().await;
    let made = server.subscribed("a.*", json!({ "maxRetries": 1 })).await;
    let id = made["subscriptionId"].as_str().unwrap();
    server.post("/ingest", &json!({ "type": "a.b" })).await.expect(200);
    worker.next().await.ok();
    let target = format!("/subscriptions/{id}/deliveries");
    let delivery = eventually("the event to be delivered", async || {
        let deliveries = server.get(&target).await.expect(200).json();
        let delivery = deliveries["deliveries"][0].clone();
        (delivery["status"] == "delivered").then_some(delivery)
    })
    .await;
    assert_eq!(delivery["attempts"], 1);
    assert_eq!(asked.0.load(Ordering::SeqCst), SHORTAGES + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_an_answer_although_its_body_does_not_come_in_time() {
    let timings = Timings { webhook_timeout_ms: 1_000, ..Timings::default() };
    let clock = HandClock::new();
    let setup = Setup { timings, clock: Arc::new(SystemClock::default()), ..Setup::default() };
    let mut wakes = Wakes::of(clock, setup).await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let head = "HTTP/1.1 202 Accepted\r\ncontent-length: 1000\r\n\r\n{\"done\"";
    wakes.woken().await.answer_raw(head.into());
    wakes.live("s", "/a/1").await;
    let record = wakes.record("s", "/a/1").unwrap();
    assert_eq!((record.failures, record.last_error), (0, None));
}

/// A name server that knows `good.example`, and of all others says nothing.
async fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let question = &buffer[..length];
            let name_end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap();
            if question[12..].starts_with(b"\x04good") {
                let answers = u8::from(question[name_end + 2] == 1);
                let (id, end) = (&question[..2], name_end + 5);
                let mut said = [id, &[0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]].concat();
                said.extend_from_slice(&question[12..end]);
                if answers == 1 {
                    let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 3];
                    said.extend_from_slice(&address);
                }
                socket.send_to(&said, from).await.unwrap();
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_one_tenant_that_nobody_knows_keep_nobody_waiting() {
    let servers = vec![name_server().await];
    let tenants = Tenants::start(|setup| setup.name_servers = servers).await;
    for number in 0..100 {
        let webhook = format!("https://slow-{number}.example/");
        tenants.subscribe(&tenants.loud, &format!("s{number}"), "/slow/*", &webhook).await;
    }
    tenants.subscribe(&tenants.quiet, "good", "/a/*", "https://good.example/").await;
    for stream in 0..5 {
        tenants.create(&tenants.loud, &format!("/slow/{stream}")).await;
    }
    tenants.create(&tenants.quiet, "/a/1").await;
    let error =
        eventually("the name to be found", async || tenants.last_error("quiet", "good", "/a/1"))
            .await;
    // It leads inside, and the owner of the webhook does not learn where.
    assert_eq!(&*error, "the address is not allowed");
    assert_eq!(tenants.last_error("loud", "s0", "/slow/0"), None, "it is still being looked for");
}
