//! What it costs to ask, before each delivery, whether somebody may have it: deliveries of facts of a
//! garden beside those of events, and facts written beside appends. Engine, endpoint and load in one
//! process.
//!
//! `cargo run --release -p reveille-engine --example facts -- SECONDS ROUNDS DIRECTORY`

#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::unwrap_used, reason = "what fails is not measured")]
#![allow(clippy::print_stdout, reason = "its report")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::policy::DeliveryLimits;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::event::hook::{EventHookSpec, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{Event, EventPattern, EventType};
use reveille_core::fact::garden::GardenSlug;
use reveille_core::fact::name::{EntityUri, ScopeId};
use reveille_core::fact::principal::Principal;
use reveille_core::fact::statement::{Confidence, Statement};
use reveille_core::fact::subscription::{Channel, EventFilter, Wanted};
use reveille_core::fact::target::{Object, Target};
use reveille_core::fact::token::Verb;
use reveille_core::fact::value::{FactValue, ValueKind};
use reveille_core::fact::{self, Scope};
use reveille_core::media::ContentType;
use reveille_core::stream::Body;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::stream::expiry::Expiry;
use reveille_core::subscription::Timings;
use reveille_core::{StreamPath, Tenant, event};
use reveille_deliver::client::HttpCourier;
use reveille_deliver::destination::Rules;
use reveille_deliver::resolve::{NameResolver, NameServers};
use reveille_engine::doors::{Clock, SystemClock, SystemEntropy};
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryEncoders, DeliveryNotification, DeliveryTarget, Encoder,
    RefusedDelivery, TargetContext, TargetError, WakeNotification,
};
use reveille_engine::events::hook::StartFrom;
use reveille_engine::facts::FactCaller;
use reveille_engine::quota::Quotas;
use reveille_engine::{Config, Engine, OutboundConfig, Retention};
use reveille_kernel::outbound::EncodedRequest;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const WRITERS: u64 = 64;
const WARM_UP: Duration = Duration::from_secs(1);
const YEAR_MS: u64 = 365 * 86_400_000;
/// Deliveries that are waiting when the endpoint begins to answer.
const WAITING: u64 = 20_000;

/// Sends what is to be delivered as it is, to one address.
struct PlainEncoder(FaceId, Arc<OnceLock<String>>);

struct PlainTarget(String);

impl DeliveryEncoder for PlainEncoder {
    fn face(&self) -> FaceId {
        self.0
    }

    fn target(
        &self,
        _: &Hook,
        _: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        Ok(Arc::new(PlainTarget(self.1.get().unwrap().clone())))
    }
}

impl DeliveryTarget for PlainTarget {
    fn address(&self) -> String {
        self.0.clone()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        Ok(EncodedRequest { headers: Vec::new(), body: notification.payload.clone() })
    }
}

/// There are no consumers.
struct NoWakes;

impl Encoder for NoWakes {
    fn encode_wake(&self, _: &WakeNotification) -> EncodedRequest {
        EncodedRequest { headers: Vec::new(), body: Bytes::new() }
    }

    fn is_done(&self, _: &[u8]) -> bool {
        true
    }
}

/// An endpoint that answers nobody until it is opened, and counts.
struct Endpoint {
    open: watch::Sender<bool>,
    answered: AtomicU64,
    last: tokio::sync::Notify,
}

async fn listen() -> (String, Arc<Endpoint>) {
    let (open, _) = watch::channel(false);
    let endpoint =
        Arc::new(Endpoint { open, answered: AtomicU64::new(0), last: Default::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, accepting.clone()));
        }
    });
    (format!("http://{address}/told"), endpoint)
}

async fn answer(stream: TcpStream, endpoint: Arc<Endpoint>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut stream, mut open) = (BufReader::new(stream), endpoint.open.subscribe());
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                _ if line == "\r\n" => break,
                _ => {}
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        let _ = open.wait_for(|open| *open).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        if endpoint.answered.fetch_add(1, Ordering::Relaxed) + 1 == WAITING {
            endpoint.last.notify_one();
        }
    }
}

fn begin(directory: &Path, url: &Arc<OnceLock<String>>) -> Engine {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).unwrap();
    let clock = Arc::new(SystemClock::default());
    let now = clock.clone();
    let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || now.now().0);
    let rules = Rules { allow_http_loopback: true, private_networks: Vec::new() };
    let resolver = Arc::new(NameResolver::new(now.clone(), NameServers::System));
    let encoders = [event::hook::FACE, fact::FACE].into_iter();
    let encoders = encoders.fold(DeliveryEncoders::default(), |encoders, face| {
        encoders.with(PlainEncoder(face, url.clone()))
    });
    let config = Config {
        data_dir: directory.join("data"),
        documents: DocumentSettings::default(),
        secrets_key_file: None,
        partitions: Some(1),
        table_files: 64,
        sync: true,
        min_free_bytes: 0,
        segment_bytes: 16 << 20,
        on_fatal: Arc::new(|error| panic!("{error}")),
        outbound: OutboundConfig {
            timings: Timings::default(),
            rules: rules.clone(),
            courier: Arc::new(HttpCourier::new(rules, resolver, now)),
            encoder: Arc::new(NoWakes),
            delivery_encoders: encoders,
            faces: std::convert::identity,
            concurrency: 4_096,
            tenant_concurrency: 64,
            retention: Retention { events_ms: YEAR_MS, deliveries_ms: YEAR_MS },
        },
        quotas: Quotas::default(),
        poison: None,
    };
    Engine::open(&config, clock, Arc::new(SystemEntropy::default())).unwrap()
}

fn caller() -> FactCaller {
    FactCaller { tenant: Tenant::default_tenant(), principal: Principal::local(), key: None }
}

fn statement(writer: u64, number: u64, garden: Option<&str>) -> Statement {
    Statement {
        entity: EntityUri::parse(&format!("user:u{writer}-{}", number % 1_000)).unwrap(),
        relation: "works_at".into(),
        value: FactValue::new(ValueKind::String, &json!(format!("company {number}"))).unwrap(),
        source: "agent:bench".into(),
        confidence: Confidence::CERTAIN,
        scope: Scope::Team,
        garden: garden.map(|slug| GardenSlug::parse(slug).unwrap()),
        valid_until: None,
    }
}

/// What one writer does with a number.
#[derive(Debug, Clone, Copy)]
enum Work {
    Append,
    Fact(Option<&'static str>),
    Event,
}

fn stream(writer: u64) -> StreamPath {
    StreamPath::parse(&format!("/bench/{writer}")).unwrap()
}

async fn work(engine: &Engine, work: Work, writer: u64, number: u64) {
    let tenant = Tenant::default_tenant();
    match work {
        Work::Append => {
            let kind = Some(ContentType::octet_stream());
            let body = Body::new(Bytes::from_static(&[b'x'; 100]), kind.as_ref());
            let append =
                Append { content_type: kind, body, producer: None, stream_seq: None, close: false };
            engine.append(&tenant, &stream(writer), append, None).await.unwrap();
        }
        Work::Fact(garden) => {
            engine.assert_fact(&caller(), statement(writer, number, garden), None).await.unwrap();
        }
        Work::Event => {
            let id = engine.fresh_ulid();
            let envelope = format!(
                r#"{{"id":"{id}","type":"a.b","payload":{{"entity":"user:u{writer}","relation":"works_at","value":"company {number}","source":"agent:bench","scope":"team"}}}}"#
            );
            let event = Event {
                id: id.to_string().into(),
                named: false,
                kind: EventType::parse("a.b").unwrap(),
                envelope: envelope.into(),
            };
            engine.ingest(&tenant, vec![event], id, None, None).await.unwrap();
        }
    }
}

async fn make_streams(engine: &Engine) {
    for writer in 0..WRITERS {
        let create = Create {
            content_type: Some(ContentType::octet_stream()),
            expiry: Expiry::Never,
            closed: false,
            fork: None,
            body: Body::new(Bytes::new(), None),
        };
        let tenant = Tenant::default_tenant();
        engine.create(&tenant, &stream(writer), create, None).await.unwrap();
    }
}

/// So many a second by all writers.
async fn rate(directory: &Path, time: Duration, kind: Work) -> f64 {
    let engine = begin(directory, &Arc::default());
    make_streams(&engine).await;
    let done = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (engine, done) = (engine.clone(), done.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    work(&engine, kind, writer, number).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(WARM_UP).await;
    let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(time).await;
    let made = (done.load(Ordering::Relaxed) - before) as f64;
    let figure = made / began.elapsed().as_secs_f64();
    for writer in writers {
        writer.abort();
        let _ = writer.await;
    }
    engine.shutdown().await;
    figure
}

async fn hook(engine: &Engine, kind: Work, url: &str) {
    let tenant = Tenant::default_tenant();
    match kind {
        Work::Fact(garden) => {
            let caller = caller();
            if let Some(slug) = garden {
                let (slug, name) = (GardenSlug::parse(slug).unwrap(), "bench".into());
                engine.create_garden(&caller, slug, name, Scope::Team).await.unwrap();
            }
            let (subject, object) = (caller.principal.entity.clone(), Object::parse("*").unwrap());
            let day_ms = 86_400_000;
            let token = engine.issue_capability(&caller, subject, Verb::Subscribe, object, day_ms);
            let (_, token) = token.await.unwrap();
            let target = Target::parse("scope:team").unwrap();
            let wanted = Wanted {
                target,
                channel: Channel::Webhook(url.into()),
                filter: EventFilter::parse(["fact_assert"]).unwrap(),
                scope: ScopeId::One(Scope::Team),
                idempotency_key: None,
            };
            engine.subscribe_to_facts(&caller, wanted, Some(&token)).await.unwrap();
        }
        Work::Event | Work::Append => {
            let spec = EventHookSpec {
                pattern: EventPattern::parse("a.*").unwrap(),
                worker: WorkerId::parse("bench").unwrap(),
                binding: None,
                method: RpcMethod::parse("on").unwrap(),
                max_retries: 10,
                timeout_ms: 10_000,
                secret: None,
                ordered: false,
                retry: Retry::default(),
                limits: DeliveryLimits::default(),
                former: FormerSpec::default(),
            };
            engine.hook(&tenant, spec, StartFrom::Now, None).await.unwrap();
        }
    }
}

/// Deliveries per second of what has been waiting for its endpoint.
async fn deliveries(directory: &Path, kind: Work) -> f64 {
    let (url, endpoint) = listen().await;
    let place = Arc::new(OnceLock::from(url.clone()));
    let engine = begin(directory, &place);
    hook(&engine, kind, &url).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mine = WAITING / WRITERS + u64::from(writer < WAITING % WRITERS);
                for number in 0..mine {
                    work(&engine, kind, writer, number).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let began = Instant::now();
    endpoint.open.send_replace(true);
    endpoint.last.notified().await;
    let figure = WAITING as f64 / began.elapsed().as_secs_f64();
    engine.shutdown().await;
    figure
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: facts SECONDS ROUNDS DIRECTORY";
    let seconds: f64 = arguments.next().and_then(|it| it.parse().ok()).expect(usage);
    let rounds: u32 = arguments.next().and_then(|it| it.parse().ok()).expect(usage);
    let directory = arguments.next().expect(usage);
    let directory = Path::new(&directory).join("facts");
    let time = Duration::from_secs_f64(seconds);
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); 4];
    for _ in 0..rounds {
        let round = [
            rate(&directory, time, Work::Append).await,
            rate(&directory, time, Work::Fact(None)).await,
            deliveries(&directory, Work::Event).await,
            deliveries(&directory, Work::Fact(Some("bench"))).await,
        ];
        eprintln!("appends, facts, deliveries of events, gated ones per second: {round:.0?}");
        for (found, figure) in found.iter_mut().zip(round) {
            found.push(figure);
        }
    }
    let _ = std::fs::remove_dir_all(&directory);
    let names = [
        "appends_per_second",
        "facts_per_second",
        "event_deliveries_per_second",
        "gated_deliveries_per_second",
    ];
    let figures = names.iter().zip(found).map(|(name, it)| format!("\"{name}\":{:.3}", median(it)));
    println!("{{{}}}", figures.collect::<Vec<_>>().join(","));
}
