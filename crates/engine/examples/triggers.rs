//! What triggers cost a write of a document, how soon a change is delivered, and what a hot document
//! does to others. Engine, endpoint and load in one process.
//!
//! `cargo run --release -p reveille-engine --example triggers -- SECONDS ROUNDS DIRECTORY`

#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::unwrap_used, reason = "what fails is not measured")]
#![allow(clippy::print_stdout, reason = "its report")]

#[path = "measure/engine.rs"]
mod measure;

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use measure::{
    Arguments, Endpoint, PlainTarget, WARM_UP, arguments, cpu_us, listen, open, report, stop,
};
use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::document::change::{Change, ChangeKind};
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::rules::RuleAuth;
use reveille_core::document::snapshot::{Data, Document};
use reveille_core::document::transaction::{Op, Write};
use reveille_core::steps::Steps;
use reveille_core::trigger::matching::ChangeFields;
use reveille_core::trigger::{Definition, FACE, SecretRef, TriggerId};
use reveille_engine::Engine;
use reveille_engine::documents::{DocumentCaller, DocumentWrite};
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryEncoders, DeliveryTarget, TargetContext, TargetError,
};
use reveille_engine::triggers::change::TriggerChange;
use reveille_engine::triggers::definition_of;

const WRITERS: u64 = 32;
/// Updates of the hot document that are waiting while others are measured.
const HOT_UPDATES: u64 = 10_000;
/// Never true of what is written.
const CONDITION: &str = "event.document.n > 1000000000 && event.document.status == 'paid'";

/// Sends changes as they are.
struct PlainEncoder;

impl DeliveryEncoder for PlainEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        hook: &Hook,
        _: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        Ok(Arc::new(PlainTarget(definition_of(hook)?.url.to_string())))
    }
}

/// The endpoint: says when the change of each marked document came first.
#[derive(Default)]
struct Arrivals {
    arrivals: Mutex<HashMap<String, Instant>>,
    arrived: tokio::sync::Notify,
}

impl Arrivals {
    /// Waits until a change has come whose number is this.
    async fn arrival(&self, mark: &str) -> Instant {
        loop {
            let arrived = self.arrived.notified();
            if let Some(at) = self.arrivals.lock().unwrap().remove(mark) {
                return at;
            }
            arrived.await;
        }
    }

    fn note(&self, body: &[u8]) {
        let at = Instant::now();
        let text = String::from_utf8_lossy(body);
        let Some((_, rest)) = text.rsplit_once("\"mark\":\"") else { return };
        let mark = rest.split('"').next().unwrap_or_default().to_owned();
        self.arrivals.lock().unwrap().insert(mark, at);
        self.arrived.notify_waiters();
    }
}

impl Endpoint for Arrivals {
    async fn receive(&self, body: &[u8]) {
        self.note(body);
    }
}

fn definition(url: &str, condition: &str) -> Definition {
    let stored = format!(
        r#"{{"collection":"orders","events":["create","update"],"url":"{url}","condition":"{condition}"}}"#
    );
    Definition::from_stored(stored.as_bytes()).unwrap()
}

async fn make(engine: &Engine, id: &str, definition: Definition) {
    let (tenant, id) = (Tenant::default_tenant(), TriggerId::parse(id).unwrap());
    engine.create_trigger(&tenant, &id, definition, None, None).await.unwrap();
    let enable = TriggerChange::Enable;
    engine.change_trigger(&tenant, id.as_str(), None, enable, None).await.unwrap();
}

fn data(number: u64, mark: &str) -> Arc<Data> {
    let json = format!(
        r#"{{"n":{number},"status":"open","customer":"c-{number}","tags":["a","b"],"mark":"{mark}"}}"#
    );
    Arc::new(Data::from_json(json.as_bytes()).unwrap())
}

async fn write(engine: &Engine, id: &str, number: u64, mark: &str) {
    let path = DocumentPath::parse(&format!("orders/{id}")).unwrap();
    let op = Op { path, write: Write::Set(data(number, mark)), preconditions: Vec::new() };
    let (tenant, auth) = (Tenant::default_tenant(), RuleAuth::local());
    let caller = DocumentCaller { tenant, auth, scope: "".into() };
    let write =
        DocumentWrite { ops: vec![op], idempotency: None, origin: Origin::CLIENT, audit: None };
    engine.write_documents(&caller, write).await.unwrap();
}

async fn begin(directory: &Path) -> Engine {
    let encoders = DeliveryEncoders::default().with(PlainEncoder);
    let engine = open(directory, encoders, std::convert::identity);
    let (tenant, name) = (Tenant::default_tenant(), SecretRef::parse("default").unwrap());
    engine.create_trigger_secret(&tenant, &name, "whsec_bench").await.unwrap();
    engine
}

/// Writes per second beside so many triggers, and processor time for each, in microseconds.
async fn writes(directory: &Path, time: Duration, triggers: usize) -> [f64; 2] {
    let engine = begin(directory).await;
    for number in 0..triggers {
        let url = "http://127.0.0.1:1/never";
        make(&engine, &format!("t{number}"), definition(url, CONDITION)).await;
    }
    let done = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (engine, done) = (engine.clone(), done.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    write(&engine, &format!("w{writer}-{}", number % 1_000), number, "").await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(WARM_UP).await;
    let (before, cpu_before, began) = (done.load(Ordering::Relaxed), cpu_us(), Instant::now());
    tokio::time::sleep(time).await;
    let made = (done.load(Ordering::Relaxed) - before) as f64;
    let figures = [made / began.elapsed().as_secs_f64(), (cpu_us() - cpu_before) / made];
    stop(engine, writers).await;
    figures
}

/// What the same condition takes in a loop, in microseconds.
fn bare_loop() -> f64 {
    const TIMES: u32 = 200_000;
    let path = DocumentPath::parse("orders/o1").unwrap();
    let at = reveille_core::Millis(1);
    let state = |data| Document { version: 1, created_at: at, updated_at: at, data: Some(data) };
    let (before, after) = (Some(state(data(1, ""))), Some(state(data(2, ""))));
    let change = Change { kind: ChangeKind::Update, path, before, after, ordinal: 0 };
    let fields = ChangeFields::new(&change, &Tenant::default_tenant(), 1, &Origin::CLIENT);
    let definition = definition("http://127.0.0.1:1/never", CONDITION);
    let began = Instant::now();
    for _ in 0..TIMES {
        let _ = black_box(definition.matches_within(black_box(&fields), &mut Steps::unlimited()));
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
}

/// Milliseconds of writes, and from their beginning to the POST.
async fn latencies(engine: &Engine, endpoint: &Arrivals, id: &str, times: u64) -> [Vec<f64>; 2] {
    let [mut written, mut posted] = [Vec::new(), Vec::new()];
    for number in 0..times {
        let (mark, began) = (format!("{id}-{number}"), Instant::now());
        write(engine, id, number, &mark).await;
        written.push(began.elapsed().as_secs_f64() * 1e3);
        let arrived = endpoint.arrival(&mark).await;
        posted.push(arrived.duration_since(began).as_secs_f64() * 1e3);
    }
    [written, posted]
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = ((sorted.len() as f64) * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Write and change to POST, alone and while a hot document has so many changes waiting.
async fn deliveries(directory: &Path, times: u64) -> [f64; 6] {
    let engine = begin(directory).await;
    let endpoint = Arc::new(Arrivals::default());
    let url = listen(endpoint.clone()).await;
    make(&engine, "all", definition(&url, "event.document.n >= 0")).await;
    latencies(&engine, &endpoint, "warm", 50).await;
    let [written, posted] = latencies(&engine, &endpoint, "cold", times).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for number in 0..HOT_UPDATES / WRITERS {
                    write(&engine, "hot", writer * HOT_UPDATES + number, "").await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let [_, beside] = latencies(&engine, &endpoint, "other", times.min(50)).await;
    stop(engine, Vec::new()).await;
    [
        percentile(&written, 0.5),
        percentile(&written, 0.99),
        percentile(&posted, 0.5),
        percentile(&posted, 0.99),
        percentile(&beside, 0.5),
        percentile(&beside, 0.99),
    ]
}

#[tokio::main]
async fn main() {
    let Arguments { seconds, rounds, directory } = arguments("triggers");
    let time = Duration::from_secs_f64(seconds);
    let times = ((seconds * 50.0) as u64).max(20);
    let mut found = Vec::new();
    for _ in 0..rounds {
        let mut round = Vec::new();
        for triggers in [0, 10, 1_000] {
            let figures = writes(&directory, time, triggers).await;
            eprintln!("{triggers} triggers: {:.0}/s, {:.1} µs CPU each", figures[0], figures[1]);
            round.extend(figures);
        }
        round.push(bare_loop());
        round.extend(deliveries(&directory, times).await);
        found.push(round);
    }
    let _ = std::fs::remove_dir_all(&directory);
    let names = [
        "writes_per_second",
        "write_cpu_us",
        "writes_per_second_10_triggers",
        "write_cpu_us_10_triggers",
        "writes_per_second_1000_triggers",
        "write_cpu_us_1000_triggers",
        "bare_condition_us",
        "write_p50_ms",
        "write_p99_ms",
        "change_to_post_p50_ms",
        "change_to_post_p99_ms",
        "beside_a_hot_document_p50_ms",
        "beside_a_hot_document_p99_ms",
    ];
    println!("{}", report(&names, &found));
}
