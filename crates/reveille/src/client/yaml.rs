//! YAML as the JSON that it stands for, with bounds on what a short text may grow to.
//!
//! The scalars are those of YAML 1.2's core schema, which JSON has too: `on`, `no` and `12:30` are
//! texts. What JSON has no word for is refused and never guessed: tags, merge keys, a key that is
//! there twice, several documents, `.nan`.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Number, Value};

/// Deeper than anything that is written by hand.
const DEPTH_MAX: usize = 64;
/// Values that a text stands for. An alias counts as what it stands for, so that a page of aliases
/// of aliases is refused before it is made.
const VALUES_MAX: usize = 100_000;

/// What is wrong, and in which line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct YamlError {
    line: usize,
    problem: String,
}

/// A value, and how much it is.
#[derive(Debug, Clone)]
struct Node {
    value: Value,
    depth: usize,
    values: usize,
}

/// What has begun and not ended.
enum Open {
    List { values: Vec<Value>, size: Size, anchor: usize },
    Map { fields: Map<String, Value>, key: Option<String>, size: Size, anchor: usize },
}

#[derive(Debug, Clone, Copy, Default)]
struct Size {
    depth: usize,
    values: usize,
}

struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    /// All that was made.
    values: usize,
    root: Option<Value>,
}

/// Reads a text that has one document.
pub(crate) fn parse(text: &str) -> Result<Value, YamlError> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder { open: Vec::new(), anchors: HashMap::new(), values: 0, root: None };
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| scan_error(&error))?;
        let taken = builder.take(event);
        taken.map_err(|problem| YamlError { line: line(&span), problem })?;
    }
    Ok(builder.root.unwrap_or_default())
}

fn line(span: &Span) -> usize {
    span.start.line()
}

fn scan_error(error: &ScanError) -> YamlError {
    YamlError { line: error.marker().line(), problem: error.info().to_owned() }
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err("another document begins here; a file has one".to_owned())
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.is_some())?;
                self.scalar(text, style, anchor)
            }
            Event::Alias(anchor) => self.alias(anchor),
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.is_some())?;
                self.begin(Open::List { values: Vec::new(), size: Size::default(), anchor })
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.is_some())?;
                let fields = Map::new();
                self.begin(Open::Map { fields, key: None, size: Size::default(), anchor })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
        }
    }

    fn begin(&mut self, open: Open) -> Result<(), String> {
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            return Err("a key is a text, and no list or map".to_owned());
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(too_deep());
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let (value, size, anchor) = match self.open.pop() {
            Some(Open::List { values, size, anchor }) => (Value::Array(values), size, anchor),
            Some(Open::Map { fields, size, anchor, .. }) => (Value::Object(fields), size, anchor),
            None => return Ok(()),
        };
        self.values += 1;
        let node = Node { value, depth: size.depth + 1, values: size.values + 1 };
        self.keep(anchor, &node);
        self.put(node)
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
    ) -> Result<(), String> {
        if let Some(Open::Map { fields, key: key @ None, .. }) = self.open.last_mut() {
            if text == "<<" && style == ScalarStyle::Plain {
                return Err("`<<` takes fields from elsewhere: write them out here".to_owned());
            }
            if fields.contains_key(&*text) {
                return Err(format!("the key `{text}` is there twice: leave one of them out"));
            }
            let node = Node { value: Value::String(text.into_owned()), depth: 0, values: 1 };
            *key = node.value.as_str().map(str::to_owned);
            self.keep(anchor, &node);
            return Ok(());
        }
        let value = match style {
            ScalarStyle::Plain => plain(text)?,
            _ => Value::String(text.into_owned()),
        };
        self.values += 1;
        let node = Node { value, depth: 0, values: 1 };
        self.keep(anchor, &node);
        self.put(node)
    }

    fn alias(&mut self, anchor: usize) -> Result<(), String> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err("an alias stands inside of what it stands for".to_owned());
        };
        if let Some(Open::Map { key: None, .. }) = self.open.last() {
            return Err("a key is written out, and no alias".to_owned());
        }
        // Before it is made.
        self.values += node.values;
        self.check_values()?;
        let node = node.clone();
        self.put(node)
    }

    fn keep(&mut self, anchor: usize, node: &Node) {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
    }

    /// Puts a value where it belongs.
    fn put(&mut self, node: Node) -> Result<(), String> {
        self.check_values()?;
        if self.open.len() + node.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let grow = |size: &mut Size| {
            size.depth = size.depth.max(node.depth);
            size.values += node.values;
        };
        match self.open.last_mut() {
            None => self.root = Some(node.value),
            Some(Open::List { values, size, .. }) => {
                grow(size);
                values.push(node.value);
            }
            Some(Open::Map { fields, key, size, .. }) => {
                grow(size);
                if let Some(key) = key.take() {
                    fields.insert(key, node.value);
                }
            }
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), String> {
        if self.values > VALUES_MAX {
            return Err(format!("the text stands for more than {VALUES_MAX} values"));
        }
        Ok(())
    }
}

fn too_deep() -> String {
    format!("lists and maps are nested more than {DEPTH_MAX} deep")
}

fn refuse_tag(is_there: bool) -> Result<(), String> {
    if is_there {
        return Err("tags (`!…`) are not read; a text is written in quotes".to_owned());
    }
    Ok(())
}

/// A scalar without quotes, by the core schema.
fn plain(text: Cow<'_, str>) -> Result<Value, String> {
    let value = match &*text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        word => match number(word)? {
            Some(number) => Value::Number(number),
            None => Value::String(text.into_owned()),
        },
    };
    Ok(value)
}

fn number(word: &str) -> Result<Option<Number>, String> {
    let radix = |prefix, radix| {
        let digits = word.strip_prefix(prefix)?;
        digits.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some((digits, radix))
    };
    if let Some((digits, radix)) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Ok(u64::from_str_radix(digits, radix).ok().map(Number::from));
    }
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    if matches!(unsigned.to_ascii_lowercase().as_str(), ".inf" | ".nan") {
        return Err(format!("JSON has no number `{word}`; a text is written in quotes"));
    }
    if !is_decimal(unsigned) {
        return Ok(None);
    }
    // `+` is not for those who read numbers here, nor is a sign in front of nothing.
    let text = word.strip_prefix('+').unwrap_or(word);
    if let Ok(whole) = text.parse::<u64>() {
        return Ok(Some(whole.into()));
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(Some(whole.into()));
    }
    let number = text.parse::<f64>().ok().and_then(Number::from_f64);
    number.map(Some).ok_or_else(|| format!("the number `{word}` is too large"))
}

/// Digits, perhaps with a point among them and an exponent behind.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|it| it.strip_prefix(['+', '-']).unwrap_or(it));
    is_digits(whole)
        && is_digits(part)
        && !(whole.is_empty() && part.is_empty())
        && exponent.is_none_or(|it| !it.is_empty() && is_digits(it))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trigger_reads_as_the_json_that_it_stands_for() {
        let text = r#"
# What is paid is shipped.
triggerId: ship
events: [create, update]
condition: >-
  event.document.state == 'paid' &&
  event.before.state != 'paid'
url: https://example.com/ship   # a comment
retryPolicy: &retry
  maxAttempts: 3
  initialBackoff: 500ms
headers:
  x-note: "a: b"
  x-on: on
includeBefore: false
rollout: {percent: 10, slo: {maxErrorRate: 5.0e-2}}
again: *retry
script: |
  one
    two
nothing:
"#;
        assert_eq!(
            parse(text).unwrap(),
            json!({
                "triggerId": "ship",
                "events": ["create", "update"],
                "condition": "event.document.state == 'paid' && event.before.state != 'paid'",
                "url": "https://example.com/ship",
                "retryPolicy": { "maxAttempts": 3, "initialBackoff": "500ms" },
                "headers": { "x-note": "a: b", "x-on": "on" },
                "includeBefore": false,
                "rollout": { "percent": 10, "slo": { "maxErrorRate": 0.05 } },
                "again": { "maxAttempts": 3, "initialBackoff": "500ms" },
                "script": "one\n  two\n",
                "nothing": null,
            })
        );
        assert_eq!(parse("").unwrap(), Value::Null);
        assert_eq!(parse("--- 1\n...\n").unwrap(), json!(1));
    }

    #[test]
    fn scalars_are_those_of_the_core_schema() {
        let check = |text: &str, expected: Value| {
            assert_eq!(parse(&format!("a: {text}")), Ok(json!({ "a": expected })), "{text}");
        };
        for word in ["yes", "no", "on", "off", "y", "1_000", "12:30", "0x", "0b1", "1e", "."] {
            check(word, json!(word));
        }
        check("0o17", json!(15));
        check("0xFf", json!(255));
        check("+7", json!(7));
        check("-7", json!(-7));
        check("007", json!(7));
        check("1.", json!(1.0));
        check(".5", json!(0.5));
        check("1e3", json!(1000.0));
        check("18446744073709551615", json!(u64::MAX));
        check("'7'", json!("7"));
        check("\"\\u00e9\"", json!("é"));
        check("~", Value::Null);
        check("TRUE", json!(true));
        check("2026-01-31", json!("2026-01-31"));
    }

    #[test]
    fn what_json_has_no_word_for_is_refused_with_its_line() {
        let check = |text: &str, line: usize, part: &str| {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.problem.contains(part), "{error}");
        };
        check("a: 1\nb: 2\na: 3", 3, "`a` is there twice");
        check("a: &x {b: 1}\nc:\n  <<: *x", 3, "write them out");
        check("a: !!binary aGk=", 1, "tags");
        check("a: !thing {}", 1, "tags");
        check("a: .nan", 1, "no number");
        check("a: -.INF", 1, "no number");
        check("a: 1e999", 1, "too large");
        check("a: 1\n---\nb: 1", 2, "another document");
        check("? [1]\n: 2", 1, "a key is a text");
        check("a: &x 1\n*x : 2", 2, "no alias");
        check("a: &x [*x]", 1, "stands inside");
        check("a: [1", 2, "");
        check("a: b: c", 1, "");
    }

    #[test]
    fn a_short_text_cannot_stand_for_a_long_one() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..10 {
            let last = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{last}]\n"));
        }
        let error = parse(&text).unwrap_err();
        assert!(error.problem.contains("more than 100000 values"), "{error}");
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(parse(&nested(DEPTH_MAX + 1)).unwrap_err().problem.contains("64 deep"));
        // Neither in one step nor by aliases.
        let mut text = format!("a0: &a0 {}\n", nested(40));
        text.push_str("a1: [[[[[[[[[[[[[[[[[[[[[[[[*a0]]]]]]]]]]]]]]]]]]]]]]]]");
        assert!(parse(&text).unwrap_err().problem.contains("64 deep"));
    }
}
