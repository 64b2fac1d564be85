//! The way of an attempt that is an append, through a whole engine: outbox, encoder, step and outcome.

use std::future::pending;

use reveille_core::ContentType;
use reveille_core::delivery::hook::FaceId;
use reveille_core::delivery::policy::Refusal;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::stream::append::Append;
use reveille_core::subscription::Timings;
use reveille_deliver::courier::{Courier, Request, ResponseFuture};
use reveille_deliver::destination::Rules;
use reveille_kernel::doors::{SystemClock, SystemEntropy};
use reveille_kernel::outbound::EncodedRequest;

use super::append::SetTransport;
use super::*;
use crate::encoder::{
    AppendTarget, DeliveryEncoder, DeliveryEncoders, DeliveryNotification, DeliveryTarget,
    EncodedAppend, Encoder, RefusedDelivery, Signer, TargetContext, TargetError, WakeNotification,
};
use crate::quota::Quotas;
use crate::testing::path;
use crate::{Config, Engine, OutboundConfig, Retention};

/// Nobody is called here.
struct NoCourier;

impl Courier for NoCourier {
    fn post(&self, _: Request) -> ResponseFuture {
        Box::pin(pending())
    }
}

/// Appends events as they are, but for those that are `null`, with the name of the key that signs.
struct AppendEncoder;

struct Mailbox(Arc<dyn Signer>);

impl Encoder for AppendEncoder {
    fn encode_wake(&self, _: &WakeNotification) -> EncodedRequest {
        unreachable!("there are no subscriptions")
    }

    fn is_done(&self, _: &[u8]) -> bool {
        false
    }
}

impl DeliveryEncoder for AppendEncoder {
    fn face(&self) -> FaceId {
        FACE
    }

    fn target(
        &self,
        _: &Hook,
        _: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        unreachable!("the hook is not called")
    }

    fn append_target(
        &self,
        _: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn AppendTarget>, TargetError> {
        Ok(Arc::new(Mailbox(context.signer.clone())))
    }
}

impl AppendTarget for Mailbox {
    fn encode(&self, it: &DeliveryNotification) -> Result<EncodedAppend, RefusedDelivery> {
        if it.payload == "null" {
            let why = Refusal::PayloadTooLarge;
            return Err(RefusedDelivery { why, text: "there is nothing to say".into() });
        }
        let body = format!("\"{} {}\"", it.event, self.0.current_key().kid()).into();
        Ok(EncodedAppend { path: path("/agents/a"), content_type: ContentType::json(), body })
    }
}

fn config(data_dir: &std::path::Path) -> Config {
    Config {
        data_dir: data_dir.join("data"),
        documents: DocumentSettings::default(),
        secrets_key_file: None,
        partitions: None,
        table_files: 64,
        sync: false,
        min_free_bytes: 0,
        segment_bytes: 2 << 20,
        on_fatal: Arc::new(|error| panic!("{error}")),
        outbound: OutboundConfig {
            timings: Timings::default(),
            rules: Rules::default(),
            courier: Arc::new(NoCourier),
            encoder: Arc::new(AppendEncoder),
            delivery_encoders: DeliveryEncoders::default().with(AppendEncoder),
            faces: std::convert::identity,
            concurrency: 1,
            tenant_concurrency: 64,
            retention: Retention { events_ms: 1_000_000, deliveries_ms: 1_000_000 },
        },
        quotas: Quotas::default(),
        poison: None,
    }
}

/// An event comes, and its delivery comes to its end.
async fn ended(engine: &Engine, hook: &Hook, name: &str, payload: &'static [u8]) -> DeliveryRecord {
    let tenant = &hook.tenant;
    let kind = EventType::parse("order.paid").unwrap();
    let len = payload.len() - 1;
    let events = vec![NewEvent { id: name.into(), named: true, kind, len }];
    let ingest = IngestEvents {
        tenant: tenant.clone(),
        stream: Engine::event_stream(tenant),
        events,
        first_id: Ulid::first_of_many(Millis(1), [0; 8]),
        payload: Bytes::from_static(payload),
        batch: None,
    };
    let before = records(engine, hook).len();
    engine.submit(tenant, &ingest).await.unwrap();
    let record = async {
        loop {
            let newest = records(engine, hook).split_off(before).pop();
            if let Some(it) = newest.filter(|it| it.delivery.ended_at().is_some()) {
                return it;
            }
            tokio::task::yield_now().await;
        }
    };
    let too_late = engine.clock().now() + 60_000;
    tokio::select! {
        record = record => record,
        () = engine.clock().sleep_until(too_late) => panic!("the delivery has no end"),
    }
}

fn records(engine: &Engine, hook: &Hook) -> Vec<DeliveryRecord> {
    let reader = engine.partition(&hook.tenant).state.reader();
    let (from, to) = keys::deliveries(hook.id);
    let found = reader.range(&from, &to, usize::MAX).unwrap();
    found.iter().map(|(_, value)| record::decode_delivery(value).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_appended_and_what_a_stream_rejects_is_a_dead_letter() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, entropy) = (Arc::new(SystemClock::default()), Arc::new(SystemEntropy::default()));
    let engine = Engine::open(&config(directory.path()), clock, entropy).unwrap();
    let (tenant, name) = (Tenant::default_tenant(), "h".into());
    let (start, created_by) = (StartFrom::Now, None);
    let create = CreateHook { tenant: tenant.clone(), name, spec: spec(3), start, created_by };
    let hook = engine.submit(&tenant, &create).await.unwrap();
    let hook = engine.submit(&tenant, &SetTransport(hook, Transport::Append)).await.unwrap();

    let appended = ended(&engine, &hook, "e1", b"{},").await;
    assert!(matches!(appended.delivery.phase, Phase::Delivered { .. }), "{appended:?}");
    let tail = engine.head(&tenant, &path("/agents/a")).unwrap().tail;
    assert!(tail.position() > "\"e1 \",".len() as u64, "it is there, with the name of a key");

    let refused = ended(&engine, &hook, "e2", b"null,").await;
    let why = DeadReason::PayloadTooLarge;
    assert!(matches!(refused.delivery.phase, Phase::Dead { why: it, .. } if it == why));

    let close = Append { close: true, ..Append::default() };
    engine.append(&tenant, &path("/agents/a"), close, None).await.unwrap();
    let rejected = ended(&engine, &hook, "e3", b"{},").await;
    let why = DeadReason::Refused;
    assert!(matches!(rejected.delivery.phase, Phase::Dead { why: it, .. } if it == why));
    let error = rejected.delivery.attempts[0].error.clone().unwrap();
    assert!(error.starts_with("/agents/a: the stream is closed"), "{error}");
    assert_eq!(engine.head(&tenant, &path("/agents/a")).unwrap().tail, tail);
    engine.shutdown().await;
}
