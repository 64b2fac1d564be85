//! A patch: some fields of a document are written, the others stay.
//!
//! Each key is a field, and a dotted one a field inside of objects, which are made where they are
//! missing. What is written replaces what was there, objects and arrays whole. A field is never
//! removed: null stands for nothing, and setting the document leaves fields out.

use serde_json::{Map, Value};

use super::body::{BodyError, ReservedFields, take_own_fields};
use super::field::FieldPath;
use super::path::DocumentId;
use super::snapshot::Data;

/// Fields to be written, none of which lies in another.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    fields: Vec<(FieldPath, Value)>,
    bytes: usize,
}

impl Patch {
    pub fn parse(
        mut fields: Map<String, Value>,
        id: &DocumentId,
        reserved: ReservedFields,
    ) -> Result<Patch, BodyError> {
        take_own_fields(&mut fields, id, reserved)?;
        if fields.is_empty() {
            return Err(BodyError::NothingToUpdate);
        }
        // What cannot be a document can be no part of one.
        let data = Data::new(fields)?;
        let bytes = data.bytes();
        let parsed = data
            .into_fields()
            .into_iter()
            .map(|(name, value)| Ok((FieldPath::parse(&name)?, value)));
        let mut patch: Vec<_> = parsed.collect::<Result<_, BodyError>>()?;
        // Segment by segment, so that a field stands right before those inside of it.
        patch.sort_by(|(left, _), (right, _)| left.segments().cmp(right.segments()));
        for pair in patch.windows(2) {
            if let [(outer, _), (inner, _)] = pair
                && outer.holds(inner)
            {
                let (inner, outer) = (inner.as_str().to_owned(), outer.as_str().to_owned());
                return Err(BodyError::Overlap(inner, outer));
            }
        }
        Ok(Patch { fields: patch, bytes })
    }

    /// Bytes of what it writes, as JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The fields that it writes.
    pub fn fields(&self) -> impl Iterator<Item = &FieldPath> {
        self.fields.iter().map(|(field, _)| field)
    }

    /// The data with the fields written. Fails whole.
    pub fn apply(&self, data: &Data) -> Result<Data, BodyError> {
        let mut fields = data.fields().clone();
        for (field, value) in &self.fields {
            write(&mut fields, field, value)?;
        }
        Ok(Data::new(fields)?)
    }
}

fn write(
    fields: &mut Map<String, Value>,
    field: &FieldPath,
    value: &Value,
) -> Result<(), BodyError> {
    let mut within = fields;
    let mut segments = field.segments().peekable();
    while let Some(segment) = segments.next() {
        if segments.peek().is_none() {
            within.insert(segment.to_owned(), value.clone());
            break;
        }
        let next = within.entry(segment).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        let Value::Object(inner) = next else {
            let len: usize = segments.map(|rest| rest.len() + 1).sum();
            let outer = field.as_str().get(..field.as_str().len() - len);
            return Err(BodyError::NotAnObject(outer.unwrap_or(field.as_str()).to_owned()));
        };
        within = inner;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::document::limits::DOCUMENT_BYTES_MAX;
    use crate::document::snapshot::DataError;

    fn patched(before: &Value, patch: Value) -> Result<Value, BodyError> {
        let id = DocumentId::parse("r1").unwrap();
        let patch = patch.as_object().unwrap().clone();
        let patch = Patch::parse(patch, &id, ReservedFields::Strip)?;
        let before = Data::new(before.as_object().unwrap().clone())?;
        patch.apply(&before).map(|data| Value::Object(data.into_fields()))
    }

    #[test]
    fn fields_are_written_one_by_one() {
        let before = json!({"a": 1, "b": {"x": 1, "y": {"z": 2}}, "c": [1, 2], "n": null});
        let check = |patch: Value, changed: Value| {
            let mut expected = before.as_object().unwrap().clone();
            expected.extend(changed.as_object().unwrap().clone());
            assert_eq!(patched(&before, patch.clone()), Ok(expected.into()), "{patch}");
        };
        check(json!({"a": 2}), json!({"a": 2}));
        check(json!({"d": 2}), json!({"d": 2}));
        check(json!({"a": null}), json!({"a": null}));
        check(json!({"b": {"q": 1}}), json!({"b": {"q": 1}}));
        check(json!({"b.x": 2}), json!({"b": {"x": 2, "y": {"z": 2}}}));
        check(json!({"b.y.q": 3}), json!({"b": {"x": 1, "y": {"z": 2, "q": 3}}}));
        check(json!({"b.x": 2, "b.y": 0}), json!({"b": {"x": 2, "y": 0}}));
        check(json!({"c": [3]}), json!({"c": [3]}));
        check(json!({"q.r.s": 1}), json!({"q": {"r": {"s": 1}}}));
        check(json!({"n.r": 1}), json!({"n": {"r": 1}}));
        check(json!({"a": 2, "version": 9, "id": "r1", "version.x": 1}), json!({"a": 2}));
    }

    #[test]
    fn what_cannot_be_written_says_why() {
        let before = json!({"a": 1, "b": {"x": "t"}, "c": [1, 2]});
        let refused = |patch| patched(&before, patch).unwrap_err();
        assert_eq!(refused(json!({})), BodyError::NothingToUpdate);
        assert_eq!(refused(json!({"version": 1})), BodyError::NothingToUpdate);
        assert_eq!(refused(json!({"a.x": 1})), BodyError::NotAnObject("a".into()));
        assert_eq!(refused(json!({"b.x.y.z": 1})), BodyError::NotAnObject("b.x".into()));
        assert_eq!(refused(json!({"c.0": 1})), BodyError::NotAnObject("c".into()));
        let overlap = |inner: &str, outer: &str| BodyError::Overlap(inner.into(), outer.into());
        assert_eq!(refused(json!({"q": 1, "q.r": 1})), overlap("q.r", "q"));
        // `q-x` is sorted between them as a text.
        assert_eq!(refused(json!({"q": 1, "q-x": 1, "q.r": 1})), overlap("q.r", "q"));
        assert_eq!(refused(json!({"q.r": 1, "q.r.s.t": 1})), overlap("q.r.s.t", "q.r"));
        assert!(matches!(refused(json!({"a..b": 1})), BodyError::Field(_)));
        let half = "x".repeat(DOCUMENT_BYTES_MAX - 100);
        let too_much = patched(&json!({"a": "y".repeat(200)}), json!({"b": half})).unwrap_err();
        assert!(matches!(too_much, BodyError::Data(DataError::TooLarge(_))));
        let deep = (0..31).fold(json!({"z": 1}), |inner, _| json!({"z": inner}));
        let deeper = format!("{}q", "z.".repeat(31));
        let too_deep = patched(&deep, json!({deeper: {"more": {}}})).unwrap_err();
        assert_eq!(too_deep, BodyError::Data(DataError::TooDeep));
    }

    proptest! {
        #[test]
        fn a_patch_that_is_repeated_changes_nothing_more(
            names in prop::collection::vec("[ab](\\.[ab]){0,2}", 1..4),
            before in crate::document::arbitrary::value(),
        ) {
            let patch: Map<_, _> =
                names.into_iter().enumerate().map(|(at, name)| (name, json!(at))).collect();
            let before = json!({"a": before});
            if let Ok(once) = patched(&before, Value::Object(patch.clone())) {
                prop_assert_eq!(patched(&once, Value::Object(patch)), Ok(once));
            }
        }
    }
}
