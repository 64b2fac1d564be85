//! What a delivery does, step by step.

use proptest::prelude::*;

use super::hook::{DeliveryCounts, Standing};
use super::*;

fn policy(attempts: u32) -> Policy {
    let jitter = Jitter::Added { ms: 1_000 };
    Policy::new(30_000, attempts, Backoff { base_ms: 1_000, cap_ms: 300_000, jitter })
}

fn answered(status: u16) -> policy::Outcome {
    policy::Outcome::Answered { status, retry_after_s: None }
}

fn given(policy: &Policy, now: u64) -> Given<'_> {
    Given {
        now: Millis(now),
        random: 0,
        policy,
        poison: policy.poison,
        retry_scale_milli: 1_000,
        active: true,
        began_at: Millis(0),
    }
}

fn failed(number: u32, now: u64) -> Input {
    let (error, status) = (Some("answered 500".into()), Some(500));
    let attempt = AttemptRecord { status, error, ..AttemptRecord::new(number, Millis(now), 1) };
    Input::Answered { attempt, verdict: Verdict::Failed }
}

fn accepted(number: u32) -> Input {
    let attempt = AttemptRecord { status: Some(204), ..AttemptRecord::new(number, Millis(0), 1) };
    Input::Answered { attempt, verdict: Verdict::Delivered }
}

/// Lets every attempt fail and returns when they were made, and when it died.
fn fail_always(attempts: u32) -> (Vec<u64>, Millis) {
    let policy = policy(attempts);
    let mut step = Delivery::begin(&given(&policy, 0), true);
    let (mut now, mut tried) = (0, vec![]);
    loop {
        let number = step.send.expect("an attempt is made");
        tried.push(now);
        step = step.delivery.step(&given(&policy, now), failed(number, now));
        match step.delivery.phase {
            Phase::Pending { at } => now = at.0,
            Phase::Dead { at, why: DeadReason::Exhausted } => return (tried, at),
            other => panic!("{other:?}"),
        }
        step = step.delivery.step(&given(&policy, now), Input::Timer { in_flight: false });
    }
}

#[test]
fn e32_e35_attempts_follow_the_formula_and_end_with_the_last() {
    let at = |seconds: &[u64]| seconds.iter().map(|s| s * 1_000).collect::<Vec<u64>>();
    assert_eq!(fail_always(5), (at(&[0, 1, 3, 7, 15]), Millis(15_000)));
    assert_eq!(fail_always(1), (at(&[0]), Millis(0)));
    assert_eq!(fail_always(2), (at(&[0, 1]), Millis(1_000)));
    let ten = at(&[0, 1, 3, 7, 15, 31, 63, 127, 255, 511]);
    assert_eq!(fail_always(10), (ten, Millis(511_000)));
}

#[test]
fn e32_pauses_double_to_a_cap_and_jitter_comes_on_top() {
    let backoff = policy(1).backoff;
    let spans = [
        (1, 1_000),
        (2, 2_000),
        (5, 16_000),
        (9, 256_000),
        (10, 300_000),
        (64, 300_000),
        (1_000, 300_000),
    ];
    for (number, base) in spans {
        assert_eq!(backoff.delay_ms(number, 0), base);
        assert_eq!(backoff.delay_ms(number, 1_000), base + 1_000);
        assert_eq!(backoff.delay_ms(number, 1_001), base);
    }
}

#[test]
fn pauses_may_be_shortened_at_random_by_at_most_half() {
    let backoff = Backoff { jitter: Jitter::Shortened, ..policy(1).backoff };
    assert_eq!(backoff.delay_ms(2, 0), 2_000);
    assert_eq!(backoff.delay_ms(2, 1_000), 1_000);
    assert_eq!(backoff.delay_ms(2, 1_001), 2_000);
    assert_eq!(backoff.delay_ms(64, 150_000), 150_000);
    let none = Backoff { base_ms: 0, ..backoff };
    assert_eq!(none.delay_ms(1, 7), 0);
}

#[test]
fn e31_statuses_mean_what_the_policy_says() {
    let events = policy(5);
    for status in [200, 201, 202, 204, 299] {
        assert_eq!(events.judge(answered(status)), Verdict::Delivered);
    }
    for status in [100, 301, 302, 304, 400, 401, 404, 409, 410, 422, 429, 500, 503] {
        assert_eq!(events.judge(answered(status)), Verdict::Failed, "{status}");
    }
    let strict = Policy { refused: StatusSet::Final4xx, ends: Some(410), ..events };
    assert_eq!(strict.judge(answered(410)), Verdict::Ends);
    assert_eq!(strict.judge(answered(404)), Verdict::Dead(DeadReason::Refused));
    for status in [408, 425, 429, 500, 302] {
        assert_eq!(strict.judge(answered(status)), Verdict::Failed, "{status}");
    }
}

#[test]
fn a_lowered_limit_counts_from_the_next_failure_on() {
    let (five, two) = (policy(5), policy(2));
    let mut step = Delivery::begin(&given(&five, 0), true);
    for number in 1..=2 {
        step = step.delivery.step(&given(&five, 0), failed(number, 0));
        step = step.delivery.step(&given(&five, 900_000), Input::Timer { in_flight: false });
    }
    assert_eq!(step.send, Some(3));
    step = step.delivery.step(&given(&two, 900_000), failed(3, 900_000));
    assert_eq!(step.delivery.standing(), Standing::Dead);
}

#[test]
fn an_attempt_that_was_never_made_is_made_again_under_its_number() {
    let policy = policy(5);
    let begun = Delivery::begin(&given(&policy, 0), true).delivery;
    let early = begun.step(&given(&policy, 44_999), Input::Timer { in_flight: false });
    assert_eq!((early.send, &early.delivery), (None, &begun));
    let lost = begun.step(&given(&policy, 45_000), Input::Timer { in_flight: false });
    assert_eq!(lost.send, Some(1));
    let slow = begun.step(&given(&policy, 45_000), Input::Timer { in_flight: true });
    assert_eq!(slow.send, None);
    assert_eq!(slow.delivery.deadline(), Some(Millis(90_000)));
}

#[test]
fn what_waits_for_long_is_looked_at_seldom() {
    let policy = policy(5);
    let mut delivery = Delivery::begin(&given(&policy, 0), true).delivery;
    let (mut looks, day) = (0, Millis(86_400_000));
    while let Some(at) = delivery.deadline().filter(|at| *at < day) {
        let step = delivery.step(&given(&policy, at.0), Input::Timer { in_flight: true });
        assert_eq!((step.send, step.delivery.attempts.len()), (None, 0), "it is no attempt");
        delivery = step.delivery;
        looks += 1;
    }
    assert!((24..40).contains(&looks), "{looks} looks in a day");
}

#[test]
fn late_answers_change_nothing() {
    let policy = policy(5);
    let begun = Delivery::begin(&given(&policy, 0), true).delivery;
    let waits = begun.step(&given(&policy, 0), failed(1, 0)).delivery;
    for late in [failed(1, 1), accepted(1), accepted(2)] {
        assert_eq!(waits.step(&given(&policy, 1), late).delivery, waits);
    }
    let done = begun.step(&given(&policy, 0), accepted(1)).delivery;
    let (drop, bury) = (Input::Drop(DropReason::NotOwed), Input::Bury(DeadReason::Expired));
    for late in [failed(1, 1), drop, bury, Input::Turn, Input::Timer { in_flight: false }] {
        assert_eq!(done.step(&given(&policy, 1), late).delivery, done);
    }
}

#[test]
fn what_is_due_while_its_hook_is_off_waits_until_it_is_on() {
    let policy = policy(5);
    let begun = Delivery::begin(&given(&policy, 0), true).delivery;
    let waits = begun.step(&given(&policy, 0), failed(1, 0)).delivery;
    let off = Given { active: false, ..given(&policy, 1_000) };
    let held = waits.step(&off, Input::Timer { in_flight: false });
    assert_eq!((held.delivery.phase, held.send), (Phase::Held, None));
    assert_eq!(held.delivery.deadline(), None);
    let again = held.delivery.step(&given(&policy, 2_000), Input::Resumed);
    assert_eq!(again.send, Some(2));
}

fn input() -> impl Strategy<Value = (Input, bool, u64)> {
    let input = prop_oneof![
        4 => (1_u32..6).prop_map(|number| failed(number, 0)),
        1 => (1_u32..6).prop_map(accepted),
        4 => any::<bool>().prop_map(|in_flight| Input::Timer { in_flight }),
        1 => (1_u32..6).prop_map(|attempt| Input::Unsent { attempt }),
        1 => Just(Input::Turn),
        1 => Just(Input::Resumed),
        1 => Just(Input::Drop(DropReason::NotOwed)),
        1 => Just(Input::Bury(DeadReason::Expired)),
    ];
    (input, prop::bool::weighted(0.8), 0_u64..400_000)
}

proptest! {
    #[test]
    fn whatever_happens_it_is_owed_until_it_ends(
        inputs in prop::collection::vec(input(), 0..60),
        attempts in 1_u32..6,
        first in any::<bool>(),
    ) {
        let policy = policy(attempts);
        let mut counts = DeliveryCounts::default();
        let mut now = 0;
        let mut delivery = Delivery::begin(&given(&policy, now), first).delivery;
        counts.moved(None, Some(&delivery));
        for (input, active, passed) in inputs {
            now += passed;
            let given = Given { active, ..given(&policy, now) };
            let step = delivery.step(&given, input.clone());
            let next = &step.delivery;
            // Attempts are numbered without gaps, and there are never more than allowed.
            for (index, attempt) in next.attempts.iter().enumerate() {
                prop_assert_eq!(attempt.number as usize, index + 1);
            }
            prop_assert!(next.attempts.len() <= attempts as usize);
            // Nothing ended goes on, nothing is sent but under a lease, by an active hook.
            prop_assert!(delivery.ended_at().is_none() || *next == delivery);
            if let Some(number) = step.send {
                prop_assert!(active);
                let leased =
                    matches!(next.phase, Phase::Leased { attempt, .. } if attempt == number);
                prop_assert!(leased);
            }
            // Whoever is not at the end waits for a time, for its turn, or for its hook.
            let waits = matches!(next.phase, Phase::Queued | Phase::Held);
            prop_assert!(next.ended_at().is_some() || waits || next.deadline().is_some());
            counts.moved(Some(&delivery), Some(next));
            prop_assert!(counts.adds_up());
            prop_assert_eq!((counts.begun, counts.kept), (1, 1));
            prop_assert_eq!(counts.logs, next.attempts.len() as u64);
            prop_assert_eq!(counts.attempts, counts.logs);
            delivery = step.delivery;
        }
        if delivery.ended_at().is_some() {
            let ended = counts;
            counts.moved(Some(&delivery), None);
            prop_assert_eq!(counts, DeliveryCounts { kept: 0, logs: 0, ..ended });
        }
    }

    #[test]
    fn lanes_let_one_through_at_a_time_in_order(
        ops in prop::collection::vec(prop::option::of(0_u64..100), 1..120),
    ) {
        use super::id::{DeliveryNo, EventNo};
        use super::lane::{Lane, LaneAdvance, LaneJoin, NEXT_MAX};
        let (mut lane, mut waiting) = (None::<Lane>, std::collections::BTreeSet::new());
        let mut marked = std::collections::BTreeSet::new();
        let (mut round, mut looks) = (0, 0);
        let joined_in_order = ops.iter().flatten().count() <= NEXT_MAX;
        for op in ops {
            // A number joins, nothing ends the head.
            if let Some(event) = op {
                round += 1;
                let no = DeliveryNo { event: EventNo(event), round };
                let is_first = lane.is_none();
                let joined = Lane::join(lane, no);
                let LaneJoin { lane: joined, is_first: its_turn, mark } = joined;
                prop_assert_eq!(its_turn, is_first);
                marked.extend(mark);
                if !its_turn {
                    waiting.insert(no);
                }
                lane = Some(joined);
            } else if let Some(present) = lane.take() {
                let first = waiting.pop_first();
                let head = present.head;
                lane = match present.clone().ended(head) {
                    LaneAdvance::Empty => None,
                    LaneAdvance::Next(next) => Some(next),
                    // Fewer are found than there are.
                    LaneAdvance::Look => {
                        looks += 1;
                        let found: Vec<_> = marked.iter().copied().take(5).collect();
                        marked.retain(|it| !found.contains(it));
                        present.led_by(&found)
                    }
                    LaneAdvance::Less { .. } => panic!("the head is the head"),
                };
                prop_assert_eq!(lane.as_ref().map(|lane| lane.head), first);
            }
            // One that waits may end, too.
            if round % 7 == 0 && let Some(present) = lane.clone() {
                let one = if round % 2 == 0 { waiting.pop_last() } else { waiting.pop_first() };
                if let Some(one) = one {
                    let LaneAdvance::Less { lane: left, was_marked } = present.ended(one) else {
                        panic!("it waited")
                    };
                    prop_assert_eq!(was_marked, marked.remove(&one));
                    lane = Some(left);
                }
            }
            let next = lane.as_ref().map_or(&[][..], |lane| &lane.next);
            prop_assert!(marked.iter().eq(waiting.iter().skip(next.len())));
            prop_assert!(next.len() <= NEXT_MAX && next.iter().eq(waiting.iter().take(next.len())));
            prop_assert_eq!(lane.as_ref().map_or(0, |lane| lane.waiting), waiting.len() as u64);
        }
        // Whoever comes in order to a lane that is not long is never looked for.
        if joined_in_order {
            prop_assert_eq!(looks, 0);
        }
    }

    #[test]
    fn deliveries_are_told_apart_by_one_number(hook in 0_u64..1 << 56, event in 0_u64..1 << 56, round: u16) {
        use super::hook::HookId;
        use super::id::{DeliveryId, DeliveryNo, EventNo};
        let id = DeliveryId { hook: HookId(hook), no: DeliveryNo { event: EventNo(event), round } };
        prop_assert_eq!(DeliveryId::from_u128(id.to_u128()), id);
    }
}

#[test]
fn one_that_is_old_is_given_up_although_attempts_are_left() {
    let policy = Policy { give_up_after_ms: Some(5_000), ..policy(100) };
    let at = |now| Given { began_at: Millis(1_000), ..given(&policy, now) };
    let mut delivery = Delivery::begin(&at(1_000), true).delivery;
    let mut tried = Vec::new();
    let mut now = 1_000;
    while let Phase::Leased { attempt: number, .. } = delivery.phase {
        tried.push(now);
        delivery = delivery.step(&at(now), failed(number, now)).delivery;
        if let Phase::Pending { at: next } = delivery.phase {
            now = next.0;
            delivery = delivery.step(&at(now), Input::Timer { in_flight: false }).delivery;
        }
    }
    // The last attempt is made when the time is over, however long the pause would be.
    assert_eq!(tried, [1_000, 2_000, 4_000, 6_000]);
    assert_eq!(delivery.phase, Phase::Dead { at: Millis(6_000), why: DeadReason::Exhausted });
}
