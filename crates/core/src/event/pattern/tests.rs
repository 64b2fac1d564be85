//! What patterns over event types are, and what judging one costs.

use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> EventPattern {
    EventPattern::parse(text).unwrap()
}

#[test]
fn e7_each_reason_has_its_sentence() {
    let check = |text: &str, error| assert_eq!(EventPattern::parse(text), Err(error), "{text}");
    check("", EventPatternError::Empty);
    check(&"a".repeat(257), EventPatternError::TooLong);
    check(&"\u{e9}".repeat(200), EventPatternError::BadCharacter);
    check("a b", EventPatternError::BadCharacter);
    check("a.{b,c}", EventPatternError::BadCharacter);
    check("a***b", EventPatternError::TooManyStars);
    check(".**", EventPatternError::LeadingDot);
    check("**.", EventPatternError::TrailingDot);
    check("*..*", EventPatternError::DoubleDot);
    check(&["*"; 11].join("."), EventPatternError::TooManySegments);
    let sentence = format!("Invalid pattern: {}", EventPatternError::TooManySegments);
    assert_eq!(sentence, "Invalid pattern: it has more than 10 segments");
}

#[test]
fn the_text_stays_as_it_was_given() {
    for text in ["**.**", "a**b", "a.**.**.b", "A.z"] {
        assert_eq!(pattern(text).as_str(), text);
        assert_eq!(pattern(text).to_string(), text);
    }
}

#[test]
fn literal_segments_come_before_the_first_star() {
    let check = |text, prefix| assert_eq!(pattern(text).literal_prefix(), prefix, "{text}");
    check("webhook.github.push", "webhook.github.push");
    check("webhook.github.*", "webhook.github");
    check("webhook.git*.push", "webhook");
    check("webhook.**", "webhook");
    check("web*.x", "");
    check("**", "");
}

/// Each segment of the pattern is compared at most once with each of the type.
#[test]
fn hostile_patterns_stay_cheap() {
    let long = EventType::parse(&["a"; 128].join(".")).unwrap();
    for text in ["**.a.**.a.**.a.**.a.**.b", "**.a.a.a.a.a.a.a.a.b", "**.**.**.**.**.**.**.**.**.b"]
    {
        let mut steps = 0;
        let matching = pattern(text).matches_by(&long, |wanted, found| {
            steps += 1;
            segment_matches(wanted, found)
        });
        assert!(!matching, "{text}");
        assert!(steps <= 10 * 128, "{text} took {steps} steps");
    }
    let mut steps = 0;
    let glob = format!("{}b", "a*".repeat(127));
    let text = "a".repeat(256);
    let fits = |wanted: &u8, found: &u8| {
        steps += 1;
        wanted == found
    };
    let is_many = |wanted: &u8| *wanted == b'*';
    assert!(!wildcard::matches(glob.bytes(), text.bytes(), is_many, fits));
    assert!(steps <= 256 * 256, "{steps} steps");
}

proptest! {
    #[test]
    fn any_text_is_judged(text in ".{0,40}") {
        let _ = EventPattern::parse(&text);
    }
}
