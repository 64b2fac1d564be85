//! What an expression comes to: borrowed from the document wherever that is possible.

use std::rc::Rc;

use serde_json::{Map, Value as Json};

/// A value. To clone one costs nothing that grows with it.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'a str),
    /// A string that was put together.
    BuiltText(Rc<str>),
    List(&'a [Json]),
    BuiltList(Rc<Vec<Value<'a>>>),
    Map(&'a Map<String, Json>),
    BuiltMap(Rc<Vec<(Value<'a>, Value<'a>)>>),
}

impl<'a> Value<'a> {
    /// Numbers are signed integers where they fit, so that `x + 1` works for them.
    pub(crate) fn of(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(value) => Value::Int(value),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text),
            Json::Array(elements) => Value::List(elements),
            Json::Object(fields) => Value::Map(fields),
        }
    }

    /// A document, or null where there is none.
    pub(crate) fn of_document(document: Option<&'a Map<String, Json>>) -> Value<'a> {
        document.map_or(Value::Null, Value::Map)
    }

    /// A map of a few fields with names of ours.
    pub(crate) fn of_fields<const N: usize>(fields: [(&'static str, Value<'a>); N]) -> Value<'a> {
        let fields = fields.into_iter().map(|(name, value)| (Value::Text(name), value));
        Value::BuiltMap(Rc::new(fields.collect()))
    }

    /// What it is, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::UInt(_) => "an integer",
            Value::Float(_) => "a fraction",
            Value::Text(_) | Value::BuiltText(_) => "a string",
            Value::List(_) | Value::BuiltList(_) => "a list",
            Value::Map(_) | Value::BuiltMap(_) => "a map",
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::BuiltText(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub(super) fn as_list(&self) -> Option<List<'_, 'a>> {
        match self {
            Value::List(elements) => Some(List::Borrowed(elements)),
            Value::BuiltList(elements) => Some(List::Built(elements)),
            _ => None,
        }
    }

    /// How many entries, if it is a map.
    pub(super) fn map_len(&self) -> Option<usize> {
        match self {
            Value::Map(fields) => Some(fields.len()),
            Value::BuiltMap(entries) => Some(entries.len()),
            _ => None,
        }
    }

    /// An entry of a map by its place.
    pub(super) fn entry(&self, place: usize) -> Option<(Value<'a>, Value<'a>)> {
        match self {
            Value::BuiltMap(entries) => entries.get(place).cloned(),
            _ => None,
        }
    }
}

/// The elements of a list.
#[derive(Clone, Copy)]
pub(super) enum List<'b, 'a> {
    Borrowed(&'a [Json]),
    Built(&'b [Value<'a>]),
}

impl<'a> List<'_, 'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            List::Borrowed(elements) => elements.len(),
            List::Built(elements) => elements.len(),
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<Value<'a>> {
        match self {
            List::Borrowed(elements) => elements.get(place).map(Value::of),
            List::Built(elements) => elements.get(place).cloned(),
        }
    }
}
