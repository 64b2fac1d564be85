//! What it costs to ask, before each delivery, whether somebody may have it: deliveries of facts of a
//! garden beside those of events. Engine, endpoint and load in one process.
//!
//! `cargo run --release -p reveille-engine --example facts -- SECONDS ROUNDS DIRECTORY`

#![allow(clippy::disallowed_methods, reason = "it measures time")]
#![allow(clippy::unwrap_used, reason = "what fails is not measured")]
#![allow(clippy::print_stdout, reason = "its report")]

#[path = "measure/engine.rs"]
mod measure;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use measure::{Arguments, Endpoint, PlainTarget, arguments, listen, open, report, stop};
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::policy::DeliveryLimits;
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
use reveille_core::{Tenant, event};
use reveille_engine::Engine;
use reveille_engine::encoder::{
    DeliveryEncoder, DeliveryEncoders, DeliveryTarget, TargetContext, TargetError,
};
use reveille_engine::events::hook::StartFrom;
use reveille_engine::facts::FactCaller;
use serde_json::json;
use tokio::sync::watch;

const WRITERS: u64 = 64;
/// Deliveries that are waiting when the endpoint begins to answer.
const WAITING: u64 = 20_000;

/// Sends what is to be delivered as it is, to one address.
struct PlainEncoder(FaceId, String);

impl DeliveryEncoder for PlainEncoder {
    fn face(&self) -> FaceId {
        self.0
    }

    fn target(
        &self,
        _: &Hook,
        _: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        Ok(Arc::new(PlainTarget(self.1.clone())))
    }
}

/// Answers nobody until it is opened, and counts.
struct Gate {
    open: watch::Sender<bool>,
    answered: AtomicU64,
    last: tokio::sync::Notify,
}

impl Endpoint for Gate {
    async fn receive(&self, _: &[u8]) {
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    fn answered(&self) {
        if self.answered.fetch_add(1, Ordering::Relaxed) + 1 == WAITING {
            self.last.notify_one();
        }
    }
}

fn begin(directory: &Path, url: &str) -> Engine {
    let encoders = [event::hook::FACE, fact::FACE].into_iter();
    let encoders = encoders.fold(DeliveryEncoders::default(), |encoders, face| {
        encoders.with(PlainEncoder(face, url.to_owned()))
    });
    open(directory, encoders, std::convert::identity)
}

fn caller() -> FactCaller {
    FactCaller { tenant: Tenant::default_tenant(), principal: Principal::local(), key: None }
}

fn statement(writer: u64, number: u64, garden: &str) -> Statement {
    Statement {
        entity: EntityUri::parse(&format!("user:u{writer}-{}", number % 1_000)).unwrap(),
        relation: "works_at".into(),
        value: FactValue::new(ValueKind::String, &json!(format!("company {number}"))).unwrap(),
        source: "agent:bench".into(),
        confidence: Confidence::CERTAIN,
        scope: Scope::Team,
        garden: Some(GardenSlug::parse(garden).unwrap()),
        valid_until: None,
    }
}

/// What one writer does with a number.
#[derive(Debug, Clone, Copy)]
enum Work {
    Fact(&'static str),
    Event,
}

async fn work(engine: &Engine, work: Work, writer: u64, number: u64) {
    let tenant = Tenant::default_tenant();
    match work {
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

async fn hook(engine: &Engine, kind: Work, url: &str) {
    let tenant = Tenant::default_tenant();
    match kind {
        Work::Fact(garden) => {
            let caller = caller();
            let (slug, name) = (GardenSlug::parse(garden).unwrap(), "bench".into());
            engine.create_garden(&caller, slug, name, Scope::Team).await.unwrap();
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
        Work::Event => {
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
    let (open, _) = watch::channel(false);
    let gate = Gate { open, answered: AtomicU64::new(0), last: Default::default() };
    let endpoint = Arc::new(gate);
    let url = listen(endpoint.clone()).await;
    let engine = begin(directory, &url);
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
    stop(engine, Vec::new()).await;
    figure
}

#[tokio::main]
async fn main() {
    let Arguments { rounds, directory, .. } = arguments("facts");
    let mut found = Vec::new();
    for _ in 0..rounds {
        let events = deliveries(&directory, Work::Event).await;
        let gated = deliveries(&directory, Work::Fact("bench")).await;
        eprintln!("deliveries of events, and gated ones: {events:.0}/s, {gated:.0}/s");
        found.push(vec![events, gated]);
    }
    let _ = std::fs::remove_dir_all(&directory);
    println!("{}", report(&["event_deliveries_per_second", "gated_deliveries_per_second"], &found));
}
