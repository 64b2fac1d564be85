//! Patterns: what Go's path.Match says, and what is refused.

use proptest::prelude::*;

use super::*;

fn path(text: &str) -> DocumentPath {
    DocumentPath::parse(text).unwrap()
}

fn check(pattern: &str, matching: &[&str], others: &[&str]) {
    let glob = CollectionGlob::parse(pattern).unwrap();
    assert_eq!(glob.as_str(), pattern);
    for text in matching {
        assert!(glob.matches(&path(text)), "{pattern} on {text}");
    }
    for text in others {
        assert!(!glob.matches(&path(text)), "{pattern} on {text}");
    }
}

#[test]
fn collections_are_matched_as_path_match_does() {
    check("users", &["users/a"], &["users/a/posts/p", "user/a"]);
    check(
        "chats/*/members",
        &["chats/123/members/m"],
        &["chats/1/x/y/members/m", "chats/123/messages/m", "chats/123"],
    );
    check("cel_test_*", &["cel_test_abc/d", "cel_test_/d"], &["cel_test/abc", "cel/d"]);
    check("*", &["users/a", "x/y"], &["users/a/posts/p"]);
    check("user?", &["users/a", "user1/a"], &["user/a", "userss/a"]);
    check("[a-c]x", &["ax/1", "cx/1"], &["dx/1", "x/1", "aax/1"]);
    check("[^a-c]x", &["dx/1"], &["ax/1", "x/1"]);
    check("a*b*c", &["abc/1", "axxbxbxc/1"], &["axxbx/1", "ab/1"]);
    check("\\users", &["users/a"], &["sers/a"]);
}

#[test]
fn c_17_an_even_number_of_segments_is_for_documents() {
    check("users/*", &["users/u1"], &["users/u1/posts/p1", "people/u1"]);
    check("users/u1", &["users/u1"], &["users/u2", "users/u1/posts/p"]);
    check("rooms/*/messages/m-*", &["rooms/r/messages/m-1"], &["rooms/r/messages/n-1"]);
    let glob = CollectionGlob::parse("rooms/*/messages/m-*").unwrap();
    assert!(glob.is_of_documents());
    assert_eq!(glob.captures(&path("rooms/r1/messages/m-7")), ["r1", "m-7"]);
    assert_eq!((glob.capture_count(), glob.depth(), glob.first_name()), (2, 4, Some("rooms")));
    assert_eq!(CollectionGlob::parse("rooms").unwrap().literal(), Some("rooms"));
    assert_eq!(CollectionGlob::parse("rooms/r1").unwrap().literal(), None);
    assert_eq!(CollectionGlob::parse("*/a/b").unwrap().first_name(), None);
}

#[test]
fn what_is_no_pattern_says_why() {
    let refused = |text: &str, expected: GlobError| {
        assert_eq!(CollectionGlob::parse(text), Err(expected), "{text}");
    };
    refused("", GlobError::Empty);
    refused(&"a".repeat(129), GlobError::TooLong(128));
    for text in ["/users", "users/", "a//b"] {
        refused(text, GlobError::EmptySegment);
    }
    for text in ["**", "users/**", "a**b", "\\**"] {
        refused(text, GlobError::Unbounded);
    }
    for text in ["[", "[a", "[a-", "[]", "[^]", "[-a]", "[a-]", "[b-a]", "a\\", "[\\", "[a/b]"] {
        assert!(matches!(CollectionGlob::parse(text), Err(GlobError::Malformed(_))), "{text}");
    }
    refused("us ers", GlobError::MatchesNothing(PathError::BadCharacter(' ')));
    refused("us\u{e9}*", GlobError::MatchesNothing(PathError::BadCharacter('\u{e9}')));
    refused("a/\\*", GlobError::MatchesNothing(PathError::BadCharacter('*')));
    refused("sys", GlobError::MatchesNothing(PathError::Reserved("sys")));
    refused("sys/*/x", GlobError::MatchesNothing(PathError::Reserved("sys")));
    refused("a/..", GlobError::MatchesNothing(PathError::Relative));
    assert!(CollectionGlob::parse("a/sys/b").is_ok(), "a document may be called anything");
}

#[test]
fn c_9_filters_are_for_documents_and_begin_with_a_name() {
    let filter = PathFilter::parse("rooms/*/messages/*").unwrap();
    assert!(filter.matches(&path("rooms/a/messages/b")));
    assert!(!filter.matches(&path("rooms/a")));
    assert!(!filter.matches(&path("rooms/a/messages/b/c/d")));
    assert_eq!(PathFilter::parse("*/a"), Err(GlobError::OpenBeginning));
    assert_eq!(PathFilter::parse("ro*/a"), Err(GlobError::OpenBeginning));
    assert_eq!(PathFilter::parse("rooms"), Err(GlobError::Collection));
    assert_eq!(PathFilter::parse("rooms/**"), Err(GlobError::Unbounded));
    assert_eq!(PathFilter::parse(&"a".repeat(257)), Err(GlobError::TooLong(256)));
}

/// What `is_match` says, tried in every way.
fn naive(tokens: &[Token], text: &[char]) -> bool {
    match (tokens.split_first(), text.split_first()) {
        (None, found) => found.is_none(),
        (Some((Token::Star, rest)), found) => {
            naive(rest, text) || found.is_some_and(|(_, after)| naive(tokens, after))
        }
        (Some((token, rest)), Some((found, after))) => token.fits(*found) && naive(rest, after),
        (Some(_), None) => false,
    }
}

proptest! {
    #[test]
    fn a_pattern_matches_what_a_naive_matcher_says(
        pattern in "([ab?]|[*]|\\[a\\]|\\[\\^a\\]){1,7}",
        text in "[abc]{0,8}",
    ) {
        prop_assume!(!pattern.contains("**"));
        let tokens = tokens(&pattern).unwrap();
        let chars: Vec<char> = text.chars().collect();
        prop_assert_eq!(is_match(&tokens, &text), naive(&tokens, &chars), "{} on {}", pattern, text);
    }

    #[test]
    fn no_text_is_a_danger(text in ".{0,40}", path in "[a-c]{1,3}(/[a-c.]{1,3}){1,5}") {
        let path = DocumentPath::parse(&path);
        if let (Ok(glob), Ok(path)) = (CollectionGlob::parse(&text), path) {
            prop_assert!(!glob.matches(&path) || glob.captures(&path).len() == glob.capture_count());
        }
    }
}
