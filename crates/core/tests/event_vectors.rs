//! The vectors of patterns, types and shards of events.

use reveille_core::event::{EventMatcher, EventPattern, EventType, Shard};
use serde_json::Value;

fn vectors(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("vectors/event-patterns.json"))
        .expect("the vectors are JSON");
    let vectors = all.get(name).and_then(Value::as_array).expect("the name is right").clone();
    assert!(vectors.len() > 10, "{name} has vectors");
    vectors
}

fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector.get(field).and_then(Value::as_str).expect("the field is text")
}

fn pattern(text: &str) -> EventPattern {
    EventPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn kind(text: &str) -> EventType {
    EventType::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn found(matcher: &EventMatcher<usize>, kind: &EventType) -> Vec<usize> {
    let mut out = Vec::new();
    matcher.matches(kind, &mut out);
    out
}

#[test]
fn e6_every_pattern_matches_what_it_should() {
    for vector in vectors("patterns") {
        let (pattern, kind) = (pattern(text(&vector, "pattern")), kind(text(&vector, "type")));
        let expected = vector["match"].as_bool().unwrap();
        assert_eq!(pattern.matches(&kind), expected, "{vector}");
        assert_eq!(pattern.explain(&kind).is_none(), expected, "{vector}");
        let mut alone = EventMatcher::default();
        alone.insert(&pattern, 1);
        assert_eq!(found(&alone, &kind), Vec::from_iter(expected.then_some(1)), "{vector}");
        assert!(alone.remove(&pattern, 1) && found(&alone, &kind).is_empty(), "{vector}");
    }
}

#[test]
fn e6_all_patterns_in_one_matcher() {
    let vectors = vectors("patterns");
    let patterns: Vec<EventPattern> =
        vectors.iter().map(|vector| pattern(text(vector, "pattern"))).collect();
    let mut matcher = EventMatcher::default();
    for (value, pattern) in patterns.iter().enumerate() {
        matcher.insert(pattern, value);
    }
    for vector in &vectors {
        let kind = kind(text(vector, "type"));
        let matching = (0..patterns.len()).filter(|value| patterns[*value].matches(&kind));
        assert_eq!(found(&matcher, &kind), Vec::from_iter(matching), "{kind}");
    }
}

#[test]
fn e7_what_is_a_pattern_and_what_is_none() {
    for vector in vectors("invalid_patterns") {
        // Some vectors are values that are no strings; those never get here.
        if let Some(text) = vector["pattern"].as_str() {
            assert!(EventPattern::parse(text).is_err(), "{vector}");
        }
    }
    for vector in vectors("valid_patterns") {
        let text = vector.as_str().unwrap();
        assert_eq!(pattern(text).as_str(), text);
    }
}

#[test]
fn e9_e11_e12_the_shard_of_an_event() {
    for vector in vectors("shard_of_event") {
        let kind = kind(text(&vector, "type"));
        let shard = Shard::of_type(&kind);
        assert_eq!(shard.label(None), text(&vector, "shard"), "{vector}");
        assert_eq!(shard.label(Some("acme")), text(&vector, "acme"), "{vector}");
        let consulted: Vec<Value> =
            Shard::consulted(&kind).map(|shard| shard.name().into()).collect();
        assert_eq!(Value::from(consulted), vector["lookup"], "{vector}");
    }
}

#[test]
fn e10_e11_the_shard_of_a_pattern() {
    for vector in vectors("shard_of_pattern") {
        let shard = Shard::of_pattern(&pattern(text(&vector, "pattern")));
        assert_eq!(shard.label(None), text(&vector, "shard"), "{vector}");
        assert_eq!(shard.label(Some("acme")), text(&vector, "acme"), "{vector}");
    }
}
