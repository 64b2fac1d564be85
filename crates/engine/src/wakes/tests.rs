//! What is decided when subscriptions match streams, one or ten thousand of them.

mod slices;

use bytes::Bytes;
use reveille_core::consumer::{Answer as WakeResponse, Consumer, Dialect};
use reveille_core::pattern::Pattern;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::stream::{Body, StreamId};
use reveille_core::subscription::{
    Coalescing, RetrySettings, SubscriptionId, SubscriptionSpec, Target,
};
use reveille_core::{Millis, Offset, ReadFrom, StreamPath};
use reveille_kernel::error::{Error, Never};
use reveille_kernel::partition::CommitterWait;
use reveille_kernel::timers::DueTimer;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record;
use reveille_schema::wakes::WakeTimer;

use super::consumer::{RecordWakeOutcomes, WakeOutcome};
use super::error::WakeRejection;
use super::index::SubscriptionIndex;
use super::subscribe::{CreateSubscription, CreatedSubscription, DeleteSubscription};
use crate::app::Settings;
use crate::effect::{Effect, WakeAttempt};
use crate::limits::{FAN_OUT, MATCH_STEPS};
use crate::quota::Quotas;
use crate::streams::append::AppendToStream;
use crate::streams::create::CreateStream;
use crate::streams::delete::DeleteStream;
use crate::testing::{Bench, Decided, path, text};

/// Keys that telling one consumer writes: its record and its timer.
const KEYS_EACH: usize = 2;
/// Keys of an append or a walk that are not a consumer's.
const KEYS_BESIDE: usize = 7;

struct World {
    bench: Bench,
    path: StreamPath,
    made: u64,
}

impl World {
    fn new() -> World {
        World { bench: Bench::new(), path: path("/a/1"), made: 0 }
    }

    /// A consumer that was told in vain, and the timer for the next attempt.
    fn with_a_retry() -> (World, DueTimer) {
        let mut world = World::new();
        world.create();
        let subscription = world.subscribe();
        world.append();
        world.bench.when(&world.outcome(subscription, WakeResponse::Failed));
        let retry = world.timer(|timer| matches!(timer, WakeTimer::Consumer(_)));
        (world, retry.expect("it is tried again"))
    }

    fn outcome(&self, subscription: SubscriptionId, response: WakeResponse) -> RecordWakeOutcomes {
        let consumer = ConsumerKey { subscription, path: Some(self.path.clone()) };
        let tenant = self.bench.tenant.clone();
        let attempt = WakeAttempt { consumer, epoch: 1, attempt: 1, tenant };
        let error = (response == WakeResponse::Failed).then(|| "refused".into());
        RecordWakeOutcomes(vec![WakeOutcome { attempt, response, error }])
    }

    fn subscribe(&mut self) -> SubscriptionId {
        self.subscribe_to("/a/*").answer().subscription.id
    }

    fn subscribe_to(&mut self, pattern: &str) -> Decided<CreatedSubscription, WakeRejection> {
        self.made += 1;
        let spec = SubscriptionSpec {
            dialect: Dialect::Webhooks,
            name: format!("s{}", self.made).into(),
            pattern: Some(Pattern::parse(pattern).unwrap()),
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
        self.bench.when(&command)
    }

    fn create(&mut self) -> StreamId {
        let request = Create { content_type: text(), ..Create::default() };
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        let command = CreateStream { tenant, path, request, anchor: None };
        self.bench.when(&command).answer().head.id
    }

    fn delete(&mut self) -> Decided<(), reveille_core::stream::Rejected> {
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        self.bench.when(&DeleteStream { tenant, path })
    }

    /// Appends one byte.
    fn append(
        &mut self,
    ) -> Decided<reveille_core::stream::append::AppendReceipt, reveille_core::stream::Rejected>
    {
        let command = self.one_byte();
        self.bench.when(&command)
    }

    fn one_byte(&self) -> AppendToStream {
        let content_type = text();
        let body = Body::new(Bytes::from_static(b"x"), content_type.as_ref());
        let request = Append { content_type, body, ..Append::default() };
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        AppendToStream { tenant, path, request }
    }

    /// The only timer of some kind.
    fn timer(&self, is: impl Fn(&WakeTimer) -> bool) -> Option<DueTimer> {
        let mut found = self.bench.timers();
        found.retain(|it| WakeTimer::decode(it.name()).is_some_and(|timer| is(&timer)));
        assert!(found.len() <= 1, "{found:?}");
        found.pop()
    }

    fn walk_timer(&self) -> Option<DueTimer> {
        self.timer(|timer| matches!(timer, WakeTimer::FanOutToSubscriptions(..)))
    }

    /// Takes the walk one slice further, if there is one.
    fn walk(&mut self) -> Option<Decided<(), Never>> {
        let timer = self.walk_timer()?;
        Some(self.bench.fire(timer))
    }

    fn consumer(&self, id: SubscriptionId) -> Option<Consumer> {
        let key = ConsumerKey { subscription: id, path: Some(self.path.clone()) };
        let value = self.bench.reader().get(&keys::consumer(&key)).unwrap()?;
        Some(record::decode_consumer(&value).unwrap().consumer)
    }

    /// How far a consumer has come; `None` if it was never told of anything.
    fn acked(&self, id: SubscriptionId) -> Option<u64> {
        self.consumer(id)?.links[0].acked.map(Offset::position)
    }
}

fn is_small<A, R>(decided: &Decided<A, R>) {
    let most = KEYS_EACH * FAN_OUT + KEYS_BESIDE;
    assert!(decided.writes.len() <= most, "{} keys", decided.writes.len());
    assert!(decided.bytes < 32 << 10, "{} bytes", decided.bytes);
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
    while let Some(decided) = world.walk() {
        is_small(&decided);
        slices += 1;
    }
    assert_eq!((told(&world), slices), (all.len(), all.len().div_ceil(FAN_OUT)));
    for id in &all {
        assert_eq!((world.acked(*id), world.consumer(*id).unwrap().epoch), (Some(0), 1));
    }
    // Nor does the end of the stream take them all at once.
    is_small(&world.delete());
    let mut slices = 0;
    while let Some(timer) = world.timer(|timer| matches!(timer, WakeTimer::Forget(..))) {
        let decided = world.bench.fire(timer);
        assert!(decided.writes.len() <= 3 * FAN_OUT + KEYS_BESIDE, "{}", decided.writes.len());
        slices += 1;
    }
    assert_eq!((told(&world), slices), (0, all.len().div_ceil(FAN_OUT)));
}

fn wakes<A, R>(decided: &Decided<A, R>) -> usize {
    decided.effects.iter().filter(|effect| matches!(effect, Effect::SendWake(_))).count()
}

/// The most that a decision pays for: its own steps, a look at all patterns at once, and one
/// pattern more.
fn pays_little<A, R>(decided: &Decided<A, R>) -> u64 {
    let work = decided.effects.iter().map(|effect| match effect {
        Effect::CountWork { work, .. } => *work,
        _ => 0,
    });
    let work = work.sum();
    assert!(work <= u64::try_from((3 * MATCH_STEPS + 32 * 1_024) / 1_024).unwrap(), "{work}");
    work
}

/// Three hundred patterns that match in many ways, and a path of nine hundred segments.
#[test]
fn nobody_waits_while_hostile_patterns_are_matched() {
    let mut world = World::new();
    world.path = path(&"/a".repeat(900));
    world.create();
    let mut all = Vec::new();
    for number in 0..300_u32 {
        let bits = (0..14).map(|bit| if number >> bit & 1 == 1 { "/a" } else { "/*" });
        let end = if number % 10 == 0 { "a" } else { "z" };
        let pattern = format!("/**{}/{end}", bits.collect::<String>());
        all.push((world.subscribe_to(&pattern).answer().subscription.id, number % 10 == 0));
    }
    for round in 1..=2 {
        let decided = world.append();
        assert_eq!(wakes(&decided), 0, "all of them are left");
        assert!(pays_little(&decided) > 0);
        let mut told = 0;
        while let Some(decided) = world.walk() {
            is_small(&decided);
            pays_little(&decided);
            told += wakes(&decided);
        }
        // Those who are being told already are not told again.
        assert_eq!(told, if round == 1 { 30 } else { 0 });
    }
    for (id, matches) in &all {
        let consumer = world.consumer(*id);
        assert_eq!(consumer.is_some(), *matches);
        assert_eq!(world.acked(*id), matches.then_some(0));
    }
    pays_little(&world.delete());
    while let Some(timer) = world.timer(|timer| matches!(timer, WakeTimer::Forget(..))) {
        pays_little(&world.bench.fire(timer));
    }
    assert!(all.iter().all(|(id, _)| world.consumer(*id).is_none()));
}

#[test]
fn a_subscription_too_many_is_refused_and_what_exists_stays() {
    let quotas = Quotas { subscriptions: 2, ..Quotas::default() };
    let mut world = World::new();
    world.bench = Bench::with(Settings { quotas, ..Settings::default() });
    let first = world.subscribe();
    world.subscribe();
    let refused = Error::Rejected(WakeRejection::TooManySubscriptions { max: 2 });
    assert_eq!(world.subscribe_to("/b").outcome, Err(refused.clone()));
    // It is there already: nothing is made.
    world.made = 0;
    assert!(!world.subscribe_to("/a/*").answer().is_new);
    let (tenant, dialect) = (world.bench.tenant.clone(), Dialect::Webhooks);
    world.bench.when(&DeleteSubscription { tenant, dialect, name: "s1".into() }).answer();
    world.made = 2;
    assert_ne!(world.subscribe(), first);
    assert_eq!(world.subscribe_to("/b").outcome, Err(refused));
}

#[test]
fn a_subscription_that_begins_during_a_walk_is_told_of_later_events_alone() {
    let mut world = World::new();
    let stream = world.create();
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
    assert_eq!(world.bench.reader().get(&keys::subscription_fan_out(stream)).unwrap(), None);
}

#[test]
fn a_stream_that_takes_the_place_of_another_has_a_fan_out_of_its_own() {
    let mut world = World::new();
    let all: Vec<SubscriptionId> = (0..2 * FAN_OUT).map(|_| world.subscribe()).collect();
    let earlier = world.create();
    world.append();
    let walk = world.walk_timer().expect("there is a walk");
    world.delete();
    world.create();
    let cursor = keys::subscription_fan_out(earlier);
    assert_eq!(world.bench.fire(walk).written(&cursor), Some(&None));
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
    let outcome = world.outcome(subscription, WakeResponse::Accepted);
    let waits = |world: &World, what| world.bench.shared.lock().committer_waits = what;
    let wakes = |world: &World| world.bench.shared.lock().wakes_committer();
    waits(&world, CommitterWait::Work);
    world.bench.submit(&outcome);
    assert!(wakes(&world), "it must know that there is something");
    assert!(!world.bench.shared.lock().is_urgent());
    waits(&world, CommitterWait::Urgency);
    assert!(!wakes(&world), "but nobody waits for it");
    let append = world.one_byte();
    world.bench.submit(&append);
    assert!(wakes(&world), "the append does");
    assert!(!wakes(&world), "it was woken");
    let batch = world.bench.shared.lock().take().expect("a batch of both");
    assert_eq!(batch.commands(), 2);
    assert!(!world.bench.shared.lock().is_urgent());
}

#[test]
fn an_append_wakes_who_is_for_it_and_sets_the_timer_in_its_own_batch() {
    let mut world = World::new();
    world.create();
    assert_eq!(world.append().timer_at, None, "nobody is for it");
    let id = world.subscribe();
    let decided = world.append();
    let timer = world.timer(|timer| matches!(timer, WakeTimer::Consumer(_))).expect("a timer");
    assert_eq!(decided.timer_at, Some(timer.at()));
    assert_eq!(decided.written(&timer.key), Some(&Some(Bytes::new())));
    let woken = |it: &Effect| matches!(it, Effect::SendWake(it) if it.consumer.subscription == id);
    assert!(decided.effects.iter().any(woken));
    assert_eq!(decided.answer().tail, Offset::new(2));
}

fn wakes_again(decided: &Decided<(), Never>) -> bool {
    let is_second = |it: &Effect| matches!(it, Effect::SendWake(wake) if wake.attempt == 2);
    decided.effects.iter().any(is_second)
}

#[test]
fn a_timer_waits_for_somebody_who_waits_although_it_lets_something_happen() {
    use reveille_kernel::timers::TimerHandler;
    let (mut world, retry) = World::with_a_retry();
    world.bench.now = retry.at();
    let command = crate::app::App::timer_command(&world.bench.shared, retry).unwrap();
    world.bench.submit(&command);
    assert!(!world.bench.shared.lock().is_urgent(), "a retry may come a moment later");
    let batch = world.bench.shared.lock().take().expect("a batch");
    assert!(
        batch.effects.iter().any(|it| matches!(it, Effect::SendWake(wake) if wake.attempt == 2))
    );
}

#[test]
fn a_timer_is_not_early_because_the_clock_was_set_back() {
    let (mut world, retry) = World::with_a_retry();
    // It was seen to be due, and then the clock went back by a moment.
    world.bench.now = Millis(retry.at().0 - 5);
    assert!(wakes_again(&world.bench.fire(retry)));
    let next = world.timer(|timer| matches!(timer, WakeTimer::Consumer(_)));
    assert!(next.is_some(), "it has a timer for what comes next");
}

#[test]
fn that_a_subscription_has_ended_is_said_when_it_is_durable() {
    let mut world = World::new();
    let subscription = world.subscribe();
    let name = {
        let partition = world.bench.shared.lock();
        let index = partition.index.of::<SubscriptionIndex>();
        index.get(subscription).expect("it is there").spec.name.clone()
    };
    let tenant = world.bench.tenant.clone();
    let end = DeleteSubscription { tenant, dialect: Dialect::Webhooks, name };
    world.bench.submit(&end);
    let mut outcome = world.bench.submit(&end);
    assert!(outcome.try_recv().is_err(), "it rests on what may be lost");
    world.bench.shared.lock().take().expect("a batch").answer();
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}
