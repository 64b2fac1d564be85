//! The matcher against the patterns themselves, and what it holds and costs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::Shard;
use super::*;

fn pattern(text: &str) -> EventPattern {
    EventPattern::parse(text).unwrap()
}

fn found(matcher: &EventMatcher<usize>, kind: &EventType) -> Vec<usize> {
    let mut out = Vec::new();
    matcher.matches(kind, &mut out);
    out
}

fn matcher(patterns: &[EventPattern]) -> EventMatcher<usize> {
    let mut matcher = EventMatcher::default();
    for (value, pattern) in patterns.iter().enumerate() {
        matcher.insert(pattern, value);
    }
    matcher
}

/// Whether `pattern` matches `kind`, by trying everything that a star can stand for.
fn oracle(pattern: &[&str], kind: &[&str]) -> bool {
    match (pattern, kind) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=kind.len()).any(|skip| oracle(rest, &kind[skip..])),
        ([wanted, rest @ ..], [found, others @ ..]) => {
            glob_oracle(wanted.as_bytes(), found.as_bytes()) && oracle(rest, others)
        }
        _ => false,
    }
}

fn glob_oracle(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| glob_oracle(rest, &text[skip..])),
        ([wanted, rest @ ..], [found, others @ ..]) => wanted == found && glob_oracle(rest, others),
        _ => false,
    }
}

#[test]
fn values_come_sorted_and_once() {
    let mut matcher = EventMatcher::default();
    for (text, value) in [("a.*", 5), ("a.**", 9), ("**", 5), ("a.b", 1), ("a.b*", 7), ("a*.*", 7)]
    {
        matcher.insert(&pattern(text), value);
    }
    assert_eq!(found(&matcher, &EventType::parse("a.b").unwrap()), [1, 5, 7, 9]);
    assert_eq!(matcher.len(), 6);
}

#[test]
fn two_deep_ones_in_a_row_are_one() {
    let mut matcher = EventMatcher::default();
    matcher.insert(&pattern("a.**.**.b"), 1);
    matcher.insert(&pattern("a.**.b"), 1);
    assert_eq!(matcher.len(), 1);
    assert!(matcher.remove(&pattern("a.**.**.**.b"), 1));
    assert!(matcher.is_empty());
}

/// Of a hundred thousand globs only those are tried whose beginning fits: the ends of ranges say
/// so, and trying all of them here would take minutes.
#[test]
fn globs_with_a_beginning_are_found_among_many() {
    let mut matcher = EventMatcher::default();
    for index in 0..100_000 {
        matcher.insert(&pattern(&format!("webhook.g{index}-*")), index);
    }
    for index in 0..100_000 {
        let kind = EventType::parse(&format!("webhook.g{index}-x")).unwrap();
        assert_eq!(found(&matcher, &kind), [index]);
    }
}

#[test]
fn hostile_patterns_stay_cheap() {
    let texts = ["**.a.**.a.**.a.**.a.**.b", "**.a.a.a.a.a.a.a.a.b", "**.*.**.*.**.*.**.*.**.b"];
    let patterns = texts.map(pattern);
    let matcher = matcher(&patterns);
    let kind = EventType::parse(&["a"; 128].join(".")).unwrap();
    assert!(found(&matcher, &kind).is_empty());
    // No more nodes are live at a segment than the patterns have.
    let steps = matcher.0.steps(kind.segments());
    assert!(steps <= 128 * 31, "{steps} steps");
}

/// Five hundred of these and a thousand types once took sixteen seconds.
#[test]
fn globs_and_deep_ones_are_stopped() {
    let texts = ["**.*a.**.a*.**.*b", "**.a*.**.*a*.**", "**.*a*b*.**.z", "*a*.**.*b*.**"];
    let mut matcher = EventMatcher::default();
    for value in 0..500 {
        let more = format!("**.*{value}.{}", texts[value % texts.len()]);
        matcher.insert(&pattern(&more), value);
    }
    let kind = EventType::parse(&["a"; 126].join(".")).unwrap();
    let mut steps = Steps::new(4_096);
    assert_eq!(matcher.search(&kind, Page::all(), &mut steps), None);
    assert!((4_097..10_000).contains(&steps.used()), "{steps:?}");
    for text in texts {
        let mut steps = Steps::unlimited();
        pattern(text).matches_counted(&kind, &mut steps);
        assert!(steps.used() <= 1 + 10 * 126 * 2, "{text}: {steps:?}");
    }
}

fn pattern_text() -> impl Strategy<Value = EventPattern> {
    let words = ["a", "b", "ab", "ba", "webhook", "do", "*", "*", "**", "**", "a*", "*b", "a**b"];
    let words = Vec::from_iter(words.into_iter().chain(["*a*", "web*", "*a*b*", "a*a"]));
    prop::collection::vec(prop::sample::select(words), 1..7).prop_map(|all| pattern(&all.join(".")))
}

fn kind() -> impl Strategy<Value = EventType> {
    let words = vec!["a", "b", "ab", "aab", "ba", "webhook", "do", "web", "c", "aa"];
    prop::collection::vec(prop::sample::select(words), 1..8)
        .prop_map(|all| EventType::parse(&all.join(".")).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn e6_patterns_matcher_and_oracle_agree(
        patterns in prop::collection::vec(pattern_text(), 1..40),
        kinds in prop::collection::vec(kind(), 1..12),
    ) {
        let matcher = matcher(&patterns);
        for kind in &kinds {
            let segments: Vec<&str> = kind.segments().collect();
            let mut want = Vec::new();
            for (value, pattern) in patterns.iter().enumerate() {
                let wanted: Vec<&str> = pattern.segments().collect();
                let matching = oracle(&wanted, &segments);
                prop_assert_eq!(pattern.matches(kind), matching, "{} on {}", pattern, kind);
                prop_assert_eq!(pattern.explain(kind).is_none(), matching, "{}, {}", pattern, kind);
                want.extend(matching.then_some(value));
            }
            prop_assert_eq!(found(&matcher, kind), want, "{}", kind);
        }
    }

    #[test]
    fn nothing_is_left_of_what_was_removed(
        seed: u64,
        patterns in prop::collection::vec(pattern_text(), 1..30),
        keep in prop::collection::vec(any::<bool>(), 30),
    ) {
        let mut matcher = EventMatcher::with_seed(seed);
        let mut kept = EventMatcher::default();
        for (value, pattern) in patterns.iter().enumerate() {
            matcher.insert(pattern, value);
            if keep[value] {
                kept.insert(pattern, value);
            }
        }
        prop_assert_eq!(matcher.len(), patterns.len());
        for (value, pattern) in patterns.iter().enumerate() {
            prop_assert!(!matcher.remove(pattern, value + 1_000));
            prop_assert_eq!(!keep[value], !keep[value] && matcher.remove(pattern, value));
        }
        prop_assert_eq!(matcher.len(), kept.len());
        prop_assert_eq!(matcher.0.held(), kept.0.held());
    }

    #[test]
    fn e12_shards_never_change_what_is_found(
        patterns in prop::collection::vec(pattern_text(), 1..40),
        kind in kind(),
    ) {
        let all = matcher(&patterns);
        let mut union = BTreeSet::new();
        for shard in Shard::consulted(&kind) {
            let mut matcher = EventMatcher::default();
            for (value, pattern) in patterns.iter().enumerate() {
                if Shard::of_pattern(pattern) == shard {
                    matcher.insert(pattern, value);
                }
            }
            union.extend(found(&matcher, &kind));
        }
        prop_assert_eq!(found(&all, &kind), Vec::from_iter(union));
    }
}
