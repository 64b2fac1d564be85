//! The table of conditions that the documents promise, and what one may cost.

use serde_json::json;

use super::*;
use crate::condition::EvaluationError::{
    DivisionByZero, ListTooLong, NoSuchElement, NoSuchKey, TooManySteps, WrongKind, WrongKinds,
};
use crate::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_LIST_MAX};

fn change<'a>(document: Option<&'a Json>, before: Option<&'a Json>) -> ChangeView<'a> {
    ChangeView {
        kind: "update",
        timestamp: 1_697_041_234,
        document: document.and_then(Json::as_object),
        before: before.and_then(Json::as_object),
        path: "users/alice",
        collection: "users",
        id: "alice",
        tenant: "acme",
        origin: None,
        changed: &[],
    }
}

fn alice() -> Json {
    json!({"age": 20, "score": 1.5, "name": "Alice", "tags": ["vip", "beta"],
        "addr": {"city": "Paris"}, "nil": null})
}

fn parsed(text: &str) -> EventCondition {
    EventCondition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> ConditionError {
    match EventCondition::parse(text) {
        Err(error) => error,
        Ok(_) => panic!("{text} is no condition"),
    }
}

fn result(text: &str) -> Result<bool, EvaluationError> {
    parsed(text).holds(&change(Some(&alice()), None))
}

#[test]
fn conditions_hold_as_cel_says() {
    for text in [
        "event.document.age >= 18",
        "event.document.age >= 18.0",
        "event.document.age == 20.0",
        "event.document.score > 1",
        "'beta' in event.document.tags",
        "event.document.missing == 'x' || event.type == 'update'",
        "event.type == 'update' || event.document.missing == 'x'",
        "event.document.nil == null",
        "event.document.addr.city == 'Paris'",
        "event.document['age'] > 3",
        "event.document.tags.exists(t, t == 'vip')",
        "size(event.document.tags) == 2",
        "event.document.tags.all(t, t.size() > 2)",
        "event.document.tags.exists_one(t, t.startsWith('v'))",
        "event.document.age + 1 == 21 && -event.document.age < 0",
        "event.document.name.contains('lic') && event.document.name.endsWith('ice')",
        "event.document.age > 18 ? event.document.score < 2.0 : false",
        "has(event.document.age) && !has(event.document.email)",
        "event.document == {'age': 20, 'score': 1.5, 'name': 'Alice', 'tags': ['vip', 'beta'], \
         'addr': {'city': 'Paris'}, 'nil': null}",
        "event.timestamp == 1697041234 && event.path == 'users/alice' && event.before == null",
        "event.collection == 'users' && event.id == 'alice' && event.tenant == 'acme'",
        "event.origin == null",
        "'age' in event.document && !('email' in event.document)",
        "event.document.exists(key, key == 'nil')",
        "'a' + 'b' == 'ab' && [1] + [2] == [1, 2] && 7 / 2 == 3 && 7 % 4 == 3 && 2u * 3u == 6",
        "r'\\n' == '\\\\n' && \"it's\" == 'it\\'s' // said",
    ] {
        assert_eq!(result(text), Ok(true), "{text}");
    }
    for text in [
        "has(event.document.email) && event.document.email != null",
        "event.document.missing == 'x' && event.type == 'nope'",
        "event.before != null && event.before.status == 'x'",
        "event.document.age == '20'",
        "event.document.tags.all(t, t == 'vip')",
        "event.document.tags.exists_one(t, t.size() > 2)",
        "event.document.name.startsWith('lic')",
    ] {
        assert_eq!(result(text), Ok(false), "{text}");
    }
}

#[test]
fn what_comes_to_nothing_says_why() {
    let missing = |key: &str| NoSuchKey(key.to_owned());
    let null = |operation| WrongKind { operation, kind: "null" };
    for (text, why) in [
        ("event.document.data.age >= 18", missing("data")),
        ("event.document.region in ['US', 'EU']", missing("region")),
        ("event.before.status == 'x'", null(".")),
        ("has(event.before.status)", null(".")),
        ("1/0 == 1", DivisionByZero),
        ("event.document.tags[5] == 'x'", NoSuchElement("5".into())),
        ("event.document.tags[-1] == 'x'", NoSuchElement("-1".into())),
        (
            "event.document.age < 'B'",
            WrongKinds { operation: "<", left: "an integer", right: "a string" },
        ),
        (
            "event.document.score + 1 == 2.5",
            WrongKinds { operation: "+", left: "a fraction", right: "an integer" },
        ),
        ("event.document.name", EvaluationError::NotBool("a string")),
        ("event.document.missing == 'x' || event.type == 'nope'", missing("missing")),
        ("event.document.tags.exists(t, t.x == 1)", WrongKind { operation: ".", kind: "a string" }),
        ("9223372036854775807 + 1 == 0", EvaluationError::Overflow("+")),
        ("{'a': 1, 'a': 2} == {}", EvaluationError::RepeatedKey),
        (
            "event.document.age.exists(x, true)",
            WrongKind { operation: "exists", kind: "an integer" },
        ),
    ] {
        assert_eq!(result(text), Err(why), "{text}");
    }
}

#[test]
fn a_field_can_be_a_boolean() {
    let document = json!({"flag": true, "big": 18_446_744_073_709_551_615u64});
    let change = change(Some(&document), None);
    assert_eq!(parsed("event.document.flag").holds(&change), Ok(true));
    assert_eq!(parsed("!event.document.flag").holds(&change), Ok(false));
    assert_eq!(parsed("event.document.big > 1.8e19").holds(&change), Ok(true));
}

#[test]
fn a_change_knows_what_made_it() {
    let document = json!({});
    let origin = Some(OriginView { trigger: "totals", depth: 2 });
    let change = ChangeView { origin, ..change(None, Some(&document)) };
    let condition = parsed("event.origin.trigger == 'totals' && event.origin.depth < 3");
    assert_eq!(condition.holds(&change), Ok(true));
    assert_eq!(parsed("event.document == null && event.before == {}").holds(&change), Ok(true));
}

#[test]
fn what_is_no_condition_is_refused() {
    let unknown =
        |name: &str| ConditionError::UnknownVariable { name: name.into(), known: "`event`".into() };
    assert_eq!(refused("foo == 1"), unknown("foo"));
    assert_eq!(refused("request.time > 0"), unknown("request"));
    for text in [
        "now() > 1",
        "event.document.name.matches('^A')",
        "matches('a', 'b')",
        "type(1) == int",
        "timestamp('2026-01-01T00:00:00Z') > 1",
        "get('a/b') == null",
        "exists('a/b')",
        "[1].map(x, x) == [1]",
        "[1].filter(x, true) == [1]",
        "all([1], true)",
        "'a'.has(b)",
        "optional.of(1) == 1",
        "dyn(1) == 1",
    ] {
        let error = refused(text);
        let names = |it: &ConditionError| {
            matches!(
                it,
                ConditionError::UnknownFunction { .. } | ConditionError::UnknownVariable { .. }
            )
        };
        assert!(names(&error), "{text}: {error}");
    }
    let doc = refused("event.doc.x == 1").to_string();
    assert!(doc.starts_with("`event` has no `doc`: there is `type`, `timestamp`,"), "{doc}");
    let nested = "event.document.tags.all(t, event.document.tags.exists(u, u == t))";
    assert_eq!(refused(nested), ConditionError::NestedMacro("exists".into()));
    assert_eq!(refused("[1].all(event, event > 0)"), ConditionError::NameTaken("event".into()));
    assert!(matches!(refused("has(event)"), ConditionError::Arguments { name: "has", .. }));
    assert!(matches!(refused("[1].all(1, true)"), ConditionError::Arguments { name: "all", .. }));
    assert!(matches!(refused("size() == 1"), ConditionError::Arguments { name: "size", .. }));
    assert_eq!(
        refused("b'a' == b'a'").to_string(),
        "the condition cannot be read: `b` stands before a quote"
    );
    assert_eq!(refused("Foo{a: 1} == 1"), ConditionError::Unsupported("messages"));
    for text in [
        "1 +",
        "",
        "a b",
        "event.?type == 'x'",
        "event[?'type'] == 'x'",
        "'a",
        "(1",
        "1)",
        "(1]",
        "a = b",
        "@x",
        "event.`a-b` == 1",
        "'''a''' == 'a'",
        "'\\q' == 'q'",
        "1, 2",
    ] {
        assert!(matches!(refused(text), ConditionError::Syntax(_)), "{text}: {}", refused(text));
    }
    let bytes = format!("'{}' == 'a'", "a".repeat(EXPRESSION_BYTES_MAX));
    assert_eq!(refused(&bytes), ConditionError::TooLong);
}

#[test]
fn what_can_never_be_true_or_false_is_refused() {
    for text in [
        "1",
        "'a'",
        "null",
        "1.5",
        "2u",
        "[true]",
        "{'a': true}",
        "1 + event.document.age",
        "-event.document.age",
        "size(event.document)",
        "event",
        "event.type",
        "event.document",
        "event.before",
        "event.document.a ? 1 : 'b'",
    ] {
        assert!(matches!(refused(text), ConditionError::NotBool(_)), "{text}");
    }
    for text in ["event.document.flag", "event.document['flag']", "event.document.a ? 1 : true"] {
        parsed(text);
    }
}

#[test]
fn nobody_makes_an_evaluation_long() {
    let steps = |text: &str, document: &Json| {
        let condition = parsed(text);
        condition.evaluate(&change(Some(document), Some(document)), EVENT_CONDITION_STEPS_MAX)
    };
    // Whatever is asked of a document of a megabyte ends where the steps do.
    let text = "x".repeat(1_000_000);
    let words: Vec<&str> = vec!["yyyyyyyy"; 100_000];
    let large = json!({"text": text, "words": words, "few": vec![text.as_str(); 1_000]});
    let again = |part: &str| [part; 12].join(" && ");
    for text in [
        again("!event.document.text.contains('y')"),
        again("size(event.document.text) == 1000000"),
        again("event.document.text == event.before.text"),
        again("event.document.text <= event.before.text"),
        again("!event.document.text.startsWith(event.before.text + 'x')"),
        again("event.document == event.before"),
        again("!('z' in event.document.words)"),
        format!("size({}) > 0", vec!["event.document.text"; 20].join(" + ")),
        format!("size({}) > 0", vec!["event.document.words"; 20].join(" + ")),
        format!("event.document.few.all(x, {})", again("!x.contains('y')")),
        format!("event.document.few.exists_one(x, {})", again("event.document.text + x == 'y'")),
    ] {
        let (holds, used) = steps(&text, &large);
        assert_eq!(holds, Err(TooManySteps), "{text}");
        // The step that was too much is counted, and never begun.
        assert!(used > EVENT_CONDITION_STEPS_MAX, "{text}: {used}");
    }
    // What ends the steps is not made up for by the other side.
    let (holds, _) = steps("event.document == event.before || true", &large);
    assert_eq!(holds, Err(TooManySteps));
    // An ordinary one is nowhere near.
    let (holds, used) = steps("event.type == 'update' && event.document.text != 'a'", &large);
    assert!(holds == Ok(true) && used < 50, "{used}");
}

#[test]
fn quantifiers_look_at_short_lists() {
    let list: Vec<u32> = (0..1_000).collect();
    let longer: Vec<u32> = (0..1_001).collect();
    assert_eq!(list.len(), EXPRESSION_LIST_MAX);
    let document = json!({"list": list, "longer": longer});
    let holds = |text: &str| parsed(text).holds(&change(Some(&document), None));
    let body = "x >= 0 && x < 1000 && x + 1 > x && x * 2 >= x && x != -1 && x % 2 in [0, 1]";
    assert_eq!(holds(&format!("event.document.list.all(x, {body})")), Ok(true));
    assert_eq!(holds("event.document.longer.exists(x, x == 0)"), Err(ListTooLong("exists")));
    assert_eq!(holds("event.document.longer.all(x, true) || true"), Ok(true));
    assert_eq!(holds("1000 in event.document.longer"), Ok(true));
}

#[test]
fn errors_are_short() {
    let document = json!({"key": "é".repeat(100_000), "map": {}});
    let error = parsed("event.document.map[event.document.key] == 1");
    let error = error.holds(&change(Some(&document), None)).expect_err("no such key").to_string();
    assert!(error.len() < 100, "{error}");
    let name = "a".repeat(900);
    for text in [
        format!("{name} == 1"),
        format!("{name}(1) == 1"),
        format!("event.{name} == 1"),
        format!("'{name}' == "),
        format!("{name}'a' == 1"),
    ] {
        let error = refused(&text).to_string();
        assert!(error.len() < 300, "{error}");
    }
}
