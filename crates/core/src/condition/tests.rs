//! What holds for every text and every condition.

use std::thread;

use cel::{Context, Env, Value as CelValue};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::steps::Steps;

/// A quarter of what a thread of the server has. The longest of the texts need more than this if
/// the parser gets to see them.
const STACK_BYTES: usize = 512 * 1024;
const STEPS: usize = 10_000;

const VARIABLES: [Variable<'static>; 1] = [Variable { name: "e", fields: &["d"] }];
const VOCABULARY: Vocabulary<'static> = Vocabulary { variables: &VARIABLES, has_documents: true };

fn read(text: &str) -> Result<Expression, ConditionError> {
    parse(text, VOCABULARY)
}

fn document() -> Json {
    json!({"d": {"age": 20, "score": 1.5, "name": "Alice", "tags": ["vip", "beta"], "no": false,
        "addr": {"city": "Paris"}, "nil": null, "yes": true}})
}

fn evaluate(expression: &Expression, root: &Json) -> Result<bool, Failure> {
    let variables = [Value::of(root)];
    Evaluation::new(&variables, Steps::new(STEPS)).holds(expression)
}

/// Reads and evaluates each on a small stack, which a text that is too deep would end the test by.
fn survive(texts: Vec<String>) -> Vec<bool> {
    let run = move || {
        let root = document();
        let read_one = |text: &String| read(text).map(|it| drop(evaluate(&it, &root))).is_ok();
        texts.iter().map(read_one).collect()
    };
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
    thread.expect("a thread").join().expect("no panic")
}

/// Texts that are as deep as can be, by what opens, is repeated, and closes.
const SHAPES: [(&str, &str, &str); 24] = [
    ("", "1+", "1 == 2"),
    ("e", ".d", " == 1"),
    ("e", "[0]", " == 1"),
    ("e.d", ".size()", " == 1"),
    ("1", "<1", ""),
    ("1", " in e", ""),
    ("e.d", ".contains('a')", ""),
    ("", "!", "true"),
    ("", "-", "1 == 1"),
    ("", "true?true:", "true"),
    ("", "true&&", "true"),
    ("", "e.d||", "true"),
    ("1 in [", "1,", "1]"),
    ("", "(", "true"),
    ("1 in ", "[", "1"),
    ("1 == ", "{1:", "1"),
    ("1 == ", "size(", "1"),
    ("", "!(", "true"),
    ("", "e.d[", "1"),
    ("", "1<2+3*-e.d[", "1"),
    ("", "e.d.contains(", "1"),
    ("", "e.d.all(x,", "true"),
    ("", "a.b{c:", "1"),
    ("", "true?(", "true"),
];

fn shaped(shape: usize, count: usize) -> String {
    let (before, repeated, after) = SHAPES[shape];
    let mut text = format!("{before}{}{after}", repeated.repeat(count));
    let closing: String = repeated.repeat(count).chars().rev().filter_map(closing).collect();
    if repeated.ends_with(['(', '[', '{', ':', ',']) && !repeated.contains('?') {
        text.push_str(&closing);
    } else if repeated.ends_with('(') {
        text.push_str(&"):true".repeat(count));
    }
    text
}

fn closing(open: char) -> Option<char> {
    match open {
        '(' => Some(')'),
        '[' => Some(']'),
        '{' => Some('}'),
        _ => None,
    }
}

#[test]
fn no_text_overflows_a_small_stack() {
    let mut texts = Vec::new();
    for shape in 0..SHAPES.len() {
        let longest = (1..).take_while(|n| shaped(shape, *n).len() <= EXPRESSION_BYTES_MAX).last();
        // The longest, and the deepest of those that the parser gets to see.
        let longest = longest.expect("one fits");
        let seen = |n: &usize| scan::check(&shaped(shape, *n)).is_ok();
        let deepest = (1..=longest).rev().find(seen).expect("one is short enough");
        texts.extend([shaped(shape, longest), shaped(shape, deepest)]);
        // The same inside of as many brackets as there may be, and with them half way.
        for nesting in [EXPRESSION_NESTING_MAX, EXPRESSION_NESTING_MAX / 2] {
            let nested = |n: usize| {
                format!("{}{}{}", "[".repeat(nesting), shaped(shape, n), "]".repeat(nesting))
            };
            let deepest = (1..=longest).rev().find(|n| scan::check(&nested(*n)).is_ok());
            texts.extend(deepest.map(nested));
        }
    }
    assert!(texts.iter().all(|text| text.len() <= EXPRESSION_BYTES_MAX + 100));
    survive(texts);
}

#[test]
fn what_is_within_the_limits_is_read() {
    let texts = vec![
        format!("{}true{}", "(".repeat(EXPRESSION_NESTING_MAX), ")".repeat(EXPRESSION_NESTING_MAX)),
        format!("{}1 == 2", "1+".repeat(EXPRESSION_DEPTH_MAX - 2)),
        vec!["e.d.a == 1"; 40].join(" && "),
        format!("1 in [{}]", vec!["1"; 250].join(",")),
    ];
    assert_eq!(survive(texts), [true; 4]);
    let refused = |text: &str| read(text).map(|_| ()).expect_err(text);
    let brackets = EXPRESSION_NESTING_MAX + 1;
    let text = format!("{}true{}", "(".repeat(brackets), ")".repeat(brackets));
    assert_eq!(refused(&text), ConditionError::TooManyBrackets);
    let text = format!("{}1 == 2", "1+".repeat(EXPRESSION_DEPTH_MAX - 1));
    assert_eq!(refused(&text), ConditionError::TooDeep);
    let text = format!("{}1 == 2", "1+".repeat(EXPRESSION_CHAIN_MAX));
    assert_eq!(refused(&text), ConditionError::TooLongChain);
    let text = format!("1 in [{}]", vec!["1"; EXPRESSION_NODES_MAX].join(","));
    assert_eq!(refused(&text), ConditionError::TooManyNodes);
    let text = "true".to_owned() + &" ".repeat(EXPRESSION_BYTES_MAX);
    assert_eq!(refused(&text), ConditionError::TooLong);
}

#[test]
fn what_is_in_quotes_is_no_bracket() {
    let brackets = "(".repeat(200);
    for text in [
        format!("'{brackets}' == 'a'"),
        format!("\"{brackets}'\" == r'\\' // {brackets}\n"),
        format!("'\\'{brackets}\\x41\\u0041\\U00000041\\101' != ''"),
    ] {
        assert!(read(&text).is_ok(), "{text}");
    }
    // Where the lexer could find that a string ends elsewhere, nothing is guessed.
    for text in ["'''a''", "1r'\\'", "br'\\'", "'\\", "'a\n'", "'\\x4'", "'\\u00g0'", "'\\400'"] {
        assert!(matches!(read(text).map(|_| ()), Err(ConditionError::Syntax(_))), "{text}");
    }
}

/// Pieces of texts: whole ones, and what makes them long, deep or wrong.
const PIECES: [&str; 48] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "in",
    " ",
    "'",
    "\"",
    "'a'",
    "r'\\'",
    "b'a'",
    "1",
    "0x1F",
    "1.5e3",
    "2u",
    "true",
    "null",
    "e",
    "e.d",
    "x",
    "size(",
    "has(",
    ".all(x,",
    ".exists(x,",
    "\\",
    "\n",
    "//",
    "`",
    "é",
    "'''",
];

fn text_of_pieces() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(&PIECES[..]), 0..200);
    pieces.prop_map(|pieces| pieces.concat())
}

/// What is deep and well-formed: links and brackets around one another at random.
fn deep_text() -> impl Strategy<Value = String> {
    let layers = [
        ("", "+1"),
        ("1+", ""),
        ("", ".d"),
        ("", "[0]"),
        ("(", ")"),
        ("[", "]"),
        ("!(", ")"),
        ("{1:", "}"),
        ("size(", ")"),
        ("e.d.contains(", ")"),
        ("e.d[", "]"),
        ("", " in e"),
        ("true?", ":1"),
        ("true?1:", ""),
        ("true&&", ""),
        ("", "||e.d"),
        ("e.d.all(x,", ")"),
        ("", ".size()"),
        ("-", ""),
        ("1<", ""),
        ("[1,", ",2]"),
    ];
    prop::collection::vec(prop::sample::select(layers.to_vec()), 0..90).prop_map(|layers| {
        layers.iter().fold("1".to_owned(), |text, (before, after)| format!("{before}{text}{after}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_text_panics(
        pieces in prop::collection::vec(text_of_pieces(), 10),
        deep in prop::collection::vec(deep_text(), 10),
        any in prop::collection::vec(".{0,80}", 3),
    ) {
        survive(pieces.into_iter().chain(deep).chain(any).collect());
    }

    #[test]
    fn what_is_read_is_within_the_limits(text in deep_text()) {
        if let Ok(expression) = read(&format!("({text}) == 1")) {
            prop_assert!(expression.depth() <= EXPRESSION_DEPTH_MAX);
            prop_assert!(expression.nodes() <= EXPRESSION_NODES_MAX);
        }
    }
}

/// A condition over the document, mostly of kinds that go together.
fn condition() -> impl Strategy<Value = String> {
    let leaves = [
        "e.d.age",
        "e.d.score",
        "e.d.name",
        "e.d.tags",
        "e.d.addr",
        "e.d.nil",
        "e.d.yes",
        "e.d.no",
        "e.d.missing",
        "e.d.addr.city",
        "e.d.tags[0]",
        "e.d['age']",
        "1",
        "0",
        "20",
        "-3",
        "1.5",
        "2u",
        "'vip'",
        "'Alice'",
        "''",
        "true",
        "false",
        "null",
        "[1, 'vip']",
        "{'city': 'Paris'}",
    ];
    let operators =
        ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||", "&&", "||"];
    let leaf = prop::sample::select(leaves.to_vec()).prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, move |inner| {
        let two = (inner.clone(), prop::sample::select(operators.to_vec()), inner.clone());
        prop_oneof![
            8 => two.prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            1 => inner.clone().prop_map(|of| format!("!({of})")),
            1 => inner.clone().prop_map(|of| format!("-({of})")),
            1 => inner.clone().prop_map(|of| format!("size({of})")),
            1 => inner.clone().prop_map(|of| format!("has(({of}).city)")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}).contains({b})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            1 => (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            2 => (inner, prop::sample::select(vec!["all", "exists", "exists_one"]),
                    prop::sample::select(operators.to_vec()))
                .prop_map(|(a, name, operator)| format!("e.d.tags.{name}(x, x {operator} {a})")),
        ]
    })
}

/// The other evaluation's values: numbers as ours are.
fn other_value(json: &Json) -> CelValue {
    match json {
        Json::Null => CelValue::Null,
        Json::Bool(value) => CelValue::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => CelValue::Int(value),
            None => CelValue::Float(number.as_f64().expect("a number")),
        },
        Json::String(text) => CelValue::from(text.clone()),
        Json::Array(elements) => {
            CelValue::from(elements.iter().map(other_value).collect::<Vec<_>>())
        }
        Json::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), other_value(value)));
            CelValue::from(fields.collect::<std::collections::HashMap<_, _>>())
        }
    }
}

fn other_evaluation(text: &str, root: &Json) -> Option<bool> {
    let env = std::sync::Arc::new(Env::stdlib());
    let program = env.compile(text).expect("ours has read it");
    let mut context = Context::with_env(env);
    context.add_variable_from_value("e", other_value(root));
    match program.execute(&context) {
        Ok(CelValue::Bool(value)) => Some(value),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn conditions_come_to_what_the_cel_crate_says(text in condition()) {
        let root = document();
        // The other adds a map's keys to a list, for which CEL has nothing.
        let adds_maps = text.contains(" + ") && (text.contains('{') || text.contains("addr"));
        if let (Ok(expression), false) = (read(&text), adds_maps) {
            let ours = evaluate(&expression, &root);
            prop_assert_eq!(ours.clone().ok(), other_evaluation(&text, &root), "{} {:?}", text, ours);
        }
    }
}

#[test]
fn documents_are_equal_if_they_say_the_same() {
    let equal = |left: &Json, right: &Json| {
        let both = json!({"d": {"l": left, "r": right}});
        evaluate(&read("e.d.l == e.d.r").expect("a condition"), &both)
    };
    let a = json!({"a": [1, {"b": null}], "c": 1.0});
    assert_eq!(equal(&a, &json!({"c": 1, "a": [1.0, {"b": null}]})), Ok(true));
    assert_eq!(equal(&a, &json!({"c": 1, "a": [1, {"c": null}]})), Ok(false));
    assert_eq!(equal(&json!({}), &json!([])), Ok(false));
    // Deeper than any JSON that is let in.
    let mut deep = Json::Object(Map::new());
    for _ in 0..crate::limits::JSON_DEPTH_MAX + 10 {
        deep = json!([deep]);
    }
    assert_eq!(equal(&deep, &deep), Err(Failure::OutOfSteps));
}
