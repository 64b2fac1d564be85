//! Values of facts: a type, and JSON that is of it.

use std::sync::Arc;

use aws_lc_rs::digest;
use serde::ser::{Error as _, Serialize, SerializeStruct as _, Serializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::limits::FACT_VALUE_BYTES_MAX;
use super::name::EntityUri;
use crate::time::Millis;

/// What kind of value it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    String,
    Text,
    Number,
    Boolean,
    DateTime,
    /// An entity.
    Ref,
    Null,
}

impl ValueKind {
    pub const ALL: [ValueKind; 7] = [
        ValueKind::String,
        ValueKind::Text,
        ValueKind::Number,
        ValueKind::Boolean,
        ValueKind::DateTime,
        ValueKind::Ref,
        ValueKind::Null,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ValueKind::String => "string",
            ValueKind::Text => "text",
            ValueKind::Number => "number",
            ValueKind::Boolean => "boolean",
            ValueKind::DateTime => "datetime",
            ValueKind::Ref => "ref",
            ValueKind::Null => "null",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Result<ValueKind, ValueError> {
        ValueKind::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or(ValueError::Kind)
    }
}

/// A value, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactValue {
    kind: ValueKind,
    json: Arc<str>,
}

/// Which values are the same: those with the same identity are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub [u8; 16]);

/// It is no value of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error(
        "`value.type` is one of \"string\", \"text\", \"number\", \"boolean\", \"datetime\", \
         \"ref\" and \"null\""
    )]
    Kind,
    #[error("`value.v` is {0}, as `value.type` says")]
    Mismatch(&'static str),
    #[error("`value.v` is at most {FACT_VALUE_BYTES_MAX} bytes long, as JSON")]
    TooLarge,
}

impl Serialize for FactValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let v: &RawValue = serde_json::from_str(&self.json).map_err(S::Error::custom)?;
        let mut fields = serializer.serialize_struct("FactValue", 2)?;
        fields.serialize_field("type", self.kind.as_str())?;
        fields.serialize_field("v", v)?;
        fields.end()
    }
}

impl FactValue {
    /// Checks a value against its type.
    pub fn new(kind: ValueKind, v: &Value) -> Result<FactValue, ValueError> {
        let (fits, is) = match kind {
            ValueKind::String | ValueKind::Text => (v.is_string(), "a string"),
            ValueKind::Number => (v.is_number(), "a number"),
            ValueKind::Boolean => (v.is_boolean(), "true or false"),
            ValueKind::DateTime => {
                (instant(v).is_some(), "a timestamp such as \"2026-01-31T12:00:00Z\"")
            }
            ValueKind::Ref => (entity(v).is_some(), "an entity such as \"user:alice\""),
            ValueKind::Null => (v.is_null(), "null"),
        };
        if !fits {
            return Err(ValueError::Mismatch(is));
        }
        let json = v.to_string();
        if json.len() > FACT_VALUE_BYTES_MAX {
            Err(ValueError::TooLarge)
        } else {
            Ok(FactValue { kind, json: json.into() })
        }
    }

    /// A value as it was stored.
    pub fn from_stored(kind: ValueKind, json: Arc<str>) -> FactValue {
        FactValue { kind, json }
    }

    pub fn kind(&self) -> ValueKind {
        self.kind
    }

    /// The value as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The same for values that mean the same: numbers and times go by what they are, references by
    /// whom they name, and everything else by its text.
    pub fn id(&self) -> ValueId {
        let v: Value = serde_json::from_str(&self.json).unwrap_or_default();
        let text = match self.kind {
            ValueKind::Number => v.as_number().map(number_text),
            ValueKind::DateTime => instant(&v).map(|it| it.0.to_string()),
            ValueKind::Ref => entity(&v).map(|it| it.as_str().to_owned()),
            ValueKind::String | ValueKind::Text | ValueKind::Boolean | ValueKind::Null => None,
        };
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(self.kind.as_str().as_bytes());
        context.update(&[0]);
        context.update(text.as_deref().unwrap_or(&self.json).as_bytes());
        let hash = context.finish();
        let first = hash.as_ref().first_chunk::<16>();
        ValueId(*first.expect("SHA-256 has 32 bytes"))
    }

    /// As people read it.
    pub fn to_text(&self) -> String {
        match serde_json::from_str(&self.json) {
            Ok(Value::String(text)) => text,
            _ => self.json.to_string(),
        }
    }
}

fn instant(v: &Value) -> Option<Millis> {
    v.as_str().and_then(Millis::parse_rfc3339)
}

fn entity(v: &Value) -> Option<EntityUri> {
    v.as_str().and_then(|text| EntityUri::parse(text).ok())
}

/// One text for all ways of writing a number: `1`, `1.0` and `1e0` are the same.
fn number_text(number: &Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    // Every whole number of a float is written out; that of a minus zero is zero.
    if float.fract() == 0.0 { format!("{:.0}", float + 0.0) } else { format!("{float:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_of_its_type() {
        let good = [
            ("string", json!("a")),
            ("text", json!("")),
            ("number", json!(1.5)),
            ("boolean", json!(false)),
            ("datetime", json!("2026-01-31T12:00:00Z")),
            ("ref", json!("user:alice")),
            ("null", json!(null)),
        ];
        for (kind, v) in &good {
            let kind = ValueKind::parse(kind).unwrap();
            let value = FactValue::new(kind, v).unwrap();
            assert_eq!(value.json(), v.to_string());
            assert_eq!(FactValue::from_stored(kind, value.json().into()), value);
            for bad in [json!([]), json!({})] {
                assert!(matches!(FactValue::new(kind, &bad), Err(ValueError::Mismatch(_))));
            }
        }
        for (kind, v) in [
            ("string", json!(1)),
            ("number", json!("1")),
            ("boolean", json!(0)),
            ("datetime", json!("yesterday")),
            ("ref", json!(" ")),
            ("null", json!("")),
        ] {
            let kind = ValueKind::parse(kind).unwrap();
            assert!(matches!(FactValue::new(kind, &v), Err(ValueError::Mismatch(_))), "{kind:?}");
        }
        assert_eq!(ValueKind::parse("json"), Err(ValueError::Kind));
        let long = json!("x".repeat(FACT_VALUE_BYTES_MAX));
        assert_eq!(FactValue::new(ValueKind::Text, &long), Err(ValueError::TooLarge));
    }

    #[test]
    fn values_are_the_same_by_what_they_mean() {
        let id = |kind: &str, v: Value| {
            FactValue::new(ValueKind::parse(kind).unwrap(), &v).unwrap().id()
        };
        assert_eq!(id("number", json!(1)), id("number", json!(1.0)));
        assert_eq!(id("number", json!(-0.0)), id("number", json!(0)));
        assert_eq!(id("number", json!(1e15)), id("number", json!(1_000_000_000_000_000_u64)));
        assert_ne!(id("number", json!(1)), id("number", json!(1.5)));
        assert_ne!(id("number", json!(u64::MAX)), id("number", json!(u64::MAX - 1)));
        let (utc, elsewhere) = ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00");
        assert_eq!(id("datetime", json!(utc)), id("datetime", json!(elsewhere)));
        assert_ne!(id("string", json!(utc)), id("string", json!(elsewhere)));
        assert_eq!(id("ref", json!("User:Alice ")), id("ref", json!("user:alice")));
        assert_ne!(id("string", json!("A")), id("string", json!("a")));
        assert_ne!(id("string", json!("a")), id("text", json!("a")));
        assert_ne!(id("boolean", json!(true)), id("boolean", json!(false)));
    }
}
