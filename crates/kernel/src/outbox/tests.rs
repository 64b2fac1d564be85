//! Whose turn it is.

mod limits;

use super::*;
use crate::limits::{OUTBOUND_PER_SOURCE, OUTBOX_MAX, WAITING_PER_SOURCE};

/// An attempt of a source: one that only a timer brings back, or one that can be read again.
#[derive(Debug, Clone, PartialEq)]
enum TestAttempt {
    Timed {
        tenant: Tenant,
        source: u64,
        name: String,
    },
    Refillable {
        tenant: Tenant,
        source: u64,
        number: u64,
    },
    /// The same, made without a call.
    Command {
        tenant: Tenant,
        source: u64,
        number: u64,
    },
}

use TestAttempt::{Command, Refillable, Timed};

impl Attempt for TestAttempt {
    type Key = (u64, String);
    type Source = u64;
    type Cursor = u64;

    fn key(&self) -> (u64, String) {
        match self {
            Timed { source, name, .. } => (*source, name.clone()),
            Refillable { source, number, .. } | Command { source, number, .. } => {
                (*source, number.to_string())
            }
        }
    }

    fn source(&self) -> u64 {
        match self {
            Timed { source, .. } | Refillable { source, .. } | Command { source, .. } => *source,
        }
    }

    fn tenant(&self) -> &Tenant {
        match self {
            Timed { tenant, .. } | Refillable { tenant, .. } | Command { tenant, .. } => tenant,
        }
    }

    fn number(&self) -> (u64, u32) {
        (1, 1)
    }

    fn cursor(&self) -> Option<u64> {
        match self {
            Timed { .. } => None,
            Refillable { number, .. } | Command { number, .. } => Some(*number),
        }
    }

    fn is_command(&self) -> bool {
        matches!(self, Command { .. })
    }

    fn payload_bytes(&self) -> usize {
        0
    }

    fn drop_payload(&mut self) {}
}

type TestOutbox = Outbox<TestAttempt>;

const NOW: Millis = Millis(1_000_000);

fn tell(source: u64, name: &str) -> TestAttempt {
    tell_of("default", source, name)
}

fn tell_of(tenant: &str, source: u64, name: &str) -> TestAttempt {
    Timed { tenant: Tenant::parse(tenant).unwrap(), source, name: name.to_owned() }
}

fn deliver(tenant: &str, source: u64, number: u64) -> TestAttempt {
    Refillable { tenant: Tenant::parse(tenant).unwrap(), source, number }
}

fn command(tenant: &str, source: u64, number: u64) -> TestAttempt {
    Command { tenant: Tenant::parse(tenant).unwrap(), source, number }
}

fn hooks(outbox: &TestOutbox) -> Vec<u64> {
    std::iter::from_fn(|| outbox.next(NOW)).map(|attempt| attempt.source()).collect()
}

#[test]
fn subscriptions_take_turns() {
    let outbox = TestOutbox::default();
    for path in ["/a", "/b", "/c"] {
        outbox.push(tell(1, path));
    }
    outbox.push(tell(2, "/x"));
    outbox.push(tell(2, "/x"));
    assert_eq!(hooks(&outbox), [1, 2, 1, 1]);
    assert_eq!(outbox.sent(&tell(2, "/x").key()), [(1, 1)]);
}

#[test]
fn tenants_take_turns_and_within_them_hooks() {
    let outbox = TestOutbox::default();
    for event in 0..4 {
        outbox.push(deliver("flood", 1, event));
        outbox.push(deliver("flood", 2, event));
    }
    outbox.push(deliver("calm", 9, 1));
    outbox.push(tell(5, "/x"));
    outbox.push(tell_of("flood", 3, "/y"));
    assert_eq!(hooks(&outbox), [1, 9, 5, 2, 3, 1, 2, 1, 2, 1, 2]);
}

#[test]
fn a_tenant_that_may_not_deliver_now_keeps_its_turn() {
    let outbox = TestOutbox::default();
    for event in 0..2 {
        outbox.push(deliver("flood", 1, event));
        outbox.push(deliver("calm", 9, event));
    }
    let whose = |attempts: Vec<TestAttempt>| -> Vec<String> {
        let tenant = |attempt: TestAttempt| match attempt {
            Refillable { tenant, .. } => tenant.to_string(),
            Timed { .. } | Command { .. } => unreachable!("nobody else is to be told of anything"),
        };
        attempts.into_iter().map(tenant).collect()
    };
    let calm = |tenant: &Tenant| tenant.to_string() == "calm";
    assert_eq!(whose(outbox.next_few(9, NOW, calm)), ["calm", "calm"]);
    assert_eq!(whose(outbox.next_few(9, NOW, calm)), [""; 0]);
    outbox.push(deliver("calm", 9, 2));
    assert_eq!(whose(outbox.next_few(9, NOW, |_| true)), ["flood", "calm", "flood"]);
}

#[test]
fn a_subscription_that_hangs_holds_its_own_attempts_alone() {
    let outbox = TestOutbox::default();
    for n in 0..=OUTBOUND_PER_SOURCE {
        outbox.push(tell(1, &format!("/{n}")));
    }
    let sent: Vec<TestAttempt> = std::iter::from_fn(|| outbox.next(NOW)).collect();
    assert_eq!(sent.len(), OUTBOUND_PER_SOURCE);
    outbox.push(tell(2, "/x"));
    assert_eq!(outbox.next(NOW), Some(tell(2, "/x")));
    assert_eq!(outbox.next(NOW), None);
    outbox.ended(&sent[0]);
    assert!(outbox.next(NOW).is_some());
    assert_eq!(outbox.next(NOW), None);
}

#[test]
fn an_answer_makes_room_before_it_is_written_down_and_more_if_it_was_good() {
    let outbox = TestOutbox::default();
    for event in 0..1_000 {
        outbox.push(deliver("a", 1, event));
    }
    let sent: Vec<TestAttempt> = std::iter::from_fn(|| outbox.next(NOW)).collect();
    assert!((2..100).contains(&sent.len()), "it has answered nothing yet");
    assert!(outbox.answered(&sent[0], None, NOW, |_| true).is_some(), "a place for a place");
    assert_eq!(outbox.answered(&sent[0], None, NOW, |_| true), None, "but not for two");
    outbox.ended(&sent[0]);
    assert_eq!(outbox.next(NOW), None, "it was counted when it was answered");
    assert!(outbox.answered(&sent[1], Some(1), NOW, |_| true).is_some());
    assert_eq!(std::iter::from_fn(|| outbox.next(NOW)).count(), 1, "and one for the good answer");
}

#[test]
fn whoever_was_answered_goes_on_with_whose_turn_it_is() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(1);
    outbox.push(deliver("flood", 1, 1));
    outbox.push(deliver("flood", 1, 2));
    outbox.push(deliver("calm", 9, 1));
    let first = outbox.next(NOW).unwrap();
    let calm = |tenant: &Tenant| tenant.to_string() == "calm";
    let next = outbox.answered(&first, Some(1), NOW, calm);
    assert_eq!(next, Some(deliver("calm", 9, 1)));
    assert_eq!(outbox.answered(&next.unwrap(), Some(1), NOW, calm), None);
    assert_eq!(outbox.next(NOW), Some(deliver("flood", 1, 2)), "it kept its turn");
}

#[test]
fn a_tenant_whose_hooks_all_hang_leaves_half_to_others() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(64);
    for hook in 0..100 {
        outbox.push(deliver("hangs", hook, 1));
    }
    let held: Vec<TestAttempt> = std::iter::from_fn(|| outbox.next(NOW)).collect();
    assert_eq!(held.len(), 32);
    outbox.push(deliver("calm", 200, 1));
    assert_eq!(outbox.next(NOW), Some(deliver("calm", 200, 1)));
    assert_eq!(outbox.next(NOW), None);
    outbox.ended(&held[0]);
    assert!(outbox.next(NOW).is_some(), "one came back, one more may go");
    assert_eq!(outbox.next(NOW), None);
}

#[test]
fn wakes_of_one_tenant_leave_room_for_the_wakes_of_another() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(64);
    for subscription in 0..6 {
        for stream in 0..100 {
            outbox.push(tell_of("hangs", subscription, &format!("/{stream}")));
        }
    }
    let held: Vec<TestAttempt> = std::iter::from_fn(|| outbox.next(NOW)).collect();
    assert_eq!(held.len(), 32);
    outbox.push(tell_of("calm", 9, "/a"));
    assert_eq!(outbox.next(NOW), Some(tell_of("calm", 9, "/a")), "at once");
    // After a second: half of the slow places for as long as they like, and the others wait again.
    let (slow, refused): (Vec<_>, Vec<_>) = held.iter().partition(|it| outbox.slows(it));
    assert_eq!((slow.len(), refused.len()), (32, 0));
    let held: Vec<TestAttempt> = std::iter::from_fn(|| outbox.next(NOW)).collect();
    assert_eq!(held.len(), 32);
    for attempt in held {
        assert!(!outbox.slows(&attempt));
        outbox.put_back(attempt, true);
    }
    let traffic =
        OutboundGauges { queued: 600 - 32, quick: 1, slow: 32, ..OutboundGauges::default() };
    assert_eq!(outbox.traffic(), traffic, "nothing that hangs has a quick place");
    assert_eq!(outbox.next(NOW), None);
    // A subscription of the same tenant that answers is not held up by those that hang.
    outbox.push(tell_of("hangs", 7, "/b"));
    assert_eq!(outbox.next(NOW), Some(tell_of("hangs", 7, "/b")));
}

#[test]
fn slow_attempts_make_room_for_quick_ones() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(1);
    for id in 1..=3 {
        outbox.push(tell(id, "/a"));
    }
    let first = outbox.next(NOW).unwrap();
    assert_eq!(outbox.next(NOW), None);
    assert!(outbox.slows(&first));
    let second = outbox.next(NOW).unwrap();
    assert!(!outbox.slows(&second), "the slow pool has a limit too");
    assert!(outbox.slows(&first), "whoever is in it stays there");
    outbox.put_back(second.clone(), true);
    assert!(outbox.sent(&second.key()).is_empty() && outbox.knows(&second.key()));
    let third = outbox.next(NOW).unwrap();
    assert_eq!(third, tell(3, "/a"), "the second waits for a slow place");
    outbox.ended(&first);
    assert_eq!(outbox.next(NOW), Some(second.clone()), "and has it from the beginning");
    assert!(outbox.slows(&second));
    let traffic = OutboundGauges { queued: 0, quick: 1, slow: 1, ..OutboundGauges::default() };
    assert_eq!(outbox.traffic(), traffic);
}

#[test]
fn a_source_that_is_quick_again_has_quick_places() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(2);
    for event in 0..4 {
        outbox.push(deliver("a", 1, event));
    }
    let first = outbox.next(NOW).unwrap();
    assert!(outbox.slows(&first));
    let second = outbox.next(NOW).unwrap();
    assert!(!outbox.slows(&second));
    outbox.put_back(second.clone(), true);
    assert_eq!(outbox.next(NOW), None, "there is no slow place for it");
    assert_eq!(outbox.answered(&first, Some(5_000), NOW, |_| true), Some(second.clone()));
    assert_eq!(outbox.traffic().slow, 1);
    let third = outbox.answered(&second, Some(3), NOW, |_| true).unwrap();
    assert_eq!((third, outbox.traffic().quick), (deliver("a", 1, 2), 1));
}

#[test]
fn an_attempt_that_is_put_back_is_the_next_of_its_source() {
    let outbox = TestOutbox::default();
    for event in 0..3 {
        outbox.push(deliver("a", 1, event));
    }
    let first = outbox.next(NOW).unwrap();
    outbox.put_back(first.clone(), false);
    assert_eq!(outbox.traffic(), OutboundGauges { queued: 3, ..OutboundGauges::default() });
    assert_eq!(outbox.try_push(first.clone()), PushResult::Known);
    assert_eq!(outbox.next(NOW), Some(first.clone()));
    while let Some(attempt) = outbox.next(NOW) {
        outbox.ended(&attempt);
    }
    outbox.ended(&first);
    assert!(outbox.lock().is_empty());
}

#[test]
fn what_finds_no_room_in_memory_is_gone_on_with_in_order() {
    let outbox = TestOutbox::default();
    let many = WAITING_PER_SOURCE as u64 + 3;
    for event in 0..many {
        outbox.push(deliver("a", 1, event));
    }
    assert_eq!(outbox.traffic().queued, WAITING_PER_SOURCE);
    assert_eq!(outbox.next_refill(), None, "there is no room yet");
    for _ in 0..=WAITING_PER_SOURCE / 2 {
        let sent = outbox.next(NOW).unwrap();
        outbox.ended(&sent);
    }
    let from = WAITING_PER_SOURCE as u64;
    assert_eq!(outbox.next_refill(), Some((1, from)));
    assert_eq!(outbox.next_refill(), None);
    outbox.push(deliver("a", 1, from));
    assert!(outbox.knows(&deliver("a", 1, from).key()));
}

#[test]
fn whoever_is_done_takes_no_room() {
    let outbox = TestOutbox::default();
    for n in 0..10 {
        outbox.push(deliver("a", n, 1));
        outbox.push(tell(n + 100, "/a"));
    }
    while let Some(attempt) = outbox.next(NOW) {
        outbox.ended(&attempt);
    }
    assert!(outbox.lock().is_empty());
}

#[test]
fn wakes_have_room_however_many_deliveries_wait() {
    let outbox = TestOutbox::default();
    for hook in 0..7 {
        for event in 0..u64::try_from(WAITING_PER_SOURCE).unwrap() {
            outbox.push(deliver("stuck", hook, event));
        }
    }
    assert!(outbox.traffic().queued > OUTBOX_MAX / 2);
    assert_eq!(outbox.try_push(tell(1, "/a")), PushResult::Waits);
    assert_eq!(outbox.try_push(deliver("calm", 99, 1)), PushResult::Waits);
    assert_eq!(outbox.traffic().dropped, 0);
}

#[test]
fn wakes_have_room_however_many_of_another_tenant_wait() {
    let outbox = TestOutbox::default();
    for stream in 0..=OUTBOX_MAX {
        outbox.push(tell_of("stuck", 1, &stream.to_string()));
    }
    assert!(outbox.traffic().dropped > 0);
    for stream in 0..100 {
        let calm = tell_of("calm", 2, &stream.to_string());
        assert_eq!(outbox.try_push(calm), PushResult::Waits);
    }
}

#[test]
fn commands_wait_for_nobody_who_calls() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(1);
    outbox.push(deliver("default", 1, 0));
    outbox.push(deliver("default", 1, 1));
    let hanging = outbox.next(NOW).expect("there is one place");
    assert_eq!(outbox.next(NOW), None);
    outbox.push(command("default", 2, 0));
    let made = outbox.next(NOW).expect("it needs no place");
    assert_eq!(made.source(), 2);
    assert_eq!(outbox.traffic().quick, 1, "only calls are counted");
    outbox.ended(&made);
    assert_eq!(outbox.next(NOW), None, "the place of the call is still taken");
    outbox.ended(&hanging);
    assert_eq!(outbox.next(NOW), Some(deliver("default", 1, 1)));
}

#[test]
fn commands_under_way_are_limited_and_shared_by_tenants() {
    let outbox = TestOutbox::default();
    for source in 0..2 * 256 {
        outbox.push(command("default", source, 0));
    }
    let many: Vec<_> = std::iter::from_fn(|| outbox.next(NOW)).collect();
    assert_eq!(many.len(), crate::limits::ATTEMPT_COMMANDS_MAX / 2);
    outbox.push(command("other", 1_000, 0));
    assert_eq!(outbox.next(NOW).map(|it| it.source()), Some(1_000));
    let next = outbox.answered(&many[0], Some(1), NOW, |_| true);
    assert!(next.is_some_and(|it| it.is_command()), "whoever made one goes on with the next");
    many.iter().for_each(|it| outbox.ended(it));
    assert_eq!(outbox.next(NOW).map(|it| it.tenant().clone()), Some(many[0].tenant().clone()));
}
