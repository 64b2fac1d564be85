//! Indexes of documents, as they are declared, shown and suggested.

use reveille_core::document::index::{
    CollectionPattern, IndexDefinition, index_field_name, parse_index_field,
};
use reveille_core::document::order::{Direction, SortField};
use serde_json::{Map, Value, json};

use super::fields::{FieldError, Fields};
use super::known::check_fields_of;

/// More indexes than this are not even read.
const INDEXES_READ_MAX: usize = 1_000;

/// The fields of an index; those behind the first two are read back as they were shown.
const INDEX_FIELDS: [&str; 4] = ["collection", "fields", "state", "progress"];

/// An index as it is declared and as it is suggested.
pub(crate) fn index_json(index: &IndexDefinition) -> Map<String, Value> {
    let fields = index.fields().iter().map(
        |by| json!({ "path": index_field_name(&by.field), "direction": by.direction.as_str() }),
    );
    let mut object = Map::new();
    object.insert("collection".into(), index.collection.as_str().into());
    object.insert("fields".into(), fields.collect());
    object
}

/// The indexes that a body declares.
pub(crate) fn parse_indexes(body: &Map<String, Value>) -> Result<Vec<IndexDefinition>, FieldError> {
    let list = match body.get("indexes") {
        Some(Value::Array(list)) if list.len() <= INDEXES_READ_MAX => list,
        Some(Value::Array(list)) => {
            return Err(format!("`indexes` has {} entries; remove some", list.len()).into());
        }
        Some(_) => return Err("`indexes` must be an array".into()),
        None => {
            return Err("`indexes` is missing; an empty array declares that there are none".into());
        }
    };
    list.iter()
        .enumerate()
        .map(|(at, index)| parse_index(index, &format!("indexes[{at}]")))
        .collect()
}

fn parse_index(index: &Value, name: &str) -> Result<IndexDefinition, FieldError> {
    let Value::Object(object) = index else {
        return Err(format!("`{name}` must be an object with `collection` and `fields`").into());
    };
    check_fields_of(name, object, &INDEX_FIELDS)?;
    let collection = Fields(object).text("collection")?;
    let collection = collection.ok_or_else(|| format!("`{name}` has no `collection`"))?;
    let collection =
        CollectionPattern::parse(collection).map_err(|error| format!("`{name}`: {error}"))?;
    let fields = Fields(object).list("fields")?.iter().enumerate();
    let fields = fields.map(|(at, field)| parse_index_part(field, &format!("{name}.fields[{at}]")));
    let fields = fields.collect::<Result<Vec<SortField>, FieldError>>()?;
    IndexDefinition::new(collection, fields).map_err(|error| format!("`{name}`: {error}").into())
}

fn parse_index_part(field: &Value, name: &str) -> Result<SortField, FieldError> {
    let Value::Object(object) = field else {
        return Err(format!("`{name}` must be an object with `path` and `direction`").into());
    };
    check_fields_of(name, object, &["path", "direction"])?;
    let path = Fields(object).text("path")?;
    let path = path.ok_or_else(|| format!("`{name}` has no `path`"))?;
    let field = parse_index_field(path).map_err(|error| format!("`{name}`: {error}"))?;
    Ok(SortField { field, direction: parse_direction(object, name)? })
}

/// Which way something is sorted: up, unless it is said.
pub(crate) fn parse_direction(
    object: &Map<String, Value>,
    name: &str,
) -> Result<Direction, FieldError> {
    let Some(text) = Fields(object).text("direction")? else { return Ok(Direction::Asc) };
    Direction::parse(text).map_err(|error| format!("`{name}`: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_as_it_is_shown() {
        let index = json!({ "collection": "rooms/*/messages", "fields": [
            { "path": "data.status", "direction": "asc" },
            { "path": "updatedAt", "direction": "desc" },
        ] });
        let body = json!({ "indexes": [index] });
        let parsed = parse_indexes(body.as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(index_json(&parsed[0])), index);
    }

    #[test]
    fn what_is_wrong_with_an_index_is_named() {
        let check = |body: Value, said: &str| {
            let error = parse_indexes(body.as_object().unwrap()).unwrap_err().0;
            assert!(error.contains(said), "{error}");
        };
        let with = |index: Value| json!({ "indexes": [index] });
        check(json!({}), "`indexes` is missing");
        check(json!({"indexes": {}}), "`indexes` must be an array");
        check(with(json!(1)), "`indexes[0]` must be an object");
        check(with(json!({"fields": []})), "`indexes[0]` has no `collection`");
        check(with(json!({"collection": "a"})), "an index has at least one field");
        check(with(json!({"collection": "a/b", "fields": [{"path": "x"}]})), "is a document");
        check(with(json!({"collection": "a*", "fields": [{"path": "x"}]})), "a whole segment");
        check(with(json!({"collection": "a", "fields": ["x"]})), "`indexes[0].fields[0]` must be");
        check(with(json!({"collection": "a", "fields": [{}]})), "has no `path`");
        check(with(json!({"collection": "a", "fields": [{"path": ""}]})), "is not empty");
        let bad = json!({"collection": "a", "fields": [{"path": "x", "direction": "up"}]});
        check(with(bad), "`asc` or `desc`");
        check(with(json!({"collections": "a"})), "did you mean `collection`?");
    }
}
