//! JSON objects in bodies, as trees of a bounded size.
//!
//! A byte of JSON may become a hundred of a tree. No face but that of documents asks for more than
//! a list of some hundred things, so whatever is larger is refused while it is read, and not after
//! it was built.

use std::fmt;

use reveille_core::limits::CONSUMER_LINKS_MAX;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use super::fields::FieldError;

/// Values of a body: three lists as long as a list may be, one of them of objects with three fields.
const VALUES_MAX: usize = 8_000;
/// Objects of a body: each takes half a kilobyte, however small it is.
const OBJECTS_MAX: usize = 1_024;

const _: () = assert!(CONSUMER_LINKS_MAX < OBJECTS_MAX && CONSUMER_LINKS_MAX * 8 <= VALUES_MAX);

/// About what a value takes in memory, and an object besides.
const VALUE_BYTES: usize = 40;
const OBJECT_BYTES: usize = 640;

/// How large the tree of a body may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeLimits {
    pub(crate) values: usize,
    pub(crate) objects: usize,
}

impl Default for TreeLimits {
    fn default() -> TreeLimits {
        TreeLimits { values: VALUES_MAX, objects: OBJECTS_MAX }
    }
}

/// What a body may still hold.
#[derive(Default)]
pub(crate) struct TreeBudget {
    limits: TreeLimits,
    values: usize,
    objects: usize,
}

/// The body as an object.
pub(crate) fn parse(body: &[u8]) -> Result<Map<String, Value>, FieldError> {
    Ok(parse_within(body, TreeLimits::default())?.0)
}

/// Why a body is no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    #[error(transparent)]
    TooLarge(FieldError),
    #[error(transparent)]
    Malformed(FieldError),
}

impl From<TreeError> for FieldError {
    fn from(error: TreeError) -> FieldError {
        match error {
            TreeError::TooLarge(error) | TreeError::Malformed(error) => error,
        }
    }
}

/// The same within other limits, and about how many bytes the tree takes besides its texts.
pub(crate) fn parse_within(
    body: &[u8],
    limits: TreeLimits,
) -> Result<(Map<String, Value>, usize), TreeError> {
    let mut budget = TreeBudget { limits, ..TreeBudget::default() };
    let mut input = serde_json::Deserializer::from_slice(body);
    let value = budget.value().deserialize(&mut input).and_then(|value| {
        input.end()?;
        Ok(value)
    });
    match value {
        Ok(Value::Object(object)) => {
            Ok((object, budget.values * VALUE_BYTES + budget.objects * OBJECT_BYTES))
        }
        Ok(_) => Err(TreeError::Malformed("the body must be a JSON object".into())),
        // Reading takes whatever is JSON: only its limits are anything else that can be wrong.
        Err(error) if error.classify() == Category::Data => {
            Err(TreeError::TooLarge(describe(&error)))
        }
        Err(error) => Err(TreeError::Malformed(describe(&error))),
    }
}

/// What is wrong with a body that could not be read.
pub(crate) fn describe(error: &serde_json::Error) -> FieldError {
    match error.classify() {
        Category::Data => error.to_string().into(),
        _ => format!("the body is not valid JSON: {error}").into(),
    }
}

impl TreeBudget {
    /// Reads a value and takes what it needs.
    pub(crate) fn value(&mut self) -> ValueSeed<'_> {
        ValueSeed(self)
    }

    fn take<E: serde::de::Error>(&mut self, is_object: bool) -> Result<(), E> {
        let more = |count: usize, what: &str, max: usize| {
            let sentence = || E::custom(format!("the body has more than {max} {what}"));
            (count < max).then_some(count + 1).ok_or_else(sentence)
        };
        self.values = more(self.values, "values", self.limits.values)?;
        if is_object {
            self.objects = more(self.objects, "objects", self.limits.objects)?;
        }
        Ok(())
    }
}

/// Reads one value within a budget.
pub(crate) struct ValueSeed<'b>(&'b mut TreeBudget);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.0.take(false)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.0.take(false)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.0.take(false)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.take(false)?;
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.0.take(false)?;
        Ok(Value::String(value))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.0.take(false)?;
        Ok(Value::Null)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Value, S::Error> {
        let ValueSeed(budget) = self;
        budget.take(false)?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(budget.value())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let ValueSeed(budget) = self;
        budget.take(true)?;
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            fields.insert(name, map.next_value_seed(budget.value())?);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_sent() {
        let text =
            r#"{"a":[1,-2,0.5,1e3,null,true,"x\n"],"b":{"c":{},"d":[]},"e":18446744073709551615}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse(text.as_bytes()).map(Value::Object).as_ref(), Ok(&expected));
        for bad in ["", "{", "{} x", "[1,]", "{\"a\":1,}"] {
            let error = parse(bad.as_bytes()).unwrap_err().0;
            assert!(error.starts_with("the body is not valid JSON: "), "{bad}: {error}");
        }
        for other in ["[]", "1", "null", "\"x\""] {
            let error = parse(other.as_bytes()).unwrap_err().0;
            assert_eq!(error, "the body must be a JSON object");
        }
    }

    #[test]
    fn a_tree_ends_where_it_becomes_large() {
        let many =
            |item: &str, count: usize| format!("{{\"acks\":[{}]}}", vec![item; count].join(","));
        let check = |body: String, said: Option<&str>| match (parse(body.as_bytes()), said) {
            (Ok(_), None) => {}
            (Err(error), Some(said)) => assert!(error.0.contains(said), "{error}"),
            (parsed, said) => panic!("{:?} {said:?}", parsed.map(|_| ())),
        };
        check(many(r#"{"path":"/a","offset":"-1","from":"-1"}"#, 1_000), None);
        check(many("{}", 1_023), None);
        check(many("{}", 1_024), Some("more than 1024 objects"));
        check(many("0", 7_998), None);
        check(many("0", 7_999), Some("more than 8000 values"));
        check(many("[]", 3_000_000), Some("more than 8000 values"));
        // Whoever parses stops long before the stack ends.
        check("[".repeat(1_000_000), Some("recursion limit"));
    }
}
