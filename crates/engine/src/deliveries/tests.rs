//! What is decided about deliveries: given a state, when a command comes, then these are its writes,
//! its effects and its answer.

mod append;
mod gate;
mod letters;
mod sending;
mod slices;
mod versions;

use reveille_core::delivery::policy::DeliveryLimits;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId, OpenDeliveries};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::{
    AttemptRecord, DeadReason, Order, Phase, Policy, Transport, Verdict,
};
use reveille_core::event::hook::{EventHookSpec, FACE, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, EventType, Ulid};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::{Error, Never, Unavailable};
use reveille_kernel::outbox::PushResult;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord};

use super::delivery::{DeliveryOutcome, HoldDelivery, RecordDeliveryOutcomes, RetryDelivery};
use super::error::DeliveryRejection;
use super::hook::{DeleteHook, SetHookActive, SetHookPaused};
use super::index::{HookAge, HookIndex};
use super::retention::ExpireDeliveries;
use super::send;
use crate::app::IndexPart;
use crate::effect::{Attempt, AttemptKey, DeliveryAttempt, Effect};
use crate::events::hook::{CreateHook, StartFrom};
use crate::events::ingest::{IngestEvents, NewEvent};
use crate::testing::{Bench, Decided};

/// A tenant with one hook for everything.
struct World {
    bench: Bench,
    hook: Arc<Hook>,
}

impl World {
    /// A hook whose deliveries are tried so often.
    fn new(max_retries: u32) -> World {
        let mut bench = Bench::new();
        let spec = spec(max_retries);
        let (tenant, name) = (bench.tenant.clone(), "h".into());
        let start = StartFrom::Now;
        let hook = bench.when(&CreateHook { tenant, name, spec, start, created_by: None }).answer();
        World { bench, hook }
    }

    /// So many events come; returns the deliveries that they begin.
    fn ingest(&mut self, count: usize) -> Vec<DeliveryId> {
        let (mut events, mut payload) = (Vec::new(), Vec::new());
        for number in 0..count {
            let kind = EventType::parse("order.paid").unwrap();
            events.push(NewEvent { id: format!("e{number}").into(), named: true, kind, len: 2 });
            payload.extend_from_slice(b"{},");
        }
        let tenant = self.bench.tenant.clone();
        let decided = self.bench.when(&IngestEvents {
            stream: crate::Engine::event_stream(&tenant),
            tenant,
            events,
            first_id: Ulid::first_of_many(Millis(1), [0; 8]),
            payload: Bytes::from(payload),
            batch: None,
        });
        sent(&decided.effects).iter().map(|it| it.id).collect()
    }

    fn outcome(&self, id: DeliveryId, number: u32, verdict: Verdict) -> RecordDeliveryOutcomes {
        let status = Some(if verdict == Verdict::Delivered { 200 } else { 500 });
        let (error, response) = (None, None);
        let attempt = AttemptRecord {
            status,
            error,
            response,
            ..AttemptRecord::new(number, self.bench.now, 5)
        };
        RecordDeliveryOutcomes(vec![DeliveryOutcome { id, attempt, verdict }])
    }

    fn pause(&mut self, active: bool) {
        let (tenant, name) = (self.bench.tenant.clone(), self.hook.name.clone());
        self.bench.when(&SetHookActive { face: FACE, tenant, name, active }).answer();
    }

    fn stored(&self, id: DeliveryId) -> DeliveryRecord {
        let found = self.bench.reader().get(&keys::delivery(id)).unwrap().expect("it is kept");
        record::decode_delivery(&found).unwrap()
    }

    /// A delivery that was given up.
    fn dead_letter(&mut self) -> DeliveryId {
        let id = self.ingest(1)[0];
        let outcome = self.outcome(id, 1, Verdict::Dead(DeadReason::Refused));
        self.bench.when(&outcome).answer();
        id
    }
}

/// What the owner of a hook for everything wishes.
fn spec(max_retries: u32) -> EventHookSpec {
    EventHookSpec {
        pattern: EventPattern::parse("**").unwrap(),
        worker: WorkerId::parse("w").unwrap(),
        binding: None,
        method: RpcMethod::parse("receive").unwrap(),
        max_retries,
        timeout_ms: 1_000,
        secret: None,
        ordered: false,
        retry: Retry::default(),
        limits: DeliveryLimits::default(),
        former: FormerSpec::default(),
    }
}

fn sent(effects: &[Effect]) -> Vec<&DeliveryAttempt> {
    let deliveries = effects.iter().filter_map(|effect| match effect {
        Effect::SendDelivery(attempt) => Some(attempt),
        _ => None,
    });
    deliveries.collect()
}

/// A delivery as a decision leaves it.
fn written<A, R: std::fmt::Debug>(decided: &Decided<A, R>, id: DeliveryId) -> DeliveryRecord {
    let value = decided.written(&keys::delivery(id)).expect("it is written");
    record::decode_delivery(value.as_ref().expect("it is kept")).unwrap()
}

/// Nothing becomes of the hook's deliveries. That they were looked at may be counted.
fn nothing_is_done<A>(decided: &Decided<A, Never>) {
    let changes = |(key, _): &&(Bytes, Option<Bytes>)| keys::parse_delivery(key).is_some();
    assert_eq!(decided.writes.iter().find(changes), None);
    assert_eq!((decided.effects.len(), decided.timer_at), (0, None));
    assert!(decided.outcome.is_ok(), "whoever reports need not know");
}

#[test]
fn a_good_answer_ends_a_delivery() {
    let mut world = World::new(3);
    let id = world.ingest(1)[0];
    let decided = world.bench.when(&world.outcome(id, 1, Verdict::Delivered));
    let it = written(&decided, id);
    assert_eq!(it.delivery.phase, Phase::Delivered { at: world.bench.now });
    assert_eq!((it.delivery.attempts.len(), it.timer_at), (1, None));
    assert!(decided.written(&keys::counts(id.hook)).is_some(), "it is counted");
    assert_eq!((sent(&decided.effects).len(), decided.timer_at), (0, None));
    assert_eq!(decided.outcome, Ok(1));
}

#[test]
fn a_bad_answer_makes_another_attempt_due() {
    let mut world = World::new(3);
    let id = world.ingest(1)[0];
    let decided = world.bench.when(&world.outcome(id, 1, Verdict::Failed));
    let it = written(&decided, id);
    let Phase::Pending { at } = it.delivery.phase else { panic!("{it:?}") };
    assert!(at > world.bench.now);
    assert_eq!((decided.timer_at, it.timer_at), (Some(at), Some(at)));
    assert!(sent(&decided.effects).is_empty(), "not before its time");
}

#[test]
fn an_answer_to_another_attempt_is_not_heard() {
    let mut world = World::new(3);
    let id = world.ingest(1)[0];
    nothing_is_done(&world.bench.when(&world.outcome(id, 2, Verdict::Delivered)));
    let first = world.outcome(id, 1, Verdict::Delivered);
    world.bench.when(&first).answer();
    nothing_is_done(&world.bench.when(&first));
    let nobody = DeliveryId { no: DeliveryNo { event: EventNo(9_999), round: 0 }, ..id };
    nothing_is_done(&world.bench.when(&world.outcome(nobody, 1, Verdict::Delivered)));
}

#[test]
fn an_attempt_that_was_not_made_is_held_while_its_hook_is_paused() {
    let mut world = World::new(3);
    let id = world.ingest(1)[0];
    world.pause(false);
    let decided = world.bench.when(&HoldDelivery { id, attempt: 1 });
    let it = written(&decided, id);
    assert_eq!((it.delivery.phase, it.timer_at), (Phase::Held, None));
    assert_eq!(decided.written(&keys::held(id)), Some(&Some(Bytes::new())));
    assert!(sent(&decided.effects).is_empty());
    nothing_is_done(&world.bench.when(&HoldDelivery { id, attempt: 1 }));
}

#[test]
fn one_whose_hook_is_active_again_is_made_after_all() {
    let mut world = World::new(3);
    let id = world.ingest(1)[0];
    world.bench.now = world.bench.now + 1;
    let decided = world.bench.when(&HoldDelivery { id, attempt: 1 });
    assert_eq!(sent(&decided.effects).len(), 1);
    assert!(matches!(written(&decided, id).delivery.phase, Phase::Leased { attempt: 1, .. }));
    nothing_is_done(&world.bench.when(&HoldDelivery { id, attempt: 7 }));
}

/// Events of one lane come to a hook that is paused: the first of them is held and keeps the lane.
#[test]
fn what_a_paused_hook_holds_keeps_its_lane_until_it_is_resumed_or_expires() {
    let mut world = World::new(3);
    let policy = Policy { order: Order::Lanes, ..world.hook.policy.clone() };
    let hook = Hook { policy, ..Hook::clone(&world.hook) };
    let stored = (keys::hook(hook.face, &hook.tenant, &hook.name), record::encode_hook(&hook));
    world.bench.given(vec![stored]);
    let set_paused = |world: &mut World, paused| {
        let (tenant, name) = (world.bench.tenant.clone(), world.hook.name.clone());
        world.bench.when(&SetHookPaused { face: FACE, tenant, name, paused })
    };
    let stopped = set_paused(&mut world, true).answer();
    assert_eq!((stopped.stopped_at, stopped.version), (Some(world.bench.now), hook.version));
    assert!(set_paused(&mut world, true).writes.is_empty(), "it is paused already");
    assert!(world.ingest(3).is_empty(), "nothing is sent");
    let (from, to) = keys::deliveries(hook.id);
    let all = world.bench.reader().keys(&from, &to, 9).unwrap();
    let ids: Vec<DeliveryId> = all.iter().filter_map(|key| keys::parse_delivery(key)).collect();
    let phases = |world: &World| ids.iter().map(|id| world.stored(*id).delivery.phase).collect();
    let found: Vec<Phase> = phases(&world);
    assert_eq!(found, [Phase::Held, Phase::Queued, Phase::Queued]);
    // Nothing has waited since before the pause; later, the first has.
    let expire = |world: &mut World, cutoff| {
        let after = Bytes::new();
        world.bench.when(&ExpireDeliveries { hook: hook.id, cutoff, after }).answer()
    };
    let paused_at = world.bench.now;
    assert_eq!(expire(&mut world, paused_at).forgotten, 0);
    world.bench.now = world.bench.now + 10;
    let now = world.bench.now;
    assert_eq!(expire(&mut world, now).forgotten, 1);
    let expired = Phase::Dead { at: now, why: DeadReason::Expired };
    let found: Vec<Phase> = phases(&world);
    assert_eq!(found, [expired, Phase::Held, Phase::Queued], "the lane goes on, and is held");
    let resumed = set_paused(&mut world, false);
    assert_eq!(resumed.timer_at, Some(now));
    assert_eq!(resumed.answer().stopped_at, None);
    let timer = world.bench.timers().remove(0);
    let decided = world.bench.fire(timer);
    assert_eq!(sent(&decided.effects).iter().map(|it| it.id).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(expire(&mut world, Millis::NEVER).forgotten, 0, "nothing waits any more");
}

#[test]
fn a_dead_letter_is_made_again_as_the_next_round() {
    let mut world = World::new(3);
    let id = world.dead_letter();
    let Phase::Dead { at, .. } = world.stored(id).delivery.phase else { panic!("it is dead") };
    let command = RetryDelivery { face: FACE, tenant: world.bench.tenant.clone(), id };
    let decided = world.bench.when(&command);
    let again = DeliveryId { no: DeliveryNo { round: 1, ..id.no }, ..id };
    assert_eq!(decided.written(&keys::dead_letter(id, at)), Some(&None));
    assert!(written(&decided, id).retried);
    assert!(matches!(written(&decided, again).delivery.phase, Phase::Leased { attempt: 1, .. }));
    assert_eq!(sent(&decided.effects).iter().map(|it| it.id).collect::<Vec<_>>(), [again]);
    assert_eq!(decided.answer(), again);
}

#[test]
fn whatever_is_no_dead_letter_is_not_made_again() {
    let mut world = World::new(3);
    let dead = world.dead_letter();
    let open = world.ingest(1)[0];
    let own = world.bench.tenant.clone();
    let other = Tenant::parse("other").unwrap();
    for (tenant, id) in [(&own, open), (&other, dead)] {
        let decided = world.bench.when(&RetryDelivery { face: FACE, tenant: tenant.clone(), id });
        assert_eq!(decided.outcome, Err(Error::Rejected(DeliveryRejection::NoDeadLetter)));
        assert_eq!((decided.writes.len(), decided.effects.len()), (0, 0));
    }
    let command = RetryDelivery { face: FACE, tenant: own, id: dead };
    world.bench.when(&command).answer();
    let decided = world.bench.when(&command);
    assert_eq!(decided.outcome, Err(Error::Rejected(DeliveryRejection::NoDeadLetter)));
}

/// The simulator found it: with room for one delivery in memory, a hook was filled up while its
/// deletion was decided, and then found no room on the disk.
#[test]
fn deliveries_that_were_passed_over_are_made_when_a_deletion_is_undone() {
    let mut world = World::new(3);
    world.bench.shared.outbox.set_waiting_per_source(1);
    let ids = world.ingest(2);
    let shared = &world.bench.shared;
    let attempt = |id: DeliveryId| {
        let tenant = world.bench.tenant.clone();
        let transport = Transport::Http;
        Attempt::Delivery(DeliveryAttempt { id, attempt: 1, tenant, transport, event: None })
    };
    assert_eq!(shared.outbox.try_push(attempt(ids[0])), PushResult::Waits);
    assert_eq!(shared.outbox.try_push(attempt(ids[1])), PushResult::LeftOut);
    let first = shared.outbox.next(Millis(0)).expect("it is its turn");
    let (tenant, name) = (world.bench.tenant.clone(), world.hook.name.clone());
    let mut deleted =
        world.bench.submit(&DeleteHook { face: FACE, tenant, name, open: OpenDeliveries::Drop });

    let shared = &world.bench.shared;
    let (_, from) = shared.outbox.next_refill().expect("there is room in memory");
    send::refill(shared, world.hook.id, from);
    shared.outbox.ended(&first);
    assert!(!shared.outbox.knows(&AttemptKey::Delivery(ids[1])), "its hook is about to end");

    let batch = shared.lock().take().expect("the deletion");
    shared.lock().roll_back(batch, Unavailable::DiskFull).unwrap();
    let refused = Ok(Err(Error::Unavailable(Unavailable::DiskFull)));
    assert_eq!(deleted.try_recv().map(|it| it.map(drop)), refused);
    send::recover(shared).unwrap();
    let is_waiting = |id: &DeliveryId| shared.outbox.knows(&AttemptKey::Delivery(*id));
    assert!(ids.iter().any(is_waiting), "nobody has to wait until a lease ends");
    let next = shared.outbox.next(Millis(0)).expect("one has its turn");
    shared.outbox.ended(&next);
    let (_, from) = shared.outbox.next_refill().expect("and the other is not forgotten");
    assert!(ids.iter().any(|id| id.no == from));
}

/// Whoever lists hooks takes slices of them in order, each of which looks at no other tenant's.
#[test]
fn slices_of_hooks_are_in_order_and_follow_what_changes() {
    let made = World::new(1).hook;
    let mut index = HookIndex::default();
    let tenant = |name: &str| Tenant::parse(name).unwrap();
    let key =
        |id: u64| keys::hook(FACE, &tenant(["a", "b"][usize::from(id % 2 == 1)]), &id.to_string());
    for id in 1..=10_u64 {
        let hook = Hook {
            id: HookId(id),
            tenant: tenant(["a", "b"][usize::from(id % 2 == 1)]),
            name: id.to_string().into(),
            created_at: Millis(100 + id / 3),
            ..Hook::clone(&made)
        };
        index.follow(&key(id), Some(&record::encode_hook(&hook))).unwrap();
    }
    let ids = |hooks: Vec<Arc<Hook>>| hooks.iter().map(|hook| hook.id.0).collect::<Vec<_>>();
    let (a, b) = (tenant("a"), tenant("b"));
    let age = |id: u64| Some(HookAge { created_at: Millis(100 + id / 3), id: HookId(id) });
    assert_eq!(ids(index.older(None, None, 3)), [10, 9, 8]);
    assert_eq!(ids(index.older(None, age(8), 3)), [7, 6, 5]);
    assert_eq!(ids(index.older(Some(&b), None, 3)), [9, 7, 5]);
    assert_eq!(ids(index.older(Some(&b), age(5), 3)), [3, 1]);
    assert_eq!(ids(index.from(&a, HookId(3), 3)), [4, 6, 8]);
    index.follow(&key(4), None).unwrap();
    index.follow(&key(5), None).unwrap();
    // From where one was that is no more.
    assert_eq!(ids(index.older(None, age(5), 2)), [3, 2]);
    assert_eq!(ids(index.from(&a, HookId(4), 2)), [6, 8]);
    for id in 1..=10 {
        index.follow(&key(id), None).unwrap();
    }
    assert_eq!((index.older(None, None, 9).len(), index.older(Some(&a), None, 9).len()), (0, 0));
}
