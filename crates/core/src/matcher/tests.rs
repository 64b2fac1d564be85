//! The matcher against an oracle that knows nothing of tries or patterns, and what it holds.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Whether `pattern` matches `path`, filled in cell by cell: a cell says whether the first so many
/// segments of the one match the first so many of the other.
fn oracle(pattern: &str, path: &str) -> bool {
    let wanted: Vec<&str> = pattern.split('/').collect();
    let found: Vec<&str> = path.split('/').collect();
    if found[1].starts_with('_') && wanted[1] != found[1] {
        return false;
    }
    let mut table = vec![vec![false; found.len() + 1]; wanted.len() + 1];
    table[0][0] = true;
    for row in 1..=wanted.len() {
        for column in 0..=found.len() {
            table[row][column] = match wanted[row - 1] {
                "**" => table[row - 1][column] || (column > 0 && table[row][column - 1]),
                _ if column == 0 => false,
                "*" => table[row - 1][column - 1],
                literal => table[row - 1][column - 1] && literal == found[column - 1],
            };
        }
    }
    table[wanted.len()][found.len()]
}

/// Every text of up to `length` of these segments.
fn texts(alphabet: &[&str], length: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..length {
        last = last
            .iter()
            .flat_map(|text| alphabet.iter().map(move |segment| format!("{text}/{segment}")))
            .collect();
        all.extend(last.clone());
    }
    all
}

fn found(matcher: &Matcher<u64>, path: &str) -> Vec<u64> {
    let mut out = Vec::new();
    matcher.matches(&StreamPath::parse(path).unwrap(), &mut out);
    out
}

/// The same, page after page.
fn paged(matcher: &Matcher<u64>, path: &str, limit: usize) -> Vec<u64> {
    let path = StreamPath::parse(path).unwrap();
    let mut all: Vec<u64> = Vec::new();
    loop {
        let page = Page { after: all.last().copied(), through: None, limit };
        let found = matcher.search(&path, page, &mut Steps::unlimited()).unwrap();
        assert!(found.values.len() <= limit);
        all.extend(&found.values);
        if found.highest == found.values.last().copied() {
            return all;
        }
    }
}

fn matcher(patterns: &[(&str, u64)]) -> Matcher<u64> {
    let mut matcher = Matcher::default();
    for (pattern, value) in patterns {
        matcher.insert(&Pattern::parse(pattern).unwrap(), *value);
    }
    matcher
}

#[test]
fn every_small_pattern_on_every_small_path() {
    let patterns: Vec<(String, Pattern)> = texts(&["a", "", "_s", "*", "**"], 4)
        .into_iter()
        .filter_map(|text| Pattern::parse(&text).ok().map(|pattern| (text, pattern)))
        .collect();
    let mut matcher = Matcher::default();
    for (index, (_, pattern)) in patterns.iter().enumerate() {
        matcher.insert(pattern, index);
    }
    let mut pairs = 0;
    for path in texts(&["a", "", "_s", "c"], 5) {
        let Ok(parsed) = StreamPath::parse(&path) else { continue };
        let mut got = Vec::new();
        matcher.matches(&parsed, &mut got);
        let mut want = Vec::new();
        for (index, (text, pattern)) in patterns.iter().enumerate() {
            let matching = oracle(text, &path);
            assert_eq!(pattern.matches(&parsed), matching, "{text} on {path}");
            assert!(!matching || path.starts_with(pattern.literal_prefix()), "{text} on {path}");
            want.extend(matching.then_some(index));
            pairs += 1;
        }
        assert_eq!(got, want, "{path}");
    }
    assert!(pairs > 500_000, "{pairs}");
}

#[test]
fn values_come_sorted_and_once_after_what_was_there() {
    let matcher = matcher(&[("/a/*", 5), ("/a/**", 9), ("/**", 5), ("/a/b", 1), ("/a/b", 7)]);
    assert_eq!(found(&matcher, "/a/b"), [1, 5, 7, 9]);
    let mut out = vec![100, 5];
    matcher.matches(&StreamPath::parse("/a/b").unwrap(), &mut out);
    assert_eq!(out, [100, 5, 1, 5, 7, 9]);
}

#[test]
fn a_pair_counts_once() {
    let mut matcher = matcher(&[("/a", 1), ("/a", 1), ("/a", 2), ("/b", 1)]);
    let pattern = Pattern::parse("/a").unwrap();
    assert_eq!(matcher.len(), 3);
    assert!(!matcher.remove(&pattern, 3));
    assert!(matcher.remove(&pattern, 1));
    assert!(!matcher.remove(&pattern, 1));
    assert!(!matcher.remove(&Pattern::parse("/a/b").unwrap(), 1));
    assert!(!matcher.remove(&Pattern::parse("/*").unwrap(), 1));
    assert_eq!(matcher.len(), 2);
    assert_eq!(found(&matcher, "/a"), [2]);
}

#[test]
fn nothing_is_left_of_what_was_removed() {
    let texts = ["/a/b/c", "/a/**/c/*", "/a/b", "/**", "/x/a/a/a"];
    let patterns = texts.map(|text| Pattern::parse(text).unwrap());
    let mut matcher = Matcher::default();
    assert!(matcher.is_empty());
    for _ in 0..3 {
        for pattern in &patterns {
            (0..5).for_each(|value| matcher.insert(pattern, value));
        }
        for pattern in patterns.iter().rev() {
            assert!((0..5).all(|value| matcher.remove(pattern, value)));
        }
        assert!(matcher.is_empty());
        assert_eq!(matcher.0.held(), Matcher::<u64>::default().0.held());
    }
    // Numbers were used again.
    assert_eq!(matcher.0.numbers(), (12, 4));
}

/// Under a hash that takes its low bits from the segment alone, the last loop takes minutes.
#[test]
fn children_of_one_name_under_many_parents_do_not_collide() {
    let mut matcher = Matcher::default();
    for index in 0..50_000u64 {
        matcher.insert(&Pattern::parse(&format!("/t{index}/agents/*")).unwrap(), index);
    }
    for index in 0..50_000u64 {
        assert_eq!(found(&matcher, &format!("/t{index}/agents/a")), [index]);
    }
}

/// `/**`, fourteen segments that are `a` or anything, and `z`.
fn hostile(number: u32) -> Pattern {
    let middle: String =
        (0..14).map(|bit| if number >> bit & 1 == 1 { "/a" } else { "/*" }).collect();
    Pattern::parse(&format!("/**{middle}/z")).unwrap()
}

/// Without a limit this takes millions of steps.
#[test]
fn whoever_takes_too_many_steps_is_stopped() {
    let mut matcher = Matcher::default();
    for number in 0..3_000 {
        matcher.insert(&hostile(number), number);
    }
    let path = StreamPath::parse(&"/a".repeat(900)).unwrap();
    let mut steps = Steps::new(4_096);
    assert_eq!(matcher.search(&path, Page::all(), &mut steps), None);
    // The round in which the limit was reached is counted, and not made.
    assert!((4_097..=4_096 + 20_000).contains(&steps.used()), "{steps:?}");
    let mut steps = Steps::unlimited();
    assert!(matcher.search(&path, Page::all(), &mut steps).unwrap().values.is_empty());
    assert!(steps.used() > 1_000_000, "{steps:?}");
}

#[test]
fn what_means_no_harm_takes_few_steps() {
    let mut matcher = Matcher::default();
    for number in 0..10_000u64 {
        matcher.insert(&Pattern::parse(&format!("/t{number}/agents/*")).unwrap(), number);
    }
    matcher.insert(&Pattern::parse("/**/inbox").unwrap(), 10_000);
    matcher.insert(&Pattern::parse("/**").unwrap(), 10_001);
    let mut steps = Steps::new(64);
    let path = StreamPath::parse("/t7/agents/inbox").unwrap();
    let found = matcher.search(&path, Page::all(), &mut steps).unwrap();
    assert_eq!(found.values, [7, 10_000, 10_001]);
}

#[test]
fn one_pattern_takes_at_most_each_segment_with_each() {
    for number in [0, 5, 16_383] {
        let mut steps = Steps::unlimited();
        let path = StreamPath::parse(&"/a".repeat(900)).unwrap();
        assert!(!hostile(number).matches_counted(&path, &mut steps));
        assert!(steps.used() <= 1 + 16 * 900, "{steps:?}");
    }
}

#[test]
fn many_values_of_one_pattern_are_not_all_looked_at() {
    let mut matcher = Matcher::default();
    for value in 0..10_000u64 {
        matcher.insert(&Pattern::parse("/a/*").unwrap(), value);
    }
    let path = StreamPath::parse("/a/b").unwrap();
    let mut steps = Steps::new(100);
    let page = Page { after: Some(4_999), through: Some(8_000), limit: 64 };
    let found = matcher.search(&path, page, &mut steps).unwrap();
    assert_eq!(found.values, Vec::from_iter(5_000..5_064));
    assert_eq!(found.highest, Some(8_000));
    let page = Page { after: Some(8_000), through: Some(8_000), limit: 64 };
    let found = matcher.search(&path, page, &mut steps).unwrap();
    assert_eq!(found, Found { values: Vec::new(), highest: None });
}

#[derive(Debug, Clone)]
enum Step {
    Insert(String, u64),
    /// Takes away whatever stands at this place among what is left, counted around.
    Remove(prop::sample::Index),
    /// Takes away what is probably not there.
    RemoveAny(String, u64),
}

fn pattern_text() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "", "_s", "*", "*", "**"]);
    prop::collection::vec(segment, 1..6)
        .prop_map(|segments| format!("/{}", segments.join("/")))
        .prop_filter("is a pattern", |text| Pattern::parse(text).is_ok())
}

fn path_text() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "d", "", "_s"]);
    prop::collection::vec(segment, 1..8)
        .prop_map(|segments| format!("/{}", segments.join("/")))
        .prop_filter("is a path", |text| StreamPath::parse(text).is_ok())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (pattern_text(), 0..6u64).prop_map(|(text, value)| Step::Insert(text, value)),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (pattern_text(), 0..6u64).prop_map(|(text, value)| Step::RemoveAny(text, value)),
    ]
}

/// What the matcher should hold, by the normal form of the patterns.
fn take(matcher: &mut Matcher<u64>, model: &mut BTreeSet<(String, u64)>, step: &Step) {
    match step {
        Step::Insert(text, value) => {
            let pattern = Pattern::parse(text).unwrap();
            matcher.insert(&pattern, *value);
            model.insert((pattern.to_string(), *value));
        }
        Step::Remove(_) if model.is_empty() => {}
        Step::Remove(index) => {
            let (text, value) = model.iter().nth(index.index(model.len())).unwrap().clone();
            assert!(matcher.remove(&Pattern::parse(&text).unwrap(), value));
            model.remove(&(text, value));
        }
        Step::RemoveAny(text, value) => {
            let pattern = Pattern::parse(text).unwrap();
            let there = model.remove(&(pattern.to_string(), *value));
            assert_eq!(matcher.remove(&pattern, *value), there);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn inserts_and_removes_in_any_order(
        seed: u64,
        steps in prop::collection::vec(step(), 1..80),
        paths in prop::collection::vec(path_text(), 1..12),
    ) {
        let mut matcher = Matcher::with_seed(seed);
        let mut model = BTreeSet::new();
        for (index, step) in steps.iter().enumerate() {
            take(&mut matcher, &mut model, step);
            prop_assert_eq!(matcher.len(), model.len());
            let path = &paths[index % paths.len()];
            let want: BTreeSet<u64> = model
                .iter()
                .filter(|(pattern, _)| oracle(pattern, path))
                .map(|(_, value)| *value)
                .collect();
            let want = Vec::from_iter(want);
            prop_assert_eq!(paged(&matcher, path, 1 + index % 3), want.clone(), "{}", path);
            prop_assert_eq!(found(&matcher, path), want, "{}", path);
        }
        let left: Vec<(&str, u64)> = model.iter().map(|(text, value)| (&**text, *value)).collect();
        prop_assert_eq!(matcher.0.held(), self::matcher(&left).0.held());
    }
}
