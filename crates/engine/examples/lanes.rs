//! What order costs: deliveries per second to one hook over a thousand lanes, beside the same events
//! in no order, and beside a lane that is stuck. Engine, endpoint and load in one process.
//!
//! `cargo run --release -p reveille-engine --example lanes -- SECONDS ROUNDS DIRECTORY`
//!
//! The face is one that no server has: its events have a subject, and so a lane.

#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::unwrap_used, reason = "what fails is not measured")]
#![allow(clippy::print_stdout, reason = "its report")]

#[path = "measure/engine.rs"]
mod measure;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use measure::{
    Arguments, Endpoint, PlainTarget, WARM_UP, arguments, cpu_us, listen, open, report, stop,
};
use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::policy::{Backoff, Jitter, Order, Policy};
use reveille_engine::app::{App, Txn};
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::face::{DeliveryFace, EventMatch};
use reveille_engine::deliveries::hook::{NewHook, create};
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::source::put_event;
use reveille_engine::deliveries::spread::{MatchingHooks, Spread, SpreadEvent};
use reveille_engine::effect::EventPayload;
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryEncoders, DeliveryTarget, TargetContext, TargetError,
};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{EventPlace, EventRecord};
use reveille_store::state::Reader;
use tokio::sync::Semaphore;

const FACE: FaceId = FaceId(0xe1);
/// The tag of its contents.
const CONTENT: u8 = 0xe1;
const LANES: u64 = 1_000;
/// Events in a command, commands at once, and deliveries that they may be ahead of the endpoint.
const BATCH: u64 = 100;
const WRITERS: u64 = 4;
const AHEAD: usize = 10_000;

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
        Ok(Arc::new(PlainTarget(String::from_utf8_lossy(&hook.spec).into_owned())))
    }
}

/// Answers and counts every lane but one that it may be stuck on.
struct LaneEndpoint {
    calls: AtomicU64,
    stuck: Option<&'static [u8]>,
    ahead: Semaphore,
}

impl Endpoint for LaneEndpoint {
    async fn receive(&self, body: &[u8]) {
        if self.stuck.is_some_and(|lane| body.starts_with(lane)) {
            std::future::pending::<()>().await;
        }
    }

    fn answered(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ahead.add_permits(1);
    }
}

/// Deliveries per second, and processor time of the whole process for each, in microseconds.
async fn measure(
    directory: &Path,
    time: Duration,
    order: Order,
    stuck: Option<&'static [u8]>,
) -> [f64; 2] {
    let encoders = DeliveryEncoders::default().with(LaneEncoder);
    let engine = open(directory, encoders, |app| app.with_face(LaneFace));
    let ahead = Semaphore::new(AHEAD);
    let endpoint = Arc::new(LaneEndpoint { calls: AtomicU64::new(0), stuck, ahead });
    let address = listen(endpoint.clone()).await;
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
                    engine.submit(&tenant, &PutEvents { first }).await.unwrap();
                }
            })
        })
        .collect();
    tokio::time::sleep(WARM_UP).await;
    let calls = || endpoint.calls.load(Ordering::Relaxed);
    let (before, cpu_before, began) = (calls(), cpu_us(), Instant::now());
    tokio::time::sleep(time).await;
    let made = (calls() - before) as f64;
    let figures = [made / began.elapsed().as_secs_f64(), (cpu_us() - cpu_before) / made];
    stop(engine, writers).await;
    figures
}

#[tokio::main]
async fn main() {
    let Arguments { seconds, rounds, directory } = arguments("lanes");
    let time = Duration::from_secs_f64(seconds);
    let mut found = Vec::new();
    for _ in 0..rounds {
        let unordered = measure(&directory, time, Order::None, None).await;
        let ordered = measure(&directory, time, Order::Lanes, None).await;
        let stuck = measure(&directory, time, Order::Lanes, Some(b"0007 ")).await;
        eprintln!("per second and µs CPU each: {unordered:.1?}, {ordered:.1?}, {stuck:.1?}");
        found.push([unordered, ordered, stuck].concat());
    }
    let _ = std::fs::remove_dir_all(&directory);
    let names = [
        "unordered_per_second",
        "unordered_cpu_us",
        "ordered_per_second",
        "ordered_cpu_us",
        "beside_a_stuck_lane_per_second",
        "beside_a_stuck_lane_cpu_us",
    ];
    println!("{}", report(&names, &found));
}
