//! Deliveries by append: the append and what came of it are one step, or nothing is appended.

use reveille_core::consumer::Dialect;
use reveille_core::delivery::ErrorKind;
use reveille_core::pattern::Pattern;
use reveille_core::stream::Head;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::subscription::{Coalescing, RetrySettings, SubscriptionSpec, Target};
use reveille_core::{ContentType, ReadFrom};
use reveille_kernel::command::{Command, Decision};

use super::*;
use crate::app::{App, Txn};
use crate::deliveries::append::AppendDelivery;
use crate::deliveries::hook;
use crate::encoder::EncodedAppend;
use crate::streams::append::AppendToStream;
use crate::streams::create::CreateStream;
use crate::testing::path;
use crate::wakes::subscribe::CreateSubscription;

/// Keeps a hook with a transport, as if it had been made with it.
pub(super) struct SetTransport(pub(super) Arc<Hook>, pub(super) Transport);

impl Command<App> for SetTransport {
    type Answer = Arc<Hook>;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, Never> {
        let SetTransport(hook, transport) = self;
        let policy = Policy { transport: *transport, ..hook.policy.clone() };
        Ok(Ok(hook::keep(txn, Hook { policy, ..Hook::clone(hook) })))
    }
}

/// Changes the rules of a hook.
struct ChangePolicy(Arc<Hook>, Policy);

impl Command<App> for ChangePolicy {
    type Answer = Arc<Hook>;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, Never> {
        Ok(Ok(hook::change(txn, &self.0, self.1.clone(), self.0.spec.clone())))
    }
}

impl World {
    /// A hook whose deliveries are appended.
    fn appending() -> World {
        let mut world = World::new(3);
        let command = SetTransport(world.hook.clone(), Transport::Append);
        world.hook = world.bench.when(&command).answer();
        world
    }

    fn append_of(&self, id: DeliveryId, body: &'static str) -> AppendDelivery {
        let append = EncodedAppend {
            path: path("/agents/a"),
            content_type: ContentType::json(),
            body: Bytes::from_static(body.as_bytes()),
        };
        let (hook, began_at) = (self.hook.clone(), self.bench.now);
        AppendDelivery { id, attempt: 1, hook, append, began_at }
    }

    /// The stream that is appended to.
    fn head(&self) -> Option<Head> {
        let key = keys::stream(&self.bench.tenant, &path("/agents/a"));
        let found = self.bench.reader().get(&key).unwrap();
        found.map(|value| record::decode_head(&value).unwrap())
    }

    fn tail(&self) -> u64 {
        self.head().map_or(0, |head| head.tail.position())
    }

    fn create_stream(&mut self, kind: &str) {
        let content_type = ContentType::parse(kind);
        let request = Create { content_type, ..Create::default() };
        let (tenant, path) = (self.bench.tenant.clone(), path("/agents/a"));
        let create = CreateStream { tenant, path, request, anchor: None };
        self.bench.when(&create).answer();
    }

    fn close_stream(&mut self) {
        let request = Append { close: true, ..Append::default() };
        let (tenant, path) = (self.bench.tenant.clone(), path("/agents/a"));
        self.bench.when(&AppendToStream { tenant, path, request }).answer();
    }

    fn subscribe(&mut self) {
        let spec = SubscriptionSpec {
            dialect: Dialect::Webhooks,
            name: "agents".into(),
            pattern: Some(Pattern::parse("/agents/*").unwrap()),
            streams: Vec::new(),
            target: Target::Webhook("https://example.com".into()),
            description: None,
            lease_ms: None,
            coalescing: Coalescing::default(),
            retry: RetrySettings::default(),
            start: ReadFrom::Now,
            base_url: None,
        };
        let tenant = self.bench.tenant.clone();
        let command = CreateSubscription { tenant, spec, secret: None, created_by: None };
        self.bench.when(&command).answer();
    }
}

#[test]
fn an_append_its_outcome_and_its_wake_are_one_batch() {
    let mut world = World::appending();
    world.subscribe();
    let id = world.ingest(1)[0];
    let command = world.append_of(id, r#"{"about":1}"#);
    let decided = world.bench.when(&command);
    let it = written(&decided, id);
    assert_eq!(it.delivery.phase, Phase::Delivered { at: world.bench.now });
    let attempt = &it.delivery.attempts[0];
    assert_eq!((attempt.status, attempt.kind, &attempt.error), (None, None, &None));
    let head = keys::stream(&world.bench.tenant, &path("/agents/a"));
    assert!(decided.written(&head).is_some(), "the stream is made by the first append");
    let tells = |effect: &Effect| matches!(effect, Effect::NotifyReaders { .. });
    assert!(decided.effects.iter().any(tells));
    let wakes = |effect: &Effect| matches!(effect, Effect::SendWake(_));
    assert!(decided.effects.iter().any(wakes), "consumers of the stream are woken");
    assert!(world.tail() > 0);
}

#[test]
fn an_attempt_appends_once_however_often_it_is_made() {
    let mut world = World::appending();
    let id = world.ingest(1)[0];
    let command = world.append_of(id, "1");
    assert!(world.bench.when(&command).answer().is_some());
    let tail = world.tail();
    let again = world.bench.when(&command);
    nothing_is_done(&again);
    assert_eq!(again.answer(), None);
    let late = AppendDelivery { attempt: 2, ..command };
    assert_eq!(world.bench.when(&late).answer(), None);
    assert_eq!(world.tail(), tail);
}

#[test]
fn what_a_stream_rejects_is_an_outcome_for_the_rules_of_the_hook() {
    for (kind, is_closed, body, expected) in [
        ("application/json", true, "1", ErrorKind::StreamClosed),
        ("text/plain", false, "1", ErrorKind::StreamMismatch),
        ("application/json", false, "{", ErrorKind::StreamMismatch),
    ] {
        let mut world = World::appending();
        world.create_stream(kind);
        if is_closed {
            world.close_stream();
        }
        let id = world.ingest(1)[0];
        let command = world.append_of(id, body);
        let outcome = world.bench.when(&command).answer().expect("it is written down");
        assert_eq!(outcome.verdict, Verdict::Dead(DeadReason::Refused));
        assert_eq!(outcome.attempt.kind, Some(expected));
        let error = outcome.attempt.error.expect("it says why");
        assert!(error.starts_with("/agents/a: "), "{error}");
        assert!(matches!(world.stored(id).delivery.phase, Phase::Dead { .. }));
        assert_eq!(world.tail(), 0);
    }
}

#[test]
fn what_is_rejected_makes_no_stream() {
    for body in ["{", "", "[]"] {
        let mut world = World::appending();
        let id = world.ingest(1)[0];
        let command = world.append_of(id, body);
        let outcome = world.bench.when(&command).answer().expect("it is written down");
        assert_eq!(outcome.attempt.kind, Some(ErrorKind::StreamMismatch), "{body:?}");
        assert_eq!(world.head(), None, "{body:?}");
    }
}

#[test]
fn nothing_is_appended_for_a_hook_that_waits_or_is_gone() {
    let mut world = World::appending();
    let ids = world.ingest(2);
    let commands = [world.append_of(ids[0], "1"), world.append_of(ids[1], "1")];
    world.pause(false);
    assert_eq!(world.bench.when(&commands[0]).answer(), None);
    assert_eq!(world.stored(ids[0]).delivery.phase, Phase::Held);
    let (tenant, name) = (world.bench.tenant.clone(), world.hook.name.clone());
    world.bench.when(&DeleteHook { face: FACE, tenant, name, open: OpenDeliveries::Drop }).answer();
    assert_eq!(world.bench.when(&commands[1]).answer(), None);
    assert_eq!(world.head(), None);
}

#[test]
fn attempts_are_commands_for_the_life_of_their_hook() {
    let mut world = World::appending();
    let policy = Policy { attempts: 9, transport: Transport::Http, ..world.hook.policy.clone() };
    let changed = world.bench.when(&ChangePolicy(world.hook.clone(), policy)).answer();
    assert_eq!((changed.policy.attempts, changed.policy.transport), (9, Transport::Append));
    world.hook = changed;
    let id = world.ingest(1)[0];
    let shared = &world.bench.shared;
    shared.outbox.set_concurrency(1);
    send::recover(shared).unwrap();
    let Some(Attempt::Delivery(attempt)) = shared.outbox.next(Millis(0)) else {
        panic!("none is made")
    };
    assert_eq!((attempt.id, attempt.transport), (id, Transport::Append));
    assert_eq!(shared.outbox.traffic().quick, 0, "it takes no place");
}
