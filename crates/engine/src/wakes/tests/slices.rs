//! Consumers whose records are as large as they may be: whatever is done to many of them is done in
//! slices that are cut by bytes.

use std::sync::Arc;

use reveille_core::consumer::Link;
use reveille_core::limits::CONSUMER_LINKS_BYTES_MAX;
use reveille_core::subscription::{Subscription, SubscriptionChange};
use reveille_kernel::limits::SLICE_BYTES;
use reveille_schema::record::ConsumerRecord;

use super::super::subscribe::ChangeSubscription;
use super::*;

const MANY: usize = 40;
const LINKS: usize = 900;

/// What removing or telling one of these consumers may write.
const ONE_BYTES: usize = 4 * CONSUMER_LINKS_BYTES_MAX;

fn followed(number: usize) -> StreamPath {
    path(&format!("/followed/{number:04}/{}", "f".repeat(50)))
}

fn shared() -> StreamPath {
    path("/shared")
}

impl World {
    fn create_at(&mut self, path: &StreamPath) -> StreamId {
        let request = Create { content_type: text(), ..Create::default() };
        let (tenant, path) = (self.bench.tenant.clone(), path.clone());
        let command = CreateStream { tenant, path, request, anchor: None };
        self.bench.when(&command).answer().head.id
    }

    fn append_to(&mut self, path: StreamPath) -> AppendToStream {
        AppendToStream { path, ..self.one_byte() }
    }

    /// Given a consumer that rests, follows many streams, and the shared one if there is one.
    fn given_large_consumer(&mut self, key: &ConsumerKey, primary: StreamId, at: Option<StreamId>) {
        let link = |path: StreamPath, stream: Option<StreamId>| {
            let acked = stream.map(|_| Offset::ZERO);
            Link { path, stream, acked }
        };
        let own = key.path.clone().expect("it is for a stream");
        let mut links = vec![link(own, Some(primary))];
        links.extend((0..LINKS).map(|number| link(followed(number), None)));
        links.extend(at.map(|stream| link(shared(), Some(stream))));
        let tenant = self.bench.tenant.clone();
        let followers = links.iter().skip(1);
        let followers = followers.map(|it| (keys::follower(&tenant, &it.path, key), Bytes::new()));
        let mut given: Vec<(Bytes, Bytes)> = followers.collect();
        let record = ConsumerRecord::new(Consumer::new(1, links), Some(primary));
        given.push((keys::consumer(key), record::encode_consumer(&record)));
        self.bench.given(given);
    }

    /// One subscription with many such consumers, all of which follow the shared stream.
    fn with_many_followers() -> (World, SubscriptionId, Vec<ConsumerKey>) {
        let mut world = World::new();
        let shared = world.create_at(&shared());
        // What is there is known to be followed.
        let (key, head) =
            (keys::stream(&world.bench.tenant, &self::shared()), world.bench.reader());
        let head = record::decode_head(&head.get(&key).unwrap().unwrap()).unwrap();
        let head = reveille_core::stream::Head { followed: true, ..head };
        world.bench.given(vec![(key, record::encode_head(&head))]);
        let subscription = world.subscribe();
        let mut consumers = Vec::new();
        for number in 0..MANY {
            let own = path(&format!("/a/{number}"));
            let primary = world.create_at(&own);
            let key = ConsumerKey { subscription, path: Some(own) };
            world.given_large_consumer(&key, primary, Some(shared));
            consumers.push(key);
        }
        (world, subscription, consumers)
    }

    fn epoch(&self, key: &ConsumerKey) -> Option<u64> {
        let value = self.bench.reader().get(&keys::consumer(key)).unwrap()?;
        Some(record::decode_consumer(&value).unwrap().consumer.epoch)
    }

    /// Fires the only timer of a kind until there is none; says how often.
    fn fire_all(&mut self, is: impl Fn(&WakeTimer) -> bool) -> usize {
        for slices in 0.. {
            let Some(timer) = self.timer(&is) else { return slices };
            self.bench.now = self.bench.now.max(timer.at());
            let decided = self.bench.fire(timer);
            is_sliced(&decided);
            decided.answer();
            assert!(slices < 2 * MANY, "there is no end to it");
        }
        0
    }
}

fn is_sliced<A, R>(decided: &Decided<A, R>) {
    assert!(decided.bytes <= SLICE_BYTES + ONE_BYTES, "{} bytes", decided.bytes);
}

#[test]
fn an_append_tells_as_many_followers_as_a_slice_holds_and_leaves_the_rest() {
    let (mut world, _, consumers) = World::with_many_followers();
    let append = world.append_to(shared());
    let decided = world.bench.when(&append);
    is_sliced(&decided);
    decided.answer();
    let woken = |world: &World| consumers.iter().filter(|it| world.epoch(it) == Some(2)).count();
    let first = woken(&world);
    assert!((1..MANY).contains(&first), "{first}");
    let slices = world.fire_all(|timer| matches!(timer, WakeTimer::FanOutToFollowers(..)));
    assert!(slices > 1, "{slices}");
    assert_eq!(woken(&world), MANY, "everybody, once");
}

#[test]
fn an_ended_subscription_takes_its_consumers_along_in_slices() {
    let (mut world, subscription, consumers) = World::with_many_followers();
    let name = {
        let partition = world.bench.shared.lock();
        let index = partition.index.of::<SubscriptionIndex>();
        index.get(subscription).expect("it is there").spec.name.clone()
    };
    let tenant = world.bench.tenant.clone();
    let end = DeleteSubscription { tenant, dialect: Dialect::Webhooks, name };
    world.bench.when(&end).answer();
    let slices = world.fire_all(|timer| matches!(timer, WakeTimer::Unsubscribe(..)));
    assert!(slices > 3, "{slices}");
    assert!(consumers.iter().all(|key| world.epoch(key).is_none()));
    let (from, to) = keys::all_followers();
    assert_eq!(world.bench.reader().keys(&from, &to, 10).unwrap(), Vec::<Bytes>::new());
}

#[test]
fn subscriptions_with_large_consumers_are_told_and_forget_in_slices() {
    let mut world = World::new();
    let primary = world.create();
    let all: Vec<SubscriptionId> = (0..MANY).map(|_| world.subscribe()).collect();
    for subscription in &all {
        let key = ConsumerKey { subscription: *subscription, path: Some(world.path.clone()) };
        world.given_large_consumer(&key, primary, None);
    }
    let decided = world.append();
    is_sliced(&decided);
    decided.answer();
    let woken = |world: &World| {
        all.iter().filter(|id| world.consumer(**id).is_some_and(|it| it.epoch == 2)).count()
    };
    let first = woken(&world);
    assert!((1..MANY).contains(&first), "{first}");
    let slices = world.fire_all(|timer| matches!(timer, WakeTimer::FanOutToSubscriptions(..)));
    assert!(slices > 1, "{slices}");
    assert_eq!(woken(&world), MANY, "everybody, once");

    world.delete().answer();
    let slices = world.fire_all(|timer| matches!(timer, WakeTimer::Forget(..)));
    assert!(slices > 1, "{slices}");
    assert!(all.iter().all(|id| world.consumer(*id).is_none()));
}

#[test]
fn a_decision_that_has_done_enough_leaves_everybody_to_others() {
    let mut world = World::new();
    world.create();
    let all: Vec<SubscriptionId> = (0..5).map(|_| world.subscribe()).collect();
    world.bench.set_slice_bytes(1);
    world.append();
    let told = |world: &World| all.iter().filter(|id| world.consumer(**id).is_some()).count();
    assert_eq!(told(&world), 0, "the append itself is enough");
    world.append();
    for slice in 1..=all.len() {
        world.walk().expect("there is more");
        assert_eq!(told(&world), slice, "one at least");
    }
    while world.walk().is_some() {}
    for id in &all {
        assert_eq!((world.acked(*id), world.consumer(*id).unwrap().epoch), (Some(0), 1));
    }
}

#[test]
fn outcomes_that_are_too_much_for_one_decision_are_left_to_the_next() {
    let mut world = World::new();
    world.create();
    let all: Vec<SubscriptionId> = (0..3).map(|_| world.subscribe()).collect();
    world.append();
    let outcomes = all.iter().flat_map(|id| world.outcome(*id, WakeResponse::Accepted).0);
    let mut outcomes: Vec<WakeOutcome> = outcomes.collect();
    world.bench.set_slice_bytes(1);
    while !outcomes.is_empty() {
        let done = world.bench.when(&RecordWakeOutcomes(outcomes.clone())).answer();
        assert_eq!(done, 1);
        outcomes.drain(..done);
    }
    world.bench.set_slice_bytes(SLICE_BYTES);
    let again: Vec<WakeOutcome> =
        all.iter().flat_map(|id| world.outcome(*id, WakeResponse::Accepted).0).collect();
    assert_eq!(world.bench.when(&RecordWakeOutcomes(again)).answer(), all.len());
}

/// A subscription is paused, or goes on.
fn pause(world: &mut World, name: &str, paused: bool) -> Decided<Arc<Subscription>, WakeRejection> {
    let change = SubscriptionChange { paused: Some(paused), ..SubscriptionChange::default() };
    let tenant = world.bench.tenant.clone();
    let decided = world.bench.when(&ChangeSubscription { tenant, name: name.into(), change });
    assert!(decided.bytes < 1_000, "{} bytes", decided.bytes);
    decided
}

#[test]
fn whoever_waited_for_the_end_of_a_pause_is_told_in_slices() {
    const WAITING: usize = 50;
    let mut world = World::new();
    let subscription = world.subscribe();
    pause(&mut world, "s1", true);
    let paths: Vec<StreamPath> = (0..WAITING).map(|at| path(&format!("/a/{at}"))).collect();
    for at in &paths {
        world.path = at.clone();
        world.create();
        world.append();
    }
    let told = |world: &World| {
        let key = |at: &StreamPath| ConsumerKey { subscription, path: Some(at.clone()) };
        paths.iter().filter(|at| world.epoch(&key(at)) == Some(1)).count()
    };
    let is_review = |timer: &WakeTimer| matches!(timer, WakeTimer::Review(..));
    assert!(told(&world) == 0 && world.timer(is_review).is_none());
    pause(&mut world, "s1", false);
    let first = world.timer(is_review).expect("a walk");
    world.bench.fire(first.clone()).answer();
    let some = told(&world);
    assert!((1..=16).contains(&some), "{some}");
    // A pause ends the walk, and the next one begins anew: nobody is told twice.
    pause(&mut world, "s1", true);
    assert!(world.timer(is_review).is_none());
    world.bench.fire(first).answer();
    assert!(told(&world) == some && world.timer(is_review).is_none());
    for paused in [false, true, false, false] {
        pause(&mut world, "s1", paused);
    }
    let slices = world.fire_all(is_review);
    assert!(slices > 2, "{slices}");
    assert_eq!(told(&world), WAITING);
    // One that has ended is reviewed no more.
    pause(&mut world, "s1", true);
    pause(&mut world, "s1", false);
    let tenant = world.bench.tenant.clone();
    let end = DeleteSubscription { tenant, dialect: Dialect::Webhooks, name: "s1".into() };
    world.bench.when(&end).answer();
    world.fire_all(is_review);
    assert!(world.timer(is_review).is_none());
}

#[test]
fn large_consumers_are_reviewed_by_their_bytes() {
    let (mut world, subscription, consumers) = World::with_many_followers();
    let name = {
        let partition = world.bench.shared.lock();
        let index = partition.index.of::<SubscriptionIndex>();
        index.get(subscription).expect("it is there").spec.name.clone()
    };
    pause(&mut world, &name, true);
    let append = world.append_to(shared());
    world.bench.when(&append).answer();
    world.fire_all(|timer| matches!(timer, WakeTimer::FanOutToFollowers(..)));
    assert!(consumers.iter().all(|key| world.epoch(key) == Some(1)), "nobody is told");
    pause(&mut world, &name, false);
    let slices = world.fire_all(|timer| matches!(timer, WakeTimer::Review(..)));
    assert!(slices > 1, "{slices}");
    assert!(consumers.iter().all(|key| world.epoch(key) == Some(2)), "everybody, once");
}
