//! Reading JSON bodies field by field: what is wrong is named.

use reveille_core::limits::CONSUMER_LINKS_MAX;
use reveille_core::time::parse_period_ms;
use reveille_engine::limits::{EXPLICIT_STREAMS_MAX, NOTICE_STREAMS_MAX};
use serde_json::{Map, Value};

use super::object;

/// What is wrong with a body, as a sentence for whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FieldError(pub(crate) String);

impl From<String> for FieldError {
    fn from(message: String) -> FieldError {
        FieldError(message)
    }
}

impl From<&str> for FieldError {
    fn from(message: &str) -> FieldError {
        FieldError(message.to_owned())
    }
}

/// The fields of a JSON object.
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

/// Entries of a list: each costs time while others wait for the decision, and nobody follows, names
/// or is told of more streams at once.
pub(crate) const LIST_MAX: usize = CONSUMER_LINKS_MAX;

const _: () = assert!(LIST_MAX >= EXPLICIT_STREAMS_MAX && LIST_MAX >= NOTICE_STREAMS_MAX);

/// Whether a list of that name may have as many entries.
pub(crate) fn check_count(name: &str, count: usize) -> Result<(), FieldError> {
    if count > LIST_MAX {
        return Err(format!("`{name}` has {count} entries; {LIST_MAX} are the most").into());
    }
    Ok(())
}

/// The body as an object.
pub(crate) fn parse_object(body: &[u8]) -> Result<Map<String, Value>, FieldError> {
    object::parse(body)
}

impl<'a> Fields<'a> {
    /// A field that is there; `null` is as good as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, FieldError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` must be a string").into()),
        }
    }

    /// False if it is left out.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, FieldError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("`{name}` must be true or false").into()),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, FieldError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let message = || format!("`{name}` must be a whole number, not negative").into();
        value.as_u64().map(Some).ok_or_else(message)
    }

    /// A length of time: `"500ms"`, `"45s"`, or milliseconds as a number.
    pub(crate) fn period_ms(&self, name: &str) -> Result<Option<u64>, FieldError> {
        let period_ms = match self.get(name) {
            None => return Ok(None),
            Some(Value::String(text)) => parse_period_ms(text),
            Some(value) => value.as_u64(),
        };
        period_ms.map(Some).ok_or_else(|| {
            format!("`{name}` must be a time like \"500ms\", \"45s\" or \"10m\", or milliseconds")
                .into()
        })
    }

    /// A list of no more than [`LIST_MAX`] entries.
    pub(crate) fn list(&self, name: &str) -> Result<&'a [Value], FieldError> {
        match self.get(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => check_count(name, items.len()).map(|()| items.as_slice()),
            Some(_) => Err(format!("`{name}` must be an array").into()),
        }
    }
}
