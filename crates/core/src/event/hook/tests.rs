//! What is changed about a hook, and what of before still counts.

use super::*;

fn spec(pattern: &str) -> EventHookSpec {
    EventHookSpec {
        pattern: EventPattern::parse(pattern).unwrap(),
        worker: WorkerId::parse("w").unwrap(),
        binding: Some("B".into()),
        method: RpcMethod::parse("m").unwrap(),
        max_retries: 5,
        timeout_ms: 1,
        secret: Some("one".into()),
        ordered: false,
        retry: Retry::default(),
        limits: DeliveryLimits::default(),
        former: FormerSpec::default(),
    }
}

fn edit(pattern: &str) -> HookUpdate {
    HookUpdate { pattern: EventPattern::parse(pattern).ok(), ..HookUpdate::default() }
}

/// The pattern of an event, as text.
fn at(spec: &EventHookSpec, event: u64) -> Option<&str> {
    spec.pattern_at(EventNo(event)).map(EventPattern::as_str)
}

#[test]
fn each_event_is_matched_with_the_pattern_of_its_time() {
    let first = spec("a");
    let change = |before: &EventHookSpec, pattern, next, oldest: Option<u64>| {
        before.edited(&edit(pattern)).following(before, EventNo(next), oldest.map(EventNo)).unwrap()
    };
    let second = change(&first, "b", 10, Some(5));
    let third = change(&second, "c", 20, Some(5));
    let found: Vec<_> = [5, 9, 10, 19, 20, 99].map(|event| at(&third, event)).into();
    assert_eq!(found, [Some("a"), Some("a"), Some("b"), Some("b"), Some("c"), Some("c")]);
    assert_eq!(third.patterns().map(EventPattern::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
    // What nobody is told of any more is forgotten, and not taken for something else.
    let fourth = change(&third, "d", 30, Some(12));
    assert_eq!(
        [9, 12, 25, 30].map(|event| at(&fourth, event)),
        [Some("b"), Some("b"), Some("c"), Some("d")]
    );
    let fifth = change(&fourth, "e", 40, None);
    assert_eq!([30, 39, 40].map(|event| at(&fifth, event)), [None, None, Some("e")]);
    assert_eq!(at(&first, 0), Some("a"), "one that was never changed");
    // A change of something else leaves patterns as they are, but for those of no use.
    let other = HookUpdate { timeout_ms: Some(9), ..HookUpdate::default() };
    let kept = third.edited(&other).following(&third, EventNo(50), Some(EventNo(5))).unwrap();
    assert_eq!(kept.former, third.former);
    let pruned = third.edited(&other).following(&third, EventNo(50), None).unwrap();
    assert_eq!((pruned.former.patterns.len(), at(&pruned, 20)), (0, Some("c")));
}

#[test]
fn patterns_that_are_still_needed_are_not_without_number() {
    let mut spec = spec("p");
    for number in 0..FORMER_PATTERNS_MAX {
        let next = EventNo(10 + u64::try_from(number).unwrap());
        let edited = spec.edited(&edit(&format!("p{number}")));
        spec = edited.following(&spec, next, Some(EventNo(1))).unwrap();
    }
    let one_more = spec.edited(&edit("last"));
    let refused = one_more.clone().following(&spec, EventNo(99), Some(EventNo(1)));
    assert_eq!(refused, Err(TooManyPatterns));
    assert!(one_more.following(&spec, EventNo(99), None).is_ok());
}

#[test]
fn a_secret_has_one_before_it_only_after_a_rotation() {
    let rotated = spec("a").with_rotated_secret("two".into(), Some(Millis(7)));
    assert_eq!(rotated.secret, Some("two".into()));
    assert_eq!(rotated.former.secret, Some(("one".into(), Millis(7))));
    let again = rotated.with_rotated_secret("three".into(), Some(Millis(9)));
    assert_eq!(again.former.secret, Some(("two".into(), Millis(9))));
    assert_eq!(again.with_rotated_secret("four".into(), None).former.secret, None);
    for secret in [None, Some("five".into())] {
        let update = HookUpdate { secret: Some(secret.clone()), ..HookUpdate::default() };
        let edited = again.edited(&update);
        assert_eq!((edited.secret, edited.former.secret), (secret, None));
    }
    assert_eq!(again.edited(&HookUpdate::default()), again);
}

#[test]
fn a_binding_is_left_set_or_cleared() {
    let update = |binding| HookUpdate { binding, ..HookUpdate::default() };
    assert_eq!(spec("a").edited(&update(None)).binding.as_deref(), Some("B"));
    assert_eq!(spec("a").edited(&update(Some(None))).binding, None);
    assert_eq!(spec("a").edited(&update(Some(Some("C".into())))).binding.as_deref(), Some("C"));
}
