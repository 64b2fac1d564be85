//! Sources that limits hold back, and those that they are in nobody's way of.

use reveille_core::rate::Rate;

use super::*;

fn few_at_once(concurrency: usize) -> SourceLimits {
    SourceLimits { concurrency: Some(concurrency), ..SourceLimits::default() }
}

fn rate(per_s: u32, burst: u32) -> SourceLimits {
    SourceLimits { rate: Some(Rate { per_s, burst }), ..SourceLimits::default() }
}

fn of_tenant() -> SourceLimits {
    SourceLimits { per_tenant: true, ..SourceLimits::default() }
}

fn all(outbox: &TestOutbox, now: Millis) -> Vec<TestAttempt> {
    std::iter::from_fn(|| outbox.next(now)).collect()
}

fn sources(attempts: &[TestAttempt]) -> Vec<u64> {
    attempts.iter().map(Attempt::source).collect()
}

fn end(outbox: &TestOutbox, attempt: &TestAttempt) {
    outbox.answered(attempt, Some(1), NOW, |_| false);
    outbox.ended(attempt);
}

fn held(outbox: &TestOutbox) -> (usize, usize, usize) {
    let HeldBack { rate, concurrency, tenant } = outbox.traffic().held;
    (rate, concurrency, tenant)
}

#[test]
fn a_source_has_so_many_under_way_and_others_their_turns() {
    let outbox = TestOutbox::default();
    outbox.set_limits(1, few_at_once(2));
    for event in 0..5 {
        outbox.push(deliver("a", 1, event));
        outbox.push(deliver("a", 2, event));
    }
    let sent = all(&outbox, NOW);
    assert_eq!(sources(&sent), [1, 2, 1, 2, 2, 2, 2]);
    assert_eq!(held(&outbox), (0, 3, 0));
    outbox.put_back(sent[0].clone(), false);
    assert_eq!(sources(&all(&outbox, NOW)), [1], "it has its place again, and no other");
    end(&outbox, &sent[0]);
    assert_eq!(sources(&all(&outbox, NOW)), [1]);
    assert_eq!(held(&outbox), (0, 2, 0));
    // More at once, from now on.
    outbox.set_limits(1, few_at_once(3));
    assert_eq!(sources(&all(&outbox, NOW)), [1]);
    outbox.set_limits(1, few_at_once(1));
    end(&outbox, &sent[2]);
    assert_eq!(all(&outbox, NOW), [], "two are more than one");
    outbox.set_limits(1, SourceLimits::default());
    assert_eq!(sources(&all(&outbox, NOW)), [1]);
    assert_eq!(held(&outbox), (0, 0, 0));
}

#[test]
fn a_source_waits_for_its_time_and_nobody_waits_with_it() {
    let outbox = TestOutbox::default();
    outbox.set_concurrency(64);
    outbox.set_limits(1, rate(10, 2));
    for event in 0..5 {
        outbox.push(deliver("a", 1, event));
    }
    outbox.push(deliver("a", 2, 1));
    outbox.push(deliver("b", 9, 1));
    let sent = all(&outbox, NOW);
    assert_eq!(sources(&sent), [1, 9, 2, 1]);
    sent.iter().for_each(|attempt| end(&outbox, attempt));
    assert_eq!((held(&outbox), outbox.next_look()), ((3, 0, 0), Some(NOW + 100)));
    assert_eq!(all(&outbox, NOW + 99), [], "nobody is sent to before, however often it is looked");
    let third = all(&outbox, NOW + 100);
    assert_eq!(sources(&third), [1]);
    assert_eq!(all(&outbox, NOW), [], "a clock that was set back changes nothing");
    // One that was begun and not made is not counted.
    outbox.ended(&third[0]);
    assert_eq!(sources(&all(&outbox, NOW + 200)), [1, 1], "one for it, and one for the time");
    assert_eq!((outbox.next(NOW + 5_000), outbox.next_look()), (None, None));
}

#[test]
fn who_has_little_to_say_is_limited_as_well() {
    let outbox = TestOutbox::default();
    outbox.set_limits(1, rate(1, 1));
    for event in 0..2 {
        outbox.push(deliver("a", 1, event));
        all(&outbox, NOW).iter().for_each(|attempt| end(&outbox, attempt));
    }
    assert_eq!(held(&outbox), (1, 0, 0), "the rate outlives what waits");
    outbox.set_limits(1, rate(1_000, 10));
    assert_eq!(sources(&all(&outbox, NOW)), [1], "another rate is one at once");
}

#[test]
fn whoever_makes_attempts_is_told_when_a_time_is_sooner_than_it_knows() {
    let outbox = TestOutbox::default();
    outbox.set_limits(1, rate(1, 1));
    outbox.push(deliver("a", 1, 1));
    outbox.push(deliver("a", 1, 2));
    let first = outbox.next(NOW).unwrap();
    assert!(outbox.lock().has_more(), "nobody has asked for the time yet");
    assert_eq!(outbox.next_look(), Some(NOW + 1_000));
    assert!(!outbox.lock().has_more());
    outbox.set_limits(2, rate(2, 1));
    outbox.push(deliver("b", 2, 1));
    outbox.push(deliver("b", 2, 2));
    assert!(outbox.answered(&first, Some(1), NOW, |_| true).is_some());
    assert!(outbox.lock().has_more(), "half a second is sooner");
}

#[test]
fn sources_share_what_their_tenant_may_have() {
    let outbox = TestOutbox::default();
    outbox.set_per_tenant_max(3);
    for source in [1, 2, 5] {
        outbox.set_limits(source, of_tenant());
    }
    for event in 0..3 {
        for source in [1, 2, 3] {
            outbox.push(deliver("a", source, event));
        }
        outbox.push(deliver("b", 5, event));
    }
    let sent = all(&outbox, NOW);
    let mut by_source = sources(&sent);
    by_source.sort_unstable();
    assert_eq!(by_source, [1, 1, 2, 3, 3, 3, 5, 5, 5], "what does not share is not held back");
    assert_eq!(held(&outbox), (0, 0, 3));
    let ours: Vec<_> = sent.iter().filter(|it| it.source() < 3).collect();
    end(&outbox, ours[0]);
    let next = all(&outbox, NOW);
    assert_eq!(next.len(), 1, "a place for a place");
    end(&outbox, ours[1]);
    let after = all(&outbox, NOW);
    assert_ne!(sources(&next), sources(&after), "in turn");
    // One that shares no longer takes its attempts along.
    outbox.set_limits(1, SourceLimits::default());
    outbox.set_limits(2, SourceLimits::default());
    outbox.set_limits(2, of_tenant());
    for attempt in sent.iter().chain(&next).chain(&after) {
        end(&outbox, attempt);
    }
    while let Some(attempt) = outbox.next(NOW) {
        end(&outbox, &attempt);
    }
    assert!(outbox.lock().is_empty(), "and nothing is counted twice");
}

#[test]
fn a_place_of_the_tenant_is_for_the_next_one_when_its_first_has_to_wait() {
    let outbox = TestOutbox::default();
    outbox.set_per_tenant_max(1);
    for source in 1..=3 {
        outbox.set_limits(source, of_tenant());
        outbox.push(deliver("a", source, 1));
    }
    let first = outbox.next(NOW).unwrap();
    assert_eq!(all(&outbox, NOW), []);
    // The next in line may not yet, when its turn has come.
    let next = 2;
    outbox.set_limits(next, SourceLimits { rate: rate(1, 1).rate, ..of_tenant() });
    outbox.push(deliver("a", next, 2));
    end(&outbox, &first);
    let second = all(&outbox, NOW);
    assert_eq!(second.len(), 1);
    end(&outbox, &second[0]);
    let third = all(&outbox, NOW);
    assert_eq!(third.len(), 1);
    end(&outbox, &third[0]);
    assert_eq!((all(&outbox, NOW), held(&outbox)), (vec![], (1, 0, 0)));
    assert_eq!(sources(&all(&outbox, NOW + 1_000)), [next]);
}

#[test]
fn what_waits_for_a_limit_keeps_nobody_else_out_of_memory() {
    let outbox = TestOutbox::default();
    let (hooks, events) = (200, 2_000);
    for source in 0..hooks {
        outbox.set_limits(source, few_at_once(1));
        for event in 0..events {
            outbox.push(deliver("a", source, event));
        }
    }
    let queued = outbox.traffic().queued;
    assert!(queued <= OUTBOX_MAX, "{queued} wait in memory");
    // A hook of the same tenant finds room for few, sends them, and goes on with the others.
    for event in 0..40 {
        outbox.push(deliver("a", 999, event));
    }
    let mut made = 0;
    while made < 40 {
        let sent: Vec<_> = all(&outbox, NOW).into_iter().filter(|it| it.source() == 999).collect();
        assert!(!sent.is_empty(), "after {made} it waits for hooks that are limited");
        for attempt in &sent {
            end(&outbox, attempt);
        }
        made += sent.len();
        while let Some((source, from)) = outbox.next_refill() {
            let last = if source == 999 { 40 } else { 0 };
            (from..last).for_each(|event| outbox.push(deliver("a", source, event)));
        }
    }
}

#[test]
fn what_was_left_out_is_kept_without_anybody_bringing_it() {
    let outbox = TestOutbox::default();
    outbox.set_waiting_per_source(2);
    outbox.set_limits(1, rate(1, 1));
    for event in 0..4 {
        outbox.push(deliver("a", 1, event));
    }
    let keeps = |event| outbox.keeps(&deliver("a", 1, event).key(), 1, event);
    assert!((0..4).all(keeps));
    assert!(!outbox.keeps(&deliver("a", 7, 1).key(), 7, 1), "nobody knows of it");
    end(&outbox, &outbox.next(NOW).unwrap());
    assert_eq!(outbox.next_refill(), Some((1, 2)));
    assert!(!keeps(3), "whoever fills it up now may have failed");
    assert!(keeps(1));
}
