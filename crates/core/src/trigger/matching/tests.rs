//! Matching: the order of the checks, and what conditions see.

use serde_json::{Value, json};

use super::*;
use crate::document::change::{ChangeEvent, Lsn};
use crate::document::snapshot::Data;
use crate::time::Millis;
use crate::trigger::definition::{DefinitionLimits, Draft};

fn definition(fields: Value) -> Definition {
    let mut body = json!({
        "collection": "orders", "events": ["create", "update"], "url": "https://example.com/",
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let limits = DefinitionLimits { max_timeout_ms: 30_000 };
    Draft::parse(&body, &limits).unwrap().definition
}

fn document(version: u64, data: Value) -> Document {
    let Value::Object(fields) = data else { panic!("is an object") };
    let data = Some(Arc::new(Data::new(fields).unwrap()));
    Document { version, created_at: Millis(5_000), updated_at: Millis(7_000), data }
}

fn change(path: &str, before: Option<Value>, after: Option<Value>) -> Change {
    let kind = match (&before, &after) {
        (None, _) => ChangeKind::Create,
        (_, None) => ChangeKind::Delete,
        _ => ChangeKind::Update,
    };
    Change {
        kind,
        path: DocumentPath::parse(path).unwrap(),
        before: before.map(|data| document(1, data)),
        after: after.map(|data| document(2, data)),
        ordinal: 0,
    }
}

fn tenant() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn fields(path: &str, before: Option<Value>, after: Option<Value>) -> ChangeFields {
    ChangeFields::new(&change(path, before, after), &tenant(), 7, &Origin::CLIENT)
}

fn check(definition: &Definition, change: &ChangeFields, expected: Option<&str>) {
    let found = definition.matches(change).map_err(|why| why.to_string());
    assert_eq!(found.err().as_deref(), expected, "{definition:?}");
    let selected = definition.selects(change.kind, &change.path).is_ok();
    assert_eq!(selected, definition.is_for(change.kind, &change.path));
}

#[test]
fn mat_1_the_first_check_that_fails_is_the_reason() {
    let made = fields("orders/o1", None, Some(json!({"status": "open"})));
    let deleted = fields("orders/o1", Some(json!({})), None);
    let elsewhere = fields("users/u1", None, Some(json!({})));
    let all = definition(json!({}));
    check(&all, &made, None);
    check(
        &all,
        &deleted,
        Some("the change is a `delete`, and the trigger is for `create`, `update`"),
    );
    check(&all, &elsewhere, Some("`collection` is `orders`, which does not match `users/u1`"));
    let filtered = definition(json!({"filters": ["orders/o2", "orders/o1*"]}));
    check(&filtered, &made, None);
    let filtered = definition(json!({"filters": ["orders/o2"], "condition": "1/0 == 1"}));
    check(&filtered, &made, Some("none of the `filters` matches `orders/o1`"));
    let other = definition(json!({"condition": "event.document.status == 'closed'"}));
    check(&other, &made, Some("the condition is false"));
    assert!(!other.matches(&made).unwrap_err().is_error());
}

#[test]
fn mat_2_the_condition_sees_the_change() {
    let before = json!({"status": "open", "address": {"city": "Paris", "zip": 1}, "same": [1]});
    let after = json!({"status": "paid", "address": {"city": "Rome", "zip": 1}, "same": [1]});
    let updated = fields("orders/o1", Some(before), Some(after));
    for text in [
        "event.type == 'update' && event.timestamp == 7",
        "event.document.status == 'paid' && event.before.status == 'open'",
        "event.path == 'orders/o1' && event.collection == 'orders' && event.id == 'o1'",
        "event.tenant == 'acme' && event.origin == null",
        "'status' in event.changed && 'address' in event.changed",
        "'address.city' in event.changed && !('address.zip' in event.changed)",
        "!('same' in event.changed) && !('version' in event.changed)",
        "event.changed.exists(path, path.startsWith('addr')) && size(event.changed) == 3",
        "event.document.version == 2 && event.document.id == 'o1' && event.document.updatedAt == 7000",
    ] {
        check(&definition(json!({ "condition": text })), &updated, None);
    }
}

#[test]
fn mat_3_where_there_is_no_document_there_is_null() {
    let made = fields("orders/o1", None, Some(json!({"a": {"b": 1}})));
    let text = "event.before == null && event.document != null && event.changed == ['a', 'a.b']";
    check(&definition(json!({ "condition": text })), &made, None);
    let deleted = fields("orders/o1", Some(json!({"a": 1})), None);
    let text = "event.document == null && event.before.a == 1 && event.changed == ['a']";
    let deletes = definition(json!({"events": ["delete"], "condition": text}));
    check(&deletes, &deleted, None);
}

#[test]
fn mat_4_what_comes_to_nothing_is_no_match_and_an_error() {
    let made = fields("orders/o1", None, Some(json!({})));
    let missing = definition(json!({"condition": "event.document.data.age > 18"}));
    check(&missing, &made, Some("the condition comes to nothing: there is no `data`"));
    assert!(missing.matches(&made).unwrap_err().is_error());
    let long = definition(json!({"condition": "'a' in event.changed"}));
    let mut steps = Steps::new(2);
    assert_eq!(long.matches_within(&made, &mut steps), Err(NoMatch::OutOfSteps));
    let mut steps = Steps::new(1_000);
    assert_eq!(long.matches_within(&made, &mut steps), Err(NoMatch::Condition));
    assert!((3..50).contains(&steps.used()), "they are counted: {}", steps.used());
}

#[test]
fn the_origin_is_that_of_the_trigger_that_wrote_it() {
    let origin = Origin::CLIENT.followed_by("a").unwrap().followed_by("b").unwrap();
    let made = change("orders/o1", None, Some(json!({})));
    let made = ChangeFields::new(&made, &tenant(), 7, &origin);
    let text = "event.origin.trigger == 'b' && event.origin.depth == 2";
    check(&definition(json!({ "condition": text })), &made, None);
}

#[test]
fn what_stands_in_the_log_is_matched_as_it_was_when_it_was_made() {
    let origin = Origin::CLIENT.followed_by("a").unwrap();
    let cases = [
        (None, Some(json!({"status": "open", "n": 1.0}))),
        (Some(json!({"status": "open"})), Some(json!({"status": "paid"}))),
        (Some(json!({"status": "open"})), None),
    ];
    for (before, after) in cases {
        let change = change("orders/o1", before, after);
        let made = ChangeFields::new(&change, &tenant(), 9, &origin);
        let lsn = Lsn { second: 9, ordinal: 2 };
        let event = ChangeEvent { seq: 4, lsn, tenant: tenant(), change, origin: origin.clone() };
        let bytes = event.to_json();
        let message = ChangeMessage::parse(&bytes).unwrap();
        assert_eq!((message.seq, message.lsn.as_str(), message.ts), (4, "9:2", 9));
        let read = ChangeFields::of_message(&message).unwrap();
        assert_eq!((read.kind, &read.path, &read.tenant), (made.kind, &made.path, &made.tenant));
        assert_eq!((&read.document, &read.before), (&made.document, &made.before));
        assert_eq!((&read.origin, read.timestamp_s), (&made.origin, made.timestamp_s));
        assert_eq!(read.changed(), made.changed());
    }
    assert!(ChangeMessage::parse(b"{}").is_err());
}
