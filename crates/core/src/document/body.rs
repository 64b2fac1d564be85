//! What a client sends as a document: its data, its id, and names that are not the client's.

use serde_json::{Map, Value};

use super::field::{FieldError, RESERVED, shown};
use super::path::{DocumentId, IdError};
use super::snapshot::{Data, DataError};

/// What becomes of fields that are the document's own, like `version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservedFields {
    /// They are left out, so that a document that was read can be sent back: the public API.
    Strip,
    /// The write is refused: transactions, where a field that is not written is a surprise.
    Refuse,
}

/// The body is no document, or no part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("`{0}` is the document's own field and cannot be written; leave it out")]
    Reserved(String),
    #[error("the id of the body is `{body}` and that of the path `{path}`; an id never changes")]
    OtherId { body: String, path: String },
    #[error(transparent)]
    Id(#[from] IdError),
    /// Otherwise it would be there beside the nested field of that name, which every filter,
    /// order and patch means by it.
    #[error("`{0}` has a dot in it: write an object inside of an object, or patch the field")]
    DottedName(String),
    #[error("a field has a name")]
    EmptyName,
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("there is nothing to update; name a field")]
    NothingToUpdate,
    #[error("`{0}` lies in `{1}`, and both are written; write one of them")]
    Overlap(String, String),
    /// Null counts as nothing there: it is how a field is removed.
    #[error("`{0}` is not an object, so nothing can be written inside of it; write it whole")]
    NotAnObject(String),
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// Takes the `id` of a body for a collection out of it, if it has one.
pub fn take_id(fields: &mut Map<String, Value>) -> Result<Option<DocumentId>, IdError> {
    fields.remove("id").map(|id| DocumentId::from_json(&id)).transpose()
}

impl Data {
    /// The whole data of a document, as `create` and `set` write it. Keys inside of objects may be
    /// anything; those of the document itself have no dots.
    pub fn parse(
        mut fields: Map<String, Value>,
        id: &DocumentId,
        reserved: ReservedFields,
    ) -> Result<Data, BodyError> {
        take_own_fields(&mut fields, id, reserved)?;
        for name in fields.keys() {
            match name.contains('.') {
                true => return Err(BodyError::DottedName(shown(name))),
                false if name.is_empty() => return Err(BodyError::EmptyName),
                false => {}
            }
        }
        Ok(Data::new(fields)?)
    }
}

/// Removes `id`, which must be that of the path, and the reserved fields.
pub(super) fn take_own_fields(
    fields: &mut Map<String, Value>,
    id: &DocumentId,
    reserved: ReservedFields,
) -> Result<(), BodyError> {
    if let Some(body) = take_id(fields)?
        && body != *id
    {
        return Err(BodyError::OtherId { body: body.to_string(), path: id.to_string() });
    }
    let is_own = |name: &str| {
        let first = name.split('.').next().unwrap_or(name);
        // `id.x` is nothing that a document could have.
        RESERVED.contains(&first) || first == "id"
    };
    match reserved {
        ReservedFields::Strip => fields.retain(|name, _| !is_own(name)),
        ReservedFields::Refuse => {
            if let Some(name) = fields.keys().find(|name| is_own(name)) {
                return Err(BodyError::Reserved(shown(name)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ReservedFields::{Refuse, Strip};
    use super::*;

    fn parse(body: Value, reserved: ReservedFields) -> Result<Value, BodyError> {
        let id = DocumentId::parse("7").unwrap();
        let body = body.as_object().unwrap().clone();
        Data::parse(body, &id, reserved).map(|data| Value::Object(data.into_fields()))
    }

    #[test]
    fn own_fields_are_left_out_or_refused() {
        for name in RESERVED {
            assert_eq!(parse(json!({"a": 1, name: 2}), Strip), Ok(json!({"a": 1})));
            let refused = Err(BodyError::Reserved(name.into()));
            assert_eq!(parse(json!({"a": 1, name: 2}), Refuse), refused);
        }
        let inside = json!({"a": {"version": 1, "id": 2, "x.y": 3, "": 4}});
        assert_eq!(parse(inside.clone(), Refuse), Ok(inside));
    }

    #[test]
    fn the_id_is_that_of_the_path() {
        for mode in [Strip, Refuse] {
            assert_eq!(parse(json!({"id": "7", "a": 1}), mode), Ok(json!({"a": 1})));
            assert_eq!(parse(json!({"id": 7}), mode), Ok(json!({})));
            let other = BodyError::OtherId { body: "8".into(), path: "7".into() };
            assert_eq!(parse(json!({"id": 8}), mode), Err(other));
            assert_eq!(parse(json!({"id": null}), mode), Err(BodyError::Id(IdError::NotText)));
        }
        let mut body = json!({"id": 5, "a": 1}).as_object().unwrap().clone();
        assert_eq!(take_id(&mut body).unwrap().unwrap().as_str(), "5");
        assert_eq!(take_id(&mut body), Ok(None));
    }

    #[test]
    fn a_field_that_could_not_be_found_again_is_not_written() {
        let dotted = Err(BodyError::DottedName("a.b".into()));
        assert_eq!(parse(json!({"a.b": 1}), Strip), dotted);
        assert_eq!(parse(json!({"": 1}), Strip), Err(BodyError::EmptyName));
    }
}
