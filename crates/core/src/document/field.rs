//! How a field of a document is named, in filters, orders, indexes, rules and conditions alike.
//!
//! | name | is |
//! |---|---|
//! | `id`, `collection` | where the document is |
//! | `version` | 1, 2, …: how often it was written |
//! | `createdAt`, `updatedAt` | milliseconds since 1970 |
//! | `deleted` | `true` on the tombstone of a deleted document, missing otherwise |
//! | anything else | user data: `status`, or `address.city` for what lies inside of objects |
//!
//! These names are a part of what is stored: indexes and cursors mean them. A field of the
//! document itself wins over user data of its name, which therefore is never stored. A dotted name
//! goes through objects alone: neither into arrays nor to keys that have a dot themselves.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::limits::{DOCUMENT_DEPTH_MAX, FIELD_BYTES_MAX};
use super::snapshot::{Data, DocumentView};
use super::value::{Num, ValueRef};

/// First segments that user data never has.
pub(super) const RESERVED: [&str; 8] =
    ["collection", "createdAt", "deleted", "updatedAt", "version", "_id", "_parent", "_path"];

/// One field of a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Id,
    Collection,
    Version,
    CreatedAt,
    UpdatedAt,
    Deleted,
    User(FieldPath),
}

/// Where in the user data a field is: names of objects' keys with dots between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Arc<str>);

/// The text names no field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("the name of a field is not empty, and neither is what is between its dots")]
    Empty,
    #[error("the name of a field is at most {FIELD_BYTES_MAX} bytes long")]
    TooLong,
    #[error("the name of a field goes at most {DOCUMENT_DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("there is no field `{0}`: `{1}` has nothing inside")]
    Inside(String, &'static str),
    #[error("there is no field `{0}`; a document has `id` and `collection`")]
    Unknown(&'static str),
    #[error("`{0}` is no user data; leave `data.` out")]
    NotUserData(String),
}

impl Field {
    pub fn parse(name: &str) -> Result<Field, FieldError> {
        let (first, is_whole) = match name.split_once('.') {
            Some((first, _)) => (first, false),
            None => (name, true),
        };
        let (field, own) = match first {
            "id" => (Field::Id, "id"),
            "collection" => (Field::Collection, "collection"),
            "version" => (Field::Version, "version"),
            "createdAt" => (Field::CreatedAt, "createdAt"),
            "updatedAt" => (Field::UpdatedAt, "updatedAt"),
            "deleted" => (Field::Deleted, "deleted"),
            "_id" => return Err(FieldError::Unknown("_id")),
            "_path" => return Err(FieldError::Unknown("_path")),
            "_parent" => return Err(FieldError::Unknown("_parent")),
            _ => return Ok(Field::User(FieldPath::parse(name)?)),
        };
        if is_whole { Ok(field) } else { Err(FieldError::Inside(shown(name), own)) }
    }

    /// The name of a field that is the document's own.
    pub(super) fn own_name(&self) -> Option<&'static str> {
        Some(match self {
            Field::Id => "id",
            Field::Collection => "collection",
            Field::Version => "version",
            Field::CreatedAt => "createdAt",
            Field::UpdatedAt => "updatedAt",
            Field::Deleted => "deleted",
            Field::User(_) => return None,
        })
    }

    /// What the field is in this document; `None` if it is missing, which null is not.
    pub fn value<'a>(&self, view: &DocumentView<'a>) -> Option<ValueRef<'a>> {
        let document = view.document;
        match self {
            Field::Id => Some(ValueRef::String(view.id)),
            Field::Collection => Some(ValueRef::String(view.collection)),
            Field::Version => Some(ValueRef::Number(Num::from(document.version))),
            Field::CreatedAt => Some(ValueRef::Number(Num::from(document.created_at.0))),
            Field::UpdatedAt => Some(ValueRef::Number(Num::from(document.updated_at.0))),
            Field::Deleted => document.is_tombstone().then_some(ValueRef::Bool(true)),
            Field::User(path) => path.value(document.data.as_deref()?).map(ValueRef::from),
        }
    }
}

impl FieldPath {
    pub(super) fn parse(name: &str) -> Result<FieldPath, FieldError> {
        if name.len() > FIELD_BYTES_MAX {
            return Err(FieldError::TooLong);
        }
        if name.split('.').any(str::is_empty) {
            return Err(FieldError::Empty);
        }
        if name.split('.').count() > DOCUMENT_DEPTH_MAX {
            return Err(FieldError::TooDeep);
        }
        Ok(FieldPath(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn segments(&self) -> std::str::Split<'_, char> {
        self.0.split('.')
    }

    /// Whether the other one is the same field, or lies inside of this one.
    pub(super) fn holds(&self, other: &FieldPath) -> bool {
        let rest = other.0.strip_prefix(&*self.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn value<'a>(&self, data: &'a Data) -> Option<&'a Value> {
        let mut segments = self.segments();
        let first = data.fields().get(segments.next()?)?;
        segments.try_fold(first, |value, segment| value.as_object()?.get(segment))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::User(path) => f.write_str(path.as_str()),
            own => f.write_str(own.own_name().unwrap_or_default()),
        }
    }
}

/// How much a refusal says of what was sent.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::snapshot::Document;
    use crate::time::Millis;

    #[test]
    fn fields_are_found_by_their_names() {
        let data = json!({"status": "open", "address": {"city": "Paris", "nil": null},
                          "tags": [1], "address.city": 1, "id": "user's"});
        let data = Data::new(data.as_object().unwrap().clone()).unwrap();
        let live = Document {
            version: 3,
            created_at: Millis(5),
            updated_at: Millis(7),
            data: Some(data.into()),
        };
        let dead = Document { data: None, ..live.clone() };
        let check = |document: &Document, name: &str, expected: Option<Value>| {
            let view = DocumentView { collection: "rooms", id: "r1", document };
            let found = Field::parse(name).unwrap().value(&view);
            assert_eq!(found, expected.as_ref().map(ValueRef::from), "{name}");
        };
        check(&live, "status", Some(json!("open")));
        check(&live, "address.city", Some(json!("Paris")));
        check(&live, "address.nil", Some(json!(null)));
        check(&live, "address.zip", None);
        check(&live, "status.x", None);
        check(&live, "tags.0", None);
        check(&live, "id", Some(json!("r1")));
        check(&live, "collection", Some(json!("rooms")));
        check(&live, "version", Some(json!(3)));
        check(&live, "createdAt", Some(json!(5)));
        check(&live, "updatedAt", Some(json!(7)));
        check(&live, "deleted", None);
        check(&dead, "deleted", Some(json!(true)));
        check(&dead, "status", None);
        check(&dead, "version", Some(json!(3)));
    }

    #[test]
    fn what_names_no_field_is_refused() {
        let refused = |name: &str| Field::parse(name).unwrap_err();
        for name in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(refused(name), FieldError::Empty, "{name}");
        }
        assert_eq!(refused("version.x"), FieldError::Inside("version.x".into(), "version"));
        assert_eq!(refused("_id"), FieldError::Unknown("_id"));
        assert_eq!(refused(&"a".repeat(513)), FieldError::TooLong);
        assert_eq!(refused(&"a.".repeat(32).replace("a.", "a.a.")[..65]), FieldError::TooDeep);
        assert_eq!(Field::parse("data.x").unwrap().to_string(), "data.x");
    }
}
