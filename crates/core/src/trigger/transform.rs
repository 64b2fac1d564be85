//! Field masks: which fields of the documents are sent, and under which names.
//!
//! ```json
//! {"include": ["status", "address.city"], "exclude": ["address.zip"], "rename": {"status": "state"}}
//! ```
//!
//! Paths and nothing else. `include` leaves what it names, `exclude` takes away, `rename` moves: in
//! this order, in `before` and `after` alike. Conditions see the documents whole.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::limits::MASK_PATHS_MAX;
use crate::document::field::{Field, FieldError};
use crate::document::shape::Fields;

/// Which fields are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mask {
    /// `None`: all of them.
    pub include: Option<Vec<MaskPath>>,
    pub exclude: Vec<MaskPath>,
    /// From where to where.
    pub rename: Vec<(MaskPath, MaskPath)>,
}

/// Where in a document a field is, as everybody sees it: names with dots between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaskPath(Arc<str>);

/// The paths are no mask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    #[error("must have at most {MASK_PATHS_MAX} paths")]
    TooMany,
    #[error("has `{path}`: {error}")]
    Path { path: String, error: FieldError },
    #[error("has `{0}` and what is inside of it, or `{0}` twice: name each field once")]
    Overlap(String),
    #[error("moves to `{0}`, which is the document's own")]
    Own(String),
}

impl MaskPath {
    pub fn parse(text: &str) -> Result<MaskPath, MaskError> {
        let path = || crate::condition::excerpt(text);
        Field::parse(text).map_err(|error| MaskError::Path { path: path(), error })?;
        Ok(MaskPath(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn holds(&self, other: &MaskPath) -> bool {
        let rest = other.0.strip_prefix(&*self.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    fn get<'f>(&self, fields: &'f Fields) -> Option<&'f Value> {
        let mut segments = self.0.split('.');
        let first = fields.get(segments.next()?)?;
        segments.try_fold(first, |value, segment| value.as_object()?.get(segment))
    }

    /// Takes the field out. Objects that it leaves empty stay.
    fn take(&self, fields: &mut Fields) -> Option<Value> {
        match self.0.rsplit_once('.') {
            None => fields.remove(&*self.0),
            Some((parent, last)) => {
                let mut segments = parent.split('.');
                let first = fields.get_mut(segments.next()?)?;
                let parent = segments.try_fold(first, |value, segment| value.get_mut(segment))?;
                parent.as_object_mut()?.remove(last)
            }
        }
    }

    /// Puts a field there. What is on the way and no object is replaced.
    fn put(&self, fields: &mut Fields, value: Value) {
        let (parent, last) = match self.0.rsplit_once('.') {
            Some((parent, last)) => (parent, last),
            None => ("", &*self.0),
        };
        let mut place = fields;
        for segment in parent.split('.').filter(|segment| !segment.is_empty()) {
            let entry = place.entry(segment).or_insert(Value::Null);
            if !entry.is_object() {
                *entry = Value::Object(Map::new());
            }
            let Value::Object(inner) = entry else { return };
            place = inner;
        }
        place.insert(last.to_owned(), value);
    }
}

impl Mask {
    /// Refuses paths that say two things about one field.
    pub fn check(&self) -> Result<(), MaskError> {
        let include = self.include.iter().flatten();
        check_apart(include)?;
        check_apart(self.exclude.iter())?;
        check_apart(self.rename.iter().map(|(from, _)| from))?;
        check_apart(self.rename.iter().map(|(_, to)| to))?;
        let own = |to: &&MaskPath| !matches!(Field::parse(&to.0), Ok(Field::User(_)));
        match self.rename.iter().map(|(_, to)| to).find(own) {
            Some(to) => Err(MaskError::Own(to.to_string())),
            None => Ok(()),
        }
    }

    /// Whether it leaves everything as it is.
    pub fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty() && self.rename.is_empty()
    }

    /// What is left of a document.
    pub fn apply(&self, document: Fields) -> Fields {
        let mut fields = match &self.include {
            None => document,
            Some(include) => {
                let mut fields = Fields::new();
                for path in include {
                    if let Some(value) = path.get(&document) {
                        path.put(&mut fields, value.clone());
                    }
                }
                fields
            }
        };
        for path in &self.exclude {
            path.take(&mut fields);
        }
        // All are taken before any is put: two can change places.
        let moved: Vec<_> =
            self.rename.iter().map(|(from, to)| (from.take(&mut fields), to)).collect();
        for (value, to) in moved {
            if let Some(value) = value {
                to.put(&mut fields, value);
            }
        }
        fields
    }
}

fn check_apart<'m>(paths: impl Iterator<Item = &'m MaskPath>) -> Result<(), MaskError> {
    let mut paths: Vec<&MaskPath> = paths.collect();
    if paths.len() > MASK_PATHS_MAX {
        return Err(MaskError::TooMany);
    }
    paths.sort_unstable();
    for (place, path) in paths.iter().enumerate() {
        if paths.iter().skip(place + 1).any(|other| path.holds(other)) {
            return Err(MaskError::Overlap(path.to_string()));
        }
    }
    Ok(())
}

impl fmt::Display for MaskPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mask(include: Option<&[&str]>, exclude: &[&str], rename: &[(&str, &str)]) -> Mask {
        let path = |text: &&str| MaskPath::parse(text).unwrap();
        Mask {
            include: include.map(|it| it.iter().map(path).collect()),
            exclude: exclude.iter().map(path).collect(),
            rename: rename.iter().map(|(from, to)| (path(from), path(to))).collect(),
        }
    }

    fn check(mask: &Mask, expected: Value) {
        mask.check().unwrap();
        let document = json!({
            "id": "o1", "version": 3, "status": "open", "address": {"city": "Paris", "zip": 75},
            "tags": [1], "nil": null,
        });
        let Value::Object(document) = document else { panic!("is an object") };
        assert_eq!(Value::Object(mask.apply(document)), expected, "{mask:?}");
    }

    #[test]
    fn a_mask_leaves_takes_away_and_moves() {
        check(
            &mask(Some(&["status", "address.city", "nil", "gone"]), &[], &[]),
            json!({"status": "open", "address": {"city": "Paris"}, "nil": null}),
        );
        check(
            &mask(None, &["address.zip", "tags", "nil", "version", "gone.x"], &[]),
            json!({"id": "o1", "status": "open", "address": {"city": "Paris"}}),
        );
        check(
            &mask(
                Some(&["status", "address"]),
                &["address.zip"],
                &[("status", "state"), ("address.city", "town.name")],
            ),
            json!({"state": "open", "address": {}, "town": {"name": "Paris"}}),
        );
        check(
            &mask(Some(&["status", "tags"]), &[], &[("status", "tags"), ("tags", "status")]),
            json!({"status": [1], "tags": "open"}),
        );
        check(
            &mask(Some(&["status"]), &[], &[("id", "key"), ("status", "status.was")]),
            json!({"status": {"was": "open"}}),
        );
        check(&mask(Some(&[]), &[], &[]), json!({}));
        check(&mask(Some(&["tags.0", "status.x"]), &["tags.0"], &[("status.x", "y")]), json!({}));
    }

    #[test]
    fn what_says_two_things_about_a_field_is_refused() {
        let refused = |mask: Mask, expected: MaskError| assert_eq!(mask.check(), Err(expected));
        refused(mask(Some(&["a", "a.b"]), &[], &[]), MaskError::Overlap("a".into()));
        refused(mask(Some(&["a", "a-b", "a.b"]), &[], &[]), MaskError::Overlap("a".into()));
        refused(mask(None, &["a", "a"], &[]), MaskError::Overlap("a".into()));
        refused(mask(None, &[], &[("a", "b"), ("c", "b")]), MaskError::Overlap("b".into()));
        refused(mask(None, &[], &[("a", "version")]), MaskError::Own("version".into()));
        assert!(MaskPath::parse("a..b").is_err());
        assert!(MaskPath::parse("").is_err());
        let many: Vec<String> = (0..65).map(|number| format!("f{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        refused(mask(None, &many, &[]), MaskError::TooMany);
    }
}
