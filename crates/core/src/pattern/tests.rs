//! What patterns are, what they match, and where a scan for their streams begins.

use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn check(text: &str, matching: &[&str], others: &[&str]) {
    let pattern = pattern(text);
    for path in matching {
        assert!(pattern.matches(&StreamPath::parse(path).unwrap()), "{text} matches {path}");
        assert!(path.starts_with(pattern.literal_prefix()), "{text} begins {path}");
    }
    for path in others {
        assert!(!pattern.matches(&StreamPath::parse(path).unwrap()), "{text} is not {path}");
    }
}

#[test]
fn the_table_of_the_specification() {
    check("/agents/*", &["/agents/task-1"], &["/agents/foo/bar", "/agents"]);
    check("/agents/**", &["/agents/task-1", "/agents/foo/bar/baz"], &["/other/path"]);
    check("/agents/*/inbox", &["/agents/worker-1/inbox"], &["/agents/worker-1/outbox"]);
}

#[test]
fn without_wildcards_exactly_that_path() {
    check("/a/b", &["/a/b"], &["/a", "/a/b/", "/a/b/c", "/A/b", "/a//b", "/x"]);
    check("/a%20b", &["/a%20b"], &["/a%2520b", "/a+b"]);
    check("/a%2Fb", &["/a%2Fb"], &["/a/b", "/a%2fb"]);
}

#[test]
fn deep_stands_for_nothing_or_for_much() {
    check("/agents/**", &["/agents", "/agents/"], &["/agents2", "/agent", "/x/agents"]);
    check("/**/inbox", &["/inbox", "/a/inbox", "/a/b/inbox"], &["/inbox/a", "/a/inboxes"]);
    check("/a/**/b", &["/a/b", "/a/b/b", "/a/x/y/b"], &["/a", "/b", "/a/b/c", "/ab"]);
    check("/a/**/b/**", &["/a/b", "/a/x/b", "/a/b/x", "/a/x/b/y/b/z"], &["/a/x", "/b/a"]);
    check("/a/**/b/*/**", &["/a/b/b", "/a/b/x", "/a/x/b/y/z"], &["/a/b", "/a/x/b"]);
    check("/**/a/b/**/a/c", &["/a/b/a/c", "/a/a/b/a/b/x/a/c"], &["/a/b/c", "/a/b/a/c/d"]);
    check("/**/*", &["/a", "/a/b"], &["/_a", "/_a/b"]);
}

#[test]
fn empty_segments_are_segments() {
    check("/a/*", &["/a/", "/a/b"], &["/a", "/a//"]);
    check("/a//b", &["/a//b"], &["/a/b", "/a/x/b"]);
    check("/*/b", &["//b", "/a/b"], &["/b"]);
    check("/a/", &["/a/"], &["/a"]);
    check("//**", &["//", "//a", "///"], &["/a", "/a/"]);
}

#[test]
fn the_servers_own_streams_must_be_named() {
    check("/**", &["/a", "/a/_b", "/a/b"], &["/_events", "/_events/a", "/_"]);
    check("/*/a", &["/x/a", "//a"], &["/_events/a"]);
    check("/**/_events/a", &["/x/_events/a"], &["/_events/a"]);
    check("/_events/**", &["/_events", "/_events/a"], &["/_event", "/a"]);
    check("/_events/*", &["/_events/a", "/_events/_b"], &["/_events"]);
}

#[test]
fn stars_may_be_percent_encoded() {
    assert_eq!(pattern("/a/%2A"), pattern("/a/*"));
    assert_eq!(pattern("/%2a%2A/b").as_str(), "/**/b");
    assert_eq!(pattern("/%2A*/b").as_str(), "/**/b");
    assert_eq!(pattern("/%252A").as_str(), "/%252A");
}

#[test]
fn adjacent_deep_ones_are_one() {
    assert_eq!(pattern("/**/**/**/%2A%2a").as_str(), "/**");
    assert_eq!(pattern("/a/**/**/b/**").as_str(), "/a/**/b/**");
    assert_eq!(pattern("/**/*/**").as_str(), "/**/*/**");
    assert!(pattern("/**/**").matches_everything());
    assert!(!pattern("/a/**").matches_everything());
    assert!(!pattern("/*").matches_everything());
}

#[test]
fn what_is_not_a_pattern() {
    let check = |text: &str, error| assert_eq!(Pattern::parse(text), Err(error), "{text}");
    check("", PatternError::Empty);
    check("/", PatternError::Empty);
    check("a/b", PatternError::Empty);
    check("*", PatternError::Empty);
    check("**", PatternError::Empty);
    check("%2Fa", PatternError::Empty);
    check("/a b", PatternError::BadByte);
    check("/a?b", PatternError::BadByte);
    check("/a#b", PatternError::BadByte);
    check("/\u{e9}", PatternError::BadByte);
    check("/a*", PatternError::PartialWildcard);
    check("/*a/b", PatternError::PartialWildcard);
    check("/a/***", PatternError::PartialWildcard);
    check("/a/x%2A", PatternError::PartialWildcard);
    check("/**/a/**/b/**", PatternError::TooManyDeep);
    check(&"/a".repeat(33), PatternError::TooManySegments);
    check(&format!("/{}", "x".repeat(1024)), PatternError::TooLong);
}

#[test]
fn the_limits_themselves_are_allowed() {
    for text in ["/a".repeat(32), format!("/{}", "x".repeat(1023)), "/**".repeat(300)] {
        assert!(Pattern::parse(&text).is_ok(), "{text}");
    }
}

#[test]
fn scans_begin_at_the_longest_common_text() {
    let check = |text, prefix| assert_eq!(pattern(text).literal_prefix(), prefix, "{text}");
    check("/a/b", "/a/b");
    check("/agents/**", "/agents");
    check("/agents/*", "/agents/");
    check("/agents/*/inbox", "/agents/");
    check("/agents/**/inbox", "/agents/");
    check("/agents/**/*", "/agents/");
    check("/agents/*/**", "/agents/");
    check("/a//**", "/a/");
    check("/**", "/");
    check("/*", "/");
    check("/**/a", "/");
    // `/` is no path, so at least one more segment follows.
    check("//**", "//");
}

#[test]
fn a_hostile_pair_is_judged_at_once() {
    let pattern = pattern(&format!("/**{}/**{}/y", "/a".repeat(14), "/a".repeat(14)));
    let path = StreamPath::parse(&"/a".repeat(1024)).unwrap();
    assert!(!pattern.matches(&path));
}

proptest! {
    #[test]
    fn the_normal_form_is_its_own(text in "/([ab*/]|%2A|%2a|\\*\\*|/){0,12}") {
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert_eq!(Pattern::parse(pattern.as_str()), Ok(pattern));
        }
    }

    #[test]
    fn any_text_is_judged(text in ".{0,40}") {
        let _ = Pattern::parse(&text);
    }
}
