//! Where documents are: `rooms/r1/messages/m9` is a document, `rooms/r1/messages` its collection.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::limits::{DOCUMENT_ID_BYTES_MAX, DOCUMENT_PATH_BYTES_MAX};

/// Collections of these names would hide routes, or are the server's own.
const RESERVED: [&str; 5] = ["trigger", "query", "databases", "sys", "batch"];

/// The name of a document within its collection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(Arc<str>);

/// An odd number of segments: `rooms`, `rooms/r1/messages`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionPath(Arc<str>);

/// An even number of segments: `rooms/r1`. Ordered by collection, then by id, as keys are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentPath {
    collection: CollectionPath,
    id: DocumentId,
}

/// A path that may be either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Collection(CollectionPath),
    Document(DocumentPath),
}

/// The text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty; name a collection (`rooms`) or a document (`rooms/r1`)")]
    Empty,
    #[error("a path is at most {DOCUMENT_PATH_BYTES_MAX} bytes long")]
    TooLong,
    #[error("a path has no slash at its beginning or end, and none after another")]
    EmptySegment,
    #[error("a path has letters, digits, `_`, `-`, `.` and `/`, but not `{0}`")]
    BadCharacter(char),
    #[error("`.` and `..` are no names; a path is never relative")]
    Relative,
    #[error("no collection can be called `{0}`: the name is reserved; choose another")]
    Reserved(&'static str),
    #[error("`{0}` is a collection; add the id of a document")]
    IsCollection(String),
    #[error("`{0}` is a document; a collection has an odd number of segments")]
    IsDocument(String),
    #[error(transparent)]
    Id(#[from] IdError),
}

/// The value is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("the id of a document is not empty; leave `id` out to have one made")]
    Empty,
    #[error("the id of a document is at most {DOCUMENT_ID_BYTES_MAX} bytes long")]
    TooLong,
    #[error("the id of a document has letters, digits, `_`, `-` and `.`, but not `{0}`")]
    BadCharacter(char),
    #[error("`.` and `..` are no ids")]
    Relative,
    #[error("the id of a document is a string, or a whole number")]
    NotText,
}

impl DocumentId {
    pub fn parse(raw: &str) -> Result<DocumentId, IdError> {
        check_id(raw)?;
        Ok(DocumentId(raw.into()))
    }

    /// The `id` of a body. A whole number becomes its digits.
    pub fn from_json(value: &Value) -> Result<DocumentId, IdError> {
        match value {
            Value::String(text) => DocumentId::parse(text),
            Value::Number(number) if !number.is_f64() => DocumentId::parse(&number.to_string()),
            _ => Err(IdError::NotText),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl CollectionPath {
    pub fn parse(raw: &str) -> Result<CollectionPath, PathError> {
        match Place::parse(raw)? {
            Place::Collection(path) => Ok(path),
            Place::Document(_) => Err(PathError::IsDocument(raw.to_owned())),
        }
    }

    /// Takes one slash at either end as well, as paths are written for triggers: `/rooms/`.
    pub fn parse_tolerant(raw: &str) -> Result<CollectionPath, PathError> {
        CollectionPath::parse(without_slashes(raw))
    }

    /// The document of this id. Fails if its path would be too long.
    pub fn document(&self, id: DocumentId) -> Result<DocumentPath, PathError> {
        if self.0.len() + 1 + id.0.len() > DOCUMENT_PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        Ok(DocumentPath { collection: self.clone(), id })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl DocumentPath {
    pub fn parse(raw: &str) -> Result<DocumentPath, PathError> {
        match Place::parse(raw)? {
            Place::Document(path) => Ok(path),
            Place::Collection(_) => Err(PathError::IsCollection(raw.to_owned())),
        }
    }

    /// Takes one slash at either end as well, as paths are written for triggers: `/rooms/r1`.
    pub fn parse_tolerant(raw: &str) -> Result<DocumentPath, PathError> {
        DocumentPath::parse(without_slashes(raw))
    }

    pub fn collection(&self) -> &CollectionPath {
        &self.collection
    }

    pub fn id(&self) -> &DocumentId {
        &self.id
    }
}

impl Place {
    pub fn parse(raw: &str) -> Result<Place, PathError> {
        if raw.is_empty() {
            return Err(PathError::Empty);
        }
        if raw.len() > DOCUMENT_PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if let Some(bad) = raw.chars().find(|c| !is_id_character(*c) && *c != '/') {
            return Err(PathError::BadCharacter(bad));
        }
        let mut is_document = false;
        for (at, segment) in raw.split('/').enumerate() {
            is_document = at % 2 == 1;
            match segment {
                "" => return Err(PathError::EmptySegment),
                "." | ".." => return Err(PathError::Relative),
                _ if is_document => check_id(segment)?,
                _ => {}
            }
            if at == 0
                && let Some(name) = RESERVED.into_iter().find(|name| *name == segment)
            {
                return Err(PathError::Reserved(name));
            }
        }
        match raw.rsplit_once('/') {
            Some((collection, id)) if is_document => Ok(Place::Document(DocumentPath {
                collection: CollectionPath(collection.into()),
                id: DocumentId(id.into()),
            })),
            _ => Ok(Place::Collection(CollectionPath(raw.into()))),
        }
    }
}

fn check_id(raw: &str) -> Result<(), IdError> {
    match raw {
        "" => Err(IdError::Empty),
        "." | ".." => Err(IdError::Relative),
        _ if raw.len() > DOCUMENT_ID_BYTES_MAX => Err(IdError::TooLong),
        _ => match raw.chars().find(|c| !is_id_character(*c)) {
            Some(bad) => Err(IdError::BadCharacter(bad)),
            None => Ok(()),
        },
    }
}

pub(super) fn is_id_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn without_slashes(raw: &str) -> &str {
    let raw = raw.strip_prefix('/').unwrap_or(raw);
    raw.strip_suffix('/').unwrap_or(raw)
}

impl fmt::Display for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for CollectionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for DocumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collection, self.id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refused(raw: &str, expected: &PathError) {
        assert_eq!(Place::parse(raw).as_ref(), Err(expected), "{raw}");
    }

    #[test]
    fn an_even_number_of_segments_is_a_document() {
        let path = DocumentPath::parse("rooms/r1/messages/m.9").unwrap();
        assert_eq!(path.collection().as_str(), "rooms/r1/messages");
        assert_eq!(path.id().as_str(), "m.9");
        assert_eq!(path.to_string(), "rooms/r1/messages/m.9");
        assert_eq!(CollectionPath::parse("rooms/r1/messages"), Ok(path.collection().clone()));
        assert_eq!(
            DocumentPath::parse("rooms").unwrap_err().to_string(),
            "`rooms` is a collection; add the id of a document"
        );
        assert!(matches!(CollectionPath::parse("rooms/r1"), Err(PathError::IsDocument(_))));
    }

    #[test]
    fn what_is_no_path_says_why() {
        refused("", &PathError::Empty);
        for raw in ["/", "/rooms", "rooms/", "rooms//m", "//rooms"] {
            refused(raw, &PathError::EmptySegment);
        }
        refused("rooms/a b", &PathError::BadCharacter(' '));
        refused("rooms/\u{e9}", &PathError::BadCharacter('\u{e9}'));
        refused("rooms/*", &PathError::BadCharacter('*'));
        refused("rooms/..", &PathError::Relative);
        refused("./r1", &PathError::Relative);
        refused(&"r".repeat(1_025), &PathError::TooLong);
        refused(&format!("rooms/{}", "r".repeat(65)), &PathError::Id(IdError::TooLong));
        refused(&format!("rooms/{}/m", "r".repeat(65)), &PathError::Id(IdError::TooLong));
        assert!(Place::parse(&format!("rooms/{}", "r".repeat(64))).is_ok());
    }

    #[test]
    fn reserved_names_are_no_collections_but_may_be_anything_further_in() {
        for name in RESERVED {
            refused(name, &PathError::Reserved(name));
            refused(&format!("{name}/x"), &PathError::Reserved(name));
            assert!(Place::parse(&format!("rooms/{name}/{name}")).is_ok());
            assert!(Place::parse(&format!("{name}s")).is_ok());
        }
    }

    #[test]
    fn triggers_write_slashes_around_a_path() {
        let plain = DocumentPath::parse("rooms/r1");
        for raw in ["/rooms/r1", "rooms/r1/", "/rooms/r1/", "rooms/r1"] {
            assert_eq!(DocumentPath::parse_tolerant(raw), plain, "{raw}");
        }
        assert_eq!(DocumentPath::parse_tolerant("//rooms/r1"), Err(PathError::EmptySegment));
        assert_eq!(CollectionPath::parse_tolerant("/rooms/"), CollectionPath::parse("rooms"));
        assert_eq!(CollectionPath::parse_tolerant("/"), Err(PathError::Empty));
    }

    #[test]
    fn whole_numbers_are_ids() {
        let id = |value| DocumentId::from_json(&value).map(|id| id.to_string());
        assert_eq!(id(json!("a")), Ok("a".into()));
        assert_eq!(id(json!(7)), Ok("7".into()));
        assert_eq!(id(json!(-7)), Ok("-7".into()));
        assert_eq!(id(json!(u64::MAX)), Ok(u64::MAX.to_string()));
        for bad in [json!(1.5), json!(null), json!(true), json!([1])] {
            assert_eq!(id(bad), Err(IdError::NotText));
        }
        assert_eq!(id(json!("")), Err(IdError::Empty));
        assert_eq!(id(json!("a/b")), Err(IdError::BadCharacter('/')));
    }

    #[test]
    fn a_document_with_an_id_that_was_made_may_not_be_too_far_down() {
        let collection = CollectionPath::parse(&"c".repeat(1_000)).unwrap();
        let id = |len: usize| DocumentId::parse(&"i".repeat(len)).unwrap();
        assert!(collection.document(id(23)).is_ok());
        assert_eq!(collection.document(id(24)), Err(PathError::TooLong));
    }

    proptest! {
        #[test]
        fn a_path_reads_back_as_itself(raw in "[a-c./]{1,20}") {
            if let Ok(place) = Place::parse(&raw) {
                let text = match &place {
                    Place::Collection(path) => path.to_string(),
                    Place::Document(path) => path.to_string(),
                };
                prop_assert_eq!(&text, &raw);
                prop_assert_eq!(matches!(place, Place::Document(_)), raw.split('/').count() % 2 == 0);
            }
        }
    }
}
