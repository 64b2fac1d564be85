//! The consumer's life, step by step.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;

fn announced(tail: u64) -> AnnouncedOffset {
    AnnouncedOffset { path: path("/a"), stream: Some(StreamId(1)), tail: Offset::new(tail) }
}

fn path(text: &str) -> StreamPath {
    StreamPath::parse(text).unwrap()
}

fn policy() -> Policy {
    Policy {
        dialect: Dialect::Webhooks,
        wake_by: WakeBy::Webhook,
        waking_timeout_ms: 10_000,
        lease_ms: 45_000,
        schedule: Schedule::Webhooks,
        retry_scale_milli: 1_000,
        give_up_after_ms: Some(3 * 86_400_000),
        keep_given_up_ms: 30 * 86_400_000,
        sync_done: SyncDone::Tail,
        min_interval_ms: 0,
        max_delay_ms: None,
        is_paused: false,
    }
}

/// A consumer with the world around it.
struct Bench {
    policy: Policy,
    consumer: Consumer,
    tails: RefCell<BTreeMap<StreamPath, Offset>>,
    now: Millis,
    told: Vec<(u64, u32)>,
    wakes: u8,
}

impl Bench {
    fn new(policy: Policy) -> Bench {
        let link = Link { path: path("/a"), stream: Some(StreamId(1)), acked: None };
        Bench {
            policy,
            consumer: Consumer::new(0, vec![link]),
            tails: RefCell::default(),
            now: Millis(1_000_000),
            told: Vec::new(),
            wakes: 0,
        }
    }

    fn step(&mut self, input: Input) -> Result<(), Rejected> {
        self.wakes = self.wakes.wrapping_add(1);
        let given = Given {
            now: self.now,
            fresh_wake_id: WakeId([self.wakes; 12]),
            random: 0,
            policy: &self.policy,
            tail: &|link| self.tails.borrow().get(&link.path).copied(),
            more_pending: false,
            worth_waking: &|backlog| backlog.bytes > 10 || backlog.waited_ms >= 300,
        };
        let step = self.consumer.step(&given, &input)?;
        self.consumer = step.consumer;
        for effect in step.effects {
            let Effect::Tell { epoch, attempt } = effect;
            self.told.push((epoch, attempt));
        }
        Ok(())
    }

    fn append(&mut self, at: &str, tail: u64) {
        self.tails.borrow_mut().insert(path(at), Offset::new(tail));
        self.step(Input::Appended).unwrap();
    }

    fn timer(&mut self, after_ms: u64) {
        self.now = self.now + after_ms;
        self.step(Input::Timer { in_flight: true }).unwrap();
    }

    fn answer(&mut self, answer: Answer) {
        let Phase::Waking { attempt, .. } = self.consumer.phase else { panic!("not waking") };
        self.step(Input::Answered { epoch: self.consumer.epoch, attempt, answer }).unwrap();
    }

    fn report(&mut self, acks: &[(&str, u64)], done: bool) -> Result<(), Rejected> {
        let acks = acks.iter().map(|(path, to)| Ack {
            path: (*path).into(),
            offset: Some(Some(Offset::new(*to))),
            from: None,
        });
        let wake_id = self.consumer.wake_id.map(Ok);
        let epoch = self.consumer.epoch;
        let acks = acks.collect();
        self.step(Input::Callback(Callback { epoch, wake_id, acks, done, ..Callback::default() }))
    }

    fn is_idle(&self) -> bool {
        self.consumer.phase == Phase::Idle { wake_at: None }
    }
}

#[test]
fn many_appends_make_one_wake() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.append("/a", 2);
    bench.answer(Answer::Accepted);
    bench.append("/a", 3);
    assert_eq!(bench.told, [(1, 1)]);
}

#[test]
fn l2_done_without_pending_rests_and_l3_done_with_pending_wakes_again() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.append("/a", 2);
    bench.report(&[("/a", 1)], true).unwrap();
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    bench.report(&[("/a", 2)], true).unwrap();
    assert!(bench.is_idle());
    assert_eq!(bench.told.len(), 2);
}

#[test]
fn an_empty_stream_with_nothing_acknowledged_is_pending() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 0);
    assert_eq!(bench.told, [(1, 1)]);
    bench.report(&[("/a", 0)], true).unwrap();
    assert!(bench.is_idle());
}

#[test]
fn s6_other_epochs_are_stale_and_s3_other_wakes_are_claimed() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    let other = |epoch| Input::Callback(Callback { epoch, ..Callback::default() });
    for given in [0, 2] {
        let stale = Rejected::StaleEpoch { given, current: 1 };
        assert_eq!(bench.step(other(given)), Err(stale));
    }
    for wake_id in [Err(()), Ok(WakeId([9; 12]))] {
        let wake_id = Some(wake_id);
        let callback = Callback { epoch: 1, wake_id, ..Callback::default() };
        assert_eq!(bench.step(Input::Callback(callback)), Err(Rejected::AlreadyClaimed));
    }
    bench.report(&[], false).unwrap();
    bench.report(&[], false).unwrap();
    assert!(matches!(bench.consumer.phase, Phase::Live { .. }));
}

#[test]
fn the_last_callback_may_be_repeated() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.report(&[("/a", 1)], true).unwrap();
    let rested = bench.consumer.clone();
    bench.report(&[("/a", 1)], true).unwrap();
    assert_eq!(bench.consumer, rested);
}

#[test]
fn a_bad_ack_changes_nothing_and_s4_an_old_one_is_nothing() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 5);
    bench.report(&[("/a", 4)], false).unwrap();
    let before = bench.consumer.clone();
    let beyond = Rejected::InvalidOffset { path: "/a".into() };
    assert_eq!(bench.report(&[("/a", 5), ("/a", 9)], true), Err(beyond));
    assert_eq!(bench.consumer, before);
    bench.report(&[("/a", 1), ("/elsewhere", 99)], false).unwrap();
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(4)));
}

#[test]
fn of_two_handlers_of_one_wake_the_slower_is_told_that_it_was_overtaken() {
    let report = |bench: &mut Bench, from: Option<u64>, to: u64| {
        let (offset, from) = (Some(Some(Offset::new(to))), Some(from.map(Offset::new)));
        let (epoch, acks) = (1, vec![Ack { path: "/a".into(), offset, from }]);
        bench.step(Input::Callback(Callback { epoch, acks, ..Callback::default() }))
    };
    let mut bench = Bench::new(policy());
    bench.append("/a", 4);
    report(&mut bench, None, 2).unwrap();
    let overtaken = Err(Rejected::Overtaken { path: "/a".into() });
    assert_eq!(report(&mut bench, None, 4), overtaken);
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(2)));
    // Repeated because its answer was lost, a report is heard.
    report(&mut bench, None, 2).unwrap();
    report(&mut bench, Some(2), 4).unwrap();
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(4)));
}

#[test]
fn an_unanswered_attempt_is_repeated_with_the_same_wake() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    let wake_id = bench.consumer.wake_id;
    bench.timer(9_999);
    assert_eq!(bench.told, [(1, 1)]);
    bench.timer(1);
    bench.timer(199);
    assert_eq!(bench.told, [(1, 1)]);
    bench.timer(1);
    assert_eq!(bench.told, [(1, 1), (1, 2)]);
    assert_eq!(bench.consumer.wake_id, wake_id);
    bench.answer(Answer::Failed);
    bench.timer(400);
    assert_eq!(bench.told.last(), Some(&(1, 3)));
}

#[test]
fn an_attempt_that_was_never_made_is_nobodys_failure() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.now = bench.now + 10_000;
    bench.step(Input::Timer { in_flight: false }).unwrap();
    assert_eq!(bench.told, [(1, 1), (1, 1)]);
    assert_eq!(bench.consumer.failing_since, None);
}

#[test]
fn an_answer_of_an_earlier_wake_or_attempt_is_not_heard() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.report(&[], true).unwrap();
    let before = bench.consumer.clone();
    for answer in [Answer::Accepted, Answer::Done(Vec::new()), Answer::Failed] {
        bench.step(Input::Answered { epoch: 1, attempt: 1, answer }).unwrap();
    }
    assert_eq!(bench.consumer, before);
    bench.answer(Answer::Failed);
    bench.timer(200);
    let second = bench.consumer.clone();
    bench.step(Input::Answered { epoch: 2, attempt: 1, answer: Answer::Failed }).unwrap();
    assert_eq!(bench.consumer, second);
    // Late, but of this wake: somebody is at work.
    bench.step(Input::Answered { epoch: 2, attempt: 1, answer: Answer::Accepted }).unwrap();
    assert!(matches!(bench.consumer.phase, Phase::Live { .. }));
}

#[test]
fn synchronous_done_acknowledges_the_tail_or_what_was_announced() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.append("/a", 2);
    bench.answer(Answer::Done(vec![announced(1)]));
    assert!(bench.is_idle());
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(2)));

    let mut bench = Bench::new(Policy { sync_done: SyncDone::Snapshot, ..policy() });
    bench.append("/a", 1);
    bench.append("/a", 2);
    bench.answer(Answer::Done(vec![announced(1)]));
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(1)));
}

#[test]
fn a_silent_worker_is_replaced_if_there_is_work() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.answer(Answer::Accepted);
    bench.timer(44_000);
    bench.report(&[], false).unwrap();
    bench.timer(44_999);
    assert_eq!(bench.told.len(), 1);
    bench.timer(1);
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    bench.report(&[("/a", 1)], false).unwrap();
    bench.timer(45_000);
    assert!(bench.is_idle());
}

#[test]
fn three_days_of_failure_are_the_end_and_one_success_begins_them_anew() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    let fail_for = |bench: &mut Bench, ms: u64| {
        let end = bench.now + ms;
        while bench.now < end && !matches!(bench.consumer.phase, Phase::Gone(_)) {
            bench.answer(Answer::Failed);
            bench.timer(60_000);
        }
    };
    fail_for(&mut bench, 2 * 86_400_000);
    bench.answer(Answer::Accepted);
    bench.timer(45_000);
    fail_for(&mut bench, 2 * 86_400_000);
    assert!(!matches!(bench.consumer.phase, Phase::Gone(_)));
    fail_for(&mut bench, 2 * 86_400_000);
    assert_eq!(bench.consumer.phase, Phase::Gone(RemovalReason::Failed));
    assert_eq!(bench.report(&[], false), Err(Rejected::Gone));
}

#[test]
fn following_begins_at_the_tail_and_following_nothing_is_the_end() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.tails.borrow_mut().insert(path("/b"), Offset::new(7));
    let wake_id = bench.consumer.wake_id.map(Ok);
    let mut callback = Callback { epoch: 1, wake_id, ..Callback::default() };
    callback.subscribe = vec![(path("/b"), Some(StreamId(2))), (path("/c"), None)];
    bench.step(Input::Callback(callback.clone())).unwrap();
    let acked: Vec<_> = bench.consumer.links.iter().map(|link| link.acked).collect();
    assert_eq!(acked, [None, Some(Offset::new(7)), None]);
    bench.report(&[("/a", 1)], true).unwrap();
    assert!(bench.is_idle());
    bench.append("/c", 1);
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    callback.epoch = 2;
    callback.wake_id = None;
    callback.subscribe.clear();
    callback.unsubscribe = vec![path("/a"), path("/b"), path("/c")];
    bench.step(Input::Callback(callback)).unwrap();
    assert_eq!(bench.consumer.phase, Phase::Gone(RemovalReason::Unsubscribed));
}

#[test]
fn wakes_are_spaced_and_collected_as_asked() {
    let mut bench = Bench::new(Policy { min_interval_ms: 5_000, ..policy() });
    bench.append("/a", 1);
    bench.report(&[("/a", 1)], true).unwrap();
    bench.append("/a", 2);
    bench.append("/a", 3);
    assert_eq!(bench.told, [(1, 1)]);
    assert_eq!(bench.consumer.deadline(), Some(bench.now + 5_000));
    bench.timer(5_000);
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    assert_eq!(bench.consumer.wakes_saved, 1);
}

#[test]
fn work_is_told_when_it_is_worth_it_or_has_waited_for_long() {
    let mut bench = Bench::new(Policy { max_delay_ms: Some(1_000), ..policy() });
    bench.append("/a", 5);
    assert_eq!(bench.consumer.deadline(), Some(bench.now + 300));
    bench.append("/a", 11);
    assert_eq!(bench.told, [(1, 1)]);
    bench.report(&[("/a", 11)], true).unwrap();
    bench.policy.max_delay_ms = Some(200);
    bench.append("/a", 12);
    assert_eq!(bench.consumer.deadline(), Some(bench.now + 200));
    bench.timer(200);
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
}

fn leases() -> Policy {
    Policy {
        dialect: Dialect::Leases,
        lease_ms: 30_000,
        schedule: Schedule::Leases,
        sync_done: SyncDone::Snapshot,
        give_up_after_ms: None,
        ..policy()
    }
}

#[test]
fn a_lease_fences_whoever_repeats_or_comes_late() {
    let mut bench = Bench::new(leases());
    bench.append("/a", 1);
    bench.answer(Answer::Accepted);
    bench.report(&[("/a", 1)], true).unwrap();
    assert!(bench.is_idle());
    assert_eq!(bench.report(&[("/a", 1)], true), Err(Rejected::Fenced));
    bench.append("/a", 2);
    bench.timer(30_000);
    assert_eq!(bench.told, [(1, 1), (2, 1), (3, 1)]);
    for bad in [("/a", 0), ("/a", 9), ("/b", 1)] {
        let refused = Rejected::InvalidOffset { path: bad.0.into() };
        assert_eq!(bench.report(&[bad], false), Err(refused));
    }
}

#[test]
fn work_is_claimed_by_one_and_given_back() {
    let mut bench = Bench::new(Policy { wake_by: WakeBy::Pull, ..leases() });
    let claim = |name: &str| Input::Claim { worker: name.into() };
    assert_eq!(bench.step(claim("w1")), Err(Rejected::NoPendingWork));
    bench.append("/a", 1);
    assert_eq!(bench.consumer.deadline(), None);
    bench.step(claim("w1")).unwrap();
    let held = Rejected::Held { holder: "w1".into(), generation: 1 };
    assert_eq!(bench.step(claim("w2")), Err(held));
    let (epoch, wake_id) = (bench.consumer.epoch, bench.consumer.wake_id.unwrap());
    bench.step(Input::Release { epoch, wake_id }).unwrap();
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    bench.step(claim("w2")).unwrap();
    assert_eq!(bench.step(Input::Release { epoch, wake_id }), Err(Rejected::Fenced));
    bench.timer(30_000);
    assert_eq!(bench.consumer.epoch, 3);
}

#[test]
fn done_says_nothing_of_a_stream_that_took_the_place_of_the_announced_one() {
    let mut bench = Bench::new(Policy { sync_done: SyncDone::Snapshot, ..policy() });
    bench.append("/a", 1);
    bench.consumer.links[0].stream = Some(StreamId(99));
    bench.answer(Answer::Done(vec![announced(1)]));
    assert_eq!(bench.consumer.links[0].acked, None);
    assert_eq!(bench.told, [(1, 1), (2, 1)], "it is told of the new one");
}

#[test]
fn a_consumer_follows_paths_of_so_many_bytes_together() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    let long = |number: usize| (path(&format!("/{number:02}{}", "x".repeat(2_000))), None);
    let mut follow = |numbers: std::ops::Range<usize>, unsubscribe: Vec<StreamPath>| {
        let subscribe = numbers.map(long).collect();
        let epoch = bench.consumer.epoch;
        let callback = Callback { epoch, subscribe, unsubscribe, ..Callback::default() };
        bench.step(Input::Callback(callback)).map(|()| bench.consumer.links.len())
    };
    let max = crate::limits::CONSUMER_LINKS_BYTES_MAX;
    assert_eq!(follow(0..40, Vec::new()), Err(Rejected::LinksTooLong { max }));
    assert_eq!(follow(0..32, Vec::new()), Ok(33));
    assert_eq!(follow(32..33, Vec::new()), Err(Rejected::LinksTooLong { max }));
    assert_eq!(follow(32..33, vec![long(0).0]), Ok(33), "what it ends does not count");
}

#[test]
fn while_paused_nobody_is_told_and_a_review_tells_what_waited() {
    let mut bench = Bench::new(Policy { is_paused: true, ..policy() });
    bench.append("/a", 1);
    let first = bench.now;
    bench.now = bench.now + 5_000;
    bench.append("/a", 2);
    assert!(bench.is_idle() && bench.told.is_empty());
    assert_eq!(bench.consumer.pending_since, Some(first));
    assert_eq!(bench.consumer.deadline(), None);
    bench.step(Input::Reviewed).unwrap();
    assert!(bench.is_idle() && bench.told.is_empty());
    bench.policy.is_paused = false;
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told, [(1, 1)]);
    // Who has nothing to do is not told of it.
    let mut bench = Bench::new(policy());
    bench.step(Input::Reviewed).unwrap();
    assert!(bench.is_idle() && bench.told.is_empty());
}

#[test]
fn a_wake_under_way_may_finish_while_paused_and_one_that_fails_waits() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 1);
    bench.policy.is_paused = true;
    bench.answer(Answer::Accepted);
    bench.append("/a", 2);
    bench.report(&[("/a", 1)], true).unwrap();
    assert!(bench.is_idle() && bench.consumer.pending_since.is_some());
    assert_eq!((bench.told.len(), bench.consumer.epoch), (1, 1));
    bench.policy.is_paused = false;
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    bench.answer(Answer::Failed);
    assert!(bench.consumer.failing_since.is_some());
    bench.policy.is_paused = true;
    // The next attempt's time comes.
    bench.timer(60_000);
    assert!(bench.is_idle() && bench.consumer.pending_since.is_some());
    assert_eq!(bench.consumer.failing_since, None);
    bench.policy.is_paused = false;
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told.last(), Some(&(3, 1)));
    // One that was not answered, and one that failed.
    for ending in [Input::Timer { in_flight: true }, Input::Timer { in_flight: false }] {
        bench.policy.is_paused = true;
        bench.now = bench.now + 10_000;
        bench.step(ending).unwrap();
        assert!(bench.is_idle() && bench.consumer.pending_since.is_some());
        bench.policy.is_paused = false;
        bench.step(Input::Reviewed).unwrap();
    }
    bench.policy.is_paused = true;
    bench.answer(Answer::Failed);
    assert!(bench.is_idle() && bench.consumer.failing_since.is_none());
    assert_eq!(bench.told.last(), Some(&(5, 1)));
}

#[test]
fn a_review_shortens_what_was_to_be_waited_for() {
    let mut bench = Bench::new(Policy { max_delay_ms: Some(3_600_000), ..policy() });
    bench.append("/a", 1);
    assert!(matches!(bench.consumer.phase, Phase::Idle { wake_at: Some(_) }));
    bench.policy.max_delay_ms = None;
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told, [(1, 1)]);
    bench.answer(Answer::Failed);
    assert!(matches!(bench.consumer.phase, Phase::Waking { stage: Stage::Paused { .. }, .. }));
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told, [(1, 1), (1, 2)], "it is tried again at once");
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told.len(), 2, "and once");
}

#[test]
fn whoever_is_done_and_has_done_nothing_is_told_five_times_and_then_held_back() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 3);
    for epoch in 1..=5 {
        assert_eq!(bench.told.last(), Some(&(epoch, 1)), "L3: woken again at once");
        bench.report(&[], true).unwrap();
    }
    for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        let epoch = bench.consumer.epoch;
        bench.report(&[], true).unwrap();
        assert_eq!(bench.consumer.deadline(), Some(bench.now + pause));
        // Saying it again changes nothing, nor does a timer that is early.
        let held = bench.consumer.clone();
        bench.report(&[], true).unwrap();
        bench.timer(pause - 1);
        assert_eq!(bench.consumer, held);
        bench.timer(1);
        assert_eq!(bench.told.last(), Some(&(epoch + 1, 1)));
    }
    // An ack that moves is enough, in whichever report it is.
    bench.report(&[("/a", 1)], false).unwrap();
    let epoch = bench.consumer.epoch;
    bench.report(&[], true).unwrap();
    assert_eq!(bench.told.last(), Some(&(epoch + 1, 1)));
    assert_eq!(bench.consumer.fruitless_dones, 1);
}

#[test]
fn an_event_or_a_late_ack_ends_the_patience_with_a_fruitless_consumer() {
    let held_back = || {
        let mut bench = Bench::new(Policy { sync_done: SyncDone::Snapshot, ..policy() });
        bench.append("/a", 3);
        for _ in 0..6 {
            // An endpoint that answers `done` to something that announced nothing.
            bench.answer(Answer::Done(Vec::new()));
        }
        assert_eq!(bench.consumer.deadline(), Some(bench.now + 1_000));
        bench
    };
    let mut bench = held_back();
    bench.append("/a", 4);
    assert_eq!(bench.told.last(), Some(&(7, 1)));
    assert_eq!((bench.consumer.fruitless_dones, bench.consumer.wakes_saved), (0, 0));
    let mut bench = held_back();
    bench.report(&[("/a", 1)], true).unwrap();
    assert_eq!(bench.told.last(), Some(&(7, 1)), "what is left is told at once");
    let mut bench = held_back();
    bench.report(&[("/a", 3)], true).unwrap();
    assert!(bench.is_idle());
}

#[test]
fn patience_follows_the_scale_of_retries() {
    let mut bench = Bench::new(Policy { retry_scale_milli: 10, ..policy() });
    bench.append("/a", 1);
    for _ in 0..6 {
        bench.report(&[], true).unwrap();
    }
    assert_eq!(bench.consumer.deadline(), Some(bench.now + 10));
    bench.timer(10);
    // At work again, with nothing acknowledged: a silent worker is not one that was done.
    bench.answer(Answer::Accepted);
    bench.timer(45_000);
    assert_eq!(bench.consumer.epoch, 8);
}

fn given_up() -> Bench {
    let mut bench = Bench::new(Policy { give_up_after_ms: Some(5_000), ..policy() });
    bench.append("/a", 3);
    bench.report(&[("/a", 1)], false).unwrap();
    bench.timer(45_000);
    bench.answer(Answer::Failed);
    bench.timer(5_000);
    bench.answer(Answer::Failed);
    assert_eq!(bench.consumer.phase, Phase::Gone(RemovalReason::Failed));
    bench
}

#[test]
fn whoever_was_given_up_goes_on_where_it_stood() {
    let mut bench = given_up();
    let at = bench.now;
    let until = at + 30 * 86_400_000;
    assert_eq!(bench.consumer.given_up, Some(GivenUp { at, until }));
    for input in [Input::Wake { force: true }, Input::Seek { stream: None, to: ReadFrom::Now }] {
        assert_eq!(bench.step(input), Err(Rejected::GivenUp));
    }
    bench.append("/a", 4);
    assert_eq!(bench.told.len(), 3, "it is not told of anything");
    bench.step(Input::Revive).unwrap();
    assert_eq!(bench.told.last(), Some(&(3, 1)), "a new epoch");
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(1)));
    assert_eq!((bench.consumer.failing_since, bench.consumer.given_up), (None, None));
    assert_eq!(bench.step(Input::Revive), Err(Rejected::NotGivenUp));
}

#[test]
fn what_was_given_up_is_kept_for_a_while_and_then_begins_anew() {
    let mut bench = given_up();
    bench.timer(30 * 86_400_000 - 1);
    assert_eq!(bench.consumer.phase, Phase::Gone(RemovalReason::Failed));
    bench.timer(1);
    assert!(bench.is_idle());
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(3)));
    let told = bench.told.len();
    bench.append("/a", 4);
    assert_eq!(bench.told.len(), told + 1);
    assert_eq!(bench.told.last(), Some(&(3, 1)), "its epochs go on");
}

#[test]
fn an_operator_wakes_whoever_waits_and_only_takes_work_away_when_told_to() {
    let mut bench = Bench::new(Policy { max_delay_ms: Some(100_000), ..policy() });
    bench.tails.borrow_mut().insert(path("/a"), Offset::new(0));
    bench.consumer.links[0].acked = Some(Offset::new(0));
    assert_eq!(bench.step(Input::Wake { force: true }), Err(Rejected::NothingPending));
    // It collects, and is told at once.
    bench.policy.max_delay_ms = Some(200);
    bench.append("/a", 1);
    assert_eq!(bench.told, []);
    bench.step(Input::Wake { force: false }).unwrap();
    assert_eq!(bench.told, [(1, 1)]);
    // It is being told already.
    bench.step(Input::Wake { force: false }).unwrap();
    assert_eq!(bench.told, [(1, 1)]);
    // The pause after a failure ends.
    bench.answer(Answer::Failed);
    bench.step(Input::Wake { force: false }).unwrap();
    assert_eq!(bench.told, [(1, 1), (1, 2)]);
    bench.answer(Answer::Accepted);
    assert_eq!(bench.step(Input::Wake { force: false }), Err(Rejected::AtWork { epoch: 1 }));
    bench.step(Input::Wake { force: true }).unwrap();
    assert_eq!(bench.told.last(), Some(&(2, 1)));
    let stale = Callback { epoch: 1, ..Callback::default() };
    let refused = Rejected::StaleEpoch { given: 1, current: 2 };
    assert_eq!(bench.step(Input::Callback(stale)), Err(refused));
}

#[test]
fn an_operator_moves_a_consumer_and_fences_whoever_works_for_the_old_place() {
    let seek = |to| Input::Seek { stream: None, to };
    let mut bench = Bench::new(policy());
    bench.append("/a", 9);
    bench.report(&[("/a", 9)], false).unwrap();
    bench.step(seek(ReadFrom::At(Offset::new(4)))).unwrap();
    assert_eq!(bench.told, [(1, 1), (2, 1)]);
    assert_eq!(bench.consumer.links[0].acked, Some(Offset::new(4)));
    bench.answer(Answer::Accepted);
    bench.step(seek(ReadFrom::Now)).unwrap();
    assert!(bench.is_idle());
    assert_eq!((bench.consumer.epoch, bench.consumer.wake_id), (3, None));
    for epoch in [2, 3] {
        let late = Callback { epoch, ..Callback::default() };
        let refused = Rejected::StaleEpoch { given: epoch, current: 3 };
        assert_eq!(bench.step(Input::Callback(late)), Err(refused));
    }
    bench.step(seek(ReadFrom::Start)).unwrap();
    assert_eq!((bench.told.last(), bench.consumer.links[0].acked), (Some(&(4, 1)), None));
    let before = bench.consumer.clone();
    let tail = Some(Offset::new(9));
    let beyond = Rejected::OutOfRange { path: "/a".into(), tail };
    assert_eq!(bench.step(seek(ReadFrom::At(Offset::new(10)))), Err(beyond));
    let elsewhere = Input::Seek { stream: Some(path("/b")), to: ReadFrom::Now };
    assert_eq!(bench.step(elsewhere), Err(Rejected::NotFollowed { path: "/b".into() }));
    assert_eq!(bench.consumer, before);
}

#[test]
fn while_paused_an_operator_moves_a_consumer_and_wakes_nobody() {
    let mut bench = Bench::new(policy());
    bench.append("/a", 2);
    bench.report(&[("/a", 2)], true).unwrap();
    bench.policy.is_paused = true;
    for force in [false, true] {
        assert_eq!(bench.step(Input::Wake { force }), Err(Rejected::SubscriptionPaused));
    }
    bench.step(Input::Seek { stream: None, to: ReadFrom::Start }).unwrap();
    assert!(bench.is_idle() && bench.consumer.pending_since.is_some());
    assert_eq!((bench.consumer.epoch, bench.told.len()), (2, 1));
    bench.policy.is_paused = false;
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told.last(), Some(&(3, 1)));
    // One that was given up rests with its work until then, too.
    let mut bench = given_up();
    let told = bench.told.len();
    bench.policy.is_paused = true;
    bench.step(Input::Revive).unwrap();
    assert!(bench.is_idle() && bench.told.len() == told);
    bench.policy.is_paused = false;
    bench.step(Input::Reviewed).unwrap();
    assert_eq!(bench.told.len(), told + 1);
}
