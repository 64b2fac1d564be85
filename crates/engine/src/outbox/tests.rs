//! Whose turn it is.

use reveille_core::StreamPath;
use reveille_core::delivery::id::EventNo;

use super::*;
use crate::limits::{OUTBOUND_PER_SUBSCRIPTION, OUTBOX_MAX, WAITING_PER_HOOK};

fn tell(subscription: u64, path: &str) -> Attempt {
    let path = Some(StreamPath::parse(path).unwrap());
    let subscription = SubscriptionId(subscription);
    Attempt::Wake(WakeAttempt {
        consumer: ConsumerKey { subscription, path },
        epoch: 1,
        attempt: 1,
    })
}

fn deliver(tenant: &str, hook: u64, event: u64) -> Attempt {
    let no = DeliveryNo { event: EventNo(event), round: 0 };
    let id = DeliveryId { hook: HookId(hook), no };
    Attempt::Delivery(DeliveryAttempt {
        id,
        attempt: 1,
        tenant: Tenant::parse(tenant).unwrap(),
        fresh: None,
    })
}

fn hooks(outbox: &Outbox) -> Vec<u64> {
    let numbers = |attempt| match attempt {
        Attempt::Wake(told) => told.consumer.subscription.0,
        Attempt::Delivery(job) => job.id.hook.0,
    };
    std::iter::from_fn(|| outbox.next()).map(numbers).collect()
}

#[test]
fn subscriptions_take_turns() {
    let outbox = Outbox::default();
    for path in ["/a", "/b", "/c"] {
        outbox.push(tell(1, path));
    }
    outbox.push(tell(2, "/x"));
    outbox.push(tell(2, "/x"));
    assert_eq!(hooks(&outbox), [1, 2, 1, 1]);
    let Attempt::Wake(told) = tell(2, "/x") else { unreachable!() };
    assert_eq!(outbox.in_flight(&told.consumer), [(1, 1)]);
}

#[test]
fn tenants_take_turns_and_within_them_hooks() {
    let outbox = Outbox::default();
    for event in 0..4 {
        outbox.push(deliver("flood", 1, event));
        outbox.push(deliver("flood", 2, event));
    }
    outbox.push(deliver("calm", 9, 1));
    outbox.push(tell(5, "/x"));
    assert_eq!(hooks(&outbox), [1, 9, 5, 2, 1, 2, 1, 2, 1, 2]);
}

#[test]
fn a_tenant_that_may_not_deliver_now_keeps_its_turn() {
    let outbox = Outbox::default();
    for event in 0..2 {
        outbox.push(deliver("flood", 1, event));
        outbox.push(deliver("calm", 9, event));
    }
    let whose = |attempts: Vec<Attempt>| -> Vec<String> {
        let tenant = |attempt| match attempt {
            Attempt::Delivery(job) => job.tenant.to_string(),
            Attempt::Wake(_) => unreachable!("nobody is told of anything"),
        };
        attempts.into_iter().map(tenant).collect()
    };
    let calm = |tenant: &Tenant| tenant.to_string() == "calm";
    assert_eq!(whose(outbox.next_few(9, calm)), ["calm", "calm"]);
    assert_eq!(whose(outbox.next_few(9, calm)), [""; 0]);
    outbox.push(deliver("calm", 9, 2));
    assert_eq!(whose(outbox.next_few(9, |_| true)), ["flood", "calm", "flood"]);
}

#[test]
fn a_subscription_that_hangs_holds_its_own_attempts_alone() {
    let outbox = Outbox::default();
    for n in 0..=OUTBOUND_PER_SUBSCRIPTION {
        outbox.push(tell(1, &format!("/{n}")));
    }
    let sent: Vec<Attempt> = std::iter::from_fn(|| outbox.next()).collect();
    assert_eq!(sent.len(), OUTBOUND_PER_SUBSCRIPTION);
    outbox.push(tell(2, "/x"));
    assert_eq!(outbox.next(), Some(tell(2, "/x")));
    assert_eq!(outbox.next(), None);
    outbox.ended(&sent[0], false);
    assert!(outbox.next().is_some());
    assert_eq!(outbox.next(), None);
}

#[test]
fn an_answer_makes_room_before_it_is_written_down_and_more_if_it_was_good() {
    let outbox = Outbox::default();
    for event in 0..1_000 {
        outbox.push(deliver("a", 1, event));
    }
    let sent: Vec<Attempt> = std::iter::from_fn(|| outbox.next()).collect();
    assert!((2..100).contains(&sent.len()), "it has answered nothing yet");
    assert!(outbox.answered(&sent[0], false, None, |_| true).is_some(), "a place for a place");
    assert_eq!(outbox.answered(&sent[0], false, None, |_| true), None, "but not for two");
    outbox.ended(&sent[0], false);
    assert_eq!(outbox.next(), None, "it was counted when it was answered");
    assert!(outbox.answered(&sent[1], false, Some(1), |_| true).is_some());
    assert_eq!(std::iter::from_fn(|| outbox.next()).count(), 1, "and one for the good answer");
}

#[test]
fn whoever_was_answered_goes_on_with_whose_turn_it_is() {
    let outbox = Outbox::default();
    outbox.set_concurrency(1);
    outbox.push(deliver("flood", 1, 1));
    outbox.push(deliver("flood", 1, 2));
    outbox.push(deliver("calm", 9, 1));
    let first = outbox.next().unwrap();
    let calm = |tenant: &Tenant| tenant.to_string() == "calm";
    let next = outbox.answered(&first, false, Some(1), calm);
    assert_eq!(next, Some(deliver("calm", 9, 1)));
    assert_eq!(outbox.answered(&next.unwrap(), false, Some(1), calm), None);
    assert_eq!(outbox.next(), Some(deliver("flood", 1, 2)), "it kept its turn");
}

#[test]
fn a_tenant_whose_hooks_all_hang_leaves_half_to_others() {
    let outbox = Outbox::default();
    outbox.set_concurrency(64);
    for hook in 0..100 {
        outbox.push(deliver("hangs", hook, 1));
    }
    let held: Vec<Attempt> = std::iter::from_fn(|| outbox.next()).collect();
    assert_eq!(held.len(), 32);
    outbox.push(deliver("calm", 200, 1));
    assert_eq!(outbox.next(), Some(deliver("calm", 200, 1)));
    assert_eq!(outbox.next(), None);
    outbox.ended(&held[0], false);
    assert!(outbox.next().is_some(), "one came back, one more may go");
    assert_eq!(outbox.next(), None);
}

#[test]
fn slow_attempts_make_room_for_quick_ones() {
    let outbox = Outbox::default();
    outbox.set_concurrency(1);
    for id in 1..=3 {
        outbox.push(tell(id, "/a"));
    }
    let first = outbox.next().unwrap();
    assert_eq!(outbox.next(), None);
    assert!(outbox.slows(&first));
    assert!(outbox.next().is_some());
    assert!(!outbox.slows(&first), "the slow pool has a limit too");
    outbox.ended(&first, true);
    assert_eq!(outbox.next(), None);
    let traffic = OutboundGauges { queued: 1, quick: 1, slow: 0, dropped: 0 };
    assert_eq!(outbox.traffic(), traffic);
}

#[test]
fn what_finds_no_room_in_memory_is_gone_on_with_in_order() {
    let outbox = Outbox::default();
    let many = WAITING_PER_HOOK as u64 + 3;
    for event in 0..many {
        outbox.push(deliver("a", 1, event));
    }
    assert_eq!(outbox.traffic().queued, WAITING_PER_HOOK);
    assert_eq!(outbox.next_refill(), None, "there is no room yet");
    for _ in 0..=WAITING_PER_HOOK / 2 {
        let sent = outbox.next().unwrap();
        outbox.ended(&sent, false);
    }
    let from = DeliveryNo { event: EventNo(WAITING_PER_HOOK as u64), round: 0 };
    assert_eq!(outbox.next_refill(), Some((HookId(1), from)));
    assert_eq!(outbox.next_refill(), None);
    outbox.push(deliver("a", 1, from.event.0));
    assert!(outbox.has_delivery(DeliveryId { hook: HookId(1), no: from }));
}

#[test]
fn whoever_is_done_takes_no_room() {
    let outbox = Outbox::default();
    for n in 0..10 {
        outbox.push(deliver("a", n, 1));
        outbox.push(tell(n + 100, "/a"));
    }
    while let Some(attempt) = outbox.next() {
        outbox.ended(&attempt, false);
    }
    assert!(outbox.lock().is_empty());
}

#[test]
fn wakes_have_room_however_many_deliveries_wait() {
    let outbox = Outbox::default();
    for hook in 0..7 {
        for event in 0..u64::try_from(WAITING_PER_HOOK).unwrap() {
            outbox.push(deliver("stuck", hook, event));
        }
    }
    assert!(outbox.traffic().queued >= OUTBOX_MAX);
    assert_eq!(outbox.try_push(tell(1, "/a")), PushResult::Waits);
    assert_eq!(outbox.traffic().dropped, 0);
}
