//! What a partition decides when thousands of subscriptions match one stream.

use reveille_core::consumer::{Answer as Ending, Consumer, Dialect};
use reveille_core::pattern::Pattern;
use reveille_core::stream::Body;
use reveille_core::stream::StreamId;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::subscription::{Coalescing, SubscriptionId, SubscriptionSpec, Target};
use reveille_core::{ContentType, Offset, StreamPath, Tenant};
use reveille_schema::keys::{ConsumerKey, Due};
use reveille_store::table::MemoryTable;

use super::*;
use crate::command::consumer::WakeOutcome;
use crate::effect::WakeAttempt;

/// Keys that telling one consumer writes: its record and its entry in the due index.
const KEYS_EACH: usize = 2;
/// Keys of an append or a walk that are not a consumer's.
const KEYS_BESIDE: usize = 6;

struct World {
    partition: Partition,
    tenant: Tenant,
    path: StreamPath,
    made: u64,
    now: Millis,
}

impl World {
    fn new() -> World {
        let state = Arc::new(State::new(Arc::new(MemoryTable::default()), 0));
        let access_times = Arc::new(AccessTimes::new(Millis(0)));
        let partition = Partition::open(state, access_times, Settings::default()).unwrap();
        let path = StreamPath::parse("/a/1").unwrap();
        World { partition, tenant: Tenant::default_tenant(), path, made: 0, now: Millis(1_000) }
    }

    /// A consumer that was told in vain, and the entry of the due index for the next attempt.
    fn with_a_retry() -> (World, ConsumerKey, Bytes) {
        let mut world = World::new();
        world.create();
        let subscription = world.subscribe();
        world.append();
        let consumer = ConsumerKey { subscription, path: Some(world.path.clone()) };
        let told = WakeAttempt { consumer: consumer.clone(), epoch: 1, attempt: 1 };
        let ended = WakeOutcome { told, answer: Ending::Failed, error: Some("refused".into()) };
        world.submit(&Command::RecordWakeOutcomes(vec![ended]));
        world.partition.take().expect("a batch");
        let retry = world.entry(|due| matches!(due, Due::Consumer(_)));
        let (key, _) = retry.expect("it is tried again");
        (world, consumer, key)
    }

    /// Decides a command; returns the batch that it makes.
    fn decide(&mut self, command: &Command) -> OpenBatch {
        self.submit(command);
        self.partition.take().expect("a batch")
    }

    /// Decides a command.
    fn submit(&mut self, command: &Command) {
        let mut wanted = Vec::new();
        loop {
            let fetched = FetchedKeys::read(&self.partition.state.reader(), &wanted).unwrap();
            let (reply, _outcome) = oneshot::channel();
            match self.partition.submit(command, &fetched, self.now, reply) {
                Submission::Decided => return,
                Submission::Missing(more, _) => wanted.extend(more),
                Submission::NoRoom(_) => panic!("there is room"),
            }
        }
    }

    fn subscribe(&mut self) -> SubscriptionId {
        self.made += 1;
        let spec = SubscriptionSpec {
            dialect: Dialect::Webhooks,
            name: format!("s{}", self.made).into(),
            pattern: Some(Pattern::parse("/a/*").unwrap()),
            streams: Vec::new(),
            target: Target::Webhook("https://example.com".into()),
            description: None,
            lease_ms: None,
            coalescing: Coalescing::default(),
            base_url: None,
        };
        let id = SubscriptionId(self.partition.next_id);
        self.decide(&Command::Subscribe { tenant: self.tenant.clone(), spec, secret: None });
        id
    }

    fn create(&mut self) {
        let content_type = ContentType::parse("text/plain");
        let request = Create { content_type, ..Create::default() };
        let (tenant, path) = (self.tenant.clone(), self.path.clone());
        self.decide(&Command::Create { tenant, path, request, anchor: None });
    }

    /// Appends one byte.
    fn append(&mut self) -> OpenBatch {
        self.decide(&self.one_byte())
    }

    fn one_byte(&self) -> Command {
        let content_type = ContentType::parse("text/plain");
        let body = Body::new(Bytes::from_static(b"x"), content_type.as_ref());
        let request = Append { content_type, body, ..Append::default() };
        let (tenant, path) = (self.tenant.clone(), self.path.clone());
        Command::Append { tenant, path, request }
    }

    /// The only entry of the due index of some kind.
    fn entry(&self, is: impl Fn(&Due) -> bool) -> Option<(Bytes, Due)> {
        let there = self.partition.pending.iter().filter(|(_, value)| value.is_some());
        let parsed = there.filter_map(|(key, _)| Some((key.clone(), keys::parse_due(key)?.1)));
        let mut found: Vec<_> = parsed.filter(|(_, due)| is(due)).collect();
        assert!(found.len() <= 1, "{found:?}");
        found.pop()
    }

    /// Fulfils an entry.
    fn fulfil(&mut self, (key, due): (Bytes, Due)) -> OpenBatch {
        self.decide(&Command::Obligation { key, due, found: Vec::new() })
    }

    /// Takes the walk one slice further, if there is one.
    fn walk(&mut self) -> Option<OpenBatch> {
        let entry = self.entry(|due| matches!(due, Due::FanOutToSubscriptions(..)))?;
        Some(self.fulfil(entry))
    }

    fn consumer(&self, id: SubscriptionId) -> Option<Consumer> {
        let key = ConsumerKey { subscription: id, path: Some(self.path.clone()) };
        let value = self.partition.pending.get(&keys::consumer(&key))?.as_ref()?;
        Some(record::decode_consumer(value).unwrap().consumer)
    }

    /// How far a consumer has come; `None` if it was never told of anything.
    fn acked(&self, id: SubscriptionId) -> Option<u64> {
        self.consumer(id)?.links[0].acked.map(Offset::position)
    }
}

fn is_small(taken: &OpenBatch) {
    let most = KEYS_EACH * FAN_OUT + KEYS_BESIDE;
    assert!(taken.batch.len() <= most, "{} keys", taken.batch.len());
    assert!(taken.batch.bytes() < 32 << 10, "{} bytes", taken.batch.bytes());
}

#[test]
fn a_batch_stays_small_however_many_subscriptions_match() {
    let mut world = World::new();
    world.create();
    let all: Vec<SubscriptionId> = (0..10_000).map(|_| world.subscribe()).collect();
    is_small(&world.append());
    let told = |world: &World| all.iter().filter(|id| world.consumer(**id).is_some()).count();
    assert_eq!(told(&world), FAN_OUT);
    let mut slices = 1;
    while let Some(taken) = world.walk() {
        is_small(&taken);
        slices += 1;
    }
    assert_eq!((told(&world), slices), (all.len(), all.len().div_ceil(FAN_OUT)));
    for id in &all {
        assert_eq!((world.acked(*id), world.consumer(*id).unwrap().epoch), (Some(0), 1));
    }
    // Nor does the end of the stream take them all at once.
    let (tenant, path) = (world.tenant.clone(), world.path.clone());
    is_small(&world.decide(&Command::Delete { tenant, path }));
    let mut slices = 0;
    while let Some(entry) = world.entry(|due| matches!(due, Due::Forget(..))) {
        let taken = world.fulfil(entry);
        assert!(taken.batch.len() <= 3 * FAN_OUT + KEYS_BESIDE, "{} keys", taken.batch.len());
        slices += 1;
    }
    assert_eq!((told(&world), slices), (0, all.len().div_ceil(FAN_OUT)));
}

#[test]
fn a_subscription_that_begins_during_a_walk_is_told_of_later_events_alone() {
    let mut world = World::new();
    world.create();
    let early: Vec<SubscriptionId> = (0..3 * FAN_OUT).map(|_| world.subscribe()).collect();
    world.append();
    world.walk().expect("there is a walk");
    let late = world.subscribe();
    // The walk goes on after a batch that has nothing to do with it.
    assert_eq!(world.consumer(late), None);
    world.append();
    let latest = world.subscribe();
    while world.walk().is_some() {}
    assert!(early.iter().all(|id| world.acked(*id) == Some(0)));
    assert_eq!(world.acked(late), Some(1));
    assert_eq!(world.consumer(latest), None);
    assert_eq!(world.partition.pending.get(&keys::subscription_fan_out(StreamId(1))), Some(&None));
}

#[test]
fn a_stream_that_takes_the_place_of_a_crowded_one_has_a_crowd_of_its_own() {
    let mut world = World::new();
    let all: Vec<SubscriptionId> = (0..2 * FAN_OUT).map(|_| world.subscribe()).collect();
    world.create();
    world.append();
    let entry =
        world.entry(|due| matches!(due, Due::FanOutToSubscriptions(..))).expect("there is a walk");
    let (tenant, path) = (world.tenant.clone(), world.path.clone());
    world.decide(&Command::Delete { tenant, path });
    world.create();
    let earlier = StreamId(1 + all.len() as u64);
    world.fulfil(entry);
    assert_eq!(world.partition.pending.get(&keys::subscription_fan_out(earlier)), Some(&None));
    assert_eq!(world.consumer(all[FAN_OUT]), None);
    world.append();
    while world.walk().is_some() {}
    assert!(all.iter().all(|id| world.consumer(*id).is_some() && world.acked(*id).is_none()));
}

#[test]
fn what_came_of_an_attempt_waits_for_somebody_who_waits() {
    let mut world = World::new();
    world.create();
    let subscription = world.subscribe();
    world.append();
    let consumer = ConsumerKey { subscription, path: Some(world.path.clone()) };
    let told = WakeAttempt { consumer, epoch: 1, attempt: 1 };
    let ended = WakeOutcome { told, answer: Ending::Accepted, error: None };
    world.partition.committer_waits = Waits::ForWork;
    world.submit(&Command::RecordWakeOutcomes(vec![ended]));
    assert!(world.partition.wakes_committer(), "it must know that there is something");
    assert!(!world.partition.is_urgent());
    world.partition.committer_waits = Waits::ForSomebody;
    assert!(!world.partition.wakes_committer(), "but nobody waits for it");
    world.submit(&world.one_byte());
    assert!(world.partition.wakes_committer(), "the append does");
    assert!(!world.partition.wakes_committer(), "it was woken");
    let taken = world.partition.take().expect("a batch of both");
    assert_eq!(taken.commands(), 2);
    assert!(!world.partition.is_urgent());
}

#[test]
fn a_timer_waits_for_somebody_who_waits_although_it_lets_something_happen() {
    let (mut world, consumer, key) = World::with_a_retry();
    world.now = keys::parse_due(&key).expect("an entry").0;
    world.submit(&Command::Timer { key, consumer, in_flight: Vec::new() });
    assert!(!world.partition.is_urgent(), "a retry may come a moment later");
    let taken = world.partition.take().expect("a batch");
    assert!(
        taken.effects.iter().any(|it| matches!(it, Effect::SendWake(told) if told.attempt == 2))
    );
}

#[test]
fn a_timer_is_not_early_because_the_clock_was_set_back() {
    let (mut world, consumer, key) = World::with_a_retry();
    // It was seen to be due, and then the clock went back by a moment.
    world.now = Millis(keys::parse_due(&key).expect("an entry").0.0 - 5);
    world.submit(&Command::Timer { key, consumer, in_flight: Vec::new() });
    let taken = world.partition.take().expect("a batch");
    assert!(
        taken.effects.iter().any(|it| matches!(it, Effect::SendWake(told) if told.attempt == 2))
    );
    let next = world.entry(|due| matches!(due, Due::Consumer(_)));
    assert!(next.is_some(), "it has an entry for what comes next");
}

#[test]
fn that_a_subscription_has_ended_is_said_when_it_is_durable() {
    let mut world = World::new();
    let subscription = world.subscribe();
    let name = world.partition.registry.get(subscription).expect("it is there").spec.name.clone();
    let (tenant, dialect) = (world.tenant.clone(), Dialect::Webhooks);
    let end = Command::Unsubscribe { tenant, dialect, name };
    world.submit(&end);
    let (reply, mut outcome) = oneshot::channel();
    world.partition.submit(&end, &FetchedKeys::default(), world.now, reply);
    assert!(outcome.try_recv().is_err(), "it rests on what may be lost");
    world.partition.take().expect("a batch").answer();
    assert_eq!(outcome.try_recv(), Ok(Ok(Answer::Done)));
}
