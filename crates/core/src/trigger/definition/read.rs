//! Fields of JSON, by their names and their kinds. What is null is as good as absent.

use serde_json::{Map, Value};

use super::super::duration::{parse_ms, print_ms};
use super::{DefinitionError, Problem};
use crate::known::describe_unknown;

/// An object, and where it is.
pub(super) struct Object<'a> {
    /// The names that it is inside of, with a dot at the end.
    place: String,
    fields: &'a Map<String, Value>,
}

type Result<T, E = DefinitionError> = std::result::Result<T, E>;

impl<'a> Object<'a> {
    /// The object in a field of that name, which has no fields but these.
    pub(super) fn of(value: &'a Value, name: &str, known: &[&str]) -> Result<Object<'a>> {
        let Value::Object(fields) = value else {
            return Err(error(name, Problem::Kind("an object, with fields and their values")));
        };
        if let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            let sentence = describe_unknown("field", unknown, known);
            return Err(error(name, Problem::UnknownField(sentence)));
        }
        let place = if name.is_empty() { String::new() } else { format!("{name}.") };
        Ok(Object { place, fields })
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// The whole name of a field.
    pub(super) fn name(&self, field: &str) -> String {
        format!("{}{field}", self.place)
    }

    pub(super) fn error(&self, field: &str, problem: impl Into<Problem>) -> DefinitionError {
        DefinitionError { field: self.name(field), problem: problem.into() }
    }

    pub(super) fn missing<T>(&self, field: &str, what: &'static str) -> Result<T> {
        Err(self.error(field, Problem::Missing(what)))
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(field, Problem::Kind("a string"))),
        }
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.error(field, Problem::Kind("true or false"))),
        }
    }

    pub(super) fn number(&self, field: &str, min: u32, max: u32) -> Result<Option<u32>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let problem = Problem::Range { min: min.into(), max: max.into() };
                Err(self.error(field, problem))
            }
        }
    }

    /// A duration in milliseconds. Numbers are refused: they have no unit.
    pub(super) fn duration(&self, field: &str, min_ms: u64, max_ms: u64) -> Result<Option<u64>> {
        let text = match self.get(field) {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(_) => {
                let expected = "a string with a unit like `500ms`, `5s` or `1m30s`";
                return Err(self.error(field, Problem::Kind(expected)));
            }
        };
        let ms = parse_ms(text).map_err(|problem| self.error(field, problem))?;
        if !(min_ms..=max_ms).contains(&ms) {
            let (min, max) = (print_ms(min_ms), print_ms(max_ms));
            return Err(self.error(field, Problem::DurationRange { min, max }));
        }
        Ok(Some(ms))
    }

    pub(super) fn list(&self, field: &str, max: usize) -> Result<Option<&'a [Value]>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(entries)) if entries.len() > max => {
                Err(self.error(field, Problem::TooMany(max)))
            }
            Some(Value::Array(entries)) => Ok(Some(entries)),
            Some(_) => Err(self.error(field, Problem::Kind("an array"))),
        }
    }

    pub(super) fn texts(&self, field: &str, max: usize) -> Result<Option<Vec<&'a str>>> {
        let Some(entries) = self.list(field, max)? else { return Ok(None) };
        let kind = || self.error(field, Problem::Kind("an array of strings"));
        let texts = entries.iter().map(|entry| entry.as_str().ok_or_else(kind));
        texts.collect::<Result<_>>().map(Some)
    }

    pub(super) fn map(&self, field: &str) -> Result<Option<&'a Map<String, Value>>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields)),
            Some(_) => Err(self.error(field, Problem::Kind("an object, with names and values"))),
        }
    }

    pub(super) fn object(&self, field: &str, known: &[&str]) -> Result<Option<Object<'a>>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        Object::of(value, &self.name(field), known).map(Some)
    }
}

pub(super) fn error(field: &str, problem: Problem) -> DefinitionError {
    DefinitionError { field: field.to_owned(), problem }
}
