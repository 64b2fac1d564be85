//! What is decided about events and hooks: given a state, when a command comes, then these are its
//! writes, its effects and its answer.

use reveille_core::delivery::policy::DeliveryLimits;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{Hook, OpenDeliveries};
use reveille_core::event::hook::{EventHookSpec, FACE, FormerSpec, HookUpdate, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, EventType, Ulid};
use reveille_core::stream::Rejected;
use reveille_core::stream::create::Create;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_kernel::error::Error;
use reveille_kernel::timers::DueTimer;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::events::EventTimer;
use reveille_schema::{keys, record};

use super::hook::{CreateHook, RotateHookSecret, StartFrom, UpdateHook};
use super::ingest::{IngestEvents, IngestReceipt, NewEvent};
use crate::app::Settings;
use crate::deliveries::DeliveryRejection;
use crate::deliveries::hook::{DeleteHook, SetHookActive};
use crate::effect::{DeliveryAttempt, Effect};
use crate::limits::{FAN_OUT, MATCH_STEPS, MATCH_STEPS_ALWAYS};
use crate::quota::Quotas;
use crate::streams::create::CreateStream;
use crate::testing::{Bench, Decided, path, text};

struct World {
    bench: Bench,
    tenant: Tenant,
}

impl World {
    fn new() -> World {
        let bench = Bench::new();
        World { tenant: bench.tenant.clone(), bench }
    }

    fn hook(
        &mut self,
        name: &str,
        pattern: &str,
        start: StartFrom,
    ) -> Decided<Arc<Hook>, DeliveryRejection> {
        let spec = EventHookSpec {
            pattern: EventPattern::parse(pattern).unwrap(),
            worker: WorkerId::parse("w").unwrap(),
            binding: None,
            method: RpcMethod::parse("receive").unwrap(),
            max_retries: 3,
            timeout_ms: 1_000,
            secret: None,
            ordered: false,
            retry: Retry::default(),
            limits: DeliveryLimits::default(),
            former: FormerSpec::default(),
        };
        let (tenant, name) = (self.tenant.clone(), name.into());
        self.bench.when(&CreateHook { tenant, name, spec, start, created_by: None })
    }

    fn ingest(&mut self, kinds: &[&str], batch: Option<&str>) -> Decided<IngestReceipt, Rejected> {
        let stream = crate::Engine::event_stream(&self.tenant);
        self.ingest_into(stream, kinds, batch)
    }

    fn ingest_into(
        &mut self,
        stream: StreamPath,
        kinds: &[&str],
        batch: Option<&str>,
    ) -> Decided<IngestReceipt, Rejected> {
        let named = |(number, kind): (usize, &&str)| {
            let (id, kind) = (format!("e{number}").into(), EventType::parse(kind).unwrap());
            NewEvent { id, named: true, kind, len: 2 }
        };
        self.bench.when(&IngestEvents {
            tenant: self.tenant.clone(),
            stream,
            events: kinds.iter().enumerate().map(named).collect(),
            first_id: Ulid::first_of_many(Millis(1), [0; 8]),
            payload: Bytes::from(b"{},".repeat(kinds.len())),
            batch: batch.map(Arc::from),
        })
    }

    fn update(&mut self, name: &str, update: HookUpdate) -> Decided<Arc<Hook>, DeliveryRejection> {
        let (tenant, name) = (self.tenant.clone(), name.into());
        self.bench.when(&UpdateHook { tenant, name, update })
    }

    fn set_active(&mut self, name: &str, active: bool) -> Decided<Arc<Hook>, DeliveryRejection> {
        let (tenant, name) = (self.tenant.clone(), name.into());
        self.bench.when(&SetHookActive { face: FACE, tenant, name, active })
    }

    /// A hook as a decision leaves it; `None` if it removes it.
    fn written<A, R: std::fmt::Debug>(&self, decided: &Decided<A, R>, name: &str) -> Option<Hook> {
        let value = decided.written(&keys::hook(FACE, &self.tenant, name)).expect("it is written");
        value.as_ref().map(|value| record::decode_hook(value).unwrap())
    }
}

fn sent<A, R>(decided: &Decided<A, R>) -> Vec<&DeliveryAttempt> {
    let deliveries = decided.effects.iter().filter_map(|effect| match effect {
        Effect::SendDelivery(attempt) => Some(attempt),
        _ => None,
    });
    deliveries.collect()
}

/// A rejection changes nothing.
fn rejected<A: std::fmt::Debug + PartialEq, R: std::fmt::Debug + PartialEq>(
    decided: Decided<A, R>,
    why: R,
) {
    assert_eq!(decided.outcome, Err(Error::Rejected(why)));
    assert_eq!((decided.writes.len(), decided.effects.len()), (0, 0));
    assert_eq!(decided.timer_at, None);
}

#[test]
fn an_event_is_kept_and_sent_to_whoever_wants_it() {
    let mut world = World::new();
    let orders = world.hook("orders", "order.*", StartFrom::Now).answer();
    world.hook("pings", "ping", StartFrom::Now).answer();
    let decided = world.ingest(&["order.paid"], None);
    let (first, last) = keys::all_events();
    let written = decided.writes.iter().filter(|(key, _)| (&first..&last).contains(&key));
    let events: Vec<_> = written.filter_map(|(key, _)| keys::parse_event(key)).collect();
    let attempts = sent(&decided);
    assert_eq!((events.len(), attempts.len()), (1, 1), "for one of the hooks");
    assert_eq!((attempts[0].id.hook, attempts[0].id.no.event), (orders.id, events[0]));
    let stored = decided.written(&keys::delivery(attempts[0].id)).and_then(Option::as_ref);
    let stored = record::decode_delivery(stored.expect("it is kept")).unwrap();
    let Phase::Leased { attempt: 1, until } = stored.delivery.phase else { panic!("{stored:?}") };
    assert_eq!(decided.timer_at, Some(until), "one that nobody makes is noticed");
    assert_eq!(decided.answer(), IngestReceipt { received: 1, repeated: false });
}

#[test]
fn a_batch_that_comes_again_is_taken_in_once() {
    let mut world = World::new();
    world.hook("all", "**", StartFrom::Now).answer();
    world.ingest(&["ping", "ping"], Some("b")).answer();
    let again = world.ingest(&["ping", "ping"], Some("b"));
    assert!(again.writes.is_empty() && again.effects.is_empty());
    assert_eq!(again.answer(), IngestReceipt { received: 2, repeated: true });
}

#[test]
fn a_stream_of_something_else_takes_no_events() {
    let mut world = World::new();
    let (tenant, other) = (world.tenant.clone(), path("/text"));
    let request = Create { content_type: text(), ..Create::default() };
    let create = CreateStream { tenant, path: other.clone(), request, anchor: None };
    world.bench.when(&create).answer();
    world.hook("all", "**", StartFrom::Now).answer();
    let expected = text().expect("a type");
    rejected(world.ingest_into(other, &["ping"], None), Rejected::ContentType { expected });
}

#[test]
fn a_hook_is_kept_and_gets_what_came_before_if_it_asks_for_it() {
    let mut world = World::new();
    world.ingest(&["ping"], None).answer();
    let now = world.hook("now", "ping", StartFrom::Now);
    assert_eq!((now.timer_at, now.effects.len()), (None, 0));
    let kept = world.written(&now, "now").expect("it is kept");
    assert!(kept.is_active() && kept.backfill.is_none());
    assert_eq!(*now.answer(), kept);
    let all = world.hook("all", "**", StartFrom::Beginning);
    assert!(world.written(&all, "all").is_some_and(|it| it.backfill.is_some()));
    assert_eq!(all.timer_at, Some(world.bench.now), "slice by slice");
    assert!(sent(&all).is_empty());
}

#[test]
fn a_hook_like_another_or_from_nowhere_is_refused() {
    let mut world = World::new();
    world.hook("one", "ping", StartFrom::Now).answer();
    rejected(world.hook("two", "ping", StartFrom::Now), DeliveryRejection::Exists);
    let nowhere = StartFrom::Event("none".into());
    rejected(world.hook("three", "**", nowhere), DeliveryRejection::NoEvent);
}

#[test]
fn settings_of_a_hook_change_and_nothing_else_does() {
    let mut world = World::new();
    let before = world.hook("one", "ping", StartFrom::Now).answer();
    let update = HookUpdate { max_retries: Some(9), ..HookUpdate::default() };
    let decided = world.update("one", update.clone());
    let after = world.written(&decided, "one").expect("it is kept");
    let spec = super::hook::read_spec(&after).unwrap();
    assert_eq!((spec.max_retries, spec.timeout_ms, after.id), (9, 1_000, before.id));
    assert_eq!((decided.effects.len(), decided.timer_at), (0, None));
    assert_eq!(*decided.answer(), after);
    rejected(world.update("none", update), DeliveryRejection::NotFound);
}

#[test]
fn a_paused_hook_is_resumed_by_a_timer() {
    let mut world = World::new();
    world.hook("one", "ping", StartFrom::Now).answer();
    let paused = world.set_active("one", false);
    assert!(world.written(&paused, "one").is_some_and(|it| !it.is_active()));
    assert_eq!((paused.timer_at, paused.effects.len()), (None, 0));
    assert!(sent(&world.ingest(&["ping"], None)).is_empty(), "nothing is sent meanwhile");
    let resumed = world.set_active("one", true);
    assert!(world.written(&resumed, "one").is_some_and(|it| it.is_active()));
    assert_eq!(resumed.timer_at, Some(world.bench.now), "what was held is tried");
    let again = world.set_active("one", true);
    assert!(again.writes.is_empty(), "it is active already");
    assert!(again.answer().is_active());
    rejected(world.set_active("none", true), DeliveryRejection::NotFound);
}

#[test]
fn a_hook_that_is_ended_is_gone_and_is_cleared_away_later() {
    let mut world = World::new();
    world.hook("one", "ping", StartFrom::Now).answer();
    world.ingest(&["ping"], None).answer();
    let delete = |tenant: &Tenant| {
        let open = OpenDeliveries::Drop;
        DeleteHook { face: FACE, tenant: tenant.clone(), name: "one".into(), open }
    };
    let other = Tenant::parse("other").unwrap();
    rejected(world.bench.when(&delete(&other)), DeliveryRejection::NotFound);
    let command = delete(&world.tenant);
    let decided = world.bench.when(&command);
    assert_eq!(world.written(&decided, "one"), None);
    assert_eq!((decided.timer_at, decided.effects.len()), (Some(world.bench.now), 0));
    assert!(decided.outcome.is_ok());
    rejected(world.bench.when(&command), DeliveryRejection::NotFound);
}

/// Deliveries that were begun, and what was paid for finding out for whom.
fn begun<A, R>(decided: &Decided<A, R>) -> (usize, u64) {
    let work = decided.effects.iter().map(|effect| match effect {
        Effect::CountWork { work, .. } => *work,
        _ => 0,
    });
    (sent(decided).len(), work.sum())
}

/// Two hundred patterns and three hundred types that take a second to match.
#[test]
fn nobody_waits_while_hostile_patterns_are_matched() {
    let mut world = World::new();
    for number in 0..200 {
        let pattern = format!("**.*a.**.a*.**.*{number}");
        world.hook(&format!("h{number}"), &pattern, StartFrom::Now).answer();
    }
    let kinds: Vec<String> = (0..300).map(|it| format!("{}a{it}", "a.".repeat(120))).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let (mut deliveries, work) = begun(&world.ingest(&kinds, None));
    let most = MATCH_STEPS + MATCH_STEPS_ALWAYS * kinds.len();
    assert!(work <= u64::try_from(2 * most / 1_024).unwrap(), "{work}");
    let mut slices = 0;
    while let Some(timer) = world.bench.timers().into_iter().find(is_fan_out) {
        let (more, work) = begun(&world.bench.fire(timer));
        assert!(more <= FAN_OUT && work <= 16, "{more} deliveries, {work}");
        deliveries += more;
        slices += 1;
    }
    assert!(slices > kinds.len(), "{slices}");
    let ends = |kind: &&str, number: usize| kind.ends_with(&number.to_string());
    let expected = kinds.iter().map(|kind| (0..200).filter(|it| ends(kind, *it)).count());
    assert_eq!(deliveries, expected.sum::<usize>());
}

fn is_fan_out(timer: &DueTimer) -> bool {
    matches!(DeliveryTimer::decode(timer.name()), Some(DeliveryTimer::FanOut(..)))
}

#[test]
fn those_who_are_paused_do_not_stand_in_the_way_of_others() {
    let mut world = World::new();
    for number in 0..2 * FAN_OUT {
        let name = format!("h{number}");
        world.hook(&name, &format!("ping*{number}"), StartFrom::Now).answer();
        world.set_active(&name, false).answer();
    }
    world.hook("last", "ping*", StartFrom::Now).answer();
    let decided = world.ingest(&["ping"], None);
    assert_eq!(sent(&decided).len(), 1);
    assert!(!world.bench.timers().iter().any(is_fan_out));
}

#[test]
fn a_hook_too_many_is_refused() {
    let quotas = Quotas { hooks: 1, ..Quotas::default() };
    let bench = Bench::with(Settings { quotas, ..Settings::default() });
    let mut world = World { tenant: bench.tenant.clone(), bench };
    world.hook("one", "ping", StartFrom::Now).answer();
    rejected(world.hook("two", "pong", StartFrom::Now), DeliveryRejection::TooManyHooks { max: 1 });
    // Another tenant has hooks of its own.
    world.tenant = Tenant::parse("other").unwrap();
    world.hook("two", "pong", StartFrom::Now).answer();
}

fn repattern(pattern: &str) -> HookUpdate {
    HookUpdate { pattern: EventPattern::parse(pattern).ok(), ..HookUpdate::default() }
}

/// **Invariant:** an event is for those whose pattern matched it at its place in the log, whenever
/// their turn comes.
#[test]
fn a_pattern_that_is_changed_while_an_event_is_told_counts_for_those_after_it() {
    let mut world = World::new();
    for number in 0..FAN_OUT {
        world.hook(&format!("h{number}"), &format!("ping*{number}*"), StartFrom::Now).answer();
    }
    let leaves = world.hook("leaves", "ping*", StartFrom::Now).answer();
    let joins = world.hook("joins", "pong", StartFrom::Now).answer();
    let all: String = (0..FAN_OUT).map(|number| format!("-{number}-")).collect();
    let kind = format!("ping{all}");
    assert_eq!(sent(&world.ingest(&[&kind], None)).len(), FAN_OUT);
    assert!(world.bench.timers().iter().any(is_fan_out), "two are still to be told");
    world.update("leaves", repattern("pong*")).answer();
    let changed = world.update("joins", repattern("ping*")).answer();
    assert_eq!(super::hook::read_spec(&changed).unwrap().former.patterns.len(), 1);
    // What comes now is for the one that it is for now.
    let decided = world.ingest(&["ping"], None);
    let hooks: Vec<_> = sent(&decided).iter().map(|it| it.id.hook).collect();
    assert_eq!(hooks, [joins.id]);
    let mut told = Vec::new();
    while let Some(timer) = world.bench.timers().into_iter().find(is_fan_out) {
        let decided = world.bench.fire(timer);
        told.extend(sent(&decided).iter().map(|it| it.id.hook));
    }
    assert_eq!(told, [leaves.id], "and what came before is for the one that it was for");
    // Once everybody was told nothing of that is kept.
    let again = world.update("joins", HookUpdate { timeout_ms: Some(7), ..HookUpdate::default() });
    let spec = super::hook::read_spec(&again.answer()).unwrap();
    assert!(spec.former.patterns.is_empty() && spec.former.pattern_since.is_some());
    let decided = world.ingest(&["pong", "ping"], None);
    let hooks: Vec<_> = sent(&decided).iter().map(|it| it.id.hook).collect();
    assert_eq!(hooks, [leaves.id, joins.id]);
}

#[test]
fn what_comes_from_before_a_hook_is_matched_with_the_pattern_that_asked_for_it() {
    let mut world = World::new();
    let kinds: Vec<String> = (0..2 * FAN_OUT).map(|number| format!("ping.{number}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    world.ingest(&kinds, None).answer();
    world.hook("all", "ping.*", StartFrom::Beginning).answer();
    let mut sent_in_all = 0;
    let first = world.bench.timers().remove(0);
    sent_in_all += sent(&world.bench.fire(first)).len();
    world.update("all", repattern("pong")).answer();
    while let Some(timer) = world.bench.timers().into_iter().find(is_backfill) {
        sent_in_all += sent(&world.bench.fire(timer)).len();
    }
    assert_eq!(sent_in_all, kinds.len());
    assert!(sent(&world.ingest(&["ping.1"], None)).is_empty());
    assert_eq!(sent(&world.ingest(&["pong"], None)).len(), 1);
}

fn is_backfill(timer: &DueTimer) -> bool {
    matches!(EventTimer::decode(timer.name()), Some(EventTimer::Backfill(..)))
}

#[test]
fn a_secret_is_rotated_where_there_is_one() {
    let mut world = World::new();
    world.hook("one", "ping", StartFrom::Now).answer();
    let rotate = |world: &World, secret: &str, overlap_ms| RotateHookSecret {
        tenant: world.tenant.clone(),
        name: "one".into(),
        secret: secret.into(),
        overlap_ms,
    };
    let command = rotate(&world, "two", 9);
    rejected(world.bench.when(&command), DeliveryRejection::NoSecret);
    let secret = Some(Some("one".into()));
    world.update("one", HookUpdate { secret, ..HookUpdate::default() }).answer();
    let spec = super::hook::read_spec(&world.bench.when(&command).answer()).unwrap();
    assert_eq!(spec.secret, Some("two".into()));
    assert_eq!(spec.former.secret, Some(("one".into(), world.bench.now + 9)));
    let command = rotate(&world, "three", 0);
    let spec = super::hook::read_spec(&world.bench.when(&command).answer()).unwrap();
    assert_eq!((spec.secret, spec.former.secret), (Some("three".into()), None));
}
