//! What is in an envelope, and which events are refused.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

const NOW: Millis = Millis(1_769_860_800_000);
const NOW_TEXT: &str = "2026-01-31T12:00:00.000Z";

fn fresh() -> Ulid {
    Ulid::new(NOW, [7; 10])
}

fn seal(text: &str, namespace: Option<&str>) -> Event {
    RawEvent::parse(text).unwrap().seal(fresh(), NOW, namespace)
}

fn check_envelope(text: &str, namespace: Option<&str>, expected: &str) {
    let envelope = seal(text, namespace).envelope;
    assert_eq!(std::str::from_utf8(&envelope).unwrap(), expected, "{text}");
}

#[test]
fn e30_the_payload_is_what_was_sent() {
    check_envelope(
        r#" { "type" : "a.b", "ts":"2026-01-01T00:00:00Z", "id":"x", "n": 1.00, "o":{"z":1, "a":2} } "#,
        None,
        r#"{"id":"x","type":"a.b","ts":"2026-01-01T00:00:00Z","payload":{"type":"a.b","ts":"2026-01-01T00:00:00Z","id":"x","n":1.00,"o":{"z":1, "a":2}}}"#,
    );
    check_envelope(
        r#"{"big":123456789012345678901234567890e400,"type":"a"}"#,
        Some("acme"),
        &format!(
            r#"{{"id":"{}","type":"a","ts":"{NOW_TEXT}","payload":{{"big":123456789012345678901234567890e400,"type":"a","ts":"{NOW_TEXT}","_namespace":"acme"}}}}"#,
            fresh()
        ),
    );
}

#[test]
fn e30_the_namespace_is_not_the_clients_to_say() {
    for text in [
        r#"{"_namespace":"other","type":"a","ts":"2026-01-01T00:00:00Z","id":"x"}"#,
        r#"{"type":"a","\u005fnamespace":{"x":1},"ts":"2026-01-01T00:00:00Z","id":"x"}"#,
    ] {
        let payload = r#"{"type":"a","ts":"2026-01-01T00:00:00Z","id":"x""#;
        let head = r#"{"id":"x","type":"a","ts":"2026-01-01T00:00:00Z","payload":"#;
        check_envelope(text, Some("acme"), &format!(r#"{head}{payload},"_namespace":"acme"}}}}"#));
        check_envelope(text, None, &format!("{head}{payload}}}}}"));
    }
}

#[test]
fn ids_of_clients_are_kept_if_they_are_plain() {
    let check = |id: Value, kept: bool| {
        let event = seal(&json!({"type": "a", "id": id}).to_string(), None);
        let own = id.as_str().filter(|_| kept).map(str::to_owned);
        assert_eq!(*event.id, *own.unwrap_or_else(|| fresh().to_string()), "{id}");
    };
    check(json!("order-1"), true);
    check(json!("order 1 \"x\""), true);
    check(json!("x".repeat(256)), true);
    check(json!("x".repeat(257)), false);
    check(json!(""), false);
    check(json!(" a"), false);
    check(json!("a\nb"), false);
    check(json!("\u{e9}"), false);
    check(json!(12), false);
    check(json!(null), false);
}

#[test]
fn events_that_are_refused() {
    let check = |text: &str, error| assert_eq!(RawEvent::parse(text), Err(error), "{text}");
    check("[]", EventError::NotAnObject);
    check("\"a\"", EventError::NotAnObject);
    check("null", EventError::NotAnObject);
    check("{}", EventError::TypeMissing);
    check(r#"{"type":1}"#, EventError::TypeNotText);
    check(r#"{"type":null}"#, EventError::TypeNotText);
    check(r#"{"type":""}"#, EventError::Type(EventTypeError::Empty));
    check(r#"{"type":"a..b"}"#, EventError::Type(EventTypeError::EmptySegment));
    check(r#"{"type":"a","ts":"yesterday"}"#, EventError::Ts);
    check(r#"{"type":"a","ts":1769860800}"#, EventError::Ts);
    check(r#"{"type":"a","ts":null}"#, EventError::Ts);
    let digits = "1".repeat(64);
    check(&format!(r#"{{"type":"a","ts":"2026-01-01T00:00:00.{digits}Z"}}"#), EventError::Ts);
    check(r#"{"type":"a","type":"b"}"#, EventError::Repeated("type".to_owned()));
    check(r#"{"type":"a","typ\u0065":"b"}"#, EventError::Repeated("type".to_owned()));
    check(r#"{"type":"a","x":1,"x":1}"#, EventError::Repeated("x".to_owned()));
    let sentence = EventError::Type(EventTypeError::Empty).to_string();
    assert_eq!(sentence, "`type`: an event type is not empty");
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|members| Value::from(Map::from_iter(members))),
        ]
    })
}

proptest! {
    #[test]
    fn e30_the_payload_parses_to_the_original(
        members in prop::collection::btree_map(".{0,8}", json_value(), 0..6),
        with_ts: bool,
        namespace in prop::option::of(".{1,8}"),
        pretty: bool,
    ) {
        let mut original = Map::from_iter(members);
        original.insert("type".to_owned(), json!("a.b"));
        original.remove("ts");
        if with_ts {
            original.insert("ts".to_owned(), json!("2026-01-01T00:00:00+01:00"));
        }
        let text = if pretty {
            serde_json::to_string_pretty(&original).unwrap()
        } else {
            serde_json::to_string(&original).unwrap()
        };
        let event = seal(&text, namespace.as_deref());
        let envelope: Value = serde_json::from_slice(&event.envelope).unwrap();
        // Read as the envelope is: a number that is read may differ from the one that was written.
        let mut expected: Map<String, Value> = serde_json::from_str(&text).unwrap();
        expected.entry("ts").or_insert_with(|| json!(NOW_TEXT));
        expected.remove("_namespace");
        if let Some(namespace) = namespace {
            expected.insert("_namespace".to_owned(), json!(namespace));
        }
        prop_assert_eq!(&envelope["payload"], &Value::from(expected.clone()));
        prop_assert_eq!(&envelope["ts"], &expected["ts"]);
        prop_assert_eq!(&envelope["type"], &json!("a.b"));
        prop_assert_eq!(&envelope["id"], &json!(&*event.id));
        prop_assert_eq!(envelope.as_object().unwrap().len(), 4);
    }

    #[test]
    fn any_text_is_judged(text in ".{0,60}") {
        let _ = RawEvent::parse(&text);
    }
}
