//! What order costs: deliveries per second to one hook over a thousand lanes, beside the same events
//! in no order, and beside a lane that is stuck. Engine, endpoint and load in one process.
//!
//! `cargo run --release -p reveille-engine --example lanes -- SECONDS ROUNDS DIRECTORY`
//!
//! The face is one that no server has: its events have a subject, and so a lane.

#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::unwrap_used, reason = "what fails is not measured")]
#![allow(clippy::print_stdout, reason = "its report")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::policy::{Backoff, Jitter, Order, Policy};
use reveille_core::document::settings::DocumentSettings;
use reveille_core::subscription::Timings;
use reveille_deliver::client::HttpCourier;
use reveille_deliver::destination::Rules;
use reveille_deliver::resolve::{NameResolver, NameServers};
use reveille_engine::app::{App, Txn};
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::face::{DeliveryFace, EventMatch};
use reveille_engine::deliveries::hook::{NewHook, create};
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::source::put_event;
use reveille_engine::deliveries::spread::{MatchingHooks, Spread, SpreadEvent};
use reveille_engine::doors::{Clock, SystemClock, SystemEntropy};
use reveille_engine::effect::EventPayload;
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryEncoders, DeliveryNotification, DeliveryTarget, Encoder,
    RefusedDelivery, TargetContext, TargetError, WakeNotification,
};
use reveille_engine::quota::Quotas;
use reveille_engine::{Config, Engine, OutboundConfig, Retention};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::outbound::EncodedRequest;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{EventPlace, EventRecord};
use reveille_store::state::Reader;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const FACE: FaceId = FaceId(0xe1);
/// The tag of its contents.
const CONTENT: u8 = 0xe1;
const LANES: u64 = 1_000;
/// Events in a command, commands at once, and deliveries that they may be ahead of the endpoint.
const BATCH: u64 = 100;
const WRITERS: u64 = 4;
const AHEAD: usize = 10_000;
const WARM_UP: Duration = Duration::from_secs(1);
const YEAR_MS: u64 = 365 * 86_400_000;

struct LaneFace;

impl DeliveryFace for LaneFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        _: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        Ok(all_hooks(txn, tenant, after))
    }

    fn explain_match(
        &self,
        _: &Reader,
        _: &Hook,
        _: EventNo,
        _: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        Ok(EventMatch::Matches)
    }
}

fn all_hooks(txn: &mut Txn<'_>, tenant: &Tenant, after: HookId) -> MatchingHooks {
    txn.rests_on_index();
    let limit = txn.domains().settings.fan_out;
    let hooks = HookIndex::of_txn(txn).from(tenant, HookId(after.0 + 1), limit);
    let through = hooks.last().map_or(after, |hook| hook.id);
    let complete = hooks.len() < limit;
    let hooks = hooks.into_iter().map(Into::into).collect();
    MatchingHooks { hooks, through, complete, notes: Vec::new() }
}

struct MakeHook {
    order: Order,
    /// Where it is.
    address: String,
}

impl Command<App> for MakeHook {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let jitter = Jitter::Added { ms: 1_000 };
        let backoff = Backoff { base_ms: 1_000, cap_ms: 300_000, jitter };
        let new = NewHook {
            face: FACE,
            tenant: Tenant::default_tenant(),
            name: "lanes".into(),
            policy: Policy { order: self.order, ..Policy::new(30_000, 5, backoff) },
            spec: self.address.clone().into(),
            backfill: None,
            created_by: None,
        };
        Ok(create(txn, new))
    }
}

/// Events of as many lanes, one after another.
struct PutEvents {
    first: u64,
}

impl Command<App> for PutEvents {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let tenant = Tenant::default_tenant();
        let matches = all_hooks(txn, &tenant, HookId(0));
        let lists = std::iter::once(&matches);
        let deliveries = usize::try_from(BATCH).unwrap_or(usize::MAX);
        let mut spread = Spread::begin(txn, FACE, &tenant, lists, deliveries)?;
        for number in self.first..self.first + BATCH {
            let lane = number % LANES;
            let no = EventNo(txn.take_id());
            let key: Bytes = [&[CONTENT][..], &no.0.to_be_bytes()].concat().into();
            let payload: Bytes = format!("{lane:04} {number:010} {:x<84}", "").into();
            let len = u64::try_from(payload.len()).unwrap_or(u64::MAX);
            txn.set(key.clone(), payload.clone());
            let (id, at): (Arc<str>, _) = (number.to_string().into(), txn.now());
            let record = EventRecord {
                id: id.clone(),
                kind: "lane".into(),
                subject: Some(lane.to_string().into()),
                at,
                place: EventPlace::Key { key, len },
                trace: None,
            };
            put_event(txn, FACE, &tenant, no, &record);
            let payload = EventPayload { id, at, payload, trace: None };
            let event =
                SpreadEvent { no, record: &record, payload: Some(&payload), prepared: None };
            spread.event(txn, event, &matches)?;
        }
        spread.end(txn)?;
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        64 << 10
    }
}

struct LaneEncoder;

impl DeliveryEncoder for LaneEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        _: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        Ok(Arc::new(LaneTarget(String::from_utf8_lossy(&hook.spec).into_owned())))
    }
}

struct LaneTarget(String);

impl DeliveryTarget for LaneTarget {
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

/// The endpoint: answers and counts every lane but one that it may be stuck on.
struct Endpoint {
    calls: AtomicU64,
    stuck: Option<&'static [u8]>,
    ahead: Semaphore,
}

async fn listen(endpoint: Arc<Endpoint>) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, endpoint.clone()));
        }
    });
    Ok(format!("http://{address}/lanes"))
}

async fn answer(stream: TcpStream, endpoint: Arc<Endpoint>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
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
        if endpoint.stuck.is_some_and(|lane| body.starts_with(lane)) {
            std::future::pending::<()>().await;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        endpoint.calls.fetch_add(1, Ordering::Relaxed);
        endpoint.ahead.add_permits(1);
    }
}

fn open(directory: &Path) -> Engine {
    let clock = Arc::new(SystemClock::default());
    let now = clock.clone();
    let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || now.now().0);
    let rules = Rules { allow_http_loopback: true, private_networks: Vec::new() };
    let resolver = Arc::new(NameResolver::new(now.clone(), NameServers::System));
    let config = Config {
        data_dir: directory.to_path_buf(),
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
            delivery_encoders: DeliveryEncoders::default().with(LaneEncoder),
            faces: |app| app.with_face(LaneFace),
            concurrency: 4_096,
            tenant_concurrency: 64,
            retention: Retention { events_ms: YEAR_MS, deliveries_ms: YEAR_MS },
        },
        quotas: Quotas::default(),
        poison: None,
    };
    Engine::open(&config, clock, Arc::new(SystemEntropy::default())).unwrap()
}

/// Deliveries per second, and processor time of the whole process for each, in microseconds.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    cpu_us: f64,
}

fn cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    // User and system time, in hundredths of a second.
    fields.skip(11).take(2).filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() * 10_000.0
}

async fn measure(
    directory: &Path,
    time: Duration,
    order: Order,
    stuck: Option<&'static [u8]>,
) -> Figures {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).unwrap();
    let engine = open(&directory.join("data"));
    let ahead = Semaphore::new(AHEAD);
    let endpoint = Arc::new(Endpoint { calls: AtomicU64::new(0), stuck, ahead });
    let address = listen(endpoint.clone()).await.unwrap();
    let tenant = Tenant::default_tenant();
    engine.submit(&tenant, &MakeHook { order, address }).await.unwrap();
    let next = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (engine, endpoint, next) = (engine.clone(), endpoint.clone(), next.clone());
            tokio::spawn(async move {
                let tenant = Tenant::default_tenant();
                let batch = u32::try_from(BATCH).unwrap_or(u32::MAX);
                loop {
                    endpoint.ahead.acquire_many(batch).await.unwrap().forget();
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    if engine.submit(&tenant, &PutEvents { first }).await.is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(WARM_UP).await;
    let calls = || endpoint.calls.load(Ordering::Relaxed);
    let (before, cpu_before, began) = (calls(), cpu_us(), Instant::now());
    tokio::time::sleep(time).await;
    let made = (calls() - before) as f64;
    let figures = Figures {
        per_second: made / began.elapsed().as_secs_f64(),
        cpu_us: (cpu_us() - cpu_before) / made,
    };
    writers.iter().for_each(tokio::task::JoinHandle::abort);
    engine.shutdown().await;
    drop(engine);
    let _ = std::fs::remove_dir_all(directory);
    figures
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: lanes SECONDS ROUNDS DIRECTORY";
    let seconds = arguments.next().and_then(|it| it.parse().ok()).expect(usage);
    let rounds: u32 = arguments.next().and_then(|it| it.parse().ok()).expect(usage);
    let directory = arguments.next().expect(usage);
    let directory = Path::new(&directory).join("lanes");
    let time = Duration::from_secs_f64(seconds);
    let works: [(&str, Order, Option<&'static [u8]>); 3] = [
        ("unordered", Order::None, None),
        ("ordered", Order::Lanes, None),
        ("stuck", Order::Lanes, Some(b"0007 ")),
    ];
    let mut found = [const { Vec::<Figures>::new() }; 3];
    for _ in 0..rounds {
        for ((name, order, stuck), found) in works.iter().zip(&mut found) {
            let figures = measure(&directory, time, *order, *stuck).await;
            eprintln!("{name}: {:.0}/s, {:.1} µs CPU each", figures.per_second, figures.cpu_us);
            found.push(figures);
        }
    }
    let of = |read: fn(&Figures) -> f64| {
        found.each_ref().map(|figures| median(figures.iter().map(read).collect()))
    };
    let ([unordered, ordered, stuck], cpu) = (of(|it| it.per_second), of(|it| it.cpu_us));
    let [unordered_cpu, ordered_cpu, stuck_cpu] = cpu;
    println!(
        "{{\"lanes\":{LANES},\"unordered_per_second\":{unordered:.0},\
         \"ordered_per_second\":{ordered:.0},\"beside_a_stuck_lane_per_second\":{stuck:.0},\
         \"unordered_cpu_us\":{unordered_cpu:.1},\"ordered_cpu_us\":{ordered_cpu:.1},\
         \"beside_a_stuck_lane_cpu_us\":{stuck_cpu:.1},\
         \"ordered_ratio\":{:.3},\"stuck_ratio\":{:.3}}}",
        ordered / unordered,
        stuck / ordered,
    );
}
